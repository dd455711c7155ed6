"""Invariants of what a run records: its status, event log and outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from muster.lifecycle import counts
from muster.lifecycle.policy import Policy
from muster.lifecycle.replay import replay
from muster.lifecycle.states import ENDED, NodeState, RunState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason, RunStatus
from simulation.harness.invariants.scaling import desired_replicas, succeeded_early
from simulation.harness.trace import Note, Step
from simulation.harness.view import View

_ORDER = (
    NodeState.SCALED_DOWN,
    NodeState.PENDING,
    NodeState.QUEUED,
    NodeState.STARTING,
    NodeState.RUNNING,
    NodeState.READY,
)


def every_run_ends(view: View) -> Iterator[str]:
    """Every accepted run ends, or stays suspended without pending requests, within bounded time
    after the last fault; and nothing raises."""
    trace = view.trace
    if trace.result not in ("ended", "suspended"):
        yield trace.result
    elif trace.result == "suspended" and trace.pending.cancel:
        yield f"suspended with a pending request: {trace.pending.cancel}"


def a_terminal_state_is_final(view: View) -> Iterator[str]:
    """Nothing is recorded or done after a terminal state. With it, every node has ended or is
    scaled down."""
    ends = [step.number for step in view.steps if step.after.state.terminal]
    if ends and ends[0] != len(view.steps):
        yield f"step {ends[0] + 1} follows a terminal state"
    over = (*ENDED, NodeState.SCALED_DOWN)
    if ends and not all(node.state in over for node in view.step(ends[0]).after.nodes):
        yield f"step {ends[0]}: nodes have not ended"
    if ends and any(command.step >= ends[0] for command in view.commands):
        yield "commands follow a terminal state"


def run_states_are_in_order(view: View) -> Iterator[str]:
    """The run's state changes only along allowed transitions."""
    for step in view.steps:
        before, after = step.before.state, step.after.state
        if before is not after and after not in _NEXT[before]:
            yield f"step {step.number}: {before} -> {after}"


_ENDS = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED})
_NEXT = {
    RunState.ACCEPTED: _ENDS | {RunState.IN_PROGRESS, RunState.CANCELING, RunState.SUSPENDED},
    RunState.IN_PROGRESS: _ENDS | {RunState.CANCELING, RunState.SUSPENDED},
    RunState.CANCELING: frozenset({RunState.CANCELED}),
    # a resume, and the changes of the same step
    RunState.SUSPENDED: _ENDS | {RunState.ACCEPTED, RunState.CANCELING},
}


def node_states_are_in_order(view: View) -> Iterator[str]:
    """A node's states come in order within an incarnation, and incarnations only increase. Only a
    node that never started is pending again when its supervisor is lost, or scaled down; and only
    one that was given to the engine turns out to be queued."""
    for step in view.steps:
        if step.before.nodes is step.after.nodes:
            continue
        lost = step.by == "recovery"
        for rank, (old, new) in enumerate(zip(step.before.nodes, step.after.nodes, strict=True)):
            if old is not new and not _is_allowed(old, new, lost=lost):
                text = f"{old.state}/{old.incarnation} -> {new.state}/{new.incarnation}"
                yield f"step {step.number}: node-{rank} {text}"


def _is_allowed(old: NodeStatus, new: NodeStatus, *, lost: bool) -> bool:
    if old.incarnation != new.incarnation:
        return new.incarnation > old.incarnation
    if old.state.ended:
        return new.state is old.state
    if new.state.ended:
        return True
    unstarted = lost and (old.state, new.state) == (NodeState.STARTING, NodeState.PENDING)
    scaled_down = (old.state, new.state) == (NodeState.PENDING, NodeState.SCALED_DOWN)
    queued = (old.state, new.state) == (NodeState.STARTING, NodeState.QUEUED)
    return unstarted or scaled_down or queued or _ORDER.index(new.state) >= _ORDER.index(old.state)


def node_counts_are_correct(view: View) -> Iterator[str]:
    """The counts of nodes by state, which are updated incrementally, match a full count."""
    nodes: Sequence[NodeStatus] = ()
    for step in view.steps:
        kept = step.after.counts
        if nodes is not step.after.nodes:
            nodes = step.after.nodes
            counted = counts.count_nodes(view.policy, nodes)
        if kept is not None and kept != counted:
            yield f"step {step.number}: {kept}"


def the_record_is_complete(view: View) -> Iterator[str]:
    """The status that is read back is the one that was recorded, except the alarm, which follows
    from it."""
    for step, loaded in view.read_back:
        if replace(step.after, alarm=0.0) != loaded.status:
            yield f"after step {step.number}: {_difference(step.after, loaded.status)}"


def _difference(expected: RunStatus, found: RunStatus) -> str:
    names = (n for n in RunStatus.__struct_fields__ if n not in ("alarm", "nodes"))
    parts = [
        f"{name} was {getattr(expected, name)}, is {getattr(found, name)}"
        for name in names
        if getattr(expected, name) != getattr(found, name)
    ]
    parts += [
        f"node-{rank} was {old}, is {new}"
        for rank, (old, new) in enumerate(zip(expected.nodes, found.nodes, strict=True))
        if old != new
    ]
    return "; ".join(parts)


def the_log_gives_the_status(view: View) -> Iterator[str]:
    """Replaying the event log gives the status: state, details, attempt, and the nodes' states and
    incarnations."""
    final = view.trace.final
    if final is None:
        return
    replayed = replay((entry.kind, entry.data) for entry in view.trace.log)
    for name in ("state", "details", "attempt"):
        if getattr(replayed, name) != getattr(final, name):
            logged, recorded = getattr(replayed, name), getattr(final, name)
            yield f"{name}: {logged!r} in the log, {recorded!r} recorded"
    for rank, node in enumerate(final.nodes):
        logged = replayed.nodes.get(rank, (NodeState.PENDING, 0))
        if logged != (node.state, node.incarnation):
            yield f"node-{rank}: {logged} in the log, {node.state}/{node.incarnation} recorded"


def the_log_has_no_gaps(view: View) -> Iterator[str]:
    """Log entries are numbered 1, 2, 3, ..."""
    numbers = [entry.seq for entry in view.trace.log]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"numbers {numbers}"


def log_times_never_decrease(view: View) -> Iterator[str]:
    """No log entry is older than the one before, even if clocks are set. Requests do not count: the
    end of a run has the time at which it was decided, before its session began to close."""
    steps = [entry for entry in view.trace.log if not entry.kind.endswith("_requested")]
    for before, after in pairwise(steps):
        if after.time < before.time:
            yield f"entry {after.seq} is {before.time - after.time:g} s older than the one before"


def a_cancel_is_final(view: View) -> Iterator[str]:
    """After a cancel request the run ends: as CANCELED, unless it was ending in another way by then
    or is found to be broken."""
    request = next((n for n in view.notes if n.kind == "cancel requested"), None)
    if request is None or view.trace.final is None:
        return
    after = _steps_after(view, request)
    # the first step may have been decided before the request; the second knows it
    if len(after) > 1 and not after[1].after.state.terminal and after[1].after.stopping is None:
        yield f"step {after[1].number} ignores the request"
    later = after[2:]
    if any(command.step >= later[0].number for command, _ in view.starts) if later else False:
        yield "nodes are started"
    if view.trace.final.state is not RunState.CANCELED and after:
        ending = after[0].after.stopping
        # a run that was about to succeed fails if its output is lost
        ended = (RunState.SUCCEEDED, RunState.FAILED)
        if not after[0].after.state.terminal and (ending is None or ending.outcome not in ended):
            yield f"the run is {view.trace.final.state}"


def _steps_after(view: View, note: Note) -> list[Step]:
    """The steps of controllers and recovery; a resume by the user does not read other requests, nor
    does one that leaves nodes that outlive it, or replaces it."""
    place = next(i for i, line in enumerate(view.trace.lines) if line is note)
    steps = (line for line in view.trace.lines[place:] if isinstance(line, Step))
    if view.trace.detached:
        steps = (step for step in steps if step.decides)
    return [step for step in steps if step.by != "the user" or step.after.state.terminal]


def suspensions_are_requested(view: View) -> Iterator[str]:
    """A run is suspended only if a user has requested it since the run was last resumed."""
    requested = False
    for line in view.trace.lines:
        if isinstance(line, Note) and line.kind == "suspend requested":
            requested = True
        elif isinstance(line, Step):
            was = line.before.state is RunState.SUSPENDED
            if line.after.state is RunState.SUSPENDED and not (was or requested):
                yield f"step {line.number}: without a request"
            requested = requested and not was


def attempts_are_counted(view: View) -> Iterator[str]:
    """Each restart of the whole run starts a new attempt, also one by the engine itself, and so
    does each resume of a run that had started; nothing else does."""
    for step in view.steps:
        started = step.before.started_at is not None
        more = sum(
            (entry.kind == "restart" and entry.data["what"] == "the run")
            or (entry.kind == "resumed" and started)
            for entry in step.entries
        )
        if step.after.attempt != step.before.attempt + more:
            yield f"step {step.number}: {step.before.attempt} -> {step.after.attempt}"


def success_waits_for_others(view: View) -> Iterator[str]:
    """Where success waits for the others, none of them is running when the run starts to end as
    SUCCEEDED."""
    for step in view.steps if view.policy.success.wait else ():
        over = (e.data["towards"] for e in step.entries if e.kind == "stopping")
        if RunState.SUCCEEDED in over and any(node.alive for node in step.after.nodes):
            yield f"step {step.number}"


def interrupted_nodes_have_not_succeeded(view: View) -> Iterator[str]:
    """A node that is signaled or stopped because its run is being suspended has not succeeded, with
    any exit code."""
    for step in view.steps:
        ending = step.before.stopping
        if ending is None or ending.outcome is not RunState.SUSPENDED:
            continue
        for rank, (old, new) in enumerate(zip(step.before.nodes, step.after.nodes, strict=True)):
            same = old.incarnation == new.incarnation
            if same and old.leaving and new.state is NodeState.SUCCEEDED:
                yield f"step {step.number}: node-{rank}"


def a_suspended_run_has_no_nodes(view: View) -> Iterator[str]:
    """In a suspended run each replica has succeeded as a whole, is pending, or is scaled down; one
    of an array may have failed."""
    for step in view.steps:
        after = step.after
        if after.state is not RunState.SUSPENDED or step.before.state is RunState.SUSPENDED:
            continue
        if after.stopping is not None:
            yield f"step {step.number}: it is still stopping"
        for ranks in _replicas(view.policy):
            states = {after.nodes[rank].state for rank in ranks}
            if states in ({NodeState.SUCCEEDED}, {NodeState.PENDING}, {NodeState.SCALED_DOWN}):
                continue
            of_array = view.policy.group_of(ranks[0]).is_array
            ended = all(state.ended for state in states)
            if not (of_array and ended and NodeState.FAILED in states):
                yield f"step {step.number}: nodes {ranks} are {states}"


def successes_survive_suspension(view: View) -> Iterator[str]:
    """A replica that has succeeded as a whole does not run again because the run is suspended and
    resumed."""
    for step in view.steps:
        resumed = step.before.state is RunState.SUSPENDED
        suspended = step.after.state is RunState.SUSPENDED
        if resumed == suspended or step.after.native_restarts != step.before.native_restarts:
            continue
        restarted = {rank for r in view.restarts if r.step is step for rank in r.ranks}
        for ranks in _replicas(view.policy):
            nodes = [step.before.nodes[rank] for rank in ranks]
            if any(node.state is not NodeState.SUCCEEDED for node in nodes):
                continue
            if step.after.nodes[ranks[0]].scaled_down:
                continue
            if not restarted & set(ranks) and any(
                step.after.nodes[rank] != node for rank, node in zip(ranks, nodes, strict=True)
            ):
                yield f"step {step.number}: nodes {ranks} had succeeded"


def failures_survive_suspension(view: View) -> Iterator[str]:
    """A replica of an array that has failed before a run is suspended, and is not restarted, stays
    failed while the run is suspended and after it is resumed. One that has not failed by then is
    not failed in the suspended run."""
    failed: set[int] = set()  # the first ranks of such replicas, when the suspension begins
    known = False
    for step in view.steps:
        ending, after = step.after.stopping, step.after
        suspending = ending is not None and ending.outcome is RunState.SUSPENDED
        begun = any(
            entry.kind == "stopping" and entry.data["towards"] == RunState.SUSPENDED
            for entry in step.entries
        )
        if begun:
            failed, known = {*_failed_replicas(view.policy, step.before)}, True
        elif not suspending and after.state is not RunState.SUSPENDED:
            known = known and step.before.state is RunState.SUSPENDED
        if known and after.state is RunState.SUSPENDED:
            kept = {*_failed_replicas(view.policy, after)}
            if kept != failed:
                yield f"step {step.number}: failed before {failed}, and then {kept}"
        elif known and step.before.state is RunState.SUSPENDED and not after.state.terminal:
            restarted = {rank for r in view.restarts if r.step is step for rank in r.ranks}
            lost = failed - {*_failed_replicas(view.policy, after)} - restarted
            if lost:
                yield f"step {step.number}: replicas from ranks {lost} had failed"


def _failed_replicas(policy: Policy, status: RunStatus) -> Iterator[int]:
    """The first ranks of the replicas of arrays with a node that has failed, or fails whatever its
    exit code, and is not restarted."""
    for ranks in _replicas(policy):
        nodes = [status.nodes[rank] for rank in ranks]
        if policy.group_of(ranks[0]).is_array and any(
            node.state is NodeState.FAILED
            or (node.alive and node.fault is not None and node.next_incarnation is None)
            for node in nodes
        ):
            yield ranks[0]


def _replicas(policy: Policy) -> Iterator[range]:
    for group in policy.groups:
        for replica in range(group.replicas):
            yield group.replica_ranks(replica)


def the_outcome_matches_the_nodes(view: View) -> Iterator[str]:
    """A run that SUCCEEDED has the successes that its policy requires, among the simulated nodes. A
    run that FAILED has a cause that really happened, with that exit code. A run that was CANCELED
    was canceled by a user or has reached its `max_runtime`."""
    final = view.trace.final
    if final is None:
        return
    match final.state:
        case RunState.SUCCEEDED:
            yield from _success(view, final)
        case RunState.FAILED:
            yield from _cause(view, final)
        case RunState.CANCELED:
            if not view.trace.pending.cancel and "maximum runtime" not in final.details:
                yield "without a request"


def _success(view: View, final: RunStatus) -> Iterator[str]:
    if final.exit_code != 0:
        yield f"exit code {final.exit_code} of a success"
    rules, counts, enough = view.policy.success, [], []
    for index in rules.groups:
        group = view.policy.groups[index]
        done = {
            replica
            for replica in range(group.replicas)
            if all(_succeeded(view, final, rank) for rank in group.replica_ranks(replica))
        }
        least = min(group.min_success, len(desired_replicas(final, group)))
        least = min(least, len(done)) if succeeded_early(group, done) else least
        counts.append((len(done), least))
        enough.append(len(done) >= least if group.is_array else bool(done))
    if rules.any_replica and not any(enough):
        yield "no replica has succeeded"
    if not rules.any_replica and any(done < least for done, least in counts):
        yield f"(successes, required) of its groups: {counts}"


def _succeeded(view: View, final: RunStatus, rank: int) -> bool:
    seen = view.incarnations.get(NodeRef(rank, final.nodes[rank].incarnation))
    return seen is not None and seen.end is not None and seen.end.exit_code == 0


def _cause(view: View, final: RunStatus) -> Iterator[str]:
    if final.details in (
        "its supervisor broke",
        "its supervisors were lost repeatedly",
        _NOTHING_LEFT,
    ) or final.details.startswith("the engine has restarted"):
        return
    cause = final.cause
    if cause is None:
        yield f"without a cause: {final.details}"
        return
    if final.exit_code != cause.exit_code:
        yield f"with exit code {final.exit_code}, its cause has {cause.exit_code}"
    if cause.reason in (Reason.DEADLINE, Reason.STARTUP_TIMEOUT):
        return  # found by Muster; see `timeouts_are_not_early`
    if cause.reason is Reason.NODE_LOST and cause.message in _LOST_WITH_SUPERVISOR:
        return
    seen = view.incarnations.get(NodeRef(cause.rank, cause.incarnation))
    end = None if seen is None else seen.end
    if end is None or (cause.reason, cause.exit_code) != (end.reason, end.exit_code):
        yield f"its cause was {cause}, what happened {end}"


_LOST_WITH_SUPERVISOR = ("its supervisor died", "its supervisor was terminated")
#: The details of a run that failed without a failure that it could not tolerate.
_NOTHING_LEFT = "too few replicas succeeded, and no others are left"
