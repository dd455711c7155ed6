"""Scaling: how many replicas of a group are wanted.

A group has ranks for as many as there may ever be; those that are not wanted are parked, and
nobody waits for them. Which are, is what the status says of their nodes: what was asked for is
only ever compared with that, so it may be asked over and over. Kubernetes: the scale of a
StatefulSet, which also takes the last ones away.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle import census, stopping
from muster.lifecycle.events import ScaleRequested
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.turn import Turn


def ask(turn: Turn, event: ScaleRequested) -> None:
    """Have a group as large as asked, or as near as it may be. Nothing if the run is ending; of
    one that is suspended, or is to be, when it goes on."""
    ending = turn.run.stopping
    if ending is not None and ending.outcome is not RunState.SUSPENDED:
        return
    for index, group in enumerate(turn.policy.groups):
        if group.name == event.group:
            _scale(turn, index, event)


def _scale(turn: Turn, index: int, event: ScaleRequested) -> None:
    group, have = turn.policy.groups[index], census.wanted(turn.policy, turn.census, index)
    wanted = min(max(event.replicas, turn.policy.fewest(index)), group.replicas)
    if wanted == have:
        return
    if wanted > have:
        _want(turn, group, _parked(turn, group, parked=True)[: wanted - have])
    else:
        chosen = sorted(_parked(turn, group, parked=False), key=lambda r: _place(turn, index, r))
        _park(turn, group, chosen[wanted - have :])
    said = {"group": group.name, "from": have, "to": wanted, "why": event.why}
    turn.note("scaled", **said)


def _parked(turn: Turn, group: GroupPolicy, *, parked: bool) -> list[int]:
    """The replicas that are, or are not."""
    replicas = range(group.replicas)
    return [r for r in replicas if turn.nodes[group.replica_ranks(r)[0]].parked is parked]


def _place(turn: Turn, index: int, replica: int) -> tuple[int, int]:
    """Sorts those first that are kept longest: what has succeeded, then the lower ones of those
    that run, and what has failed last."""
    count, nodes = turn.census.groups[index], turn.policy.groups[index].nodes
    if count.failed_in[replica]:
        return 2, replica
    return int(count.succeeded_in[replica] < nodes), replica


def _want(turn: Turn, group: GroupPolicy, replicas: list[int]) -> None:
    number = turn.run.restarts + 1
    for replica in replicas:
        ranks = group.replica_ranks(replica)
        # nodes of a replica that has not quite gone begin together, when it has
        wait = any(turn.nodes[rank].alive for rank in ranks)
        if wait:
            turn.update(restarts=number)
        for rank in ranks:
            node = turn.nodes[rank]
            if node.alive:
                turn.set(rank, replace(node, parking=False, again=number))
            else:
                turn.set(rank, NodeStatus(incarnation=number if wait else node.incarnation))


def _park(turn: Turn, group: GroupPolicy, replicas: list[int]) -> None:
    number = turn.run.restarts + 1
    ranks = [rank for replica in replicas for rank in group.replica_ranks(replica)]
    leaving: dict[int, NodeStatus] = {}
    for rank in ranks:
        node = turn.nodes[rank]
        if node == NodeStatus():
            turn.park(rank)
            continue
        turn.update(restarts=number)  # which nobody can have had
        going = replace(node, parking=True, again=number, not_before=None)
        if node.leaving:  # and may have been told to save first
            turn.set(rank, going)
        elif node.alive:
            leaving[rank] = going
        else:
            turn.park(rank, number)
    stopping.tell_to_end(turn, leaving)
    turn.pardon(ranks)
