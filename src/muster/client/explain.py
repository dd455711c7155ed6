"""Why a run is in the state it is in: the answer for every state, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster.lifecycle.states import NodeState, RunState
from muster.plan.model import GroupPlan, RunPlan
from muster.store.records import NodeRecord, RunRecord


def why(run: RunRecord, nodes: Sequence[NodeRecord]) -> list[str]:
    """Sentences, the most important first. nodes: in rank order."""
    plan = RunPlan.from_json(run.plan)
    match RunState(run.state):
        case RunState.ACCEPTED:
            return ["its supervisor is starting the first nodes", *_mounts(plan)]
        case RunState.IN_PROGRESS:
            return _in_progress(plan, nodes)
        case RunState.SUCCEEDED:
            return [f"every group reached its minimum of successful replicas; {_counts(nodes)}"]
        case RunState.FAILED:
            return [run.details, _counts(nodes)]
        case RunState.CANCELING:
            left = [n.fqdn for n in nodes if not NodeState(n.state).ended]
            grace = f"they have {plan.policy.grace_period:g} s to end by themselves"
            return [run.details, f"waiting for {', '.join(left) or 'its mounts'}; {grace}"]
        case RunState.CANCELED:
            return [run.details, _counts(nodes)]
        case _:
            return [run.details]


def _mounts(plan: RunPlan) -> list[str]:
    urls = {m.source for g in plan.groups for m in g.mounts if m.kind == "url"}
    return [f"copying {source} in before the nodes start" for source in sorted(urls)]


def _in_progress(plan: RunPlan, nodes: Sequence[NodeRecord]) -> list[str]:
    reasons = [_counts(nodes)]
    for before, group in zip(plan.groups, plan.groups[1:], strict=False):
        waiting = [n for n in nodes if n.group == group.name and n.state == NodeState.PENDING]
        if waiting and plan.policy.in_order:
            reasons.append(f"group {group.name} waits for group {before.name} to be up")
    reasons += [_probing(group) for group in plan.groups if _unready(group, nodes)]
    ends = [n for n in nodes if n.state == NodeState.FAILED]
    reasons += [f"{n.fqdn} failed (exit code {n.exit_code}), within tolerance" for n in ends]
    return reasons


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
    counts = Counter(str(n.state).lower() for n in nodes)
    return "nodes: " + ", ".join(f"{count} {state}" for state, count in counts.items())
