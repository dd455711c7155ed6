"""Open the database file: create, check and migrate it, also on a read-only or full disk."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from muster.errors import StoreError
from muster.file_locks import NoLocks, flock
from muster.file_system import file_system_of
from muster.store.sql.database import Dialect
from muster.store.sqlite.dialect import SQLITE
from muster.store.sqlite.errors import cannot_write, corrupt
from muster.store.sqlite.schema import statements

_BUSY_TIMEOUT = 30.0  # seconds that a writer waits for another one


class Connection(sqlite3.Connection):
    """See `sql.database.Connection`."""

    dialect: Dialect = SQLITE
    #: Whether the database has a write-ahead log, so that what reads does not wait for who writes.
    has_wal = False


def locate(path: Path, *, create: bool) -> tuple[int, int]:
    """Device and inode of the file, which is created if missing and `create` is set.

    Raises StoreError: missing, not accessible, not a regular file.
    """
    try:
        if create and not os.path.lexists(path):
            _touch(path)
        found = path.stat()
    except OSError as error:
        raise StoreError(
            f"cannot open the database {path}: {error.strerror}; check the folder, "
            "or set MUSTER_HOME to another one"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder, not a database" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise StoreError(f"{path} is {kind}; move it away")
    return found.st_dev, found.st_ino


def _touch(path: Path) -> None:
    """Create the empty file, readable only for its owner from the start."""
    with suppress(FileExistsError):  # another process created it first
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def connect(path: Path, migrations: Sequence[str]) -> Connection:
    """A connection to the migrated database. Raises sqlite3.Error, StoreError; NoLocks if nothing
    may be written to its file system.

    Several threads may use it if the caller serializes them.
    """
    # the folder's: that of a file in an overlay may not be among the mounts
    where = file_system_of(os.path.dirname(os.path.realpath(path)))
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    connection.row_factory = sqlite3.Row
    try:
        if where.shared:
            from muster.store.sqlite.rollback_journal import without_shared_memory  # few need it

            with without_shared_memory(connection, path, where):
                _check_version(connection, path, migrations)
        else:
            _check_version(connection, path, migrations)
            _use_wal(connection, path)
            connection.has_wal = True
        if _version(connection) < len(migrations):
            _migrate(connection, path, migrations)
        connection.execute("PRAGMA foreign_keys=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(
    path: Path, migrations: Sequence[str], error: sqlite3.OperationalError | NoLocks
) -> sqlite3.Connection:
    """A connection to a file on a read-only or full disk, where SQLite cannot create the index of
    the WAL, or on one without locks. It shows the present content only.

    error: what `connect` raised; raised again if it has another reason, or if the database has to
    be migrated before it can be read. Raises StoreError.
    """
    if isinstance(error, sqlite3.Error) and not cannot_write(error):
        raise error
    journals = [file for file in (wal_of(path), _journal_of(path)) if _has_content(file)]
    if journals:
        connection = _copy(path, journals)
    else:  # all data is in the file itself
        uri = f"{path.absolute().as_uri()}?immutable=1"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    try:
        _check_version(connection, path, migrations)
        outdated = _version(connection) < len(migrations)
    except BaseException:
        connection.close()
        raise
    if outdated:
        connection.close()
        raise error
    return connection


def wal_of(path: Path) -> Path:
    """The write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def _journal_of(path: Path) -> Path:
    """The rollback journal of a database."""
    return path.with_name(f"{path.name}-journal")


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:  # missing, or deleted by the end of a transaction
        return False


def _copy(path: Path, journals: Sequence[Path]) -> sqlite3.Connection:
    """A copy of the database in memory, with its journals: after a crash, a WAL may hold all data,
    and a rollback journal what an unfinished transaction has overwritten."""
    import shutil
    from tempfile import TemporaryDirectory

    connection = sqlite3.connect(":memory:", check_same_thread=False)
    with TemporaryDirectory() as folder:
        copied = Path(shutil.copy(path, folder))
        for journal in journals:
            with suppress(FileNotFoundError):  # its transaction has ended meanwhile
                shutil.copy(journal, folder)
        copied.chmod(0o600)
        with closing(sqlite3.connect(copied)) as source:
            source.backup(connection)
    return connection


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        _switch_to_wal(connection, path)
    connection.execute("PRAGMA synchronous=NORMAL")


def _switch_to_wal(connection: sqlite3.Connection, path: Path) -> None:
    # of two processes that switch at once, SQLite refuses one without waiting for the other; the
    # lock is on the folder because closing a second descriptor of the file would drop SQLite's own
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        flock(folder, fcntl.LOCK_EX, path.parent)
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        os.close(folder)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _check_version(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    # one statement, because another process may migrate the database between two
    sql = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    version, tables = connection.execute(sql).fetchone()
    known = len(migrations)
    if version < 0:
        raise StoreError(corrupt(path, f"schema version {version}"))
    if version > 0 and not tables:
        raise StoreError(corrupt(path, "it has no tables", readable=False))
    if version > known:
        raise StoreError(
            f"{path} was written by a newer Muster (schema {version}, this one knows "
            f"{known}); upgrade Muster, or set MUSTER_HOME to another folder"
        )
    if version == 0 and tables:
        raise StoreError(
            f"{path} is the database of another program; move it away, or set "
            "MUSTER_HOME to another folder"
        )


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    """Apply the missing migrations in one transaction. Foreign keys are still off: a migration may
    rebuild a table that others refer to."""
    connection.execute("BEGIN IMMEDIATE")
    # another process may have migrated it while this one waited
    for number, script in list(enumerate(migrations, 1))[_version(connection) :]:
        for statement in statements(script):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={number}")
    if connection.execute("PRAGMA foreign_key_check").fetchone():
        raise StoreError(corrupt(path, "rows refer to missing rows"))
    connection.execute("COMMIT")
