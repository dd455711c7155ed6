"""Reads what a JobSet is like now, when its pods say more than it has said.

A supervisor that takes over lists pods and JobSets one after the other: pods may have been deleted
that were there when it was known last that their JobSet is not suspended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial

from muster.engines.kubernetes.answers import understood
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.pod_facts import JobSetFacts, jobset_facts
from muster.engines.loop import RunLoop

#: Seconds for which reading is tried again.
_RETRY_FOR = 2.0
#: Gets what a JobSet says now; None: that is not known.
Found = Callable[[JobSetFacts | None], object]


class JobSetReads:
    """Those of a run."""

    def __init__(self, loop: RunLoop, cluster: Cluster) -> None:
        self._loop, self._cluster = loop, cluster
        self._waiting: dict[str, list[Found]] = defaultdict(list)  # by name
        self._reading: set[str] = set()

    def read(self, name: str, done: Found) -> None:
        """Read a JobSet; once for all who need it now."""
        self._waiting[name].append(done)
        self._begin(name)

    def read_all(
        self, names: Collection[str], done: Callable[[Mapping[str, JobSetFacts]], object]
    ) -> None:
        """Read several. done: gets those that were read; at once if there are none."""
        found, left = dict[str, JobSetFacts](), {*names}

        def keep(name: str, facts: JobSetFacts | None) -> None:
            left.discard(name)
            if facts is not None:
                found[name] = facts
            if not left:
                done(found)

        for name in names:
            self.read(name, partial(keep, name))
        if not names:
            done(found)

    def _begin(self, name: str) -> None:
        if name not in self._reading and self._waiting[name]:
            self._reading.add(name)
            self._loop.post(partial(self._start, name))

    def _start(self, name: str) -> None:
        waiting = self._waiting.pop(name)
        self._loop.in_thread(partial(self._facts, name), partial(self._finish, name, waiting))

    def _facts(self, name: str) -> JobSetFacts | None:
        """In a thread."""
        try:
            found = self._cluster.read("JobSet", name, retry_for=_RETRY_FOR)
            with understood():
                return jobset_facts(found)
        except CannotCall:
            return None

    def _finish(self, name: str, waiting: list[Found], facts: JobSetFacts | None) -> None:
        self._reading.discard(name)
        self._begin(name)  # for those who have needed it since
        for done in waiting:
            done(facts)
