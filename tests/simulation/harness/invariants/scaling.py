"""Invariants of groups that are scaled."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence

from muster.lifecycle.events import NodeEnded, NodeEvent
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.policy import GroupPolicy, Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, RunStatus
from simulation.harness.trace import Fact, Note, Received, Step
from simulation.harness.view import View

Nodes = Sequence[NodeStatus]


def desired_replicas(status: RunStatus, group: GroupPolicy) -> list[int]:
    """The replicas of a group that are not scaled down, by the record."""
    return _desired(status.nodes, group)


def _desired(nodes: Nodes, group: GroupPolicy) -> list[int]:
    scaled_down = [
        node.scaling_down or node.state is NodeState.SCALED_DOWN for node in _of(nodes, group)
    ]
    if True not in scaled_down:
        return list(range(group.replicas))
    size = group.nodes
    return [r for r in range(group.replicas) if not any(scaled_down[r * size : (r + 1) * size])]


def _of(nodes: Nodes, group: GroupPolicy) -> Nodes:
    return nodes[group.first_rank : group.first_rank + group.size]


def replica_counts_match_requests(view: View) -> Iterator[str]:
    """A group has as many replicas as were last requested, within its limits, unless the run was
    ending by then. The lowest scaled-down replicas are added first; failed replicas are removed
    first, then the highest running ones, and succeeded ones last."""
    requested: dict[str, list[int]] = {}  # [replicas, steps since]
    nodes: Nodes = ()
    desired: list[list[int]] = []  # of each group, with these nodes
    successes: set[tuple[int, int]] = set()  # (rank, incarnation) since the last step
    for line in view.trace.lines:
        if isinstance(line, Received) and _is_success(line.event):
            successes.add((line.event.rank, line.event.incarnation))
        if isinstance(line, Note) and line.kind == "scale requested":
            name, replicas = line.text.split()
            requested[name] = [int(replicas), 0]
        if not isinstance(line, Step):
            continue
        groups = view.policy.groups
        if nodes is not line.before.nodes:
            nodes, desired = line.before.nodes, [_desired(line.before.nodes, g) for g in groups]
        before = desired
        if nodes is not line.after.nodes:
            nodes, desired = line.after.nodes, [_desired(line.after.nodes, g) for g in groups]
        for index, group in enumerate(groups):
            request = requested.get(group.name)
            if request is not None or before is not desired:
                seen = before[index], desired[index]
                yield from _check_size(view.policy, index, line, request, *seen, successes)
        successes.clear()


def _is_success(event: NodeEvent) -> bool:
    return isinstance(event, NodeEnded) and event.exit_code == 0


def _check_size(
    policy: Policy,
    index: int,
    step: Step,
    request: list[int] | None,
    before: list[int],
    after: list[int],
    successes: Container[tuple[int, int]],
) -> Iterator[str]:
    group = policy.groups[index]
    scaled_down = [replica for replica in range(group.replicas) if replica not in before]
    lowest = sorted(before + scaled_down[: max(0, len(after) - len(before))])
    if set(before) <= set(after) and after != lowest:
        yield f"step {step.number}: {group.name} had {before}, and has {after}"
    if set(after) < set(before):
        yield from _check_removed(group, step, before, after, successes)
    if request is None:
        if before != after:
            yield f"step {step.number}: {after} of {group.name} without a request"
        return
    # a resume by the user and a hand-over read no requests; one step may have been decided before
    request[1] += step.by != "the user" and step.decides
    ending = step.before.stopping
    if request[1] < 2 or (ending is not None and ending.outcome is not RunState.SUSPENDED):
        return
    least = index in policy.success.groups and group.min_success > 0
    if len(after) != min(max(request[0], least), group.replicas):
        yield f"step {step.number}: {request[0]} of {group.name} are requested, it has {after}"


def _check_removed(
    group: GroupPolicy,
    step: Step,
    before: list[int],
    after: list[int],
    successes: Container[tuple[int, int]],
) -> Iterator[str]:
    """Check only what is certain: a replica may end in the step in which it is removed. successes:
    incarnations that ended with exit code 0 in this step."""
    all_removed = [replica for replica in before if replica not in after]
    for removed in all_removed:
        was = _of(step.before.nodes, group)[removed * group.nodes : (removed + 1) * group.nodes]
        left = _of(step.after.nodes, group)[removed * group.nodes : (removed + 1) * group.nodes]
        # the engine may have restarted it meanwhile, with all others
        restarted = step.after.native_restarts != step.before.native_restarts
        succeeded = not restarted and all(node.state is NodeState.SUCCEEDED for node in was)
        running = all(node.alive and node.fault is None for node in (*was, *left))
        for kept in after:
            old = _of(step.before.nodes, group)[kept * group.nodes : (kept + 1) * group.nodes]
            new = _of(step.after.nodes, group)[kept * group.nodes : (kept + 1) * group.nodes]
            failed = not restarted and any(node.state is NodeState.FAILED for node in old)
            removed_later = failed or (removed < kept and all(node.alive for node in (*old, *new)))
            # it may succeed in this step, or have succeeded and restart with all others
            ranks = group.replica_ranks(kept)
            not_succeeded = all(node.state is not NodeState.SUCCEEDED for node in new) and not all(
                node.state is NodeState.SUCCEEDED or (rank, node.incarnation) in successes
                for rank, node in zip(ranks, old, strict=True)
            )
            if (succeeded and not_succeeded) or (running and removed_later):
                yield f"step {step.number}: {group.name} loses {removed}, and keeps {kept}"


def scaled_down_nodes_have_no_processes(view: View) -> Iterator[str]:
    """A removed replica is stopped. When it is recorded as scaled down, it has no process, and
    none starts, unless the engine has restarted the run, and nobody has heard of that. What the
    engine has started again of a run that is ending ends with the session."""
    alive: dict[int, int] = {}
    unheard = of_native_restart(1)
    nodes: Sequence[NodeStatus] = ()
    for line in view.trace.lines:
        if isinstance(line, Step):
            nodes = line.after.nodes
            unheard = of_native_restart(line.after.native_restarts + 1)
            restarts = line.after.native_restarts
            ends_later = of_native_restart(restarts) if restarts and line.after.stopping else -1
            for rank, node in enumerate(nodes):
                incarnation = alive.get(rank, unheard)
                if (
                    node.state is NodeState.SCALED_DOWN
                    and incarnation < unheard
                    and incarnation != ends_later
                ):
                    yield f"step {line.number}: node-{rank} is scaled down, and alive"
                if node.scaling_down and not node.leaving:
                    yield f"step {line.number}: node-{rank} is not stopped"
        elif isinstance(line, Fact) and line.what == "ended":
            alive.pop(line.rank, None)
        elif isinstance(line, Fact) and line.what == "launched":
            alive[line.rank] = line.incarnation
            known = bool(nodes) and line.incarnation < unheard
            if known and nodes[line.rank].state is NodeState.SCALED_DOWN:
                yield f"{line.at:.3f}: node-{line.rank} is scaled down, and starts"


def scaled_down_nodes_do_not_fail(view: View) -> Iterator[str]:
    """The end of a node that is being scaled down is not a failure, with any exit code."""
    for step in view.steps:
        for entry in step.entries:
            if entry.kind == "failure" and step.before.nodes[entry.data["rank"]].scaled_down:
                yield f"step {step.number}: {dict(entry.data)}"


def desired_nodes_start(view: View) -> Iterator[str]:
    """After each step no node is pending that may start: one whose group may start, whose backoff
    is over, and whose restart waits for nothing else."""
    for step in view.steps:
        after = step.after
        if after.state.at_rest or after.stopping is not None or not step.decides:
            continue
        for rank, node in enumerate(after.nodes):
            if node.state is not NodeState.PENDING or _held(view.policy, after, rank):
                continue
            waits = node.not_before is not None and node.not_before > step.now
            index = view.policy.group_index(rank)
            if waits or not _its_turn(view.policy, after, index):
                continue
            group = view.policy.groups[index]
            if not group.is_array or _has_place(group, after, group.replica_of(rank)):
                yield f"step {step.number}: node-{rank}"


def _has_place(group: GroupPolicy, status: RunStatus, replica: int) -> bool:
    """Whether a replica of an array runs, or may run beside those that do."""
    active = _active(status.nodes, group)
    return replica in active or len(active) < (group.parallelism or 0)


def _active(nodes: Nodes, group: GroupPolicy) -> set[int]:
    """The replicas that have nodes that may be alive, by the record."""
    return {group.replica_of(rank) for rank in group.ranks if nodes[rank].alive}


def arrays_keep_their_parallelism(view: View) -> Iterator[str]:
    """At most `parallelism` replicas of an array run at once, by the record, and of those the
    nodes exist."""
    arrays = [group for group in view.policy.groups if group.is_array]
    if not arrays:
        return
    for step in view.steps:
        for group in arrays:
            active = _active(step.after.nodes, group)
            if len(active) > (group.parallelism or 0):
                yield f"step {step.number}: replicas {sorted(active)} of {group.name}"
    alive: set[int] = set()
    for fact in view.facts:
        if fact.what == "ended":
            alive.discard(fact.rank)
        elif fact.what == "launched":
            alive.add(fact.rank)
            group = view.policy.group_of(fact.rank)
            running = {group.replica_of(rank) for rank in alive if rank in group.ranks}
            if group.is_array and len(running) > (group.parallelism or 0):
                yield f"{fact.at:.3f}: replicas {sorted(running)} of {group.name}"


def arrays_start_in_order(view: View) -> Iterator[str]:
    """The replicas of an array start in the order of their numbers: none takes a place before a
    lower one that may start."""
    for step in view.steps:
        before, after = step.before, step.after
        if before.nodes is after.nodes:
            continue
        for group in view.policy.groups:
            if not group.is_array:
                continue
            old = _active(before.nodes, group)
            begun = [replica for replica in _active(after.nodes, group) if replica not in old]
            for rank in range(group.first_rank, group.replica_ranks(max(begun, default=0))[0]):
                node = after.nodes[rank]
                waits = node.not_before is not None and node.not_before > step.now
                pending = node.state is NodeState.PENDING and not waits
                if begun and pending and not _held(view.policy, after, rank):
                    yield f"step {step.number}: {group.name} starts {begun} before node-{rank}"


def arrays_stop_when_they_have_succeeded(view: View) -> Iterator[str]:
    """When enough replicas of an array have succeeded, no other starts, and those that run are
    stopped."""
    for step in view.steps:
        after = step.after
        if after.state.at_rest or after.stopping is not None or not step.decides:
            continue
        for group in view.policy.groups:
            states = [
                {after.nodes[rank].state for rank in group.replica_ranks(replica)}
                for replica in range(group.replicas)
            ]
            done = {r for r, found in enumerate(states) if found == {NodeState.SUCCEEDED}}
            if not group.early_success or not succeeded_early(group, done):
                continue
            for rank in group.ranks:
                node = after.nodes[rank]
                if node.state is NodeState.PENDING or (node.alive and not node.leaving):
                    yield f"step {step.number}: node-{rank} is {node.state}, {done} have succeeded"


def _held(policy: Policy, status: RunStatus, rank: int) -> bool:
    if policy.strategy is Strategy.RECREATE:
        group = policy.group_of(rank)
        ranks = group.replica_ranks(group.replica_of(rank))
        return any(status.nodes[other].next_incarnation is not None for other in ranks)
    number = status.nodes[rank].incarnation
    return any(node.next_incarnation == number and not node.scaling_down for node in status.nodes)


def _its_turn(policy: Policy, status: RunStatus, index: int) -> bool:
    if policy.in_order:
        return all(_up(status, group) for group in policy.groups[:index])
    return all(
        (complete if request.complete else _up)(status, policy.groups[request.group])
        for request in policy.groups[index].depends_on
    )


def _up(status: RunStatus, group: GroupPolicy) -> bool:
    nodes = [status.nodes[rank] for rank in group.ranks if not status.nodes[rank].scaled_down]
    up = sum(
        node.state.ended or (node.state is NodeState.READY and node.next_incarnation is None)
        for node in nodes
    )
    return up >= (min(len(nodes), group.at_once * group.nodes) if group.is_array else len(nodes))


def complete(status: RunStatus, group: GroupPolicy) -> bool:
    """By the record, every node of the group has ended, and enough replicas have succeeded."""
    replicas = desired_replicas(status, group)
    states = {r: {status.nodes[rank].state for rank in group.replica_ranks(r)} for r in replicas}
    succeeded = {r for r, found in states.items() if found == {NodeState.SUCCEEDED}}
    ended = all(state.ended for found in states.values() for state in found)
    enough = len(succeeded) >= min(group.min_success, len(replicas))
    return ended and (enough or succeeded_early(group, succeeded))


def succeeded_early(group: GroupPolicy, succeeded: Collection[int]) -> bool:
    """Whether one of the group's rules for early success is met. succeeded: its replicas that have
    succeeded."""
    for rule in group.early_success:
        listed = str(rule.replicas).split(",")
        chosen = [int(part) for part in listed] if rule.replicas else list(range(group.replicas))
        done = sum(replica in succeeded for replica in chosen)
        if done >= (len(chosen) if rule.count is None else rule.count):
            return True
    return False
