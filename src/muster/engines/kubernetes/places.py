"""The places that the pods of a JobSet have: their ranks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from muster.engines.kubernetes.observed_facts import ObservedPod
from muster.spec.formats.jobset.as_is import Part


class Places:
    """Which rank each pod of a JobSet has. parts: of its manifest, in the order of the groups."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._first: dict[str, int] = {}
        self._parts = {one.name: one for one in parts}
        #: How many ranks there are.
        self.size = 0
        for one in self._parts.values():
            self._first[one.name] = self.size
            self.size += one.jobs * one.pods
        #: (Replicated Job, Job, restarts) -> the pods without an index that have its places.
        self._holders: defaultdict[tuple[str, int, int], dict[int, ObservedPod]] = defaultdict(dict)
        self._index: dict[str, int] = {}  # of pods without one, by uid

    def rank_of(self, pod: ObservedPod) -> int | None:
        """The rank of a pod; None if it has no place. A pod without an index gets the first one of
        its Job that is free, or whose pod has failed."""
        part = self._parts.get(pod.group)
        if part is None or not 0 <= pod.job < part.jobs:
            return None
        index = pod.index if pod.index >= 0 else self._assign(part, pod)
        if index is None or index >= part.pods:
            return None
        return self._first[part.name] + pod.job * part.pods + index

    def _assign(self, part: Part, pod: ObservedPod) -> int | None:
        holders = self._holders[part.name, pod.job, pod.restarts]
        if (known := self._index.get(pod.uid)) is not None:
            if known in holders and holders[known].uid == pod.uid:
                holders[known] = pod
            return known
        free = [n for n in range(part.pods) if n not in holders]
        failed = [n for n, one in holders.items() if one.end is not None and one.exit_code != 0]
        for index in (*free, *failed):
            holders[index] = pod
            self._index[pod.uid] = index
            return index
        return None
