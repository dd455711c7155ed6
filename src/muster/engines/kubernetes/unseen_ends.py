"""Finds out how pods ended while no supervisor was running.

A Job keeps pods that have failed: these say it themselves, and their logs. Of one that the cluster
has no longer, events are kept for a while, by default for an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.endings import End, end_of_deleted_pod
from muster.engines.kubernetes.failed_starts import with_log
from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts
from muster.engines.kubernetes.slot_texts import explained_by_log, why_ended, why_gone
from muster.engines.loop import RunLoop
from muster.lifecycle.status import Reason

#: Pods about which something is read; of others, what is known without is said.
_MOST = 8
#: Seconds for which reading the events of one is tried again: all nodes wait for the answers.
_RETRY_FOR = 2.0


class Unseen(NamedTuple):
    """The end of the pod of a slot."""

    slot: int
    #: The name of the pod; "" if it is not known.
    name: str
    #: What it says; None: the cluster has it no longer.
    pod: PodFacts | None
    #: What its JobSet says; None: that is not known.
    jobset: JobSetFacts | None

    @property
    def may_be_explained(self) -> bool:
        """Whether there is something to read about it."""
        if self.pod is None:
            return bool(self.name)
        return explained_by_log(self.pod, why_ended(self.pod, self.jobset)[1])


class Explained(NamedTuple):
    """Why the node in a slot has ended."""

    slot: int
    why: str
    reason: Reason


class UnseenEnds:
    """Those of the pods of a run."""

    def __init__(self, loop: RunLoop, cluster: Cluster) -> None:
        self._loop, self._cluster = loop, cluster

    def explain(self, ends: Sequence[Unseen], done: Callable[[Sequence[Explained]], None]) -> None:
        """Find out how pods have ended. done: gets all in their order, at once if there is nothing
        to read: the first node that is lost counts as the cause."""
        to_read = [one.slot for one in ends if one.may_be_explained][:_MOST]
        if not to_read:
            done([_explained(one) for one in ends])
            return
        self._loop.in_thread(partial(self._read, ends, {*to_read}), done)

    def _read(self, ends: Sequence[Unseen], to_read: set[int]) -> Sequence[Explained]:
        """In a thread."""
        return [*self._read_each(ends, to_read)]

    def _read_each(self, ends: Sequence[Unseen], to_read: set[int]) -> Iterator[Explained]:
        for one in ends:
            if one.slot not in to_read:
                yield _explained(one)
            elif one.pod is None:
                yield _explained(one, self._end_of(one.name))
            else:
                found = _explained(one)
                yield found._replace(why=with_log(self._cluster, one.pod, found.why))

    def _end_of(self, name: str) -> End | None:
        try:
            events = self._cluster.events("Pod", name, retry_for=_RETRY_FOR)
            return end_of_deleted_pod(name, events)
        except CannotCall:  # without the right to see events, nothing is said
            return None


def _explained(one: Unseen, end: End | None = None) -> Explained:
    """end: what events say of a pod that is gone."""
    if one.pod is not None:
        return Explained(one.slot, *why_ended(one.pod, one.jobset))
    return Explained(one.slot, *why_gone(one.jobset, one.name, end))
