"""One step of a run: its status taken apart so that the rules can work on it, then put together.

Inside a step things change; seen from outside `decide` is a pure function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from muster.lifecycle import cause, census
from muster.lifecycle.effects import Effect, Entry, ReleaseNodes
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeRef, NodeStatus, Reason, RunStatus

#: Failures of one incident that are remembered; thousands say no more than these.
_REMEMBERED = 32


class Turn:
    """policy and now (epoch seconds) are given; everything else is the rules' to change.

    run: the status, without its nodes. due: it is time to look at what is only a matter of time.
    over: the attempt has had its time. fresh: failures that nothing was done about yet.
    """

    def __init__(self, policy: Policy, status: RunStatus, now: float) -> None:
        self.policy = policy
        self.before = status
        self.run = status
        self.now = now
        self.nodes = list(status.nodes)
        self.census = (status.census or census.take(policy, status.nodes)).copy()
        self.due = status.alarm is not None and now >= status.alarm
        self.alarm = None if self.due else status.alarm
        self.over = False
        self.fresh: list[Failure] = []
        self.effects: list[Effect] = []
        self.entries: list[Entry] = []
        self._changed: dict[int, str] = {}
        self._parked: list[int] = []
        self._foremost: tuple[bool, float] | None = None  # place of the first of too many failures

    # --- what rules do

    def set(self, rank: int, node: NodeStatus, why: str = "") -> None:
        """Make a node what it is now. why: for the event log."""
        self.census.change(self.policy, rank, self.nodes[rank], node)
        self.nodes[rank] = node
        self._changed[rank] = why

    def park(self, rank: int, number: int | None = None, why: str = "") -> None:
        """Nothing is left of a node that is not wanted. number: of the life it might have next."""
        self.set(rank, NodeStatus(NodeState.PARKED, number or 0), why)
        self._parked.append(rank)

    def update(self, **changes: Any) -> None:
        """Change what is known of the run."""
        self.run = replace(self.run, **changes)

    def note(self, kind: str, **data: Any) -> None:
        """A line for the event log."""
        self.entries.append(Entry(kind, data))

    def act(self, effect: Effect) -> None:
        """Have something done once the step is recorded."""
        self.effects.append(effect)

    def wake(self, at: float) -> None:
        """Look again at that time, although nothing may happen."""
        self.alarm = at if self.alarm is None else min(self.alarm, at)

    def past(self, at: float) -> bool:
        """Whether a time has come; if not, look again then."""
        if self.now < at:
            self.wake(at)
            return False
        return True

    def fail(self, failure: Failure) -> None:
        """A failure that something must be done about."""
        self.fresh.append(failure)
        self.remember(failure)

    def pardon(self, ranks: Collection[int]) -> None:
        """Nothing has to be done about failures of these nodes, and nothing is put down to those
        heard in this step."""
        self.fresh = [failure for failure in self.fresh if failure.rank not in ranks]
        known = self.before.failures
        kept = tuple(f for f in self.run.failures if f.rank not in ranks or f in known)
        if kept != self.run.failures:
            self.update(failures=kept)

    def remember(self, failure: Failure) -> None:
        """Keep a failure with the present incident. Of too many, whatever comes before all others
        is kept still: thousands may complain before the one is heard that they complain of."""
        known = self.run.failures
        if len(known) < _REMEMBERED:
            self._foremost = None
        else:
            order = cause.order(failure)
            self._foremost = self._foremost or cause.order(cause.first(known))
            if order >= self._foremost:
                return
            known, self._foremost = known[:-1], order
        self.update(failures=(*known, failure))
        self.note("failure", **_told(failure))

    def become(self, state: RunState, details: str = "", **changes: Any) -> None:
        """The run takes another state."""
        self.update(state=state, details=details, **changes)
        self.note("run", state=state, details=details)

    # --- what rules ask

    @property
    def stopping(self) -> bool:
        """Every node is to end."""
        return self.run.stopping is not None

    def refs(self, ranks: Iterable[int]) -> tuple[NodeRef, ...]:
        """The nodes of these ranks as they are now."""
        return tuple(NodeRef(rank, self.nodes[rank].incarnation) for rank in ranks)

    # --- the end of the step

    def finish(self) -> tuple[RunStatus, tuple[Effect, ...], tuple[Entry, ...]]:
        """(status', effects, entries); the very status that was given if nothing has changed."""
        entries = self._in_order()
        parked = [rank for rank in self._parked if self.nodes[rank].state is NodeState.PARKED]
        if parked and not self.run.state.at_rest:  # of which nothing is kept anyway
            self.act(ReleaseNodes(self.refs(parked)))
        if not self._changed and self.run is self.before and self.alarm == self.before.alarm:
            return self.before, tuple(self.effects), entries
        status = replace(
            self.run,
            nodes=tuple(self.nodes) if self._changed else self.before.nodes,
            census=self.census,
            alarm=None if self.run.state.at_rest else self.alarm,
        )
        return status, tuple(self.effects), entries

    def _in_order(self) -> tuple[Entry, ...]:
        """What failed, what became of nodes, and what became of the run because of that."""
        failures = [entry for entry in self.entries if entry.kind == "failure"]
        others = [entry for entry in self.entries if entry.kind != "failure"]
        return (*failures, *self._node_entries(), *others)

    def _node_entries(self) -> list[Entry]:
        """One for each kind of change of nodes' states; failures one by one."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for rank, why in sorted(self._changed.items()):
            was, node = self.before.nodes[rank], self.nodes[rank]
            if was.state is node.state and was.incarnation == node.incarnation:
                continue
            end = (node.exit_code, node.signal) if node.state.ended else None
            alike.setdefault((node.state, node.incarnation, end, why), []).append(rank)
        return [
            Entry("nodes", _change(state, number, end, why, ranks))
            for (state, number, end, why), ranks in alike.items()
        ]


def _change(
    state: str,
    incarnation: int,
    end: tuple[int | None, int] | None,
    why: str,
    ranks: list[int],
) -> Mapping[str, Any]:
    data: dict[str, Any] = {"ranks": census.ranges(ranks), "state": state}
    if incarnation:
        data["restart"] = incarnation
    if end is not None:
        data |= {"exit_code": end[0], "signal": end[1]}
    return data | ({"why": why} if why else {})


def _told(failure: Failure) -> dict[str, Any]:
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


def failure_of(turn: Turn, rank: int, reason: Reason, message: str, **known: Any) -> Failure:
    """A failure of a node as it is now."""
    return Failure(
        rank=rank,
        group=turn.policy.group_of(rank).name,
        reason=reason,
        exit_code=known.get("exit_code"),
        signal=known.get("signal", 0),
        message=message,
        at=turn.now,
        incarnation=turn.nodes[rank].incarnation,
        raised_at=known.get("raised_at"),
    )
