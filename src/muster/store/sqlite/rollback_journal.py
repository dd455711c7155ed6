"""The journal of a database on a file system that other hosts may share.

The index of a write-ahead log is memory that all processes share, which hosts do not
(https://sqlite.org/wal.html, https://sqlite.org/useovernet.html). A rollback journal needs locks
only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.errors import StoreBusy
from muster.file_locks import check_locks
from muster.file_system import FileSystem

#: Milliseconds for other processes to close a database that has a write-ahead log.
_SWITCH_TIMEOUT = 5_000


@contextmanager
def without_shared_memory(
    connection: sqlite3.Connection, path: Path, where: FileSystem
) -> Iterator[None]:
    """Use a new connection in this context, then leave the write-ahead log if there is one.

    The connection is alone meanwhile if the database has such a log, whose index is then in its own
    memory. Raises StoreBusy if another process has it open, NoLocks if nothing may be written to
    the file system.
    """
    file = path.resolve()
    check_locks(file.parent)
    # set before the first access, which would map the index
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
    log = file.with_name(f"{file.name}-wal")
    if log.exists():
        connection.execute(f"PRAGMA busy_timeout={_SWITCH_TIMEOUT}")
    try:
        yield
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "delete":
            connection.execute("PRAGMA journal_mode=DELETE")
            # a process that was killed has left it, or one that closed the database meanwhile;
            # SQLite ignores the content of an index that nobody has open
            with suppress(OSError):
                file.with_name(f"{file.name}-shm").unlink()
    except sqlite3.OperationalError as error:
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        if not busy or not log.exists():
            raise
        raise StoreBusy(
            f"{path} has a write-ahead log, which is unsafe on {where}, and another process has "
            "it open, perhaps on another host: wait until runs that an earlier version of Muster "
            f"started have ended (`fuser {path}` names processes of this host), then try again"
        ) from error
    connection.execute("PRAGMA locking_mode=NORMAL")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # releases the lock
    connection.execute(f"PRAGMA busy_timeout={timeout}")
    connection.execute("PRAGMA synchronous=FULL")
