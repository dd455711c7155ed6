"""Build the lifecycle's policy from a spec. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from muster.lifecycle.policy import (
    Action,
    Backoff,
    Checkpoint,
    Dependency,
    EarlySuccess,
    GroupFailure,
    GroupPolicy,
    Policy,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.status import Reason
from muster.plan.arrange import Arranged, first_ranks
from muster.spec import policies
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.override_models import GROUP_SETTINGS, RUN_WIDE, RUN_WIDE_RECORDS


def build_policy(
    arranged: Arranged,
    *,
    seed: int,
    in_place: bool,
    parallelism: Mapping[str, int] | None = None,
) -> Policy:
    """The policy of a run.

    seed: for the jitter of restart delays. in_place: whether the engine supports restarts in place,
    which is the default then. parallelism: of each array; None: as the job says, else all replicas.
    """
    spec = arranged.spec
    failure = spec.failure
    if parallelism is None:
        arrays = (group for group in spec.node_groups if group.is_array)
        parallelism = {group.name: group.parallelism or group.replicas for group in arrays}
    return Policy(
        groups=_groups(arranged, parallelism),
        success=_success(spec),
        in_order=spec.startup == "in_order",
        max_restarts=failure.max_restarts,
        action=Action(failure.action or ("restart_replica" if parallelism else "restart_run")),
        rules=tuple(_rule(rule, name) for rule, name in policies.named_rules(failure.rules)),
        strategy=_strategy(failure.strategy, in_place=in_place),
        backoff=_backoff(failure.backoff, seed),
        checkpoint=_checkpoint(spec.checkpoint),
        **copied_settings(spec, RUN_WIDE, Policy),
    )


def copied_settings(
    spec: JobSpec | NodeGroup, settings: Sequence[str], target: type[Struct]
) -> dict[str, Any]:
    """The values of those settings that have a field of the same name in `target`.

    Settings that are None are left out, so that the target's default applies, and so are records:
    the plan and the lifecycle define other classes for them.
    """
    names = set(target.__struct_fields__).difference(RUN_WIDE_RECORDS)
    values = {name: getattr(spec, name) for name in settings if name in names}
    return {name: value for name, value in values.items() if value is not None}


def _groups(arranged: Arranged, parallelism: Mapping[str, int]) -> tuple[GroupPolicy, ...]:
    spec = arranged.spec
    indexes = {group.name: index for index, group in enumerate(spec.node_groups)}
    groups = []
    for group, rank in zip(spec.node_groups, first_ranks(spec), strict=True):
        policy = GroupPolicy(
            name=group.name,
            first_rank=rank,
            depends_on=tuple(
                Dependency(indexes[other.group], other.status == "complete")
                for other in group.depends_on
            ),
            desired=group.replicas if group.most_replicas > group.replicas else None,
            serves=not arranged.role(group.name).program,
            **{
                **copied_settings(group, GROUP_SETTINGS, GroupPolicy),
                "replicas": group.most_replicas,
                "min_success": _min_success(group),
                "early_success": tuple(
                    EarlySuccess(enough.replicas, enough.count) for enough in group.early_success
                ),
                "max_failed": _max_failed(group),
                "parallelism": parallelism.get(group.name),
            },
        )
        groups.append(policy)
    return tuple(groups)


def _min_success(group: NodeGroup) -> int:
    return group.most_replicas if group.min_success is None else group.min_success


def _max_failed(group: NodeGroup) -> int | None:
    """Of an array whose success needs no fewer, all replicas run, whatever becomes of others."""
    if group.max_failed is None and group.is_array and group.min_success is None:
        return group.replicas
    return group.max_failed


def _success(spec: JobSpec) -> Success:
    success = spec.success
    groups = spec.node_groups
    if success.groups:
        indexes = [i for i, group in enumerate(groups) if group.name in success.groups]
    else:
        indexes = [i for i, group in enumerate(groups) if _min_success(group) > 0]
    return Success(
        groups=tuple(indexes or range(len(groups))),
        any_replica=success.when == "any",
        wait=success.others == "wait",
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
        group_failed=tuple(GroupFailure(name) for name in rule.group_failed),
    )


def _strategy(name: policies.StrategyName | None, *, in_place: bool) -> Strategy:
    if name is None:
        return Strategy.IN_PLACE if in_place else Strategy.RECREATE
    return Strategy(name)


def _backoff(backoff: policies.Backoff, seed: int) -> Backoff:
    return Backoff(
        initial=backoff.initial,
        factor=backoff.factor,
        longest=backoff.max,
        jitter=backoff.jitter,
        reset_after=backoff.reset_after,
        seed=seed,
    )


def _checkpoint(checkpoint: policies.Checkpoint | None) -> Checkpoint | None:
    if checkpoint is None:
        return None
    number = int(signal.Signals[checkpoint.signal])
    return Checkpoint(signal=number, grace=checkpoint.grace)
