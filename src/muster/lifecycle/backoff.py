"""How long a restart waits. JobSet has no such thing; Kubernetes' CrashLoopBackOff is the model.

The first restart after a stable time does not wait; each further one in a row waits longer.
"""

from __future__ import annotations

from zlib import crc32

from muster.lifecycle.policy import Backoff
from muster.lifecycle.turn import Turn


def take(turn: Turn) -> float:
    """Seconds that the restart which is being decided waits. Counts it as one in a row."""
    rules = turn.policy.backoff
    last = turn.run.restarted_at
    stable = last is None or turn.now - last >= rules.reset_after
    streak = 0 if stable else turn.run.streak
    wait = delay(rules, streak, turn.run.restarts)
    turn.update(streak=streak + 1, restarted_at=turn.now + wait)
    return wait


def delay(rules: Backoff, streak: int, restart: int) -> float:
    """Seconds before a restart that follows `streak` others. Its number salts the jitter, so that
    the same run waits the same time when it is decided again."""
    if streak == 0:
        return 0.0
    wait = rules.initial
    for _ in range(1, streak):  # powers fail where products are just infinite
        wait *= rules.factor
    share = crc32(f"{rules.seed}:{restart}".encode()) / 2**32
    return min(rules.longest, min(rules.longest, wait) * (1 + rules.jitter * share))
