"""Asks what a JobSet is like now, when its pods say more than it has said.

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

#: Seconds for which a question is tried again.
_RETRY_FOR = 2.0
#: Gets what a JobSet says now; None: that is not known.
Answered = Callable[[JobSetFacts | None], object]


class JobSetQuestions:
    """Those of a run."""

    def __init__(self, loop: RunLoop, cluster: Cluster) -> None:
        self._loop, self._cluster = loop, cluster
        self._waiting: dict[str, list[Answered]] = defaultdict(list)  # by name
        self._asking: set[str] = set()

    def ask(self, name: str, answered: Answered) -> None:
        """Ask about a JobSet; once for all that is asked about it now."""
        self._waiting[name].append(answered)
        self._begin(name)

    def ask_all(
        self, names: Collection[str], answered: Callable[[Mapping[str, JobSetFacts]], object]
    ) -> None:
        """Ask about several. answered: gets those that have answered; at once if there are none."""
        found, left = dict[str, JobSetFacts](), {*names}

        def keep(name: str, facts: JobSetFacts | None) -> None:
            left.discard(name)
            if facts is not None:
                found[name] = facts
            if not left:
                answered(found)

        for name in names:
            self.ask(name, partial(keep, name))
        if not names:
            answered(found)

    def _begin(self, name: str) -> None:
        if name not in self._asking and self._waiting[name]:
            self._asking.add(name)
            self._loop.post(partial(self._ask, name))

    def _ask(self, name: str) -> None:
        waiting = self._waiting.pop(name)
        self._loop.in_thread(partial(self._read, name), partial(self._answer, name, waiting))

    def _read(self, name: str) -> JobSetFacts | None:
        """In a thread."""
        try:
            found = self._cluster.read("JobSet", name, retry_for=_RETRY_FOR)
            with understood():
                return jobset_facts(found)
        except CannotCall:
            return None

    def _answer(self, name: str, waiting: list[Answered], facts: JobSetFacts | None) -> None:
        self._asking.discard(name)
        self._begin(name)  # for those that have asked since
        for answered in waiting:
            answered(facts)
