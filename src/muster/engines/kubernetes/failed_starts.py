"""Pods of a slot that fail one after the other, each before or soon after its start: the slot is
given up, as the next one would fail, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.pod_facts import PodFacts
from muster.engines.kubernetes.pod_logs import tail
from muster.engines.loop import RunLoop

#: Pods of a slot that may fail.
_MOST = 3
#: Seconds after which a pod that fails has not failed to start.
_START_TIME = 60.0
#: Logs of pods that are read at the same time; of others, what the cluster says is known.
_MOST_LOGS = 4


class FailedStarts:
    """See the module."""

    def __init__(self, loop: RunLoop, cluster: Cluster) -> None:
        self._loop, self._cluster = loop, cluster
        self._why: dict[int, list[str]] = defaultdict(list)
        self._reading = 0

    def add(self, slot: int, why: str, placed_at: float | None) -> None:
        """A pod has failed. placed_at: when its node had a host; None: it never had."""
        if placed_at is not None and self._loop.now() > placed_at + _START_TIME:
            self._why[slot].clear()  # it was not its start
        self._why[slot].append(why)

    def last(self, slot: int) -> str | None:
        """Why the last one has failed; None if none has."""
        return self._why[slot][-1] if self._why[slot] else None

    def are_too_many(self, slot: int) -> bool:
        """Whether a slot is to get no other pod."""
        return len(self._why[slot]) >= _MOST

    def forget(self, slot: int) -> None:
        """A slot was given up. It may be tried again later."""
        self._why.pop(slot, None)

    def read_log(self, slot: int, pod: PodFacts, why: str, done: Callable[[str], object]) -> bool:
        """Read what a container that has failed has written. why: what is known without. done: gets
        why it has failed. Returns False if that does not happen."""
        if pod.crash is None or self._reading >= _MOST_LOGS:
            return False
        self._reading += 1
        work = partial(with_log, self._cluster, pod, why)
        self._loop.in_thread(work, partial(self._was_read, slot, why, done))
        return True

    def _was_read(self, slot: int, known: str, done: Callable[[str], object], why: str) -> None:
        self._reading -= 1
        if self.last(slot) == known:
            self._why[slot][-1] = why
        done(why)


def with_log(cluster: Cluster, pod: PodFacts, why: str) -> str:
    """Why a pod has failed, with what the container that has failed has written. why: what is known
    without. Waits for the API server."""
    if pod.crash is None:
        return why
    try:
        log = tail(cluster, pod.name, pod.crash.container)
    except CannotCall:  # it is gone, or may not be read
        return why
    return pod.crash.with_log(log) if log else why
