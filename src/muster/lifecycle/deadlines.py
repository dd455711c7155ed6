"""Deadlines of the run, of a group, of an attempt, of a replica, and of getting ready.

OCI: maximumRuntimeInMinutes, default and upper limit 30 days, counted from IN_PROGRESS; the run is
then canceled and has not failed. The limit of a node group counts from the start of its first node.
JobSet: activeDeadlineSeconds (KEP-1186) is `attempt_timeout`; its clock restarts with each attempt
and stops while the run is suspended. Kubernetes: a Job's activeDeadlineSeconds is the `timeout` of
a replica. Missed deadlines are failures that the failure rules handle, except those of the run and
of a group.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.lifecycle import failure, stopping
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from muster.lifecycle.transition import Transition, failure_of


def apply(transition: Transition) -> None:
    """Cancel the run if its maximum runtime, or that of a group, is exceeded; fail the nodes that
    have missed a deadline."""
    if transition.stopping:
        return
    _check_run(transition)
    if transition.stopping:
        return
    _check_attempt(transition)
    if transition.alarm_reached:
        for group in transition.policy.groups:
            _check_replicas(transition, group)
            _check_startup(transition, group)
    failure.apply(transition)


def _check_run(transition: Transition) -> None:
    if transition.run.state is not RunState.IN_PROGRESS or transition.run.running_since is None:
        return
    if transition.is_due(
        transition.run.running_since + transition.policy.max_runtime - transition.run.ran_before
    ):
        details = f"maximum runtime of {transition.policy.max_runtime:g} s exceeded"
        stopping.begin(transition, RunState.CANCELED, details, save=True)
        return
    for index, group in enumerate(transition.policy.groups):
        started, count = (
            transition.run.groups_started.get(group.name),
            transition.counts.groups[index],
        )
        if (
            group.max_runtime is None
            or started is None
            or count.ended + count.scaled_down == group.size
        ):
            continue
        if transition.is_due(
            transition.run.running_since + started + group.max_runtime - transition.run.ran_before
        ):
            limit = f"maximum runtime of {group.max_runtime:g} s exceeded"
            text = f"group {group.name}: {limit}"
            stopping.begin(transition, RunState.CANCELED, text, save=True)
            return


def _check_attempt(transition: Transition) -> None:
    limit, started = transition.policy.attempt_timeout, transition.run.attempt_started_at
    if limit is None or started is None or not transition.is_due(started + limit):
        return
    transition.attempt_expired = True
    late = list(_unended_nodes(transition, transition.all_ranks))
    # nodes of groups that must succeed are reported first
    late.sort(key=lambda rank: transition.policy.group_of(rank).min_success == 0)
    _fail_late_nodes(
        transition, late, Reason.DEADLINE, f"the attempt has not ended after {limit:g} s"
    )


def _check_replicas(transition: Transition, group: GroupPolicy) -> None:
    if group.timeout is None:
        return
    replicas = {group.replica_of(rank): None for rank in _unended_nodes(transition, group.ranks)}
    for replica in replicas:
        ranks = group.replica_ranks(replica)
        nodes = transition.nodes.at(ranks)
        given_at = [
            node.since
            for node in nodes
            if node.since is not None and node.state is not NodeState.QUEUED
        ]
        running = list(_unended_nodes(transition, ranks))
        if running and given_at and transition.is_due(min(given_at) + group.timeout):
            name = f"replica {replica} of group {group.name}"
            text = f"{name} has not ended after {group.timeout:g} s"
            _fail_late_nodes(transition, running, Reason.DEADLINE, text)


def _check_startup(transition: Transition, group: GroupPolicy) -> None:
    if group.ready_timeout is None:
        return
    late = []
    for rank in _unended_nodes(transition, group.ranks):
        node = transition.nodes[rank]
        if node.state in (NodeState.QUEUED, NodeState.READY) or node.since is None:
            continue
        if node.unreachable_since is not None:
            continue
        if transition.is_due(node.since + node.away + group.ready_timeout):
            late.append(rank)
    text = f"not ready after {group.ready_timeout:g} s: rank {format_ranks(late)}"
    _fail_late_nodes(transition, late, Reason.STARTUP_TIMEOUT, text)


def _unended_nodes(transition: Transition, ranks: range) -> Iterator[int]:
    alive = transition.alive_ranks(ranks)
    return (rank for rank in alive if not transition.nodes[rank].leaving)


def _fail_late_nodes(transition: Transition, ranks: list[int], reason: Reason, text: str) -> None:
    """Stop these nodes; however they end, they have failed."""
    for rank in ranks:
        transition.set_node(rank, replace(transition.nodes[rank], fault=reason))
    stopping.stop_nodes(transition, ranks)
    for rank in ranks:
        transition.add_failure(failure_of(transition, rank, reason, text))
