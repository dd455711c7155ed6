"""One evaluation of `decide`: a mutable copy of a run's status that the rules work on.

The rules change the `Transition`; `finish` makes a new frozen status of it. Seen from outside,
`decide` is a pure function.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from muster.lifecycle import cause
from muster.lifecycle.blocks import BlockList
from muster.lifecycle.counts import count_nodes
from muster.lifecycle.effects import Effect, Entry, ReleaseNodes
from muster.lifecycle.failure_details import replica_and_node
from muster.lifecycle.policy import GroupPolicy, Policy
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import ALIVE, NodeState, RunState
from muster.lifecycle.status import Failure, NodeRef, NodeStatus, Reason, RunStatus

#: Failures kept per incident. More would be consequences and only make the record large.
_MAX_FAILURES = 32
#: Kinds of entries that come before the changes of nodes that follow from them.
_FIRST = ("unreachable", "reachable", "failure")


class Transition:
    """The state of one evaluation of `decide`."""

    def __init__(self, policy: Policy, status: RunStatus, now: float) -> None:
        self.policy = policy
        #: The status that was passed to `decide`.
        self.before = status
        #: The status of the run as changed so far, except for its nodes and counts.
        self.run = status
        #: Epoch seconds.
        self.now = now
        self.nodes = BlockList.of(status.nodes)
        self.counts = (status.counts or count_nodes(policy, status.nodes)).copy()
        #: The alarm of `before` is due: rules that depend on time alone have to be applied.
        self.alarm_reached = status.alarm is not None and now >= status.alarm
        self.alarm = None if self.alarm_reached else status.alarm
        #: The attempt has exceeded its time limit.
        self.attempt_expired = False
        #: Failures that no rule has handled yet.
        self.new_failures: list[Failure] = []
        self.effects: list[Effect] = []
        self.entries: list[Entry] = []
        #: See `Decision.metrics`.
        self.metrics: dict[int, str] = {}
        #: By rank of a node that has changed: `why`.
        self._reasons: dict[int, str] = {}
        self._scaled_down: list[int] = []
        self._first_order: tuple[bool, float] | None = None  # of the kept failures, if it is full

    # --- changes

    def set_node(self, rank: int, node: NodeStatus, why: str = "") -> None:
        """Set the status of a node. why: for the event log."""
        self.set_alike([rank], self.nodes[rank], node, why)

    def set_alike(
        self, ranks: Sequence[int], old: NodeStatus, new: NodeStatus, why: str = ""
    ) -> None:
        """Set the status of nodes that all have the status `old`. ranks: in ascending order."""
        self.counts.change(self.policy, ranks, old, new)
        self.nodes.fill(ranks, new)
        self._reasons.update(dict.fromkeys(ranks, why))

    def change_nodes(
        self, ranks: Iterable[int], change: Callable[[NodeStatus], NodeStatus], why: str = ""
    ) -> None:
        """Change the status of nodes."""
        for old, alike in self.alike(ranks):
            self.set_alike(alike, old, change(old), why)

    def scale_down(self, rank: int, number: int | None = None, why: str = "") -> None:
        """Set a node without processes to SCALED_DOWN. number: the incarnation it starts with if
        its replica is scaled up again."""
        kept = self.nodes[rank].retries
        self.set_node(rank, NodeStatus(NodeState.SCALED_DOWN, number or 0, retries=kept), why)
        self._scaled_down.append(rank)

    def set_state(self, state: RunState, details: str = "", **changes: Any) -> None:
        """Set the state of the run, and log it."""
        self.update(state=state, details=details, **changes)
        self.log("run", state=state, details=details)

    def update(self, **changes: Any) -> None:
        """Change fields of the run's status."""
        self.run = replace(self.run, **changes)

    def log(self, kind: str, **data: Any) -> None:
        """Add an entry to the event log."""
        self.entries.append(Entry(kind, data))

    def emit(self, effect: Effect) -> None:
        """Add an effect, carried out once the step is recorded."""
        self.effects.append(effect)

    def wake(self, at: float) -> None:
        """Have the rules applied again at that time, even if nothing happens."""
        self.alarm = at if self.alarm is None else min(self.alarm, at)

    def is_due(self, at: float) -> bool:
        """Whether a time has come. If not, the rules are applied again then."""
        if self.now < at:
            self.wake(at)
            return False
        return True

    def add_failure(self, failure: Failure) -> None:
        """Add a failure for the failure rules to handle."""
        self.new_failures.append(failure)
        self.record_failure(failure)

    def record_failure(self, failure: Failure) -> None:
        """Keep a failure with the present incident, and log it.

        When `_MAX_FAILURES` are kept already, one that sorts before all of them still replaces the
        last: thousands of consequences may be reported before their cause.
        """
        known = self.run.failures
        if len(known) < _MAX_FAILURES:
            self._first_order = None
        else:
            order = cause.order(failure)
            self._first_order = self._first_order or cause.order(cause.first(known))
            if order >= self._first_order:
                return
            known, self._first_order = known[:-1], order
        self.update(failures=(*known, failure))
        numbers = replica_and_node(self.policy.group_of(failure.rank), failure.rank)
        self.log("failure", **_failure_data(failure), **numbers)

    def unhandled_replicas(self, group: GroupPolicy) -> set[int]:
        """The replicas of a group with failures that no rule has handled yet: they may have retries
        left."""
        ranks = (failure.rank for failure in self.new_failures)
        return {group.replica_of(rank) for rank in ranks if rank in group.ranks}

    def clear_failures(self, ranks: Collection[int]) -> None:
        """Drop the unhandled failures of these nodes, and those reported in this step from the
        incident."""
        self.new_failures = [failure for failure in self.new_failures if failure.rank not in ranks]
        known = self.before.failures
        kept = tuple(f for f in self.run.failures if f.rank not in ranks or f in known)
        if kept != self.run.failures:
            self.update(failures=kept)

    # --- queries

    @property
    def stopping(self) -> bool:
        """Whether the run is ending, and every node with it."""
        return self.run.stopping is not None

    def alive_ranks(self, ranks: range) -> Iterator[int]:
        """The nodes that are alive, in order. A node that was yielded may be changed meanwhile."""
        for block in self.counts.alive_blocks(ranks):
            for rank, node in zip(block, self.nodes.at(block), strict=True):
                if node.state in ALIVE:
                    yield rank

    def pending_ranks(self, ranks: range) -> Iterator[int]:
        """The nodes that are pending, in order. A node that was yielded may be changed
        meanwhile."""
        for block in self.counts.pending_blocks(ranks):
            for rank, node in zip(block, self.nodes.at(block), strict=True):
                if node.state is NodeState.PENDING:
                    yield rank

    @property
    def all_ranks(self) -> range:
        """The ranks of all nodes."""
        return range(self.policy.size)

    def alike(self, ranks: Iterable[int]) -> list[tuple[NodeStatus, list[int]]]:
        """These nodes by status, in ascending order: of thousands that start or end together, most
        have the same."""
        ordered = sorted(ranks)
        found: defaultdict[NodeStatus, list[int]] = defaultdict(list)
        for rank, node in zip(ordered, self.nodes.at(ordered), strict=True):
            found[node].append(rank)
        return list(found.items())

    def refs(self, ranks: Collection[int]) -> tuple[NodeRef, ...]:
        """References to the present incarnations of these nodes."""
        nodes = zip(ranks, self.nodes.at(ranks), strict=True)
        return tuple([NodeRef(rank, node.incarnation) for rank, node in nodes])

    # --- result

    def finish(self) -> tuple[RunStatus, tuple[Effect, ...], tuple[Entry, ...]]:
        """The new status, the effects and the log entries. If nothing has changed, the status is
        the very object that was passed in."""
        entries = self._in_order()
        released = [r for r in self._scaled_down if self.nodes[r].state is NodeState.SCALED_DOWN]
        if released and not self.run.state.at_rest:  # a run at rest keeps nothing in the engine
            self.emit(ReleaseNodes(self.refs(released)))
        if not self._reasons and self.run is self.before and self.alarm == self.before.alarm:
            return self.before, tuple(self.effects), entries
        status = replace(
            self.run,
            nodes=self.nodes if self._reasons else self.before.nodes,
            counts=self.counts,
            alarm=None if self.run.state.at_rest else self.alarm,
        )
        return status, tuple(self.effects), entries

    def _in_order(self) -> tuple[Entry, ...]:
        """Lost contacts and failures first, then changes of nodes, then what followed for the
        run."""
        first = [entry for kind in _FIRST for entry in self.entries if entry.kind == kind]
        others = [entry for entry in self.entries if entry.kind not in _FIRST]
        return (*first, *self._node_entries(), *others)

    def _node_entries(self) -> list[Entry]:
        """One entry for each kind of change of nodes' states, with all its ranks."""
        ranks = sorted(self._reasons)
        before, after = BlockList.of(self.before.nodes).at(ranks), self.nodes.at(ranks)
        changes: defaultdict[tuple[NodeStatus, NodeStatus, str], list[int]] = defaultdict(list)
        for rank, old, node in zip(ranks, before, after, strict=True):
            changes[old, node, self._reasons[rank]].append(rank)
        alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for (old, node, why), changed in changes.items():
            unchanged = old.state is node.state and old.incarnation == node.incarnation
            if unchanged and old.waits_for == node.waits_for:
                continue
            end = (node.exit_code, node.signal) if node.state.ended else None
            alike[node.state, node.incarnation, end, why] += changed
        return [
            Entry("nodes", _change_data(state, number, end, why, changed))
            for (state, number, end, why), changed in alike.items()
        ]


def failure_of(
    transition: Transition, rank: int, reason: Reason, message: str, **known: Any
) -> Failure:
    """A failure of a node, in its present incarnation if no other is given."""
    return Failure(
        rank=rank,
        group=transition.policy.group_of(rank).name,
        reason=reason,
        exit_code=known.get("exit_code"),
        signal=known.get("signal", 0),
        message=message,
        at=transition.now,
        incarnation=known.get("incarnation", transition.nodes[rank].incarnation),
        raised_at=known.get("raised_at"),
        final=known.get("final", False),
    )


def _change_data(
    state: str,
    incarnation: int,
    end: tuple[int | None, int] | None,
    why: str,
    ranks: list[int],
) -> Mapping[str, Any]:
    data: dict[str, Any] = {"ranks": format_ranks(ranks), "state": state}
    if incarnation:
        data["restart"] = incarnation
    if end is not None:
        data |= {"exit_code": end[0], "signal": end[1]}
    return data | ({"why": why} if why else {})


def _failure_data(failure: Failure) -> dict[str, Any]:
    data: dict[str, Any] = {
        "rank": failure.rank,
        "group": failure.group,
        "reason": failure.reason,
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "message": failure.message,
    }
    if failure.incarnation:
        data["restart"] = failure.incarnation
    if failure.raised_at is not None:
        data["raised_at"] = failure.raised_at
    return data
