"""One evaluation of `decide`: a mutable copy of a run's status that the rules work on.

The rules change the `Transition`; `finish` makes a new frozen status of it. Seen from outside,
`decide` is a pure function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from muster.lifecycle import cause
from muster.lifecycle.counts import count_nodes
from muster.lifecycle.effects import Effect, Entry, ReleaseNodes
from muster.lifecycle.policy import Policy
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeRef, NodeStatus, Reason, RunStatus

#: Failures kept per incident. More would be consequences and only make the record large.
_MAX_FAILURES = 32


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
        self.nodes = list(status.nodes)
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
        self._changed: dict[int, str] = {}
        self._scaled_down: list[int] = []
        self._first_order: tuple[bool, float] | None = None  # of the kept failures, if it is full

    # --- changes

    def set_node(self, rank: int, node: NodeStatus, why: str = "") -> None:
        """Set the status of a node. why: for the event log."""
        self.counts.change(self.policy, rank, self.nodes[rank], node)
        self.nodes[rank] = node
        self._changed[rank] = why

    def scale_down(self, rank: int, number: int | None = None, why: str = "") -> None:
        """Set a node without processes to SCALED_DOWN. number: the incarnation it starts with if
        its replica is scaled up again."""
        self.set_node(rank, NodeStatus(NodeState.SCALED_DOWN, number or 0), why)
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
        self.log("failure", **_failure_data(failure))

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

    def refs(self, ranks: Iterable[int]) -> tuple[NodeRef, ...]:
        """References to the present incarnations of these nodes."""
        return tuple(NodeRef(rank, self.nodes[rank].incarnation) for rank in ranks)

    # --- result

    def finish(self) -> tuple[RunStatus, tuple[Effect, ...], tuple[Entry, ...]]:
        """The new status, the effects and the log entries. If nothing has changed, the status is
        the very object that was passed in."""
        entries = self._in_order()
        released = [r for r in self._scaled_down if self.nodes[r].state is NodeState.SCALED_DOWN]
        if released and not self.run.state.at_rest:  # a run at rest keeps nothing in the engine
            self.emit(ReleaseNodes(self.refs(released)))
        if not self._changed and self.run is self.before and self.alarm == self.before.alarm:
            return self.before, tuple(self.effects), entries
        status = replace(
            self.run,
            nodes=tuple(self.nodes) if self._changed else self.before.nodes,
            counts=self.counts,
            alarm=None if self.run.state.at_rest else self.alarm,
        )
        return status, tuple(self.effects), entries

    def _in_order(self) -> tuple[Entry, ...]:
        """Failures first, then changes of nodes, then what followed for the run."""
        failures = [entry for entry in self.entries if entry.kind == "failure"]
        others = [entry for entry in self.entries if entry.kind != "failure"]
        return (*failures, *self._node_entries(), *others)

    def _node_entries(self) -> list[Entry]:
        """One entry for each kind of change of nodes' states, with all its ranks."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for rank, why in sorted(self._changed.items()):
            old, node = self.before.nodes[rank], self.nodes[rank]
            if old.state is node.state and old.incarnation == node.incarnation:
                continue
            end = (node.exit_code, node.signal) if node.state.ended else None
            alike.setdefault((node.state, node.incarnation, end, why), []).append(rank)
        return [
            Entry("nodes", _change_data(state, number, end, why, ranks))
            for (state, number, end, why), ranks in alike.items()
        ]


def failure_of(
    transition: Transition, rank: int, reason: Reason, message: str, **known: Any
) -> Failure:
    """A failure of a node's present incarnation."""
    return Failure(
        rank=rank,
        group=transition.policy.group_of(rank).name,
        reason=reason,
        exit_code=known.get("exit_code"),
        signal=known.get("signal", 0),
        message=message,
        at=transition.now,
        incarnation=transition.nodes[rank].incarnation,
        raised_at=known.get("raised_at"),
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
