"""Contact with the agents of nodes on other machines: lost, and found again.

The processes of a node that cannot be reached may run or not: that alone fails and replaces
nothing. Until it can be reached again, two of its clocks stand still: that of its startup, which
nobody would hear of, and that between the signals that end it. It gets these signals when there is
contact again, and its grace period counts from then. The timeouts of a replica and of an attempt,
and the maximum runtime, are budgets of time and continue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.lifecycle.events import NodeUnreachable
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.transition import Transition

#: States in which the clock of the startup runs.
_BEGUN = (NodeState.STARTING, NodeState.RUNNING)


class Changes(Struct):
    """What was lost and found again in a step, for the event log: a thousand nodes may be lost
    together, and one by one be found again."""

    lost: defaultdict[tuple[str, str], set[int]]
    """Ranks, by group and why."""
    found: defaultdict[str, dict[int, float]]
    """Rank -> seconds for which it could not be reached, by group."""


def no_changes() -> Changes:
    """For a new step."""
    return Changes(defaultdict(set), defaultdict(dict))


def lose(transition: Transition, events: Iterable[NodeUnreachable], changes: Changes) -> None:
    """Apply that nodes cannot be reached, or why. events: of incarnations that are alive."""
    reasons = {event.rank: event.why for event in events}
    for node, ranks in transition.alike(reasons):
        since = node.unreachable_since
        lost = [rank for rank in ranks if since is None or reasons[rank] != node.unreachable_why]
        by_reason: defaultdict[str, list[int]] = defaultdict(list)
        for index, members in transition.policy.by_group(lost):
            name = transition.policy.groups[index].name
            for rank in members:
                changes.lost[name, reasons[rank]].add(rank)
                by_reason[reasons[rank]].append(rank)
        since = transition.now if since is None else since
        for why, members in by_reason.items():
            changed = replace(node, unreachable_since=since, unreachable_why=why)
            transition.set_alike(members, node, changed)


def find(transition: Transition, ranks: Iterable[int], changes: Changes) -> None:
    """Apply that nodes can be reached again. ranks: of incarnations that are alive."""
    for node, alike in transition.alike(ranks):
        if node.unreachable_since is None:
            continue
        found = _found(node, transition.now)
        transition.set_alike(alike, node, found)
        wake_at_deadlines(transition, found, alike)
        away = transition.now - node.unreachable_since
        for index, members in transition.policy.by_group(alike):
            name = transition.policy.groups[index].name
            changes.found[name] |= dict.fromkeys(members, away)


def _found(node: NodeStatus, now: float) -> NodeStatus:
    """The status of a node that can be reached again: its clocks continue."""
    assert node.unreachable_since is not None
    away = now - node.unreachable_since
    term_at, kill_at = (None if at is None else at + away for at in (node.term_at, node.kill_at))
    # a new controller restarts the clock of the startup
    uncounted = now - max(node.unreachable_since, (node.since or 0.0) + node.away)
    return replace(
        node,
        unreachable_since=None,
        unreachable_why="",
        term_at=term_at,
        kill_at=kill_at,
        away=node.away + max(0.0, uncounted) if node.state in _BEGUN else node.away,
    )


def wake_at_deadlines(transition: Transition, node: NodeStatus, ranks: Sequence[int]) -> None:
    """Wake when the next signal to nodes is due, or their startup. node: the status that they all
    have. ranks: in ascending order."""
    due = node.term_at if node.kill_at is None else node.kill_at
    if node.killed:
        return
    if due is not None:
        transition.wake(due)
    elif node.state in _BEGUN and node.since is not None:
        for index, _ in transition.policy.by_group(ranks):
            limit = transition.policy.groups[index].ready_timeout
            if limit is not None:
                transition.wake(node.since + node.away + limit)


def attach(transition: Transition) -> None:
    """A new controller attaches to nodes that were left without one: what an earlier one decided
    about them may not have reached them, and nobody has seen whether they started. Their startup
    timeouts and grace periods start again."""
    for node, ranks in transition.alike(transition.alive_ranks(transition.all_ranks)):
        again = _attached(transition, node)
        if again != node:
            transition.set_alike(ranks, node, again)


def _attached(transition: Transition, node: NodeStatus) -> NodeStatus:
    now, policy = standing(node, transition.now), transition.policy
    if node.killed:
        return node
    if node.kill_at is not None:
        return replace(node, kill_at=now + policy.grace_period)
    if node.term_at is not None:
        grace = policy.checkpoint.grace if policy.checkpoint is not None else 0.0
        return replace(node, term_at=now + grace)
    if node.state is NodeState.STARTING:  # it is handed to the engine again
        return replace(node, since=transition.now, away=0.0)
    if node.state is NodeState.RUNNING and node.since is not None:
        return replace(node, away=now - node.since)
    return node


def standing(node: NodeStatus, now: float) -> float:
    """What the clocks of a node show: the time at which it was lost, if it cannot be reached."""
    return now if node.unreachable_since is None else node.unreachable_since


def log(transition: Transition, changes: Changes) -> None:
    """Add entries to the event log: one for each group and reason, not for each node."""
    for (group, why), ranks in changes.lost.items():
        transition.log("unreachable", ranks=format_ranks(ranks), group=group, why=why)
    for group, away in changes.found.items():
        longest = round(max(away.values()), 3)
        transition.log("reachable", ranks=format_ranks(away), group=group, seconds=longest)
