"""The leases of runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from msgspec import ValidationError, convert

from muster.identity import Owner
from muster.store.names import no_run_error
from muster.store.records import Lease, LeaseHeld, LeaseLost
from muster.store.sql.database import LIVE, Connection, Database, Row, lock_runs
from muster.store.times import micros, optional_micros, seconds

_NAMES = Lease.__struct_fields__
_COLUMNS = ", ".join(f"leases.{name}" for name in _NAMES)
_WRITE = (
    f"INSERT INTO leases ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))}) "
    "ON CONFLICT (run_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _NAMES[1:])
)
_OF_LIVE_RUN = f"run_id IN (SELECT id FROM runs WHERE {LIVE})"


class SqlLeases:
    """See `store.base.Leases`."""

    def __init__(self, db: Database) -> None:
        self._db = db

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

    def take_expired(self, owner: Owner, now: float, expires_at: float) -> list[Lease]:
        """See `Leases.take_expired`."""
        of_live_run = f"leases.run_id = runs.id AND {LIVE}"
        expired = (
            f"SELECT {_COLUMNS} FROM leases, runs WHERE leases.expires_at <= ? AND {of_live_run} "
            "ORDER BY run_id"
        )

        def step(connection: Connection) -> list[Lease]:
            # what others have locked they take or use just now
            sql = f"{expired}{connection.dialect.lock_unlocked}"
            taken = [
                Lease(old.run_id, owner.id, owner.host, owner.boot, old.token + 1, expires_at)
                for old in _leases(connection.execute(sql, (micros(now),)).fetchall())
            ]
            for lease in taken:
                write_lease(connection, lease)
            return taken

        return self._db.write(step, durable=True)  # as for `take`

    def renew(self, owner: Owner, expires_at: float) -> list[Lease]:
        """See `Leases.renew`."""
        extend = "UPDATE leases SET expires_at = ? WHERE owner = ? AND expires_at IS NOT NULL"
        held = f"SELECT {_COLUMNS} FROM leases WHERE owner = ?"

        def step(connection: Connection) -> list[Lease]:
            if lock := connection.dialect.lock:
                connection.execute(f"{held} ORDER BY run_id{lock}", (owner.id,))
            connection.execute(extend, (micros(expires_at), owner.id))
            return _leases(connection.execute(held, (owner.id,)).fetchall())

        return self._db.write(step)

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

    def expiring(self, before: float) -> list[Lease]:
        """See `Leases.expiring`."""
        expiring = f"SELECT {_COLUMNS} FROM leases WHERE expires_at < ? AND {_OF_LIVE_RUN}"
        sql = f"{expiring} ORDER BY expires_at"
        return _leases(self._db.read(sql, (micros(before),)))


def _is_free(lease: Lease, owner: Owner, now: float, *, alone: bool) -> bool:
    """Whether an owner may take a lease."""
    if lease.owner in ("", owner.id):
        return True
    if lease.expires_at is not None:
        return lease.expires_at <= now
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
    with suppress(ValidationError):
        return convert({**dict(row), "expires_at": seconds(row["expires_at"])}, Lease)
    return None


def _leases(rows: Iterable[Row]) -> list[Lease]:
    return [lease for row in rows if (lease := _lease(row)) is not None]
