"""The database file: opening it, transactions, and saying clearly what is wrong with it.

SQLite in WAL mode: a power cut leaves it whole. What was accepted (`durable`) survives the cut
too; the last moments of a run's bookkeeping may not, and are told again by whoever takes over.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from muster.errors import StoreError
from muster.store.schema import MIGRATIONS

_PATIENCE = 30.0  # seconds a writer waits for another


class Database:
    """A connection, safe to keep over a fork: the child opens its own."""

    def __init__(self, path: Path, migrations: Sequence[str]) -> None:
        self.path = path
        self._migrations = migrations
        self._pid = 0
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def open(cls, path: Path, *, migrations: Sequence[str] = MIGRATIONS) -> Database:
        """Open the file, making or updating it as needed. Raises StoreError."""
        database = cls(path, migrations)
        with database._explained():
            database._connect()
        return database

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """All or nothing. durable: on the disk, whatever happens to the power, on return."""
        with self._explained():
            connection = self._connect()
            if durable:
                connection.execute("PRAGMA synchronous=FULL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    # a full disk has rolled it back already
                    with suppress(sqlite3.OperationalError):
                        connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            finally:
                if durable:
                    connection.execute("PRAGMA synchronous=NORMAL")

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """The rows of a query."""
        with self._explained():
            return self._connect().execute(sql, parameters).fetchall()

    def close(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
        self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None or self._pid != os.getpid():
            # a connection must not be used over a fork, not even closed
            self._inherited = self._connection
            self._connection = self._fresh()
            self._pid = os.getpid()
        return self._connection

    def _fresh(self) -> sqlite3.Connection:
        if self.path.is_dir():
            raise StoreError(f"{self.path} is a folder, not a database; move it away")
        existed = self.path.exists()
        connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        connection.row_factory = sqlite3.Row
        if not existed:
            self.path.chmod(0o600)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(self._migrations):
            raise StoreError(
                f"{self.path} was written by a newer Muster (schema {version}, this one knows "
                f"{len(self._migrations)}); upgrade Muster, or set MUSTER_HOME to another folder"
            )
        if version < len(self._migrations):
            connection.execute("PRAGMA journal_mode=WAL")
            self._migrate(connection)
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN EXCLUSIVE")
        # somebody else may have done it while we waited
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for number, script in enumerate(self._migrations[version:], version + 1):
            for statement in script.split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version={number}")
        connection.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise  # a defect of ours, not of the file
        except sqlite3.DatabaseError as error:
            raise StoreError(self._explain(error)) from error

    def _explain(self, error: sqlite3.DatabaseError) -> str:
        text = str(error)
        if "malformed" in text or "not a database" in text:
            aside = self.path.with_suffix(".broken")
            return (
                f"the database {self.path} is corrupt ({text}); nothing was changed. Recover what "
                f"can be read with `sqlite3 {self.path} .recover | sqlite3 new.db` and put new.db "
                f"in its place, or start afresh with `mv {self.path} {aside}`"
            )
        if "full" in text:
            return f"the disk is full: cannot write {self.path}; free some space and try again"
        if "readonly" in text or "unable to open" in text:
            return f"cannot write {self.path}: {text}; check the permissions of its folder"
        return f"the database {self.path}: {text}"
