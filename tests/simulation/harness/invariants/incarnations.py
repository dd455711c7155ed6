"""Invariants of nodes: what really happens to them, and the commands that they get."""

from __future__ import annotations

from collections.abc import Iterator

from muster.lifecycle.effects import (
    Entry,
    KillNodes,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.policy import GroupPolicy, Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef, RunStatus
from simulation.harness.invariants.scaling import desired_replicas, succeeded_early
from simulation.harness.trace import Command, Fact, Loaded, Note, Step
from simulation.harness.view import View

_TOLERANCE = 0.002  # seconds; waits take a little longer


def one_incarnation_at_a_time(view: View) -> Iterator[str]:
    """No incarnation of a node is launched while an older one is alive."""
    alive: dict[int, int] = {}
    for fact in view.facts:
        if fact.what == "refused":
            yield f"{fact.at:.3f}: node-{fact.rank}/{fact.incarnation} was launched next to another"
        elif fact.what == "launched":
            if fact.rank in alive:
                yield f"{fact.at:.3f}: node-{fact.rank} is alive twice"
            alive[fact.rank] = fact.incarnation
        elif fact.what == "ended":
            alive.pop(fact.rank, None)


def no_process_outlives_its_run(view: View) -> Iterator[str]:
    """When a run is recorded as ended or suspended, all its processes have ended; none starts until
    it is resumed. Where the engine has restarted it meanwhile, and nobody has heard of that, they
    end with the session."""
    alive: dict[int, int] = {}
    at_rest, unheard = False, of_native_restart(1)
    for line in view.trace.lines:
        if isinstance(line, Step):
            at_rest = line.after.state.terminal or line.after.state is RunState.SUSPENDED
            unheard = of_native_restart(line.after.native_restarts + 1)
            if at_rest and (known := [rank for rank in alive if alive[rank] < unheard]):
                yield f"step {line.number}: nodes {sorted(known)} are still alive"
        elif isinstance(line, Fact) and line.what == "launched":
            alive[line.rank] = line.incarnation
            if at_rest and line.incarnation < unheard:
                yield f"{line.at:.3f}: node-{line.rank} starts"
        elif isinstance(line, Fact) and line.what == "ended":
            alive.pop(line.rank, None)
    if at_rest and alive:
        yield f"nodes {sorted(alive)} are alive at the end"


def a_run_that_is_handed_over_has_no_processes(view: View) -> Iterator[str]:
    """When a controller records that it leaves the run to another one, no process is left, unless
    nodes outlive it."""
    if view.trace.detached:
        return
    alive: set[NodeRef] = set()
    for line in view.trace.lines:
        if isinstance(line, Fact) and line.what == "launched":
            alive.add(NodeRef(line.rank, line.incarnation))
        elif isinstance(line, Fact) and line.what == "ended":
            alive.discard(NodeRef(line.rank, line.incarnation))
        elif isinstance(line, Step) and line.hands_over and alive:
            yield f"step {line.number}: {sorted(alive)}"


def a_program_runs_once_per_incarnation(view: View) -> Iterator[str]:
    """The program of an incarnation runs at most once. The incarnation is launched again only if
    its program never ran and it was lost with its supervisor."""
    for ref, seen in view.incarnations.items():
        if len(seen.runs) > 1:
            yield f"{ref} ran {len(seen.runs)} times"
        if seen.runs and seen.runs[0] < seen.launched[-1]:
            yield f"{ref} was handed over again after it ran"


def old_incarnations_end_first(view: View) -> Iterator[str]:
    """in_place, blocking_recreate: no node of a restart starts while an old incarnation of any node
    of that restart is alive. recreate: the same within a replica."""
    policy = view.policy
    restarts = {restart.number: restart for restart in view.restarts}
    alive: dict[int, int] = {}
    scaled_down: dict[int, int] = {}  # rank -> the last step after which it was scaled down
    for fact in view.trace.lines:
        if isinstance(fact, Step):
            scaled_down |= {
                r: fact.number for r, node in enumerate(fact.after.nodes) if node.scaled_down
            }
        if not isinstance(fact, Fact):
            continue
        if fact.what == "ended":
            alive.pop(fact.rank, None)
        if fact.what != "launched":
            continue
        alive[fact.rank] = fact.incarnation
        restart = restarts.get(fact.incarnation)
        if restart is None:
            continue  # its first incarnation, or the first after a suspension
        # nodes that are scaled down by then or later do not restart with the others
        scope = {r for r in restart.ranks if scaled_down.get(r, 0) < restart.step.number}
        if policy.strategy is Strategy.RECREATE:
            group = policy.group_of(fact.rank)
            scope &= set(group.replica_ranks(group.replica_of(fact.rank)))
        old = [rank for rank in scope if alive.get(rank, fact.incarnation) < fact.incarnation]
        if old:
            yield f"{fact.at:.3f}: node-{fact.rank}/{fact.incarnation} starts next to old {old}"


def start_order_is_kept(view: View) -> Iterator[str]:
    """in_order, depends_on: no node starts before the groups that its group waits for are ready, or
    complete, with their present incarnations; also after a restart."""
    policy, seen = view.policy, view.incarnations
    for command, effect in view.starts:
        if command.again or not command.step:
            continue
        status = view.step(command.step).after
        for index in {policy.group_index(ref.rank) for ref in effect.nodes}:
            group = policy.groups[index]
            waits = [(i, False) for i in range(index)] if policy.in_order else []
            waits += [(d.group, d.complete) for d in group.depends_on]
            for other, complete in waits:
                awaited = policy.groups[other]
                if complete and not _complete(view, status, awaited):
                    yield f"step {command.step}: {group.name} before {awaited.name} is complete"
                up = 0
                for rank in awaited.ranks:
                    history = seen.get(NodeRef(rank, status.nodes[rank].incarnation))
                    stopped = status.nodes[rank].state.ended or status.nodes[rank].scaled_down
                    ready = (
                        history is not None
                        and history.ready is not None
                        and history.ready <= command.at
                    )
                    ended = (
                        history is not None
                        and history.ended is not None
                        and history.ended <= command.at
                    )
                    up += (ready or ended or stopped) and not status.nodes[rank].scaled_down
                    if not (ready or ended or stopped or awaited.is_array):
                        yield f"step {command.step}: {group.name} before node-{rank} is up"
                desired = len(desired_replicas(status, awaited)) * awaited.nodes
                if awaited.is_array and up < min(desired, awaited.at_once * awaited.nodes):
                    yield f"step {command.step}: {group.name} before {awaited.name} is up"


def _complete(view: View, status: RunStatus, group: GroupPolicy) -> bool:
    """Enough replicas of the group have really succeeded."""
    done = set()
    for replica in range(group.replicas):
        refs = [NodeRef(r, status.nodes[r].incarnation) for r in group.replica_ranks(replica)]
        histories = [view.incarnations.get(ref) for ref in refs]
        if all(x is not None and x.end is not None and x.end.exit_code == 0 for x in histories):
            done.add(replica)
    least = min(group.min_success, len(desired_replicas(status, group)))
    return len(done) >= least or succeeded_early(group, done)


def a_failed_replica_stays_down(view: View) -> Iterator[str]:
    """No node starts in a replica that has a failed node, unless that node restarts as well."""
    for command, effect in view.starts:
        if command.again or not command.step:
            continue
        status = view.step(command.step).after
        for ref in effect.nodes:
            group = view.policy.group_of(ref.rank)
            for rank in group.replica_ranks(group.replica_of(ref.rank)):
                if status.nodes[rank].state is NodeState.FAILED:
                    yield f"step {command.step}: node-{ref.rank}, while node-{rank} has failed"


def commands_name_current_incarnations(view: View) -> Iterator[str]:
    """Commands name incarnations that are alive by the record; a release names scaled-down
    nodes."""
    for command in view.commands:
        if not command.step:
            continue
        status = view.step(command.step).after
        for rank, incarnation in command.effect.nodes:
            node = status.nodes[rank]
            release = isinstance(command.effect, ReleaseNodes)
            present = node.state is NodeState.SCALED_DOWN if release else node.alive
            if node.incarnation != incarnation or not present:
                what = f"{command.effect} of {node.state}/{node.incarnation}"
                yield f"after step {command.step}: {what}"


def commands_are_sent_once(view: View) -> Iterator[str]:
    """A controller sends each command to an incarnation once."""
    sent: set[tuple[type, NodeRef]] = set()
    by = ""
    for command in view.commands:
        by_now = view.step(command.step).by if command.step else ""
        if command.again or by_now != by:
            sent.clear()  # a new controller repeats commands that may not have been carried out
        by = by_now
        if isinstance(command.effect, ReleaseNodes):
            continue  # a node may be scaled down again before its new incarnation has started
        for ref in command.effect.nodes:
            if (type(command.effect), ref) in sent:
                yield f"after step {command.step}: {ref} again: {type(command.effect).__name__}"
            sent.add((type(command.effect), ref))


def grace_period_is_given(view: View) -> Iterator[str]:
    """SIGKILL follows SIGTERM no earlier than after `grace_period`. (If a controller died in
    between, the next one counts from the decision, or decides again if the former one was leaving,
    which is not recorded.)"""
    sent: dict[NodeRef, float] = {}
    for command in view.commands:
        if isinstance(command.effect, StopNodes):
            for ref in command.effect.nodes:
                sent[ref] = -1.0 if command.again else command.now
        elif isinstance(command.effect, KillNodes) and not command.again:
            for ref in command.effect.nodes:
                if command.now < sent.get(ref, command.now) + view.policy.grace_period - _TOLERANCE:
                    yield f"after step {command.step}: {ref}, stopped at {sent.get(ref)}"


def grace_period_is_not_extended(view: View) -> Iterator[str]:
    """A stopping node is killed after `grace_period`, and a node that saves a checkpoint is stopped
    after `checkpoint.grace`, also if other commands follow. (If nodes outlive their controller, a
    new one counts anew; and so does a new contact with a node.)"""
    policy, by = view.policy, ""
    saving: dict[NodeRef, float] = {}
    ending: dict[NodeRef, float] = {}
    for step in view.steps:
        if view.trace.detached and step.by != by:
            saving.clear()
            ending.clear()
        by = step.by
        for rank, node in enumerate(step.after.nodes):
            if not node.leaving or not step.decides:
                continue
            ref = NodeRef(rank, node.incarnation)
            if node.unreachable_since is not None:
                saving.pop(ref, None)
                ending.pop(ref, None)
                continue
            if node.kill_at is None:
                since = saving.setdefault(ref, step.now)
                if policy.checkpoint and step.now > since + policy.checkpoint.grace + _TOLERANCE:
                    yield f"step {step.number}: {ref} still saves, signaled at {since}"
                continue
            since = ending.setdefault(ref, step.now)
            if not node.killed and step.now > since + policy.grace_period + _TOLERANCE:
                yield f"step {step.number}: {ref} is not killed, stopped at {since}"


def every_decision_is_carried_out(view: View) -> Iterator[str]:
    """After each step the controller carries out what was recorded: starts, checkpoint signals,
    stops, kills. A new controller first carries out what the previous one may have left undone."""
    expected: set[tuple[type, NodeRef]] = set()
    before: RunStatus | None = None
    driving = False
    for line in view.trace.lines:
        if isinstance(line, Note) and line.kind == "controller starts":
            expected, driving, before = set(), True, None
        elif isinstance(line, Loaded) and driving and before is None:
            before = line.status
            expected = set(_intents(view.policy, before))
        elif isinstance(line, Command):
            expected -= {(type(line.effect), ref) for ref in line.effect.nodes}
        elif isinstance(line, Step):
            driving = driving and line.by.startswith("controller")
            if driving and expected:
                yield f"step {line.number}: not carried out: {sorted(map(str, expected))}"
            old = set(_intents(view.policy, line.before))
            expected = set(_intents(view.policy, line.after)) - old if driving else set()
            expected -= {(StartNodes, ref) for ref in _queued(line.before)}
            expected -= {(StartNodes, ref) for ref in view.begun_by_engine(line)}


def _queued(status: RunStatus) -> Iterator[NodeRef]:
    """The nodes that have been started, and wait in a queue."""
    for rank, node in enumerate(status.nodes):
        if node.state is NodeState.QUEUED:
            yield NodeRef(rank, node.incarnation)


def _intents(policy: Policy, status: RunStatus) -> Iterator[tuple[type, NodeRef]]:
    for rank, node in enumerate(status.nodes):
        ref = NodeRef(rank, node.incarnation)
        if not node.alive:
            continue
        if node.killed:
            yield KillNodes, ref
        elif node.kill_at is not None:
            yield StopNodes, ref
        elif node.term_at is not None:
            yield SignalNodes, ref
        elif node.state is NodeState.STARTING:
            yield StartNodes, ref


def checkpoint_grace_is_given(view: View) -> Iterator[str]:
    """A node that got the checkpoint signal gets no SIGTERM before `checkpoint.grace` is over,
    unless the run is canceled meanwhile, or the node only serves others and they have all ended."""
    checkpoint = view.policy.checkpoint
    sent: dict[tuple[NodeRef, bool], float] = {}
    for command in view.commands:
        effect, leaving = command.effect, command.leaving
        if (
            isinstance(effect, StartNodes)
            or command.again
            or checkpoint is None
            or not command.step
        ):
            continue
        for ref in effect.nodes:
            if isinstance(effect, SignalNodes):
                sent[ref, leaving] = command.now
            elif isinstance(effect, StopNodes) and (ref, leaving) in sent:
                ending = view.step(command.step).after.stopping
                canceled = ending is not None and ending.outcome is RunState.CANCELED
                signaled = sent[ref, leaving]
                early = command.now < signaled + checkpoint.grace - _TOLERANCE
                if early and _is_unused(view.policy, view.step(command.step).after, ref.rank):
                    continue
                if early and _all_saved(view, command, ref.rank):
                    continue
                if early and not (canceled and view.trace.pending.cancel):
                    yield f"after step {command.step}: {ref}, signaled at {signaled}"


def _all_saved(view: View, command: Command, rank: int) -> bool:
    """Whether a node only serves nodes that have ended while the controller leaves, which it does
    not record."""
    if not command.leaving or not view.policy.group_of(rank).serves:
        return False
    # one that is launched again, as its end was not recorded, has not ended for good
    last = {(f.rank, f.incarnation): f.what for f in view.facts if f.at <= command.at}
    return all(
        what == "ended"
        for (other, _), what in last.items()
        if not view.policy.group_of(other).serves
    )


def every_node_may_save(view: View) -> Iterator[str]:
    """When a run with a checkpoint is suspended or reaches its `max_runtime`, each running node is
    first sent the checkpoint signal. Nodes that serve the others end as soon as those have
    ended."""
    if view.policy.checkpoint is None:
        return
    for step in view.steps:
        after = step.after
        if any(entry.kind == "stopping" and _saves(entry) for entry in step.entries):
            for rank, node in enumerate(after.nodes):
                stopped = (
                    not step.before.nodes[rank].leaving and node.alive and not node.scaling_down
                )
                group = view.policy.group_of(rank)
                ends = group.serves or _has_succeeded_early(after, group)
                if stopped and not ends and node.kill_at is not None and not _cut_short(step):
                    yield f"step {step.number}: node-{rank} is stopped"
        for rank, node in enumerate(after.nodes):
            saving = after.stopping is not None and node.alive and node.kill_at is None
            if saving and _is_unused(view.policy, after, rank):
                yield f"step {step.number}: node-{rank} no longer serves any node"


def _saves(entry: Entry) -> bool:
    limit = str(entry.data["why"]).startswith("maximum runtime")
    return limit or entry.data["towards"] == RunState.SUSPENDED


def _has_succeeded_early(status: RunStatus, group: GroupPolicy) -> bool:
    """Whether the rest of an array is stopped because enough of it has succeeded."""
    done = {
        replica
        for replica in range(group.replicas)
        if all(status.nodes[r].state is NodeState.SUCCEEDED for r in group.replica_ranks(replica))
    }
    return succeeded_early(group, done)


def _cut_short(step: Step) -> bool:
    """Whether a cancel in the same step, or an earlier stop of these nodes, takes precedence."""
    kinds = [entry.kind for entry in step.entries]
    return kinds.count("stopping") > 1 or "failure" in kinds or "restart" in kinds


def a_new_controller_restarts_ready_timeouts(view: View) -> Iterator[str]:
    """Nodes that are starting when a controller takes over are launched again, and their
    `ready_timeout` restarts; if they have outlived the one before, also that of nodes that run."""
    begun = (NodeState.STARTING, *(NodeState.RUNNING,) * view.trace.detached)
    by = ""
    for step in view.steps:
        first, by = step.by != by and step.by.startswith("controller"), step.by
        for rank, node in enumerate(step.after.nodes if first else ()):
            old = step.before.nodes[rank]
            starting = node.state in begun and old.state in begun
            lost = old.unreachable_since is not None  # its clock stands still
            if not starting or old.leaving or node.leaving or node.since is None or lost:
                continue
            # a step that changes nothing is not recorded
            begun_at = max(at for at in view.controllers if at <= step.at)
            unrecorded = step.at - begun_at if view.trace.detached else 0.0
            if not 0 <= step.now - node.since - node.away + _TOLERANCE <= unrecorded + 0.01:
                yield f"step {step.number}: node-{rank} since {node.since}"


def _is_unused(policy: Policy, status: RunStatus, rank: int) -> bool:
    others = (group for group in policy.groups if not group.serves)
    left = any(status.nodes[other].alive for group in others for other in group.ranks)
    return policy.group_of(rank).serves and not left
