"""What the SQL of the store runs on: a database with transactions, and where databases differ.

The statements in this package are written once, in SQL that SQLite and PostgreSQL share, with `?`
for values. What differs is in a `Dialect`.

A transaction of SQLite excludes all other writers. In PostgreSQL, these rules replace that:

* A transaction that changes anything of a run first locks its row in `runs` (`lock_runs`, or an
  UPDATE of the row), then its lease; one that locks several locks them in the order of their ids.
* One that starts a run of a Job locks the Job against changes, one that changes the Job locks it
  against new runs.
* A number is given by an UPDATE of the row of its name, which others wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")

#: Condition for runs that have not ended. SQLite uses the index `runs_alive` only for the same
#: condition, written in the same way.
LIVE = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'DELETED')"


class Row(Protocol):
    """A row of a query: its values in order, also by number and by name."""

    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def keys(self) -> Iterable[str]: ...


class Cursor(Protocol):
    """The result of a statement. An error may be raised only when it is fetched, or when the
    transaction ends."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """A connection within a transaction."""

    @property
    def dialect(self) -> Dialect: ...
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Cursor: ...
    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


class Database(Protocol):
    """A database, which any thread may use."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def place(self) -> str:
        """Where it is, for messages: a path, or a host and a name."""
        ...

    @property
    def lease_term(self) -> float | None:
        """See `Leases.term`."""
        ...

    def now(self) -> float:
        """See `Leases.now`."""
        ...

    @property
    def replaced(self) -> bool:
        """See `Store.replaced`."""
        ...

    @property
    def reads_at_once(self) -> bool:
        """See `Store.reads_at_once`."""
        ...

    def transaction(
        self, *, durable: bool = False, done: Callable[[Connection], bool] | None = None
    ) -> AbstractContextManager[Connection]:
        """A transaction. durable: the data is on the disk when this returns. done: see `write`.
        Raises StoreError."""
        ...

    def write(
        self,
        step: Callable[[Connection], T],
        *,
        durable: bool = False,
        done: Callable[[Connection], bool] | None = None,
    ) -> T:
        """Run `step` in a transaction; again, if it failed for a reason that may be over.

        done: tells whether the transaction was recorded, after the connection to a server was lost
        while that was done; None if it does no harm to record it twice. Raises StoreError.
        """
        ...

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows of a query. Raises StoreError."""
        ...

    def close(self) -> None:
        """See `Store.close`."""
        ...


class Dialect(Struct, frozen=True, eq=False):
    """Where the SQL of databases differs: parts of statements, `{0}` for a column."""

    #: Seconds from a column of microseconds.
    seconds: str
    #: Microseconds from a value in seconds.
    micros: str
    #: Whether a column of microseconds has such a value.
    is_micros: str
    #: A number in a column of JSON, by its `{key}`; NULL if it has none.
    json_number: str
    #: Whether a column of JSON has a value for a key, and whether it has one value for it.
    has_key: str
    has_value: str
    #: Whether a column, of type `{type}`, has one of the values of an array in JSON.
    is_any: str
    #: The distinct values of a column in a group, joined by commas.
    join_distinct: str
    #: A column by which no index is to be used.
    unindexed: str
    #: The table of runs, read by the index of projects.
    runs_by_project: str
    #: What a query ends with to lock the rows that it finds: until the transaction ends, no other
    #: one changes them; but others may refer to them.
    lock: str = ""
    #: As `lock`, so that no other one may refer to the row either, and for a row to refer to.
    lock_alone: str = ""
    lock_to_refer: str = ""
    #: Waits until no other transaction has locked this text, then locks it.
    lock_text: str = ""


def lock_runs(connection: Connection, run_ids: Iterable[str]) -> None:
    """Within a transaction: let no other one change these runs until this one ends."""
    if lock := connection.dialect.lock:
        for run_id in sorted(run_ids):
            connection.execute(f"SELECT 1 FROM runs WHERE id = ?{lock}", (run_id,))
