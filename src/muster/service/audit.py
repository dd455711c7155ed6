"""Record in the audit log what callers do, before it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import Forbidden, MusterError

if TYPE_CHECKING:
    from muster.caller import Caller
    from muster.store.account_records import AuditEntry
    from muster.store.base import Audit

T = TypeVar("T")

#: Characters of an entry's texts: callers choose some of them.
_LONGEST = 1000


class Origin(Struct, frozen=True):
    """Where a request comes from."""

    #: "" for the machine itself.
    address: str = ""
    request_id: str = ""


def entry_of(
    caller: Caller, origin: Origin, now: float, action: str, object: str = "", *, project: str = ""
) -> AuditEntry:
    """The entry for what a caller is about to do. action: `runs.start`; object: the name or id of
    what it is done to."""
    from muster.store.account_records import AuditEntry

    return AuditEntry(
        time=now,
        user=_cleaned(caller.user),
        action=action,
        object=_cleaned(object),
        project=_cleaned(project),
        token_id=caller.token_id,
        address=_cleaned(origin.address),
        request_id=_cleaned(origin.request_id),
    )


def refused(entry: AuditEntry, error: MusterError) -> AuditEntry:
    """The entry for what is refused, with the reason."""
    return replace(entry, allowed=False, why=_cleaned(str(error)))


def audited(log: Audit, entry: AuditEntry, check: Callable[[], object], do: Callable[[], T]) -> T:
    """Do what an entry says, if `check` does not raise Forbidden. The entry is recorded in any
    case, and before it is done: if that fails, nothing is done. What fails has a second entry, with
    the reason."""
    try:
        check()
    except Forbidden as error:
        log.append(refused(entry, error))
        raise
    log.append(entry)
    try:
        return do()
    except Forbidden as error:  # what is needed depends on what it is done to
        log.append(refused(entry, error))
        raise
    except Exception as error:
        why = str(error) if isinstance(error, MusterError) else "internal error"
        log.append(replace(entry, why=_cleaned(why)))
        raise


def _cleaned(text: str) -> str:
    """A text of a caller as each database can store it: valid Unicode without NUL, not too long."""
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
