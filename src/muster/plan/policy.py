"""What the lifecycle is held to: the spec's words as numbers and places. Pure."""

from __future__ import annotations

import signal

from muster.errors import InvalidInput, Problem
from muster.lifecycle.policy import (
    Action,
    Backoff,
    Checkpoint,
    Dependency,
    GroupPolicy,
    Policy,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.status import Reason
from muster.plan.arrange import Arranged
from muster.spec import policies
from muster.spec.models import JobSpec, NodeGroup


def build_policy(arranged: Arranged, *, seed: int, in_place: bool) -> Policy:
    """The policy of a run.

    seed: of the jitter of waits. in_place: whether the engine can keep nodes over a restart.
    Raises InvalidInput if the spec insists on that where it cannot.
    """
    spec = arranged.spec
    failure = spec.failure
    return Policy(
        groups=_groups(arranged),
        success=_success(spec),
        in_order=spec.startup == "in_order",
        max_runtime=spec.max_runtime,
        grace_period=spec.grace_period,
        attempt_timeout=spec.attempt_timeout,
        max_restarts=failure.max_restarts,
        action=Action(failure.action or "restart_run"),
        rules=tuple(_rule(rule, name) for rule, name in policies.named_rules(failure.rules)),
        strategy=_strategy(failure.strategy, in_place=in_place),
        backoff=_backoff(failure.backoff, seed),
        checkpoint=_checkpoint(spec.checkpoint),
    )


def _groups(arranged: Arranged) -> tuple[GroupPolicy, ...]:
    spec = arranged.spec
    places = {group.name: place for place, group in enumerate(spec.node_groups)}
    made, rank = [], 0
    for group in spec.node_groups:
        policy = GroupPolicy(
            name=group.name,
            first_rank=rank,
            replicas=group.most_replicas,
            nodes=group.nodes,
            min_success=_min_success(group),
            depends_on=tuple(
                Dependency(places[other.group], other.status == "complete")
                for other in group.depends_on
            ),
            max_restarts=group.max_restarts,
            retries=group.retries,
            timeout=group.timeout,
            max_runtime=group.max_runtime,
            ready_timeout=group.ready_timeout,
            wanted=group.replicas if group.most_replicas > group.replicas else None,
            serves=not arranged.role(group.name).program,
        )
        made.append(policy)
        rank += policy.size
    return tuple(made)


def _min_success(group: NodeGroup) -> int:
    return group.most_replicas if group.min_success is None else group.min_success


def _success(spec: JobSpec) -> Success:
    said = spec.success
    if said.groups:
        places = [i for i, group in enumerate(spec.node_groups) if group.name in said.groups]
    else:
        places = [i for i, group in enumerate(spec.node_groups) if _min_success(group) > 0]
    return Success(
        groups=tuple(places or range(len(spec.node_groups))),
        any_replica=said.when == "any",
        wait=said.others == "wait",
    )


def _rule(rule: policies.FailureRule, name: str) -> Rule:
    return Rule(
        name=name,
        action=Action(rule.action),
        groups=rule.groups,
        exit_codes=rule.exit_codes,
        signals=tuple(int(signal.Signals[name]) for name in rule.signals),
        reasons=tuple(Reason(reason) for reason in rule.reasons),
        messages=rule.messages,
        text=rule.text,
        counted=rule.count,
        max_restarts=rule.max_restarts,
        before_retries=rule.before_retries,
    )


def _strategy(said: policies.StrategyName | None, *, in_place: bool) -> Strategy:
    if said is None:
        return Strategy.IN_PLACE if in_place else Strategy.RECREATE
    if said == "in_place" and not in_place:
        text = "the engine cannot start programs again on nodes that stay"
        raise InvalidInput(Problem("failure.strategy", text, "use recreate or blocking_recreate"))
    return Strategy(said)


def _backoff(said: policies.Backoff, seed: int) -> Backoff:
    return Backoff(
        initial=said.initial,
        factor=said.factor,
        longest=said.max,
        jitter=said.jitter,
        reset_after=said.reset_after,
        seed=seed,
    )


def _checkpoint(said: policies.Checkpoint | None) -> Checkpoint | None:
    if said is None:
        return None
    return Checkpoint(signal=int(signal.Signals[said.signal]), grace=said.grace)
