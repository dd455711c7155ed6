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
from muster.store.sqlite.errors import cannot_write, corrupt
from muster.store.sqlite.schema import statements

_BUSY_TIMEOUT = 30.0  # seconds that a writer waits for another one


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


def connect(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    """A connection to the migrated database. Raises sqlite3.Error, StoreError.

    Several threads may use it if the caller serializes them.
    """
    connection = sqlite3.connect(
        path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(connection, path, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(
    path: Path, migrations: Sequence[str], error: sqlite3.OperationalError
) -> sqlite3.Connection:
    """A connection to a file on a read-only or full disk, where SQLite cannot create the index of
    the WAL. It shows the present content only.

    error: what `connect` raised; raised again if it has another reason, or if the database has to
    be migrated before it can be read. Raises StoreError.
    """
    if not cannot_write(error):
        raise error
    wal = wal_of(path)
    if wal.exists() and wal.stat().st_size:
        connection = _copy(path, wal)
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


def _copy(path: Path, wal: Path) -> sqlite3.Connection:
    """A copy of the database in memory, with the WAL, which may hold all data after a crash."""
    import shutil
    from tempfile import TemporaryDirectory

    connection = sqlite3.connect(":memory:", check_same_thread=False)
    with TemporaryDirectory() as folder:
        copied = Path(shutil.copy(path, folder))
        shutil.copy(wal, folder)
        copied.chmod(0o600)
        with closing(sqlite3.connect(copied)) as source:
            source.backup(connection)
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    connection.row_factory = sqlite3.Row
    _check_version(connection, path, migrations)
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        _switch_to_wal(connection, path)
    connection.execute("PRAGMA synchronous=NORMAL")
    if _version(connection) < len(migrations):
        _migrate(connection, path, migrations)
    connection.execute("PRAGMA foreign_keys=ON")


def _switch_to_wal(connection: sqlite3.Connection, path: Path) -> None:
    # of two processes that switch at once, SQLite refuses one without waiting for the other; the
    # lock is on the folder because closing a second descriptor of the file would drop SQLite's own
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
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
