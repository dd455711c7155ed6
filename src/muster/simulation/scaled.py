"""What is true of groups that somebody wants larger or smaller."""

from __future__ import annotations

from collections.abc import Container, Iterator

from muster.lifecycle.events import NodeEnded, NodeEvent
from muster.lifecycle.policy import GroupPolicy, Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, RunStatus
from muster.simulation.story import Fact, Note, Step, Told
from muster.simulation.view import View

Nodes = tuple[NodeStatus, ...]


def wanted(status: RunStatus, group: GroupPolicy) -> list[int]:
    """The replicas of a group that are wanted by the record."""
    return _wanted(status.nodes, group)


def _wanted(nodes: Nodes, group: GroupPolicy) -> list[int]:
    parked = [node.parking or node.state is NodeState.PARKED for node in _of(nodes, group)]
    if True not in parked:
        return list(range(group.replicas))
    size = group.nodes
    return [r for r in range(group.replicas) if not any(parked[r * size : (r + 1) * size])]


def _of(nodes: Nodes, group: GroupPolicy) -> Nodes:
    return nodes[group.first_rank : group.first_rank + group.size]


def as_many_as_asked(view: View) -> Iterator[str]:
    """A group has as many replicas as were asked for last, as far as it may, unless the run was
    ending by then; what is added are the lowest that were parked, what is taken away are those
    that have failed, then the highest that run, and those that have succeeded last."""
    asked: dict[str, list[int]] = {}  # (replicas, steps since)
    nodes: Nodes = ()
    there: list[list[int]] = []  # of each group, with these nodes
    successes: set[tuple[int, int]] = set()  # (rank, incarnation) since the last step
    for line in view.story.lines:
        if isinstance(line, Told) and _is_success(line.event):
            successes.add((line.event.rank, line.event.incarnation))
        if isinstance(line, Note) and line.kind == "scale asked":
            name, replicas = line.text.split()
            asked[name] = [int(replicas), 0]
        if not isinstance(line, Step):
            continue
        groups = view.policy.groups
        if nodes is not line.before.nodes:
            nodes, there = line.before.nodes, [_wanted(line.before.nodes, g) for g in groups]
        before = there
        if nodes is not line.after.nodes:
            nodes, there = line.after.nodes, [_wanted(line.after.nodes, g) for g in groups]
        for index, group in enumerate(groups):
            wish = asked.get(group.name)
            if wish is not None or before is not there:
                seen = before[index], there[index]
                yield from _as_many(view.policy, index, line, wish, *seen, successes)
        successes.clear()


def _is_success(event: NodeEvent) -> bool:
    return isinstance(event, NodeEnded) and event.exit_code == 0


def _as_many(
    policy: Policy,
    index: int,
    step: Step,
    wish: list[int] | None,
    before: list[int],
    after: list[int],
    successes: Container[tuple[int, int]],
) -> Iterator[str]:
    group = policy.groups[index]
    parked = [replica for replica in range(group.replicas) if replica not in before]
    lowest = sorted(before + parked[: max(0, len(after) - len(before))])
    if set(before) <= set(after) and after != lowest:
        yield f"step {step.number}: {group.name} had {before}, and has {after}"
    if set(after) < set(before):
        yield from _taken(group, step, before, after, successes)
    if wish is None:
        if before != after:
            yield f"step {step.number}: nobody asked for {after} of {group.name}"
        return
    # one who resumes the run does not look; and one step may have been decided before
    wish[1] += step.by != "a person"
    ending = step.before.stopping
    if wish[1] < 2 or (ending is not None and ending.outcome is not RunState.SUSPENDED):
        return
    least = index in policy.success.groups and group.min_success > 0
    if len(after) != min(max(wish[0], least), group.replicas):
        yield f"step {step.number}: {wish[0]} of {group.name} are wanted, there are {after}"


def _taken(
    group: GroupPolicy,
    step: Step,
    before: list[int],
    after: list[int],
    successes: Container[tuple[int, int]],
) -> Iterator[str]:
    """Told by what is certain: a replica may end in the step in which it is taken away.
    successes: which lives of nodes ended with exit code 0, by what was heard in this step."""
    taken = [replica for replica in before if replica not in after]
    for gone in taken:
        was = _of(step.before.nodes, group)[gone * group.nodes : (gone + 1) * group.nodes]
        left = _of(step.after.nodes, group)[gone * group.nodes : (gone + 1) * group.nodes]
        succeeded = all(node.state is NodeState.SUCCEEDED for node in was)
        going = all(node.alive and node.fault is None for node in (*was, *left))
        for kept in after:
            old = _of(step.before.nodes, group)[kept * group.nodes : (kept + 1) * group.nodes]
            new = _of(step.after.nodes, group)[kept * group.nodes : (kept + 1) * group.nodes]
            failed = any(node.state is NodeState.FAILED for node in old)
            worse = failed or (gone < kept and all(node.alive for node in (*old, *new)))
            # it may succeed in this step, or have succeeded and start again with all others
            ranks = group.replica_ranks(kept)
            unlike = all(node.state is not NodeState.SUCCEEDED for node in new) and not all(
                node.state is NodeState.SUCCEEDED or (rank, node.incarnation) in successes
                for rank, node in zip(ranks, old, strict=True)
            )
            if (succeeded and unlike) or (going and worse):
                yield f"step {step.number}: {group.name} loses {gone}, and keeps {kept}"


def the_parked_have_nothing(view: View) -> Iterator[str]:
    """What is not wanted is told to end; when it is parked, no process of it is left, and none
    starts."""
    alive: set[int] = set()
    nodes: tuple[NodeStatus, ...] = ()
    for line in view.story.lines:
        if isinstance(line, Step):
            nodes = line.after.nodes
            for rank, node in enumerate(nodes):
                if node.state is NodeState.PARKED and rank in alive:
                    yield f"step {line.number}: node-{rank} is parked, and lives on"
                if node.parking and not node.leaving:
                    yield f"step {line.number}: node-{rank} is not told to end"
        elif isinstance(line, Fact) and line.what == "ended":
            alive.discard(line.rank)
        elif isinstance(line, Fact) and line.what == "handed over":
            alive.add(line.rank)
            if nodes and nodes[line.rank].state is NodeState.PARKED:
                yield f"{line.at:.3f}: node-{line.rank} is parked, and starts"


def the_parked_do_not_fail(view: View) -> Iterator[str]:
    """However a node ends that was scaled away, it is no failure."""
    for step in view.steps:
        for entry in step.entries:
            if entry.kind == "failure" and step.before.nodes[entry.data["rank"]].parked:
                yield f"step {step.number}: {dict(entry.data)}"


def what_is_wanted_starts(view: View) -> Iterator[str]:
    """After each step nothing waits that may start: its group's turn has come, the wait of its
    restart is over, and nothing is left of what it has to wait for."""
    for step in view.steps:
        after = step.after
        if after.state.at_rest or after.stopping is not None:
            continue
        for rank, node in enumerate(after.nodes):
            if node.state is not NodeState.PENDING or _held(view.policy, after, rank):
                continue
            waits = node.not_before is not None and node.not_before > step.now
            if not waits and _its_turn(view.policy, after, view.policy.group_index(rank)):
                yield f"step {step.number}: node-{rank}"


def _held(policy: Policy, status: RunStatus, rank: int) -> bool:
    if policy.strategy is Strategy.RECREATE:
        group = policy.group_of(rank)
        ranks = group.replica_ranks(group.replica_of(rank))
        return any(status.nodes[other].again is not None for other in ranks)
    number = status.nodes[rank].incarnation
    return any(node.again == number and not node.parking for node in status.nodes)


def _its_turn(policy: Policy, status: RunStatus, index: int) -> bool:
    if policy.in_order:
        return all(_up(status, group) for group in policy.groups[:index])
    return all(
        (complete if wish.complete else _up)(status, policy.groups[wish.group])
        for wish in policy.groups[index].depends_on
    )


def _up(status: RunStatus, group: GroupPolicy) -> bool:
    nodes = [status.nodes[rank] for rank in group.ranks]
    return all(
        node.parked or node.state.ended or (node.state is NodeState.READY and node.again is None)
        for node in nodes
    )


def complete(status: RunStatus, group: GroupPolicy) -> bool:
    """By the record, every node of the group has ended, and enough have succeeded."""
    replicas = wanted(status, group)
    states = [{status.nodes[rank].state for rank in group.replica_ranks(r)} for r in replicas]
    succeeded = sum(state == {NodeState.SUCCEEDED} for state in states)
    ended = all(state.ended for found in states for state in found)
    return ended and succeeded >= min(group.min_success, len(replicas))
