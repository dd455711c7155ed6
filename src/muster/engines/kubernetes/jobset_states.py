"""What the JobSets of one run have said, and which are of no use any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from muster.engines.kubernetes.pod_facts import JobSetFacts
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.slot_texts import why_no_pods


class JobSetStates:
    """By the numbers of their allocations. applied: those that an earlier session has applied."""

    def __init__(self, applied: Iterable[Allocation]) -> None:
        #: Allocation -> why its JobSet gets no more pods.
        self.doomed: dict[int, str] = {}
        #: Whether all JobSets of the run are known.
        self.known = False
        self._facts: dict[int, JobSetFacts] = {}
        #: Those of the earlier session, and what owns them (`Allocation.owner`), until it is known
        #: which are still there.
        self._former = {one.number: one.owner for one in applied if one.uid}

    def get(self, number: int) -> JobSetFacts | None:
        """What a JobSet has said last; None: nothing yet."""
        return self._facts.get(number)

    def why_no_pods(self, number: int) -> str:
        """See `slot_texts.why_no_pods`."""
        return why_no_pods(self._facts.get(number))

    def keep(self, number: int, jobset: JobSetFacts) -> None:
        """A JobSet, or one of its Jobs, has said this."""
        self._facts[number] = jobset

    def doom(self, number: int, why: str) -> None:
        """A JobSet is of no use any more."""
        self.doomed.setdefault(number, why)

    def listed(self, kind: str) -> list[int]:
        """All JobSets that there are were reported, or all Jobs. kind: which. Returns those of the
        earlier session that are not among them."""
        other = "Service" if kind == "JobSet" else "JobSet"  # owns those of the other kind
        former = {number for number, owner in self._former.items() if owner != other}
        for number in former:
            del self._former[number]
        self.known = not self._former
        return sorted(former - self._facts.keys())
