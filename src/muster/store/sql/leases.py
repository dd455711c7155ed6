"""The leases of runs."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress

from msgspec import ValidationError, convert

from muster.identity import Owner
from muster.store.names import no_run_error
from muster.store.records import Lease, LeaseHeld, LeaseLost
from muster.store.sql.database import Connection, Database, Row, lock_runs
from muster.store.times import micros, optional_micros, seconds
from muster.type_info import compile_type

_NAMES = Lease.__struct_fields__
_COLUMNS = ", ".join(f"leases.{name}" for name in _NAMES)
_WRITE = (
    f"INSERT INTO leases ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))}) "
    "ON CONFLICT (run_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _NAMES[1:])
)


class SqlLeases:
    """See `store.protocols.leases.Leases`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def term(self) -> float | None:
        """See `Leases.term`."""
        return self._db.lease_term

    def now(self) -> float:
        """See `Leases.now`."""
        return self._db.now()

    def take(
        self,
        run_id: str,
        owner: Owner,
        now: float,
        *,
        expires_at: float | None = None,
        alone: bool = False,
        force: bool = False,
    ) -> Lease:
        """See `Leases.take`."""

        def step(connection: Connection) -> Lease:
            lock_runs(connection, [run_id])
            before = _read(connection, run_id, lock=True)
            if before is not None and not (force or _is_free(before, owner, now, alone=alone)):
                raise LeaseHeld(before)
            token = 1 if before is None else before.token + 1
            lease = Lease(run_id, owner.id, owner.host, owner.boot, token, expires_at)
            write_lease(connection, lease)
            return lease

        # durable: its token would otherwise be given twice if the machine loses power
        return self._db.write(step, durable=True)

    def renew(self, leases: Collection[Lease], expires_at: float) -> None:
        """See `Leases.renew`."""
        sql = "UPDATE leases SET expires_at = ? WHERE run_id = ? AND owner = ? AND token = ?"
        ordered = sorted(leases, key=lambda lease: lease.run_id)
        values = [(micros(expires_at), one.run_id, one.owner, one.token) for one in ordered]
        self._db.write(lambda connection: connection.executemany(sql, values))

    def lost(self, leases: Collection[Lease]) -> list[Lease]:
        """See `Leases.lost`."""
        given = self._db.dialect.is_any.format("run_id", type="TEXT")
        sql = f"SELECT run_id, owner, token FROM leases WHERE {given}"
        rows = self._db.read(sql, (json.dumps([lease.run_id for lease in leases]),))
        held = {tuple(row) for row in rows}
        return [one for one in leases if (one.run_id, one.owner, one.token) not in held]

    def release(self, lease: Lease) -> None:
        """See `Leases.release`."""
        sql = (
            "UPDATE leases SET owner = '', host = '', boot = '', expires_at = NULL "
            "WHERE run_id = ? AND owner = ? AND token = ?"
        )
        values = (lease.run_id, lease.owner, lease.token)
        self._db.write(lambda connection: connection.execute(sql, values))

    def get(self, run_id: str) -> Lease | None:
        """See `Leases.get`."""
        sql = f"SELECT {_COLUMNS} FROM leases WHERE run_id = ? AND owner != ''"
        rows = self._db.read(sql, (run_id,))
        return _lease(rows[0]) if rows else None


def _is_free(lease: Lease, owner: Owner, now: float, *, alone: bool) -> bool:
    """Whether an owner may take a lease."""
    if lease.owner in ("", owner.id):
        return True
    if lease.expires_at is not None and lease.expires_at <= now:
        return True
    return alone and owner.on_same_host(lease.host, lease.boot)


def write_lease(connection: Connection, lease: Lease) -> None:
    """Within a transaction: insert or replace a lease."""
    connection.execute(
        _WRITE,
        (
            lease.run_id,
            lease.owner,
            lease.host,
            lease.boot,
            lease.token,
            optional_micros(lease.expires_at),
        ),
    )


def check_lease(connection: Connection, lease: Lease) -> None:
    """Within a transaction that has locked the run: raises LeaseLost if another process has the
    lease."""
    held = "SELECT 1 FROM leases WHERE run_id = ? AND owner = ? AND token = ?"
    if connection.execute(held, (lease.run_id, lease.owner, lease.token)).fetchone() is None:
        now = _read(connection, lease.run_id)
        raise LeaseLost(lease, now if now is not None and now.owner else None)


def _read(connection: Connection, run_id: str, *, lock: bool = False) -> Lease | None:
    """The lease of a run, which nobody may have; None if it was never taken. lock: let no other
    transaction renew it. Raises NotFound if there is no such run."""
    sql = f"SELECT {_COLUMNS} FROM leases WHERE run_id = ?{connection.dialect.lock * lock}"
    row = connection.execute(sql, (run_id,)).fetchone()
    if row is not None:
        return _lease(row)
    if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
        raise no_run_error(run_id)
    return None


def _lease(row: Row) -> Lease | None:
    """None if the row is damaged: nobody can have such a lease, so that any process may take it."""
    compile_type(Lease)
    with suppress(ValidationError):
        return convert({**dict(row), "expires_at": seconds(row["expires_at"])}, Lease)
    return None
