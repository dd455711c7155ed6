"""The places that the pods of a JobSet have: their ranks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from muster.engines.kubernetes.observed_facts import ObservedPod
from muster.spec.formats.jobset.as_is import Part

_NONE: Mapping[str, int] = MappingProxyType({})


class Places:
    """Which rank each pod of a JobSet has. parts: of its manifest, in the order of the groups.
    recorded: the ranks that pods had in earlier sessions, by uid."""

    def __init__(self, parts: Iterable[Part], recorded: Mapping[str, int] = _NONE) -> None:
        self._first: dict[str, int] = {}
        self._parts = {one.name: one for one in parts}
        #: How many ranks there are.
        self.size = 0
        for one in self._parts.values():
            self._first[one.name] = self.size
            self.size += one.jobs * one.pods
        self._recorded = recorded
        # of pods without an index:
        #: (Replicated Job, Job, restarts) -> the uids of the newest pods of its places.
        self._holders: defaultdict[tuple[str, int, int], dict[int, str]] = defaultdict(dict)
        self._index: dict[str, int] = {}  # by uid
        self._leaving: set[str] = set()  # the uids of those whose places others may have

    def see(self, pods: Iterable[ObservedPod]) -> None:
        """These have changed: called with all changes, as soon as they are known, so that a new pod
        has the place of the one before it. A list has them in any order."""
        for pod in sorted(pods, key=self._order):
            self.rank_of(pod)

    def _order(self, pod: ObservedPod) -> tuple[bool, bool, str]:
        """Those whose places are known precede others, and those that have ended precede the pods
        that the cluster has made for them."""
        is_known = pod.uid in self._index or pod.uid in self._recorded
        return not is_known, pod.end is None, pod.accepted_at or "~"

    def rank_of(self, pod: ObservedPod) -> int | None:
        """The rank of a pod; None if it has no place. A pod without an index gets the first one of
        its Job that is free, or whose pod has failed or is being deleted."""
        part = self._parts.get(pod.group)
        if part is None or not 0 <= pod.job < part.jobs:
            return None
        first = self._first[part.name] + pod.job * part.pods
        index = pod.index if pod.index >= 0 else self._assign(part, pod, first)
        if index is None or index >= part.pods:
            return None
        return first + index

    def _assign(self, part: Part, pod: ObservedPod, first: int) -> int | None:
        """first: the rank of the first place of its Job."""
        if pod.exit_code != 0 and (pod.is_ending or pod.end is not None):
            self._leaving.add(pod.uid)
        if (known := self._index.get(pod.uid)) is not None:
            return known
        holders = self._holders[part.name, pod.job, pod.restarts]
        recorded = self._recorded.get(pod.uid, -1) - first
        own = [recorded] if 0 <= recorded < part.pods else []
        free = [n for n in range(part.pods) if n not in holders]
        left = [n for n, uid in holders.items() if uid in self._leaving]
        for index in (*own, *free, *left):
            holders[index] = pod.uid
            self._index[pod.uid] = index
            return index
        return None
