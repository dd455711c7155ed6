"""Errors of PostgreSQL, in words."""

from __future__ import annotations

import psycopg
from psycopg import errors

from muster.errors import StoreBusy, StoreError, StoreFull

#: A transaction that may succeed when it is tried again.
REPEATABLE = (errors.SerializationFailure, errors.DeadlockDetected)

_AGAIN = "{place} is busy: {text}; try again"
_MISSING = "{place} does not exist: create it, with `createdb` for instance"
_NO_LOGIN = "{place} refuses the user or the password: {text}; check the URL"
_NO_CONNECTION_LEFT = (
    "{place} has no connection left: raise its max_connections, or run fewer servers"
)
_CHANGED = "{place} was changed by another program: {text}; restore a backup"

#: What to say of an error by its class, which is that of its SQLSTATE.
_BY_CLASS: tuple[tuple[type[psycopg.Error], type[StoreError], str], ...] = (
    (errors.DiskFull, StoreFull, "the disk of {place} is full; free some space there"),
    (errors.TooManyConnections, StoreBusy, _NO_CONNECTION_LEFT),
    (errors.InsufficientPrivilege, StoreError, "{place} refuses the user: {text}"),
    (
        errors.ReadOnlySqlTransaction,
        StoreError,
        "{place} is read-only, perhaps a standby: use the URL of the primary server",
    ),
    (errors.LockNotAvailable, StoreBusy, _AGAIN),
    (errors.QueryCanceled, StoreBusy, _AGAIN),
    (errors.DeadlockDetected, StoreBusy, _AGAIN),
    (errors.SerializationFailure, StoreBusy, _AGAIN),
    (errors.UndefinedTable, StoreError, _CHANGED),
    (errors.UndefinedColumn, StoreError, _CHANGED),
    (errors.DataCorrupted, StoreError, "{place} is corrupt: {text}; restore a backup"),
    (errors.IndexCorrupted, StoreError, "{place} is corrupt: {text}; rebuild its indexes"),
)
#: The same for an answer to a connection, which has no class, by what it contains.
_BY_TEXT: tuple[tuple[str, type[StoreError], str], ...] = (
    ("password authentication failed", StoreError, _NO_LOGIN),
    ("no password supplied", StoreError, _NO_LOGIN),
    ("no pg_hba.conf entry", StoreError, _NO_LOGIN),
    ("too many clients", StoreBusy, _NO_CONNECTION_LEFT),
    ("connection slots", StoreBusy, _NO_CONNECTION_LEFT),
)
#: Classes of SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html
_CONNECTION, _RESOURCES, _INTERVENTION, _SYSTEM = "08", "53", "57", "58"


def is_connection_error(error: BaseException | None) -> bool:
    """Whether the database could not be reached, or has closed the connection: it may be back
    soon."""
    if isinstance(error, errors.IdleInTransactionSessionTimeout):
        return True
    if isinstance(error, errors.QueryCanceled) or not isinstance(
        error, psycopg.OperationalError | psycopg.InterfaceError
    ):
        return False
    state = error.sqlstate
    return _refusal(error) is None if state is None else state[:2] in (_CONNECTION, _INTERVENTION)


def explain(place: str, error: psycopg.Error) -> StoreError | None:
    """What is wrong with the database, and what to do; None if the error is a defect of Muster."""
    for kind, explained, text in _BY_CLASS:
        if isinstance(error, kind):
            return explained(text.format(place=place, text=_text(error)))
    if refusal := _refusal(error):
        explained, text = refusal
        return explained(text.format(place=place, text=_text(error)))
    if is_connection_error(error):
        hint = "check that the server runs and that the URL is right"
        return StoreBusy(f"cannot reach {place}: {_text(error)}; {hint}")
    if (error.sqlstate or "")[:2] in (_RESOURCES, _SYSTEM):
        return StoreBusy(f"{place} cannot answer: {_text(error)}")
    return None


def _refusal(error: psycopg.Error) -> tuple[type[StoreError], str] | None:
    """The answer of a server to a connection that no further attempt changes."""
    text = str(error)
    if error.sqlstate is not None or not isinstance(error, psycopg.OperationalError):
        return None
    if "FATAL:" in text and "does not exist" in text:
        return StoreError, _NO_LOGIN if " role " in text else _MISSING
    return next(((kind, advice) for part, kind, advice in _BY_TEXT if part in text), None)


def _text(error: psycopg.Error) -> str:
    """What the server says, in one line: further ones may quote values."""
    if error.diag.message_primary:
        return error.diag.message_primary
    lines = str(error).strip().splitlines() or [type(error).__name__]
    failed = [line for line in lines if "failed: " in line]  # of each address
    return failed[-1].rpartition("failed: ")[2] if failed else lines[0]
