"""Why a run is in the state it is in: the answer for every state, in sentences."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from muster.client.times import time_text
from muster.control.persist import plan_of, status_of
from muster.lifecycle import cause, census, startup
from muster.lifecycle.census import ranges
from muster.lifecycle.describe import describe, in_a_line
from muster.lifecycle.states import ALIVE, NodeState, RunState
from muster.lifecycle.status import Failure, RunStatus
from muster.plan.model import GroupPlan, RunPlan
from muster.store.records import NodeRecord, RunRecord


def why(run: RunRecord, nodes: Sequence[NodeRecord], restarts: int = 0) -> list[str]:
    """Sentences, the most important first. nodes: in rank order; restarts: after failures."""
    plan = plan_of(run)
    status = status_of(run, nodes, plan.policy)
    return [line for line in (*_why(plan, status, nodes), *_restarts(status, restarts)) if line]


def _why(plan: RunPlan, status: RunStatus, nodes: Sequence[NodeRecord]) -> list[str]:
    match status.state:
        case RunState.ACCEPTED:
            return ["its supervisor is starting the first nodes", *_mounts(plan)]
        case RunState.IN_PROGRESS:
            return [*_stopping(status), *_in_progress(plan, status, nodes)]
        case RunState.SUCCEEDED:
            return [f"{_success(plan)}; {_counts(nodes)}"]
        case RunState.FAILED:
            return [status.details, _when(status), _consequences(status), _counts(nodes)]
        case RunState.CANCELING:
            left = [n.fqdn for n in nodes if NodeState(n.state) in ALIVE]
            grace = f"they have {plan.policy.grace_period:g} s to end by themselves"
            return [status.details, f"waiting for {', '.join(left) or 'its mounts'}; {grace}"]
        case RunState.CANCELED:
            return [status.details, _counts(nodes)]
        case RunState.SUSPENDED:
            return [status.details, f"`muster runs resume {plan.run_name}` has it go on"]
        case _:
            return [status.details]


def _success(plan: RunPlan) -> str:
    rules = plan.policy.success
    names = ", ".join(plan.policy.groups[index].name for index in rules.groups)
    if rules.any_replica:
        return f"a replica of {names} succeeded"
    if len(rules.groups) < len(plan.policy.groups):
        return f"{names} reached the minimum of successful replicas"
    return "every group reached its minimum of successful replicas"


def _when(status: RunStatus) -> str:
    first = status.cause
    if first is None:
        return ""
    seen = f", its program saw the error at {time_text(first.raised_at)}"
    return f"at {time_text(first.at)}{seen if first.raised_at is not None else ''}"


def _consequences(status: RunStatus) -> str:
    """Who failed of it, as far as it is known."""
    first = status.cause
    others = cause.consequences(status.failures, first)
    if first is None or not others:
        return ""
    names = ", ".join(f"node-{failure.rank}" for failure in others)
    last = max(failure.at for failure in others)
    within = f"within {max(last - first.at, 0):.1f} s"
    echoes = sum(cause.echo(failure) for failure in others)
    also = f", {echoes} of them of a broken connection" if echoes else ""
    return f"consequences: {names} failed {within}{also}"


def _restarts(status: RunStatus, number: int) -> Iterator[str]:
    """What it went through before."""
    if not number:
        return
    yield f"{number} restart{'s' if number > 1 else ''} after failures; `muster events` tells why"
    first = status.cause
    if first is not None and status.state is not RunState.FAILED:
        yield f"the last cause: {_head(first)}"


def _head(failure: Failure) -> str:
    return in_a_line(describe(failure))


def _mounts(plan: RunPlan) -> list[str]:
    urls = {m.source for g in plan.groups for m in g.mounts if m.kind == "url"}
    return [f"copying {source} in before the nodes start" for source in sorted(urls)]


def _stopping(status: RunStatus) -> Iterator[str]:
    if status.stopping is not None:
        yield f"it ends as {status.stopping.outcome} once every node has: {status.stopping.details}"


def _in_progress(plan: RunPlan, status: RunStatus, nodes: Sequence[NodeRecord]) -> list[str]:
    reasons = [_counts(nodes), *_scaled(plan, status), *_restarting(status)]
    reasons += _waiting(plan, status)
    reasons += [_probing(group) for group in plan.groups if _unready(group, nodes)]
    ends = [n for n in nodes if n.state == NodeState.FAILED]
    if status.stopping is None:
        reasons += [f"{n.fqdn} failed (exit code {n.exit_code}), within tolerance" for n in ends]
    return reasons


def _scaled(plan: RunPlan, status: RunStatus) -> Iterator[str]:
    assert status.census is not None
    for index, group in enumerate(plan.policy.groups):
        count = census.wanted(plan.policy, status.census, index)
        if group.wanted is not None or count != group.replicas:
            yield f"group {group.name} has {count} of at most {group.replicas} replicas"


def _restarting(status: RunStatus) -> Iterator[str]:
    leaving = [rank for rank, node in enumerate(status.nodes) if node.parking]
    if leaving:
        yield f"node {ranges(leaving)} is told to end: its group was scaled down"
    nodes = enumerate(status.nodes)
    old = [rank for rank, node in nodes if node.again is not None and not node.parking]
    if old:
        yield f"restart {status.restarts} waits for the old processes of node {ranges(old)} to end"
    waits = [n.not_before for n in status.nodes if n.not_before is not None]
    if waits and max(waits) > time.time():
        yield f"restart {status.restarts} waits another {max(waits) - time.time():.0f} s (backoff)"


def _waiting(plan: RunPlan, status: RunStatus) -> Iterator[str]:
    assert status.census is not None
    for index, group in enumerate(plan.policy.groups):
        if not status.census.groups[index].pending:
            continue
        other = startup.blocked_by(plan.policy, status.census, index)
        if other is None:
            continue
        complete = any(d.group == other and d.complete for d in group.depends_on)
        name = plan.policy.groups[other].name
        until = "to succeed" if complete else "to be up"
        yield f"group {group.name} waits for group {name} {until}"


def _unready(group: GroupPlan, nodes: Sequence[NodeRecord]) -> bool:
    members = [n for n in nodes if n.group == group.name]
    return group.probe is not None and any(n.state == NodeState.RUNNING for n in members)


def _probing(group: GroupPlan) -> str:
    probe = group.probe
    assert probe is not None
    if probe.command is not None:
        what = f"`{' '.join(probe.command)}` to exit with 0"
    elif probe.port is not None:
        what = f"something to listen on port {probe.port}"
    else:
        what = f"the file {probe.file}"
    return f"group {group.name}: its startup probe waits for {what}"


def _counts(nodes: Sequence[NodeRecord]) -> str:
    counts = Counter(str(n.state).lower() for n in nodes if n.state != NodeState.PARKED)
    return "nodes: " + ", ".join(f"{count} {state}" for state, count in counts.items())
