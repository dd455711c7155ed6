"""Nodes that wait in the queue of the engine's infrastructure are QUEUED.

Slurm: PENDING. Kubernetes: Pending, before it is scheduled. Neither their startup clock nor the
timeout of their replica runs meanwhile: both count from when a node was scheduled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from muster.lifecycle import start_order
from muster.lifecycle.events import NodeQueued, NodeScheduled
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import UNSTARTED, NodeState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.transition import Transition

#: Hosts that an entry of the event log names.
_NAMED = 3


def wait(transition: Transition, events: Iterable[NodeQueued]) -> None:
    """Apply that nodes wait, or what they wait for. events: of incarnations that are alive."""
    by_reason: defaultdict[str, set[int]] = defaultdict(set)
    for rank, why in {event.rank: event.why for event in events}.items():
        by_reason[why].add(rank)
    for why, waiting in by_reason.items():
        for node, ranks in transition.alike(waiting):
            queued = replace(node, state=NodeState.QUEUED, waits_for=why)
            if node.state in UNSTARTED and queued != node:
                transition.set_alike(ranks, node, queued, why)


def schedule(transition: Transition, events: Iterable[NodeScheduled]) -> None:
    """Apply that nodes start. events: of incarnations that are alive."""
    where = {event.rank: event.where for event in events}
    for node, ranks in transition.alike(where):
        if node.state is NodeState.QUEUED:
            starting = replace(node, state=NodeState.STARTING)
            hosts = [where[rank] for rank in ranks]
            transition.set_alike(ranks, node, scheduled(transition, ranks, starting, hosts))
            start_order.schedule_deadlines(transition, ranks)


def scheduled(
    transition: Transition, ranks: Sequence[int], node: NodeStatus, hosts: Sequence[str] = ()
) -> NodeStatus:
    """The status of nodes that wait no more, which is logged. ranks: in ascending order. node:
    their status, but for what is about the queue. hosts: where each of them is."""
    assert node.since is not None
    waited = round(transition.now - node.since, 3)
    given = dict(zip(ranks, hosts, strict=bool(hosts)))
    for index, members in transition.policy.by_group(ranks):
        names = dict.fromkeys(filter(None, (given.get(rank) for rank in members)))
        transition.log(
            "scheduled",
            ranks=format_ranks(members),
            group=transition.policy.groups[index].name,
            where=_shortened([*names]),
            seconds=waited,
        )
    return replace(node, since=transition.now, waits_for="", away=0.0)


def _shortened(names: Sequence[str]) -> str:
    """The first hosts, and how many others: `n1, n2, n3 and 97 more`."""
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left:,} more" if left > 0 else "")
