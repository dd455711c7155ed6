"""The tables of the store in PostgreSQL: made and migrated by Alembic, when a version is opened
for the first time."""

from __future__ import annotations

from typing import Any

import psycopg

from muster.errors import StoreError

#: The newest revision in `migrations/versions`, known without reading them.
HEAD = "0008"
#: The oldest PostgreSQL that is supported.
_OLDEST = 13
#: Held by the process that migrates, so that others wait. Any number that no other program uses.
_LOCK = 0x6D7573746572  # "muster"


def prepare(raw: psycopg.Connection[Any], place: str) -> None:
    """Create or migrate the tables if needed. Raises StoreError for a database of a newer Muster or
    of another program, and for an old server."""
    if raw.info.server_version < _OLDEST * 10_000:
        version = raw.info.server_version // 10_000
        raise StoreError(f"{place} is of PostgreSQL {version}; Muster needs {_OLDEST} or newer")
    if _revision(raw) == HEAD:
        return
    raw.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        migrate(raw, place)
    finally:
        raw.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _revision(raw: psycopg.Connection[Any]) -> str | None:
    """The revision of the tables; None if there are none."""
    row = raw.execute("SELECT to_regclass('alembic_version')").fetchone()
    if row is None or row[0] is None:
        return None
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


def migrate(raw: psycopg.Connection[Any], place: str, *, to: str = HEAD) -> None:
    """Migrate the tables to a revision, in one transaction. Raises StoreError."""
    from muster.store.postgres.migration import known_revisions, upgrade

    found = _revision(raw)  # another process may have migrated them
    if found == to:
        return
    if found is None and _tables(raw):
        raise StoreError(f"{place} is used by another program: create one for Muster alone")
    if found is not None and found not in known_revisions():
        raise StoreError(
            f"{place} was written by a newer Muster (schema {found}, this one knows {HEAD}); "
            "upgrade Muster"
        )
    upgrade(raw, to)


def _tables(raw: psycopg.Connection[Any]) -> bool:
    sql = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename IN (%s, %s)"
    return raw.execute(sql, ("jobs", "runs")).fetchone() is not None
