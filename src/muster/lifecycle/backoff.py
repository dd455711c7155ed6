"""Delays of restarts, modelled on Kubernetes' CrashLoopBackOff. JobSet has no delays.

The first restart after a stable time is not delayed; each consecutive restart waits longer.
"""

from __future__ import annotations

from zlib import crc32

from muster.lifecycle.policy import Backoff
from muster.lifecycle.transition import Transition


def next_delay(transition: Transition) -> float:
    """Delay of the restart that is being decided, in seconds. Counts it in the streak."""
    rules = transition.policy.backoff
    last = transition.run.restarted_at
    stable = last is None or transition.now - last >= rules.reset_after
    streak = 0 if stable else transition.run.streak
    wait = delay(rules, streak, transition.run.last_incarnation)
    transition.update(streak=streak + 1, restarted_at=transition.now + wait)
    return wait


def delay(rules: Backoff, streak: int, restart: int) -> float:
    """Delay in seconds of a restart that follows `streak` others. restart: its number, which seeds
    the jitter, so that deciding the same step again gives the same delay."""
    if streak == 0:
        return 0.0
    wait = rules.initial
    for _ in range(1, streak):  # `**` raises OverflowError where `*=` gives infinity
        wait *= rules.factor
    share = crc32(f"{rules.seed}:{restart}".encode()) / 2**32
    return min(rules.longest, min(rules.longest, wait) * (1 + rules.jitter * share))
