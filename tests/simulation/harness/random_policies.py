"""Random policies that use every setting of a spec and often lead to rare situations."""

from __future__ import annotations

import signal
from random import Random
from typing import Any

from msgspec.structs import replace

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

#: Failures of programs, some of which rules match.
EXIT_CODES = (1, 2, 21, 64)
MESSAGES = ("ValueError: boom", "Connection reset by peer", "CUDA error: ECC", "")
_MAX_NODES = 14


def draw_policy(rng: Random) -> Policy:
    """A random policy. Its times are seconds to minutes, like those of the programs."""
    groups = _groups(rng)
    order = rng.random()
    if order < 0.45:
        groups = tuple(_dependent(rng, groups, index) for index in range(len(groups)))
    return Policy(
        groups=groups,
        success=_success(rng, groups),
        in_order=order > 0.8,
        max_runtime=rng.choice((40.0, 90.0, 200.0)) if rng.random() < 0.15 else 3000.0,
        grace_period=rng.choice((0.5, 2.0, 10.0)),
        attempt_timeout=rng.choice((15.0, 40.0, 120.0)) if rng.random() < 0.15 else None,
        max_restarts=rng.choice((0, 1, 2, 3, 5)),
        action=rng.choice(_RESTARTS),
        rules=tuple(_rule(rng, number, groups) for number in range(_few(rng, 4))),
        strategy=rng.choice(list(Strategy)),
        backoff=_backoff(rng),
        checkpoint=_checkpoint(rng) if rng.random() < 0.3 else None,
    )


def with_extra_replicas(rng: Random, policy: Policy) -> Policy:
    """The policy, with some groups that may be scaled up."""
    groups: list[GroupPolicy] = []
    rank = 0
    for group in policy.groups:
        extra = rng.choice((0, 1, 2, 3))
        every = group.min_success == group.replicas and rng.random() < 0.7
        made = replace(
            group,
            first_rank=rank,
            replicas=group.replicas + extra,
            min_success=group.min_success + extra * every,
            desired=group.replicas if extra else None,
        )
        groups.append(made)
        rank += made.size
    return replace(policy, groups=tuple(groups))


def with_service(rng: Random, policy: Policy) -> Policy:
    """The policy, in some cases with a group that only serves the others."""
    awaited = {d.group for group in policy.groups for d in group.depends_on if d.complete}
    free = [index for index in range(len(policy.groups)) if index not in awaited]
    counted = policy.success.groups
    if not free or rng.random() > 0.3 or set(counted) <= {(chosen := rng.choice(free))}:
        return policy
    groups = list(policy.groups)
    groups[chosen] = replace(groups[chosen], serves=True, min_success=0)
    success = replace(policy.success, groups=tuple(i for i in counted if i != chosen))
    return replace(policy, groups=tuple(groups), success=success)


def with_arrays(rng: Random, policy: Policy) -> Policy:
    """The policy, with some groups whose replicas run a few at a time, each by itself."""
    groups: list[GroupPolicy] = []
    rank = 0
    for group in policy.groups:
        array = not group.serves and rng.random() < 0.6
        made = _array(rng, group) if array else group
        groups.append(replace(made, first_rank=rank))
        rank += made.size
    rules = tuple(_of_groups(rng, rule) for rule in policy.rules)
    return replace(policy, groups=tuple(groups), rules=rules)


def _array(rng: Random, group: GroupPolicy) -> GroupPolicy:
    replicas = rng.randint(1, 5 if group.nodes == 1 else 3)
    retries = rng.choice((0, 0, 1, 2))
    early: tuple[EarlySuccess, ...] = ()
    if rng.random() < 0.25:
        chosen = sorted(rng.sample(range(replicas), rng.randint(1, replicas)))
        early = (EarlySuccess(",".join(map(str, chosen)), rng.choice((None, 1))),)
        early += (EarlySuccess(count=rng.randint(1, replicas)),) * (rng.random() < 0.3)
    return replace(
        group,
        replicas=replicas,
        desired=None,
        min_success=rng.choice((replicas, replicas, replicas, rng.randint(0, replicas))),
        parallelism=rng.randint(1, 3),
        only=_some(rng, replicas) if rng.random() < 0.2 else None,
        retries=retries,
        total_retries=rng.randint(0, 4) if rng.random() < 0.3 else None,
        max_failed=rng.choice((None, 0, 1, replicas, replicas)),
        early_success=early,
    )


def _some(rng: Random, replicas: int) -> str:
    chosen = sorted(rng.sample(range(replicas), rng.randint(1, replicas)))
    return ",".join(map(str, chosen))


def _of_groups(rng: Random, rule: Rule) -> Rule:
    """The rule, in some cases about groups that have failed, or for single replicas."""
    drawn = rng.random()
    if drawn < 0.15:
        return replace(rule, action=Action.FAIL_REPLICA, max_restarts=None, counted=True)
    if drawn < 0.4 and rule.action is not Action.RESTART_NODE:
        chosen = tuple(rng.sample(list(GroupFailure), rng.randint(1, 3)))
        return replace(rule, group_failed=chosen, before_retries=False)
    return rule


def with_rules(rng: Random, policy: Policy) -> Policy:
    """The policy with rules in random order, each of which matches one kind of failure."""
    kinds: list[dict[str, Any]] = [
        {"exit_codes": (21,)},
        {"signals": (int(signal.SIGSEGV),)},
        {"signals": (int(signal.SIGKILL),)},
        {"reasons": (Reason.NODE_LOST,)},
        {"reasons": (Reason.OUT_OF_MEMORY,)},
    ]
    chosen = rng.sample(kinds, rng.randint(2, len(kinds)))
    rules = (
        Rule(
            name=f"rule-{number}",
            action=rng.choice((Action.FAIL, *_RESTARTS)),
            before_retries=rng.random() < 0.5,
            **kind,
        )
        for number, kind in enumerate(chosen)
    )
    return replace(policy, rules=tuple(rules))


_RESTARTS = tuple(action for action in Action if action.startswith("restart"))


def _few(rng: Random, most: int) -> int:
    return min(rng.randrange(most + 1), rng.randrange(most + 1))


def _groups(rng: Random) -> tuple[GroupPolicy, ...]:
    made: list[GroupPolicy] = []
    rank = 0
    lenient = rng.random() < 0.15  # replicas may fail after retries
    for number in range(1 + _few(rng, 4)):
        replicas, nodes = 1 + _few(rng, 2), 1 + max(_few(rng, 3), lenient)
        if rank + replicas * nodes > _MAX_NODES:
            break
        group = GroupPolicy(
            name=f"g{number}",
            first_rank=rank,
            replicas=replicas,
            nodes=nodes,
            min_success=replicas - 1 if lenient else _min_success(rng, replicas),
            max_restarts=rng.choice((0, 1, 2)) if rng.random() < 0.25 else None,
            retries=rng.choice((1, 2)) if lenient or rng.random() < 0.3 else 0,
            timeout=rng.choice((12.0, 30.0, 80.0)) if rng.random() < 0.15 else None,
            ready_timeout=rng.choice((1.5, 4.0, 12.0)) if lenient or rng.random() < 0.2 else None,
        )
        made.append(group)
        rank += group.size
    return tuple(made)


def _min_success(rng: Random, replicas: int) -> int:
    return replicas if rng.random() < 0.6 else rng.randint(0, replicas)


def _dependent(rng: Random, groups: tuple[GroupPolicy, ...], index: int) -> GroupPolicy:
    """The group, with dependencies on some earlier groups."""
    chosen = [other for other in range(index) if rng.random() < 0.5]
    dependencies = tuple(Dependency(other, rng.random() < 0.4) for other in chosen)
    return replace(groups[index], depends_on=dependencies)


def _success(rng: Random, groups: tuple[GroupPolicy, ...]) -> Success:
    counted = [i for i, group in enumerate(groups) if group.min_success] or range(len(groups))
    if rng.random() < 0.3:
        counted = sorted(rng.sample(range(len(groups)), rng.randint(1, len(groups))))
    return Success(tuple(counted), rng.random() < 0.2, rng.random() < 0.3)


def _rule(rng: Random, number: int, groups: tuple[GroupPolicy, ...]) -> Rule:
    codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()
    messages: tuple[str, ...] = ()
    match rng.randrange(6):
        case 0 | 1:
            codes = tuple(rng.sample(EXIT_CODES, rng.randint(1, 2)))
        case 2 | 3:
            reasons = tuple(rng.sample(list(Reason), rng.randint(1, 3)))
        case 4:
            messages = (rng.choice(("boom", "reset", "ECC", "was lost")),)
        case _:
            signals = (int(rng.choice((signal.SIGKILL, signal.SIGSEGV))),)
    limited = rng.random() < 0.25
    return Rule(
        name=f"rule-{number}",
        action=rng.choice((Action.FAIL, *_RESTARTS, *_RESTARTS)),
        groups=(rng.choice(groups).name,) if limited else (),
        exit_codes=codes,
        signals=signals,
        reasons=reasons,
        messages=messages,
        counted=rng.random() < 0.65,
        max_restarts=rng.choice((0, 1, 2, 4)) if rng.random() < 0.4 else None,
        before_retries=rng.random() < 0.25,
    )


def _backoff(rng: Random) -> Backoff:
    if rng.random() < 0.5:
        return Backoff()
    return Backoff(
        initial=rng.choice((0.5, 2.0, 8.0)),
        factor=rng.choice((1.0, 2.0, 3.0)),
        longest=rng.choice((8.0, 30.0)),
        jitter=rng.choice((0.0, 0.1, 1.0)),
        reset_after=rng.choice((5.0, 60.0, 600.0)),
        seed=rng.randrange(1000),
    )


def _checkpoint(rng: Random) -> Checkpoint:
    return Checkpoint(int(signal.SIGUSR1), rng.choice((1.0, 5.0, 20.0)))
