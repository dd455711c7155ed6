"""The table of a run's replicas: a query, and its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct


class TableQuery(Struct, frozen=True):
    """Which replicas a table lists, and in which order."""

    #: `replica`, `run`, `state`, `exit_code`, `time`, or a name of a parameter or a metric. Names
    #: that mean another column are written `param.NAME` and `metrics.NAME`.
    sort: str = "replica"
    #: Replicas without a value are last in both orders.
    descending: bool = False
    #: Only replicas in these states, see `describe.replicas.STATES`; None = all.
    states: Collection[str] | None = None
    #: Only replicas with these numbers; None = all.
    replicas: Collection[int] | None = None
    #: The maximum of rows; None = all.
    limit: int | None = None
    #: Also list replicas that have not started.
    include_not_started: bool = False
    #: The maximum of rows of a page, where the table can be read in pages: see `ReplicaTable.next`.
    page: int | None = None
    #: Only what follows this replica in the order of the table.
    after: int | None = None
    #: Whether to count: else `matching` is the number of the rows, `states` is empty and
    #: `not_started` is 0.
    counts: bool = True


class ReplicaRow(Struct, frozen=True):
    """One replica of a run."""

    #: The run's name.
    run: str
    group: str
    replica: int
    #: One of `describe.replicas.STATES`.
    state: str
    #: Secrets are hidden.
    parameters: Mapping[str, str] = {}
    #: What the program wrote to `metrics.json`, flat: keys of nested objects are joined by dots.
    #: Of several nodes, that of the lowest-ranked one that wrote it. Secrets are hidden.
    metrics: Mapping[str, Any] = {}
    #: Of the first node that failed; 0 if all succeeded; None if there is none.
    exit_code: int | None = None
    #: Epoch seconds: when its first node started, in its last attempt.
    started_at: float | None = None
    #: Epoch seconds: when its last node ended.
    finished_at: float | None = None

    def seconds(self, now: float) -> float | None:
        """How long it has run; None before it starts."""
        if self.started_at is None:
            return None
        return max((self.finished_at or now) - self.started_at, 0.0)


class ReplicaTable(Struct, frozen=True):
    """The replicas of one or several runs."""

    rows: tuple[ReplicaRow, ...]
    #: Rows that the query would give without its limit. With `after`, those before it count, too.
    matching: int
    #: State -> number of replicas, whatever the query chooses.
    states: Mapping[str, int]
    #: Replicas that have not started; they are in no state.
    not_started: int
    #: The `after` of the next page; None if there is none. Only the replicas of one array that have
    #: started, in the order of their numbers, are read in pages.
    next: int | None = None
