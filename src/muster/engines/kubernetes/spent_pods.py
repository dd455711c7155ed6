"""Pods that are of no use any more and do not end by themselves, as a container in them goes on:
they are deleted, so that their Jobs make others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.pod_facts import PodFacts
from muster.engines.loop import RunLoop
from muster.engines.remote.pauses import Pauses

#: Seconds until a deletion is tried again.
_RETRY_PAUSE = 5.0


class SpentPods:
    """Those of a run. failed: gets the slot of one that cannot be deleted now, and why its Job
    makes no other one, as a phrase."""

    def __init__(
        self, loop: RunLoop, cluster: Cluster, failed: Callable[[int, str], object]
    ) -> None:
        self._loop, self._cluster, self._failed = loop, cluster, failed
        self._pauses = Pauses(loop)
        self._uids: set[str] = set()

    def __contains__(self, pod: PodFacts) -> bool:
        return pod.uid in self._uids

    def delete(self, slot: int, pod: PodFacts) -> None:
        """Delete a pod, unless that is done already."""
        if pod.uid not in self._uids:
            self._uids.add(pod.uid)
            self._delete(slot, pod)

    def gone(self, pod: PodFacts) -> None:
        """It is not in the cluster any more."""
        self._uids.discard(pod.uid)

    def close(self) -> None:
        """Try nothing again."""
        self._pauses.close()

    def _delete(self, slot: int, pod: PodFacts) -> None:
        if pod.uid in self._uids:
            self._loop.in_thread(partial(self._call, pod), partial(self._deleted, slot, pod))

    def _call(self, pod: PodFacts) -> CannotCall | None:
        """In a thread."""
        try:
            self._cluster.delete("Pod", pod.name, pod.uid)
        except CannotCall as error:
            return error
        return None

    def _deleted(self, slot: int, pod: PodFacts, error: CannotCall | None) -> None:
        if error is None or pod.uid not in self._uids:
            return
        self._failed(slot, f"pod {pod.name} is not replaced, as it cannot be deleted: {error}")
        self._pauses.after(_RETRY_PAUSE, partial(self._delete, slot, pod))
