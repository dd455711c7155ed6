"""Random policies, such that interesting things happen often. Whatever a spec may say comes up."""

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
    GroupPolicy,
    Policy,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.status import Reason

#: Failures a program has, as rules may speak of them.
EXIT_CODES = (1, 2, 21, 64)
MESSAGES = ("ValueError: boom", "Connection reset by peer", "CUDA error: ECC", "")
_LARGEST = 14  # nodes; any single group has fewer


def draw_policy(dice: Random) -> Policy:
    """One policy. Its times are seconds to minutes, so that they meet with what programs do."""
    groups = _groups(dice)
    order = dice.random()
    if order < 0.45:
        groups = tuple(_dependent(dice, groups, index) for index in range(len(groups)))
    return Policy(
        groups=groups,
        success=_success(dice, groups),
        in_order=order > 0.8,
        max_runtime=dice.choice((40.0, 90.0, 200.0)) if dice.random() < 0.15 else 3000.0,
        grace_period=dice.choice((0.5, 2.0, 10.0)),
        attempt_timeout=dice.choice((15.0, 40.0, 120.0)) if dice.random() < 0.15 else None,
        max_restarts=dice.choice((0, 1, 2, 3, 5)),
        action=dice.choice(_RESTARTS),
        rules=tuple(_rule(dice, number, groups) for number in range(_few(dice, 4))),
        strategy=dice.choice(list(Strategy)),
        backoff=_backoff(dice),
        checkpoint=_checkpoint(dice) if dice.random() < 0.3 else None,
    )


def stretched(dice: Random, policy: Policy) -> Policy:
    """The same, where some groups have room for more replicas than they begin with."""
    groups: list[GroupPolicy] = []
    rank = 0
    for group in policy.groups:
        room = dice.choice((0, 1, 2, 3))
        every = group.min_success == group.replicas and dice.random() < 0.7
        made = replace(
            group,
            first_rank=rank,
            replicas=group.replicas + room,
            min_success=group.min_success + room * every,
            wanted=group.replicas if room else None,
        )
        groups.append(made)
        rank += made.size
    return replace(policy, groups=tuple(groups))


def serving(dice: Random, policy: Policy) -> Policy:
    """The same, where some group that nobody waits for runs no program of the owner's."""
    awaited = {d.group for group in policy.groups for d in group.depends_on if d.complete}
    free = [index for index in range(len(policy.groups)) if index not in awaited]
    counted = policy.success.groups
    if not free or dice.random() > 0.3 or set(counted) <= {(chosen := dice.choice(free))}:
        return policy
    groups = list(policy.groups)
    groups[chosen] = replace(groups[chosen], serves=True, min_success=0)
    success = replace(policy.success, groups=tuple(i for i in counted if i != chosen))
    return replace(policy, groups=tuple(groups), success=success)


def with_rules(dice: Random, policy: Policy) -> Policy:
    """The same with rules each of which fits one kind of end, in any order."""
    kinds: list[dict[str, Any]] = [
        {"exit_codes": (21,)},
        {"signals": (int(signal.SIGSEGV),)},
        {"signals": (int(signal.SIGKILL),)},
        {"reasons": (Reason.NODE_LOST,)},
        {"reasons": (Reason.OUT_OF_MEMORY,)},
    ]
    chosen = dice.sample(kinds, dice.randint(2, len(kinds)))
    rules = (
        Rule(
            name=f"rule-{number}",
            action=dice.choice((Action.FAIL, *_RESTARTS)),
            before_retries=dice.random() < 0.5,
            **kind,
        )
        for number, kind in enumerate(chosen)
    )
    return replace(policy, rules=tuple(rules))


_RESTARTS = tuple(action for action in Action if action is not Action.FAIL)


def _few(dice: Random, most: int) -> int:
    return min(dice.randrange(most + 1), dice.randrange(most + 1))


def _groups(dice: Random) -> tuple[GroupPolicy, ...]:
    made: list[GroupPolicy] = []
    rank = 0
    tender = dice.random() < 0.15  # replicas may fail, but not before much has been tried
    for number in range(1 + _few(dice, 4)):
        replicas, nodes = 1 + _few(dice, 2), 1 + max(_few(dice, 3), tender)
        if rank + replicas * nodes > _LARGEST:
            break
        group = GroupPolicy(
            name=f"g{number}",
            first_rank=rank,
            replicas=replicas,
            nodes=nodes,
            min_success=replicas - 1 if tender else _least(dice, replicas),
            max_restarts=dice.choice((0, 1, 2)) if dice.random() < 0.25 else None,
            retries=dice.choice((1, 2)) if tender or dice.random() < 0.3 else 0,
            timeout=dice.choice((12.0, 30.0, 80.0)) if dice.random() < 0.15 else None,
            ready_timeout=dice.choice((1.5, 4.0, 12.0)) if tender or dice.random() < 0.2 else None,
        )
        made.append(group)
        rank += group.size
    return tuple(made)


def _least(dice: Random, replicas: int) -> int:
    return replicas if dice.random() < 0.6 else dice.randint(0, replicas)


def _dependent(dice: Random, groups: tuple[GroupPolicy, ...], index: int) -> GroupPolicy:
    """The group, waiting for some of those before it."""
    chosen = [other for other in range(index) if dice.random() < 0.5]
    dependencies = tuple(Dependency(other, dice.random() < 0.4) for other in chosen)
    return replace(groups[index], depends_on=dependencies)


def _success(dice: Random, groups: tuple[GroupPolicy, ...]) -> Success:
    counted = [i for i, group in enumerate(groups) if group.min_success] or range(len(groups))
    if dice.random() < 0.3:
        counted = sorted(dice.sample(range(len(groups)), dice.randint(1, len(groups))))
    return Success(tuple(counted), dice.random() < 0.2, dice.random() < 0.3)


def _rule(dice: Random, number: int, groups: tuple[GroupPolicy, ...]) -> Rule:
    codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()
    messages: tuple[str, ...] = ()
    match dice.randrange(6):
        case 0 | 1:
            codes = tuple(dice.sample(EXIT_CODES, dice.randint(1, 2)))
        case 2 | 3:
            reasons = tuple(dice.sample(list(Reason), dice.randint(1, 3)))
        case 4:
            messages = (dice.choice(("boom", "reset", "ECC", "was lost")),)
        case _:
            signals = (int(dice.choice((signal.SIGKILL, signal.SIGSEGV))),)
    some = dice.random() < 0.25
    return Rule(
        name=f"rule-{number}",
        action=dice.choice((Action.FAIL, *_RESTARTS, *_RESTARTS)),
        groups=(dice.choice(groups).name,) if some else (),
        exit_codes=codes,
        signals=signals,
        reasons=reasons,
        messages=messages,
        counted=dice.random() < 0.65,
        max_restarts=dice.choice((0, 1, 2, 4)) if dice.random() < 0.4 else None,
        before_retries=dice.random() < 0.25,
    )


def _backoff(dice: Random) -> Backoff:
    if dice.random() < 0.5:
        return Backoff()
    return Backoff(
        initial=dice.choice((0.5, 2.0, 8.0)),
        factor=dice.choice((1.0, 2.0, 3.0)),
        longest=dice.choice((8.0, 30.0)),
        jitter=dice.choice((0.0, 0.1, 1.0)),
        reset_after=dice.choice((5.0, 60.0, 600.0)),
        seed=dice.randrange(1000),
    )


def _checkpoint(dice: Random) -> Checkpoint:
    return Checkpoint(int(signal.SIGUSR1), dice.choice((1.0, 5.0, 20.0)))
