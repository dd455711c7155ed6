"""Why a run is in its state, in sentences, for every state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster.describe.failure import one_line
from muster.describe.times import time_text
from muster.describe.words import plural
from muster.lifecycle import cause, counts, start_order
from muster.lifecycle.failure_details import describe
from muster.lifecycle.ranks import format_ranks, shortened_ranks
from muster.lifecycle.states import ALIVE, NodeState, RunState
from muster.lifecycle.status import Reason, RunStatus
from muster.plan.model import GroupPlan, RunPlan

#: States of a node whose processes run.
_RUNNING = (NodeState.RUNNING, NodeState.READY)
#: What a run that is canceled waits for when its nodes have ended.
ALL_ENDED = "all nodes have ended; what the run has used is being freed"


def why(plan: RunPlan, status: RunStatus, restarts: int, now: float) -> list[str]:
    """Sentences, the most important first.

    restarts: the number of restarts after failures so far. now: epoch seconds.
    """
    past = restarts_sentences(plan, status, restarts)
    return [line for line in (*_state(plan, status, restarts, now), *past) if line]


def _state(plan: RunPlan, status: RunStatus, restarts: int, now: float) -> list[str]:
    match status.state:
        case RunState.IN_PROGRESS:
            return [*stopping_sentences(status), *_in_progress(plan, status, restarts, now)]
        case RunState.SUCCEEDED:
            return [f"{success_sentence(plan)}; {_counts(status)}", status.details]
        case RunState.FAILED:
            return [status.details, failure_time(status), _consequences(status), _counts(status)]
        case RunState.CANCELING:
            return [status.details, _awaited(plan, status)]
        case RunState.CANCELED:
            return [status.details, _counts(status)]
        case _:
            return sentences_without_nodes(plan, status)


def _awaited(plan: RunPlan, status: RunStatus) -> str:
    """What a run that is canceled waits for."""
    lost = _unreachable(status)
    left = [
        plan.node(rank).fqdn
        for rank, node in enumerate(status.nodes)
        if node.state in ALIVE and node.unreachable_since is None
    ]
    grace = f"SIGKILL follows after the grace period ({plan.policy.grace_period:g} s)"
    parts = [f"waiting for {', '.join(left)}; {grace}"] if left else []
    if lost:
        parts.append(f"waiting for {_ranks(lost)}, which cannot be reached")
    return "; ".join(parts) or ALL_ENDED


def _why(status: RunStatus, lost: list[int]) -> str:
    """Why the first of some nodes cannot be reached, in brackets."""
    why = status.nodes[lost[0]].unreachable_why
    return f" ({why})" if why else ""


def _unreachable(status: RunStatus) -> list[int]:
    return [rank for rank, node in enumerate(status.nodes) if node.unreachable_since is not None]


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {shortened_ranks(ranks)}"


def sentences_without_nodes(plan: RunPlan, status: RunStatus) -> list[str]:
    """Sentences for the states in which the states of nodes say nothing."""
    match status.state:
        case RunState.ACCEPTED:
            starting = ["its supervisor is starting the first nodes", *_mounts(plan)]
            # what nodes wait for, or why they cannot be reached, is said instead
            queued = any(node.state is NodeState.QUEUED for node in status.nodes)
            known = queued or status.stopping is not None or bool(_unreachable(status))
            reasons = [*stopping_sentences(status), *_surroundings(status)]
            return [*reasons, *([] if known else starting), *_first(plan, status)]
        case RunState.SUSPENDED:
            return [status.details, to_resume(plan)]
        case _:
            return [status.details]


def to_resume(plan: RunPlan) -> str:
    """How a suspended run is resumed."""
    return f"`muster runs resume {plan.run_name}` resumes it"


def success_sentence(plan: RunPlan) -> str:
    """Why the run succeeded."""
    rules = plan.policy.success
    names = ", ".join(plan.policy.groups[index].name for index in rules.groups)
    if rules.any_replica:
        return f"a replica of {names} succeeded"
    if len(rules.groups) < len(plan.policy.groups):
        return f"{names} reached the minimum of successful replicas"
    return "all required nodes succeeded"


def failure_time(status: RunStatus) -> str:
    """When the run failed."""
    first = status.cause
    if first is None:
        return ""
    raised = f"; the program raised the error at {time_text(first.raised_at)}"
    return f"at {time_text(first.at)}{raised if first.raised_at is not None else ''}"


def _consequences(status: RunStatus) -> str:
    """The nodes whose failures followed from the first one, as far as known. Some ended while they
    were being stopped: their state is STOPPED."""
    from muster.node.failure_text import names_broken_connection

    first = status.cause
    # nodes that could not be started have lost no connection, and nothing of theirs has ended
    others = [
        failure
        for failure in cause.consequences(status.failures, first)
        if failure.reason is not Reason.NOT_STARTED
    ]
    if first is None or not others:
        return ""
    names = ", ".join(f"node-{failure.rank}" for failure in others)
    last = max(failure.at for failure in others)
    within = f"within {max(last - first.at, 0):.1f} s"
    broken = sum(names_broken_connection(failure.message) for failure in others)
    also = f", {broken} of them from a broken connection" if broken else ""
    return f"consequences: {names} ended {within}{also}"


def restarts_sentences(plan: RunPlan, status: RunStatus, number: int) -> Iterator[str]:
    """How often it restarted, and the last failure if that did not end it."""
    if not number:
        return
    native = status.native_restarts
    by_engine = f", {native} of them by the engine itself" if native else ""
    many = f"{plural(number, 'restart')} after failures{by_engine}"
    yield f"{many}; `muster events {plan.run_name}` shows why"
    first = status.cause
    if first is not None and status.state is not RunState.FAILED:
        yield f"the last failure: {one_line(describe(first, plan.policy.group_of(first.rank)))}"


def _mounts(plan: RunPlan) -> list[str]:
    urls = {m.source for g in plan.groups for m in g.mounts if m.kind == "url"}
    return [f"copying {source} before the nodes start" for source in sorted(urls)]


def stopping_sentences(status: RunStatus) -> Iterator[str]:
    """How the run will end, if that is decided, and what keeps it from that when its nodes have
    ended."""
    if status.stopping is not None:
        outcome = status.stopping.outcome
        text = f"the run will be {outcome} when all nodes have ended"
        yield f"{text}: {status.stopping.details}" if status.stopping.details else text
        if status.details:
            yield status.details


def _in_progress(plan: RunPlan, status: RunStatus, restarts: int, now: float) -> list[str]:
    reasons = [_counts(status), *_surroundings(status), *_scaling_sentences(plan, status)]
    reasons += _restarting(status, restarts, now)
    reasons += _waiting(plan, status)
    reasons += [_probe_text(group) for group in plan.groups if _awaits_probe(group, status)]
    reasons += _first(plan, status)
    if status.stopping is None:
        reasons += [
            f"{plan.node(rank).fqdn} failed (exit code {node.exit_code}); "
            "the run can succeed without it"
            for rank, node in enumerate(status.nodes)
            if node.state is NodeState.FAILED
        ]
    return reasons


def _surroundings(status: RunStatus) -> Iterator[str]:
    """Which nodes cannot be reached, and what others wait for."""
    if lost := _unreachable(status):
        subject = _ranks(lost)
        if status.stopping is not None:
            yield f"waiting for {subject}, which cannot be reached{_why(status, lost)}"
        else:
            rest = "they are not replaced, since they may still be running"
            if len(lost) == 1:
                rest = "it is not replaced, since it may still be running"
            yield f"{subject} cannot be reached{_why(status, lost)}; {rest}"
    waiting: dict[str, list[int]] = {}
    for rank, node in enumerate(status.nodes):
        if node.state is NodeState.QUEUED:
            waiting.setdefault(node.waits_for, []).append(rank)
    for why, ranks in waiting.items():
        verb = "is" if len(ranks) == 1 else "are"
        yield f"{_ranks(ranks)} {verb} waiting{f': {why}' if why else ''}"


def _scaling_sentences(plan: RunPlan, status: RunStatus) -> Iterator[str]:
    assert status.counts is not None
    for index, group in enumerate(plan.policy.groups):
        count = counts.desired_replicas(plan.policy, status.counts, index)
        if group.desired is not None or count != group.replicas:
            yield f"group {group.name} has {count} of at most {group.replicas} replicas"


def _restarting(status: RunStatus, restarts: int, now: float) -> Iterator[str]:
    nodes = list(enumerate(status.nodes))
    leaving = [rank for rank, node in nodes if node.scaling_down]
    if leaving:
        yield f"{_named(leaving)} being stopped: the group was scaled down"
    this = f"restart {restarts}" if restarts else "the next start"
    old = [
        rank for rank, node in nodes if node.next_incarnation is not None and not node.scaling_down
    ]
    if old:
        nodes_left = f"node{'s' * (len(old) > 1)} {format_ranks(old)}"
        yield f"{this} waits for the old processes of {nodes_left} to end"
    waits = [node.not_before for _, node in nodes if node.not_before is not None]
    if waits and max(waits) > now:
        yield f"{this} waits another {max(waits) - now:.0f} s (backoff)"


def _named(ranks: list[int]) -> str:
    return f"node {ranks[0]} is" if len(ranks) == 1 else f"nodes {format_ranks(ranks)} are"


def _waiting(plan: RunPlan, status: RunStatus) -> Iterator[str]:
    assert status.counts is not None
    for index, group in enumerate(plan.policy.groups):
        if not status.counts.groups[index].pending:
            continue
        other = start_order.blocked_by(plan.policy, status.counts, index)
        if other is None:
            continue
        complete = any(d.group == other and d.complete for d in group.depends_on)
        name = plan.policy.groups[other].name
        until = "to succeed" if complete else "to be ready"
        yield f"group {group.name} waits for group {name} {until}"


def _awaits_probe(group: GroupPlan, status: RunStatus) -> bool:
    members = status.nodes[group.first_rank : group.first_rank + group.size]
    return group.probe is not None and any(n.state is NodeState.RUNNING for n in members)


def _first(plan: RunPlan, status: RunStatus) -> Iterator[str]:
    """Which containers run, or have ended, before the programs of nodes that start."""
    for group in plan.groups:
        names = [one.name for one in group.extra_containers if one.role in ("init", "sidecar")]
        members = status.nodes[group.first_rank : group.first_rank + group.size]
        if names and any(node.state is NodeState.STARTING for node in members):
            text = "its program starts after its init containers and sidecars"
            yield f"group {group.name}: {text}: {', '.join(names)}"


def _probe_text(group: GroupPlan) -> str:
    probe = group.probe
    assert probe is not None
    if probe["command"] is not None:
        condition = f"`{' '.join(probe['command'])}` to exit with 0"
    elif probe["port"] is not None:
        condition = f"a process to listen on port {probe['port']}"
    else:
        condition = f"the file {probe['file']}"
    return f"group {group.name}: its startup probe waits for {condition}"


def _counts(status: RunStatus) -> str:
    """Numbers of nodes by state, without those of replicas that were removed. A node that is ready
    is running."""
    states = [node.state for node in status.nodes if node.state is not NodeState.SCALED_DOWN]
    running = [state for state in states if state in _RUNNING]
    numbers = Counter("running" if state in _RUNNING else str(state).lower() for state in states)
    ready = sum(state is NodeState.READY for state in running)
    texts = [f"{count} {state}" for state, count in numbers.items()]
    if ready < len(running):
        texts[[*numbers].index("running")] += f" ({ready} ready)"
    return "nodes: " + ", ".join(texts)
