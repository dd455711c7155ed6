"""Deadlines: of the run, of an attempt, of a replica, and of getting ready.

OCI: maximumRuntimeInMinutes, default and upper limit 30 days, counted from IN_PROGRESS; the run is
canceled, not failed, when it is over. A node group has one of its own, which is that of its
configuration: from when its first node ran. JobSet: activeDeadlineSeconds (KEP-1186) is what
`attempt_timeout` is: its clock starts anew with each attempt and stands still while the run is
suspended. Kubernetes: a Job's activeDeadlineSeconds is the `timeout` of a replica. All but the
first two are failures, for the failure rules to decide on.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.lifecycle import census, failure, stopping
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from muster.lifecycle.turn import Turn, failure_of


def apply(turn: Turn) -> None:
    """Cancel a run whose time is over; find what was too slow at fault."""
    if turn.stopping:
        return
    _run(turn)
    if turn.stopping:
        return
    _attempt(turn)
    if turn.due:
        for group in turn.policy.groups:
            _replicas(turn, group)
            _getting_ready(turn, group)
    failure.apply(turn)


def _run(turn: Turn) -> None:
    if turn.run.state is not RunState.IN_PROGRESS or turn.run.going_since is None:
        return
    if turn.past(turn.run.going_since + turn.policy.max_runtime - turn.run.ran):
        details = f"maximum runtime of {turn.policy.max_runtime:g} s exceeded"
        stopping.begin(turn, RunState.CANCELED, details, save=True)
        return
    for index, group in enumerate(turn.policy.groups):
        began, count = turn.run.begun.get(group.name), turn.census.groups[index]
        if group.max_runtime is None or began is None or count.ended + count.parked == group.size:
            continue
        if turn.past(turn.run.going_since + began + group.max_runtime - turn.run.ran):
            limit = f"maximum runtime of {group.max_runtime:g} s exceeded"
            text = f"group {group.name}: {limit}"
            stopping.begin(turn, RunState.CANCELED, text, save=True)
            return


def _attempt(turn: Turn) -> None:
    limit, began = turn.policy.attempt_timeout, turn.run.attempt_at
    if limit is None or began is None or not turn.past(began + limit):
        return
    turn.over = True
    late = list(_running(turn, range(turn.policy.size)))
    # one that its group cannot do without is named first
    late.sort(key=lambda rank: turn.policy.group_of(rank).min_success == 0)
    _find_at_fault(turn, late, Reason.DEADLINE, f"the attempt has not ended after {limit:g} s")


def _replicas(turn: Turn, group: GroupPolicy) -> None:
    if group.timeout is None:
        return
    for replica in range(group.replicas):
        ranks = group.replica_ranks(replica)
        began = [at for rank in ranks if (at := turn.nodes[rank].since) is not None]
        running = list(_running(turn, ranks))
        if running and began and turn.past(min(began) + group.timeout):
            name = f"replica {replica} of group {group.name}"
            text = f"{name} has not ended after {group.timeout:g} s"
            _find_at_fault(turn, running, Reason.DEADLINE, text)


def _getting_ready(turn: Turn, group: GroupPolicy) -> None:
    if group.ready_timeout is None:
        return
    late = []
    for rank in _running(turn, group.ranks):
        node = turn.nodes[rank]
        if node.state is NodeState.READY or node.since is None:
            continue
        if turn.past(node.since + group.ready_timeout):
            late.append(rank)
    text = f"not ready after {group.ready_timeout:g} s: rank {census.ranges(late)}"
    _find_at_fault(turn, late, Reason.STARTUP_TIMEOUT, text)


def _running(turn: Turn, ranks: range) -> Iterator[int]:
    return (rank for rank in ranks if turn.nodes[rank].alive and not turn.nodes[rank].leaving)


def _find_at_fault(turn: Turn, ranks: list[int], reason: Reason, text: str) -> None:
    """These nodes are told to end, and will have failed."""
    for rank in ranks:
        turn.set(rank, replace(turn.nodes[rank], fault=reason))
    stopping.stop_nodes(turn, ranks)
    for rank in ranks:
        turn.fail(failure_of(turn, rank, reason, text))
