"""What is true of nodes: of what the world sees of them, and of what they are told."""

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
from muster.lifecycle.policy import GroupPolicy, Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef, RunStatus
from muster.simulation.scaled import wanted
from muster.simulation.story import Act, Fact, Loaded, Note, Step
from muster.simulation.view import View

_SOON = 0.002  # seconds; clocks wake a little late


def one_life_at_a_time(view: View) -> Iterator[str]:
    """No node of an old incarnation is alive beside a new one of the same rank."""
    alive: dict[int, int] = {}
    for fact in view.facts:
        if fact.what == "refused":
            yield f"{fact.at:.3f}: node-{fact.rank}/{fact.incarnation} was to start beside another"
        elif fact.what == "handed over":
            if fact.rank in alive:
                yield f"{fact.at:.3f}: node-{fact.rank} lives twice"
            alive[fact.rank] = fact.incarnation
        elif fact.what == "ended":
            alive.pop(fact.rank, None)


def nothing_outlives_its_run(view: View) -> Iterator[str]:
    """When a run is recorded as ended or suspended, every process of it has ended; and none starts
    until it is resumed."""
    alive: set[int] = set()
    resting = False
    for line in view.story.lines:
        if isinstance(line, Step):
            resting = line.after.state.terminal or line.after.state is RunState.SUSPENDED
            if resting and alive:
                yield f"step {line.number}: nodes {sorted(alive)} live on"
        elif isinstance(line, Fact) and line.what == "handed over":
            alive.add(line.rank)
            if resting:
                yield f"{line.at:.3f}: node-{line.rank} starts"
        elif isinstance(line, Fact) and line.what == "ended":
            alive.discard(line.rank)


def a_program_runs_once_a_life(view: View) -> Iterator[str]:
    """The program of an incarnation runs once at most; it is handed over again only if it never
    ran, and was lost with its supervisor."""
    for ref, seen in view.lives.items():
        if len(seen.runs) > 1:
            yield f"{ref} ran {len(seen.runs)} times"
        if seen.runs and seen.runs[0] < seen.handed[-1]:
            yield f"{ref} was handed over again after it ran"


def old_ones_go_first(view: View) -> Iterator[str]:
    """in_place, blocking_recreate: nothing of a restart starts while an old node of all that it
    starts again is alive. recreate: the same within a replica."""
    policy = view.policy
    restarts = {restart.number: restart for restart in view.restarts}
    alive: dict[int, int] = {}
    parked: dict[int, int] = {}  # by rank: the last step after which it was
    for fact in view.story.lines:
        if isinstance(fact, Step):
            parked |= {r: fact.number for r, node in enumerate(fact.after.nodes) if node.parked}
        if not isinstance(fact, Fact):
            continue
        if fact.what == "ended":
            alive.pop(fact.rank, None)
        if fact.what != "handed over":
            continue
        alive[fact.rank] = fact.incarnation
        restart = restarts.get(fact.incarnation)
        if restart is None:
            continue  # its first life, or that after a suspension
        # what is scaled away, then or later, does not start again with the others
        scope = {r for r in restart.ranks if parked.get(r, 0) < restart.step.number}
        if policy.strategy is Strategy.RECREATE:
            group = policy.group_of(fact.rank)
            scope &= set(group.replica_ranks(group.replica_of(fact.rank)))
        old = [rank for rank in scope if alive.get(rank, fact.incarnation) < fact.incarnation]
        if old:
            yield f"{fact.at:.3f}: node-{fact.rank}/{fact.incarnation} starts beside old {old}"


def order_is_kept(view: View) -> Iterator[str]:
    """in_order, depends_on: no node is started before what its group waits for is up, or complete,
    in the world and in its present incarnation; after a restart as well."""
    policy, seen = view.policy, view.lives
    for act, effect in view.starts:
        if act.again or not act.step:
            continue
        status = view.step(act.step).after
        for index in {policy.group_index(ref.rank) for ref in effect.nodes}:
            group = policy.groups[index]
            waits = [(i, False) for i in range(index)] if policy.in_order else []
            waits += [(d.group, d.complete) for d in group.depends_on]
            for other, complete in waits:
                awaited = policy.groups[other]
                if complete and not _complete(view, status, awaited):
                    yield f"step {act.step}: {group.name} before {awaited.name} is complete"
                for rank in awaited.ranks:
                    life = seen.get(NodeRef(rank, status.nodes[rank].incarnation))
                    stopped = status.nodes[rank].state.ended or status.nodes[rank].parked
                    ready = life is not None and life.ready is not None and life.ready <= act.at
                    gone = life is not None and life.ended is not None and life.ended <= act.at
                    if not (ready or gone or stopped):
                        yield f"step {act.step}: {group.name} before node-{rank} is up"


def _complete(view: View, status: RunStatus, group: GroupPolicy) -> bool:
    """Enough replicas of it have truly succeeded."""
    done = 0
    for replica in range(group.replicas):
        refs = [NodeRef(r, status.nodes[r].incarnation) for r in group.replica_ranks(replica)]
        lives = [view.lives.get(ref) for ref in refs]
        done += all(x is not None and x.end is not None and x.end.exit_code == 0 for x in lives)
    return done >= min(group.min_success, len(wanted(status, group)))


def a_failed_replica_stays_down(view: View) -> Iterator[str]:
    """No node is started in a replica that has a failed node: it starts again with it, or not at
    all."""
    for act, effect in view.starts:
        if act.again or not act.step:
            continue
        status = view.step(act.step).after
        for ref in effect.nodes:
            group = view.policy.group_of(ref.rank)
            for rank in group.replica_ranks(group.replica_of(ref.rank)):
                if status.nodes[rank].state is NodeState.FAILED:
                    yield f"step {act.step}: node-{ref.rank}, while node-{rank} has failed"


def orders_name_the_present(view: View) -> Iterator[str]:
    """What the engine is asked is about incarnations that are alive by the record; or parked, where
    what was kept for them is released."""
    for act in view.acts:
        if not act.step:
            continue
        status = view.step(act.step).after
        for rank, incarnation in act.effect.nodes:
            node = status.nodes[rank]
            release = isinstance(act.effect, ReleaseNodes)
            present = node.state is NodeState.PARKED if release else node.alive
            if node.incarnation != incarnation or not present:
                yield f"after step {act.step}: {act.effect} of {node.state}/{node.incarnation}"


def each_is_told_once(view: View) -> Iterator[str]:
    """One controller asks each incarnation each thing once."""
    told: set[tuple[type, NodeRef]] = set()
    by = ""
    for act in view.acts:
        life = view.step(act.step).by if act.step else ""
        if act.again or life != by:
            told.clear()  # another controller repeats what may not have been done
        by = life
        if isinstance(act.effect, ReleaseNodes):
            continue  # parked, wanted and parked again before it has lived, it is the same
        for ref in act.effect.nodes:
            if (type(act.effect), ref) in told:
                yield f"after step {act.step}: {ref} again: {type(act.effect).__name__}"
            told.add((type(act.effect), ref))


def grace_is_given(view: View) -> Iterator[str]:
    """SIGKILL comes after SIGTERM, and no earlier than grace_period after it. (Where a controller
    died in between, its successor goes by when it was decided.)"""
    told: dict[NodeRef, float] = {}
    for act in view.acts:
        if isinstance(act.effect, StopNodes):
            for ref in act.effect.nodes:
                told.setdefault(ref, -1.0 if act.again else act.now)
        elif isinstance(act.effect, KillNodes) and not act.again:
            for ref in act.effect.nodes:
                if act.now < told.get(ref, act.now) + view.policy.grace_period - _SOON:
                    yield f"after step {act.step}: {ref}, told at {told.get(ref)}"


def grace_is_not_extended(view: View) -> Iterator[str]:
    """What was told to end is killed when grace_period is over, and what was told to save is told
    to end when `checkpoint.grace` is, however often and whatever else it is told meanwhile."""
    policy = view.policy
    saving: dict[NodeRef, float] = {}
    ending: dict[NodeRef, float] = {}
    for step in view.steps:
        for rank, node in enumerate(step.after.nodes):
            if not node.leaving:
                continue
            ref = NodeRef(rank, node.incarnation)
            if node.kill_at is None:
                told = saving.setdefault(ref, step.now)
                if policy.checkpoint and step.now > told + policy.checkpoint.grace + _SOON:
                    yield f"step {step.number}: {ref} still saves, told at {told}"
                continue
            told = ending.setdefault(ref, step.now)
            if not node.killed and step.now > told + policy.grace_period + _SOON:
                yield f"step {step.number}: {ref} is not killed, told at {told}"


def what_is_decided_is_done(view: View) -> Iterator[str]:
    """Whoever drives a run has each node start, save, end and be killed as was recorded, after each
    step, and first of all what a predecessor may have left to do."""
    owed: set[tuple[type, NodeRef]] = set()
    before: RunStatus | None = None
    driving = False
    for line in view.story.lines:
        if isinstance(line, Note) and line.kind == "controller begins":
            owed, driving, before = set(), True, None
        elif isinstance(line, Loaded) and driving and before is None:
            before = line.status
            owed = set(_intents(view.policy, before))
        elif isinstance(line, Act):
            owed -= {(type(line.effect), ref) for ref in line.effect.nodes}
        elif isinstance(line, Step):
            driving = driving and line.by.startswith("controller")
            if driving and owed:
                yield f"step {line.number}: never done: {sorted(map(str, owed))}"
            old = set(_intents(view.policy, line.before))
            owed = set(_intents(view.policy, line.after)) - old if driving else set()


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


def saving_has_its_time(view: View) -> Iterator[str]:
    """What was told to save gets no SIGTERM before `checkpoint.grace` is over, unless the run is
    canceled meanwhile, or it serves others, of which none is left."""
    checkpoint = view.policy.checkpoint
    told: dict[NodeRef, float] = {}
    for act in view.acts:
        effect = act.effect
        if isinstance(effect, StartNodes) or act.again or checkpoint is None or not act.step:
            continue
        for ref in effect.nodes:
            if isinstance(effect, SignalNodes):
                told[ref] = act.now
            elif isinstance(effect, StopNodes) and ref in told:
                ending = view.step(act.step).after.stopping
                canceled = ending is not None and ending.outcome is RunState.CANCELED
                early = act.now < told[ref] + checkpoint.grace - _SOON
                if early and _serves_nobody(view.policy, view.step(act.step).after, ref.rank):
                    continue
                if early and not (canceled and view.story.asked.cancel):
                    yield f"after step {act.step}: {ref}, told to save at {told[ref]}"


def all_are_told_to_save(view: View) -> Iterator[str]:
    """When a run with a checkpoint is suspended, or has had its `max_runtime`, each node that runs
    is told to save first; those that serve others end as soon as none of these is left."""
    if view.policy.checkpoint is None:
        return
    for step in view.steps:
        after = step.after
        if any(entry.kind == "stopping" and _saves(entry) for entry in step.entries):
            for rank, node in enumerate(after.nodes):
                told = not step.before.nodes[rank].leaving and node.alive and not node.parking
                serves = view.policy.group_of(rank).serves
                if told and not serves and node.kill_at is not None and not _cut_short(step):
                    yield f"step {step.number}: node-{rank} is told to end"
        for rank, node in enumerate(after.nodes):
            saving = after.stopping is not None and node.alive and node.kill_at is None
            if saving and _serves_nobody(view.policy, after, rank):
                yield f"step {step.number}: node-{rank} serves nobody any more"


def _saves(entry: Entry) -> bool:
    limit = str(entry.data["why"]).startswith("maximum runtime")
    return limit or entry.data["towards"] == RunState.SUSPENDED


def _cut_short(step: Step) -> bool:
    """By a cancel in the same step, or by something that had ended these nodes already."""
    kinds = [entry.kind for entry in step.entries]
    return kinds.count("stopping") > 1 or "failure" in kinds or "restart" in kinds


def who_takes_over_gives_time(view: View) -> Iterator[str]:
    """Nodes that are starting when a controller takes a run up are handed over once more, and have
    the time to get ready from then on."""
    by = ""
    for step in view.steps:
        first, by = step.by != by and step.by.startswith("controller"), step.by
        for rank, node in enumerate(step.after.nodes if first else ()):
            old = step.before.nodes[rank]
            starting = node.state is NodeState.STARTING and old.state is NodeState.STARTING
            if starting and not old.leaving and not node.leaving and node.since != step.now:
                yield f"step {step.number}: node-{rank} since {node.since}"


def _serves_nobody(policy: Policy, status: RunStatus, rank: int) -> bool:
    others = (group for group in policy.groups if not group.serves)
    left = any(status.nodes[other].alive for group in others for other in group.ranks)
    return policy.group_of(rank).serves and not left
