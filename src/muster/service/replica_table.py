"""The table of the replicas of runs: parameters, states, times, and what programs left as metrics.

Where the order is that of the replicas, only the rows of the page are read.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from muster.api.replica_table import ReplicaRow, ReplicaTable, TableQuery
from muster.describe.replicas import (
    STATES,
    replica_state,
    state_problems,
    states_of_replicas,
)
from muster.errors import InvalidInput, NotFound, Problem
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.ranks import shortened_ranks, to_ranges
from muster.lifecycle.states import NodeState
from muster.secrets import HIDDEN, hidden, hide, names_secret
from muster.spec.values import RETRY_TAG
from muster.store.records import NodeFilter, NodeRecord, RunRecord
from muster.store.run_columns import StoredPlan

if TYPE_CHECKING:
    from muster.plan.model import Parameters
    from muster.service.context import Context
    from muster.store.base import Store

#: Columns of every table, and other names for them.
_COLUMNS = ("replica", "run", "state", "exit_code", "time")
_ALIASES = {"exit": "exit_code", "seconds": "time"}
#: Decodes what nodes left, with numbers as `json.loads`.
_DECODE = json.JSONDecoder().raw_decode
#: Matches a value that cannot contain a secret, whatever its name.
_PLAIN = re.compile(r"[\w.+-]*").fullmatch
_NUMBERS = frozenset((float, int, bool, type(None)))
_STATES_OF = {"RUNNING": (NodeState.RUNNING, NodeState.READY)}


class _Table(Struct, frozen=True):
    """A group whose replicas are rows."""

    run: RunRecord
    group: GroupPolicy
    #: Of its replicas; None if they have none.
    parameters: Parameters | None
    #: Names of the parameters, if their values cannot be decrypted: secrets are among them.
    sealed: Sequence[str] = ()
    #: Names of the parameters that are secret.
    secret: Collection[str] = ()

    @property
    def names(self) -> Sequence[str]:
        """The names of the parameters."""
        return self.sealed if self.parameters is None else self.parameters.names

    def shown(self, number: int) -> dict[str, str]:
        """The parameters of a replica, secrets hidden."""
        if self.parameters is None:
            return dict.fromkeys(self.sealed, HIDDEN)
        values = self.parameters.values(number)
        return {
            name: value if name not in self.secret and _PLAIN(value) else hide(name, value)
            for name, value in values.items()
        }


class _Replica(Struct, frozen=True, gc=False):
    """A replica, whose row is made when it is needed: there may be 100,000."""

    table: _Table
    number: int
    state: str
    #: Those that have a record.
    nodes: Sequence[NodeRecord]

    @property
    def run(self) -> RunRecord:
        return self.table.run

    @property
    def has_started(self) -> bool:
        return any(node.has_started for node in self.nodes)

    def parameter(self, name: str) -> str | None:
        """The value of a parameter; None if there is no such parameter."""
        parameters = self.table.parameters
        if parameters is None or name not in parameters.names:
            return None
        return parameters.values(self.number)[name]

    @property
    def metrics(self) -> dict[str, Any]:
        for node in self.nodes:
            if node.metrics:
                return flat(node.metrics)
        return {}

    @property
    def exit_code(self) -> int | None:
        if self.state == "SUCCEEDED":
            return 0
        failed = [node for node in self.nodes if node.state == NodeState.FAILED]
        if not failed:
            return None
        return min(failed, key=lambda node: node.finished_at or math.inf).exit_code

    @property
    def started_at(self) -> float | None:
        return min((node.started_at for node in self.nodes if node.started_at), default=None)

    @property
    def finished_at(self) -> float | None:
        ends = [node.finished_at for node in self.nodes]
        return None if None in ends else max(filter(None, ends), default=None)

    @property
    def seconds(self) -> float | None:
        """None if it still runs: then its time changes while one reads."""
        start, end = self.started_at, self.finished_at
        return None if start is None or end is None else end - start

    def row(self) -> ReplicaRow:
        """Secrets are hidden here, for all who show it."""
        metrics = self.metrics
        if not {*map(type, metrics.values())} <= _NUMBERS:
            metrics = hidden(metrics)
        if len(self.nodes) == 1:  # most of many
            (node,) = self.nodes
            started_at, finished_at = node.started_at or None, node.finished_at
        else:
            started_at, finished_at = self.started_at, self.finished_at
        return ReplicaRow(
            run=self.run.name,
            group=self.table.group.name,
            replica=self.number,
            state=self.state,
            parameters=self.table.shown(self.number),
            metrics=metrics,
            exit_code=self.exit_code,
            started_at=started_at,
            finished_at=finished_at,
        )


def replica_table(context: Context, runs: Sequence[RunRecord], query: TableQuery) -> ReplicaTable:
    """The replicas of these runs, those of their arrays if they have any. A row of a retry takes
    the place of the one it retries. Raises InvalidInput for a column or a state that does not
    exist."""
    if problems := list(_problems(query)):
        raise InvalidInput(*problems)
    store = context.store
    tables = [table for run in runs for table in _tables(context, run)]
    if query.replicas is not None and tables:
        _check_numbers(tables, query.replicas)
    if len(tables) == 1 and (page := _page(store, tables[0], query)) is not None:
        return page
    if query.after is not None:
        text = "needs the started replicas of one array, in the order of their numbers"
        raise InvalidInput(Problem("after", text, "leave it out, to get all rows"))
    found = [each for table in tables for each in _replicas(store, table)]
    if len(runs) > 1:
        found = _without_retried(store, runs, tables, found)
    started = [each for each in found if each.has_started]
    listed = found if query.include_not_started else started
    if query.states is not None:
        listed = [each for each in listed if each.state in query.states]
    if query.replicas is not None:
        chosen = frozenset(query.replicas)
        listed = [each for each in listed if each.number in chosen]
    listed = _ordered(listed, query)
    return ReplicaTable(
        rows=tuple(each.row() for each in listed[: query.limit]),
        matching=len(listed),
        states=Counter(each.state for each in started),
        not_started=len(found) - len(started),
    )


def _problems(query: TableQuery) -> Iterator[Problem]:
    yield from state_problems(query.states or ())
    if query.limit is not None and query.limit < 0:
        yield Problem("limit", f"must be at least 0, not {query.limit}")


def _check_numbers(tables: Sequence[_Table], numbers: Collection[int]) -> None:
    """Raise InvalidInput for replicas that no group has."""
    most = max(tables, key=lambda table: table.group.replicas)
    count, group, run = most.group.replicas, most.group.name, most.run.name
    if absent := [number for number in numbers if not 0 <= number < count]:
        text = f"{run} has no replica {shortened_ranks(absent)}"
        raise InvalidInput(Problem("replica", text, f"replicas of {group} are 0 to {count - 1}"))


def _tables(context: Context, run: RunRecord) -> Iterator[_Table]:
    """The arrays of a run, or all its groups if it has none."""
    plan = StoredPlan(run)
    parameters: Parameters | None = None
    sealed: Sequence[str] = ()
    if (stored := plan.parameters()) is not None:
        from muster.storage.sealing import unseal

        try:
            parameters = plan.parameters(lambda data: unseal(context.home, data, run.name))
        except InvalidInput:  # without the key, the other columns can be shown
            sealed = stored.names
    of = "" if stored is None else stored.group
    secret = frozenset(filter(names_secret, () if stored is None else stored.names))
    for group in plan.arrays() or plan.policies():
        own = group.name == of
        if own:
            yield _Table(run, group, parameters, sealed, secret)
        else:
            yield _Table(run, group, None)


def _page(store: Store, table: _Table, query: TableQuery) -> ReplicaTable | None:
    """The table if it can be made of the first rows of the store; else None."""
    group, run_id = table.group, table.run.id
    if not group.is_array or query.sort != "replica" or query.include_not_started:
        return None
    if query.states is not None and group.nodes > 1:
        return None  # the states of nodes are not those of replicas
    chosen = _node_filter(group, query)
    limit = min((n for n in (query.limit, query.page) if n is not None), default=None)
    # one more shows whether there is another page
    most = None if limit is None else (limit + 1) * group.nodes
    nodes = store.runs.nodes(run_id, replace(chosen, limit=most))
    found = list(_grouped(table, nodes))
    if query.descending:
        found.reverse()
    rows = tuple(each.row() for each in found[:limit])
    more = len(found) > len(rows) > 0
    matching = len(rows)
    states: Mapping[str, int] = {}
    if query.counts:
        states = states_of_replicas(store.runs.replica_states(run_id, group.name, group.nodes))
        if query.replicas is None:
            matching = sum(states.get(state, 0) for state in {*(query.states or states)})
        elif len(found) > len(rows) or query.after is not None:
            whole = replace(chosen, after=-1, before=None)
            matching = len({node.replica for node in store.runs.nodes(run_id, whole)})
    return ReplicaTable(
        rows=rows,
        matching=matching,
        states=states,
        not_started=group.initial - sum(states.values()) if query.counts else 0,
        next=rows[-1].replica if more and limit != query.limit else None,
    )


def _node_filter(group: GroupPolicy, query: TableQuery) -> NodeFilter:
    """The nodes of the replicas that a query chooses, without its limit."""
    states = None
    if query.states is not None:
        states = [s for state in query.states for s in _STATES_OF.get(state, (state,))]
    chosen = NodeFilter(ranks=group.ranks, states=states, started=True, last=query.descending)
    if query.replicas is not None:
        known = {number for number in query.replicas if 0 <= number < group.replicas}
        spans = to_ranges(rank for number in known for rank in group.replica_ranks(number))
        ranks = spans[0] if len(spans) == 1 else [rank for span in spans for rank in span]
        chosen = replace(chosen, ranks=ranks)
    if query.after is None:
        return chosen
    after = group.replica_ranks(query.after)
    if query.descending:
        return replace(chosen, before=after.start)
    return replace(chosen, after=after.stop - 1)


def _replicas(store: Store, table: _Table) -> Iterator[_Replica]:
    """All replicas of a group in order, but those that are scaled down."""
    group = table.group
    nodes = store.runs.nodes(table.run.id, NodeFilter(ranks=group.ranks))
    found = {each.number: each for each in _grouped(table, nodes)}
    for number in (number for part in group.numbers for number in part):
        each = found.get(number) or _Replica(table, number, "PENDING", ())
        if each.state != NodeState.SCALED_DOWN:
            yield each


def _grouped(table: _Table, nodes: Iterable[NodeRecord]) -> Iterator[_Replica]:
    """The replicas of some nodes of a group, in rank order."""
    if table.group.nodes == 1:
        names = {state: replica_state([state]) for state in NodeState}
        for node in nodes:
            yield _Replica(table, node.replica, names[NodeState(node.state)], (node,))
        return
    of_replica: dict[int, list[NodeRecord]] = {}
    for node in nodes:
        of_replica.setdefault(node.replica, []).append(node)
    for number, own in of_replica.items():
        yield _Replica(table, number, replica_state([node.state for node in own]), own)


def _without_retried(
    store: Store, runs: Sequence[RunRecord], tables: Sequence[_Table], found: list[_Replica]
) -> list[_Replica]:
    """Without the replicas that another of the runs has run again since: as a retry, or as some
    replicas (`only`) of the same array."""
    first = {run.id: _first_run(store, run) for run in runs}
    before: list[_Table] = []
    for table in sorted(tables, key=lambda table: table.run.created_at):
        if table.group.only is not None and RETRY_TAG not in table.run.tags:
            same = (each for each in reversed(before) if _is_same_array(each, table))
            if (earlier := next(same, None)) is not None:
                first[table.run.id] = first[earlier.run.id]
        before.append(table)
    latest: dict[tuple[str, str, int], _Replica] = {}
    for each in sorted(found, key=attrgetter("run.created_at")):
        key = first[each.run.id], each.table.group.name, each.number
        if each.has_started or key not in latest:
            latest[key] = each
    kept = {id(each) for each in latest.values()}
    return [each for each in found if id(each) in kept]


def _is_same_array(one: _Table, other: _Table) -> bool:
    """Whether replicas with the same number run the same, in other runs of a job, perhaps with
    other code."""
    return (
        one.run.id != other.run.id
        and one.run.job_name == other.run.job_name
        and (one.group.name, one.group.replicas) == (other.group.name, other.group.replicas)
        and not (one.sealed or other.sealed)  # then the parameters are not known
        and one.parameters == other.parameters
    )


def _first_run(store: Store, run: RunRecord) -> str:
    """The name of the run that a chain of retries started with."""
    name, seen = run.name, {run.name}
    while (earlier := run.tags.get(RETRY_TAG)) and earlier not in seen:
        name = earlier
        seen.add(name)
        with suppress(NotFound, InvalidInput):  # deleted
            run = store.runs.find(run.project, name)
    return name


def _ordered(found: list[_Replica], query: TableQuery) -> list[_Replica]:
    name = _ALIASES.get(query.sort, query.sort)
    value = _value_of(name)
    values = [(value(each), each) for each in found]
    if name not in _COLUMNS and found and all(given is None for given, _ in values):
        _check_known(name, found)
    keyed = [(_key(given), each) for given, each in values]
    present = [(key, each) for key, each in keyed if key is not None]
    present.sort(key=lambda pair: pair[0] or (), reverse=query.descending)
    return [each for _, each in present] + [each for key, each in keyed if key is None]


def _value_of(name: str) -> Callable[[_Replica], Any]:
    """How the value of a column is found."""
    columns: dict[str, Callable[[_Replica], Any]] = {
        "replica": lambda each: each.number,
        "run": lambda each: each.run.created_at,
        "state": lambda each: STATES.index(each.state),
        "exit_code": lambda each: each.exit_code,
        "time": lambda each: each.seconds,
    }
    if name in columns:
        return columns[name]
    kind, _, rest = name.partition(".")
    if kind == "param":
        return lambda each: each.parameter(rest)
    if kind == "metrics":
        return lambda each: each.metrics.get(rest, each.metrics.get(name))

    def value(each: _Replica) -> Any:
        own = each.parameter(name)
        return each.metrics.get(name) if own is None else own

    return value


def _check_known(name: str, found: Sequence[_Replica]) -> None:
    """Raise InvalidInput if no replica has the column, unless its metrics are still to come."""
    bare = {name, name.removeprefix("param.").removeprefix("metrics.")}
    metrics = dict.fromkeys(key for each in found for key in each.metrics)
    parameters = dict.fromkeys(key for each in found[:1] for key in each.table.names)
    if bare & {*parameters, *metrics}:
        return
    from muster.lifecycle.states import RunState
    from muster.spec.wording import alternatives

    if not metrics and any(not RunState(each.run.state).terminal for each in found):
        return
    columns = ["exit" if column == "exit_code" else column for column in _COLUMNS]
    known = [*parameters, *metrics, *columns]
    where = found[0].run.name
    raise InvalidInput(Problem("sort", f"{where} has no {name}", f"use {alternatives(known)}"))


def _key(value: Any) -> tuple[Any, ...] | None:
    """What values are compared by: numbers before texts; None for a missing value, which has no
    place in the order."""
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return (1, value)
        return (0, number) if math.isfinite(number) else (1, value)
    if isinstance(value, (bool, int, float)):
        return None if value != value else (0, value)  # noqa: PLR0124 (NaN)
    return None if value is None else (1, json.dumps(value))


def flat(text: str) -> dict[str, Any]:
    """The metrics of a node, flat. text: JSON; "" if there are none."""
    if not text:
        return {}
    data, _ = _DECODE(text)
    if type(data) is dict and data and dict not in map(type, data.values()):
        return data
    found: dict[str, Any] = {}
    left: list[tuple[str, Any]] = [("", data)]
    while left:
        prefix, value = left.pop()
        if isinstance(value, dict) and (value or not prefix):
            items = [(f"{prefix}.{key}" if prefix else str(key), v) for key, v in value.items()]
            left += reversed(items)
        else:
            found[prefix or "metrics"] = value
    return found
