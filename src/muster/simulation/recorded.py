"""What is true of what a run records: its status, its event log, its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec.structs import replace

from muster.lifecycle import census
from muster.lifecycle.fold import fold
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import ENDED, NodeState, RunState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason, RunStatus
from muster.simulation.scaled import wanted
from muster.simulation.story import Note, Step
from muster.simulation.view import View

_ORDER = (
    NodeState.PARKED,
    NodeState.PENDING,
    NodeState.STARTING,
    NodeState.RUNNING,
    NodeState.READY,
)


def a_run_comes_to_rest(view: View) -> Iterator[str]:
    """Every run that was accepted ends, or rests suspended with nothing asked of it, in bounded
    time after the last fault; and nothing raises."""
    story = view.story
    if story.verdict not in ("ended", "suspended"):
        yield story.verdict
    elif story.verdict == "suspended" and story.asked.cancel:
        yield f"suspended, while this is asked: {story.asked.cancel}"


def the_end_is_the_end(view: View) -> Iterator[str]:
    """Nothing is recorded or done after a terminal state was recorded, with which each node has
    ended, or is parked."""
    ends = [step.number for step in view.steps if step.after.state.terminal]
    if ends and ends[0] != len(view.steps):
        yield f"step {ends[0] + 1} follows the end"
    over = (*ENDED, NodeState.PARKED)
    if ends and not all(node.state in over for node in view.step(ends[0]).after.nodes):
        yield f"step {ends[0]}: nodes have not ended"
    if ends and any(act.step >= ends[0] for act in view.acts):
        yield "something was done after the end"


def states_follow_each_other(view: View) -> Iterator[str]:
    """The run's states only come in the order in which they may."""
    for step in view.steps:
        before, after = step.before.state, step.after.state
        if before is not after and after not in _NEXT[before]:
            yield f"step {step.number}: {before} -> {after}"


_ENDS = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED})
_NEXT = {
    RunState.ACCEPTED: _ENDS | {RunState.IN_PROGRESS, RunState.CANCELING, RunState.SUSPENDED},
    RunState.IN_PROGRESS: _ENDS | {RunState.CANCELING, RunState.SUSPENDED},
    RunState.CANCELING: frozenset({RunState.CANCELED}),
    # resumed, and all of the next step with it
    RunState.SUSPENDED: _ENDS | {RunState.ACCEPTED, RunState.CANCELING},
}


def nodes_only_go_on(view: View) -> Iterator[str]:
    """A node's states come in order within an incarnation, and incarnations count upwards; only
    one that never began is pending again when its supervisor is lost, or parked."""
    for step in view.steps:
        if step.before.nodes is step.after.nodes:
            continue
        lost = step.by == "recovery"
        for rank, (old, new) in enumerate(zip(step.before.nodes, step.after.nodes, strict=True)):
            if old is not new and not _goes_on(old, new, lost=lost):
                text = f"{old.state}/{old.incarnation} -> {new.state}/{new.incarnation}"
                yield f"step {step.number}: node-{rank} {text}"


def _goes_on(old: NodeStatus, new: NodeStatus, *, lost: bool) -> bool:
    if old.incarnation != new.incarnation:
        return new.incarnation > old.incarnation
    if old.state.ended:
        return new.state is old.state
    if new.state.ended:
        return True
    unbegun = lost and (old.state, new.state) == (NodeState.STARTING, NodeState.PENDING)
    parked = (old.state, new.state) == (NodeState.PENDING, NodeState.PARKED)
    return unbegun or parked or _ORDER.index(new.state) >= _ORDER.index(old.state)


def the_census_is_true(view: View) -> Iterator[str]:
    """The census that is kept up to date is what counting from nothing gives."""
    nodes: tuple[NodeStatus, ...] = ()
    for step in view.steps:
        kept = step.after.census
        if nodes is not step.after.nodes:
            nodes = step.after.nodes
            counted = census.take(view.policy, nodes)
        if kept is not None and kept != counted:
            yield f"step {step.number}: {kept}"


def the_record_is_complete(view: View) -> Iterator[str]:
    """What is read back is what was recorded, its alarm aside, which follows from it."""
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


def the_log_tells_the_status(view: View) -> Iterator[str]:
    """Folding the event log gives the status: state, details, attempt, nodes, incarnations."""
    final = view.story.final
    if final is None:
        return
    told = fold((entry.kind, entry.data) for entry in view.story.log)
    for name in ("state", "details", "attempt"):
        if getattr(told, name) != getattr(final, name):
            yield f"{name}: {getattr(told, name)!r} in the log, {getattr(final, name)!r} recorded"
    for rank, node in enumerate(final.nodes):
        tells = told.nodes.get(rank, (NodeState.PENDING, 0))
        if tells != (node.state, node.incarnation):
            yield f"node-{rank}: {tells} in the log, {node.state}/{node.incarnation} recorded"


def the_log_has_no_holes(view: View) -> Iterator[str]:
    """Entries are numbered 1, 2, 3, ..."""
    numbers = [entry.seq for entry in view.story.log]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"numbers {numbers}"


def time_does_not_go_back(view: View) -> Iterator[str]:
    """No entry of the event log is older than the one before, whatever the clocks did."""
    for before, after in pairwise(view.story.log):
        if after.time < before.time:
            yield f"entry {after.seq} is {before.time - after.time:g} s older than the one before"


def a_cancel_is_final(view: View) -> Iterator[str]:
    """Once a cancel was asked the run ends; as CANCELED, unless it was ending otherwise by then,
    or is found to be broken."""
    asked = next((n for n in view.notes if n.kind == "cancel asked"), None)
    if asked is None or view.story.final is None:
        return
    after = _steps_after(view, asked)
    # the first may have been decided before; the second has heard of it
    if len(after) > 1 and not after[1].after.state.terminal and after[1].after.stopping is None:
        yield f"step {after[1].number} knows nothing of it"
    later = after[2:]
    if any(act.step >= later[0].number for act, _ in view.starts) if later else False:
        yield "nodes are started"
    if view.story.final.state is not RunState.CANCELED and after:
        ending = after[0].after.stopping
        # also one that was to succeed fails, if what it was to leave behind is lost
        ended = (RunState.SUCCEEDED, RunState.FAILED)
        if not after[0].after.state.terminal and (ending is None or ending.outcome not in ended):
            yield f"the run is {view.story.final.state}"


def _steps_after(view: View, note: Note) -> list[Step]:
    """Those of who looks at what is asked, as one who resumes the run does not."""
    place = next(i for i, line in enumerate(view.story.lines) if line is note)
    steps = (line for line in view.story.lines[place:] if isinstance(line, Step))
    return [step for step in steps if step.by != "a person" or step.after.state.terminal]


def each_pause_is_asked_for(view: View) -> Iterator[str]:
    """A run is suspended only because somebody asked for it since it was last resumed."""
    asked = False
    for line in view.story.lines:
        if isinstance(line, Note) and line.kind == "suspend asked":
            asked = True
        elif isinstance(line, Step):
            was = line.before.state is RunState.SUSPENDED
            if line.after.state is RunState.SUSPENDED and not (was or asked):
                yield f"step {line.number}: nobody asked for it"
            asked = asked and not was


def attempts_are_counted(view: View) -> Iterator[str]:
    """Each restart of the run as a whole is another attempt, and so is each resume of a run that
    had begun; nothing else is."""
    for step in view.steps:
        began = step.before.started_at is not None
        more = sum(
            (entry.kind == "restart" and entry.data["what"] == "the run")
            or (entry.kind == "resumed" and began)
            for entry in step.entries
        )
        if step.after.attempt != step.before.attempt + more:
            yield f"step {step.number}: {step.before.attempt} -> {step.after.attempt}"


def others_may_finish(view: View) -> Iterator[str]:
    """Where success waits for the others, none of them runs when the run is to end as SUCCEEDED."""
    for step in view.steps if view.policy.success.wait else ():
        over = (e.data["towards"] for e in step.entries if e.kind == "stopping")
        if RunState.SUCCEEDED in over and any(node.alive for node in step.after.nodes):
            yield f"step {step.number}"


def what_was_interrupted_has_not_succeeded(view: View) -> Iterator[str]:
    """A node that was told to end or to save because its run is suspended has not succeeded,
    whatever it ends with."""
    for step in view.steps:
        ending = step.before.stopping
        if ending is None or ending.outcome is not RunState.SUSPENDED:
            continue
        for rank, (old, new) in enumerate(zip(step.before.nodes, step.after.nodes, strict=True)):
            if old.leaving and new.state is NodeState.SUCCEEDED:
                yield f"step {step.number}: node-{rank}"


def the_suspended_have_nothing(view: View) -> Iterator[str]:
    """A suspended run has whole replicas that have succeeded, and nothing else: each other node
    waits to begin, or is parked."""
    for step in view.steps:
        after = step.after
        if after.state is not RunState.SUSPENDED or step.before.state is RunState.SUSPENDED:
            continue
        if after.stopping is not None:
            yield f"step {step.number}: it is still to end"
        for ranks in _replicas(view.policy):
            states = {after.nodes[rank].state for rank in ranks}
            if states not in ({NodeState.SUCCEEDED}, {NodeState.PENDING}, {NodeState.PARKED}):
                yield f"step {step.number}: nodes {ranks} are {states}"


def successes_survive_suspension(view: View) -> Iterator[str]:
    """A replica that had succeeded as a whole is not run again by suspending and resuming."""
    for step in view.steps:
        resumed = step.before.state is RunState.SUSPENDED
        suspended = step.after.state is RunState.SUSPENDED
        if resumed == suspended:
            continue
        restarted = {rank for r in view.restarts if r.step is step for rank in r.ranks}
        for ranks in _replicas(view.policy):
            nodes = [step.before.nodes[rank] for rank in ranks]
            if any(node.state is not NodeState.SUCCEEDED for node in nodes):
                continue
            if step.after.nodes[ranks[0]].parked:
                continue
            if not restarted & set(ranks) and any(
                step.after.nodes[rank] != node for rank, node in zip(ranks, nodes, strict=True)
            ):
                yield f"step {step.number}: nodes {ranks} had succeeded"


def _replicas(policy: Policy) -> Iterator[range]:
    for group in policy.groups:
        for replica in range(group.replicas):
            yield group.replica_ranks(replica)


def the_outcome_is_true(view: View) -> Iterator[str]:
    """A run that SUCCEEDED has the successes its policy asks for, in the world; one that FAILED
    has a cause that happened, with that exit code; one that was CANCELED was to be, or had its
    time."""
    final = view.story.final
    if final is None:
        return
    match final.state:
        case RunState.SUCCEEDED:
            yield from _success(view, final)
        case RunState.FAILED:
            yield from _cause(view, final)
        case RunState.CANCELED:
            if not view.story.asked.cancel and "maximum runtime" not in final.details:
                yield "nobody wanted it canceled"


def _success(view: View, final: RunStatus) -> Iterator[str]:
    if final.exit_code != 0:
        yield f"exit code {final.exit_code} of a success"
    rules, counts = view.policy.success, []
    for index in rules.groups:
        group = view.policy.groups[index]
        done = sum(
            all(_succeeded(view, final, rank) for rank in group.replica_ranks(replica))
            for replica in range(group.replicas)
        )
        counts.append((done, min(group.min_success, len(wanted(final, group)))))
    if rules.any_replica and not any(done for done, _ in counts):
        yield "no replica has succeeded"
    if not rules.any_replica and any(done < least for done, least in counts):
        yield f"(successes, wanted) of its groups: {counts}"


def _succeeded(view: View, final: RunStatus, rank: int) -> bool:
    seen = view.lives.get(NodeRef(rank, final.nodes[rank].incarnation))
    return seen is not None and seen.end is not None and seen.end.exit_code == 0


def _cause(view: View, final: RunStatus) -> Iterator[str]:
    if final.details in ("its supervisor broke", "its supervisors never last", _NOTHING_LEFT):
        return
    cause = final.cause
    if cause is None:
        yield f"without a cause: {final.details}"
        return
    if final.exit_code != cause.exit_code:
        yield f"with exit code {final.exit_code}, its cause has {cause.exit_code}"
    if cause.reason in (Reason.DEADLINE, Reason.STARTUP_TIMEOUT):
        return  # found by Muster; see `deadlines_are_not_early`
    if cause.reason is Reason.NODE_LOST and cause.message == "its supervisor died":
        return
    seen = view.lives.get(NodeRef(cause.rank, cause.incarnation))
    end = None if seen is None else seen.end
    if end is None or (cause.reason, cause.exit_code) != (end.reason, end.exit_code):
        yield f"its cause was {cause}, what happened {end}"


#: What a run fails of when it has lost nothing it needs, but has nothing left to succeed with.
_NOTHING_LEFT = "no replica that would be enough has succeeded"
