"""What is known of the objects in a namespace, and what is new for runs when the API server says
more. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from muster.engines.kubernetes.changes import (
    Change,
    ChangesByRun,
    JobSetChanged,
    Listed,
    PodChanged,
)
from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts, WorkloadFacts, gone

Facts = PodFacts | JobSetFacts | WorkloadFacts


class KnownObjects:
    """Pods, JobSets, Jobs and Workloads."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Facts]] = defaultdict(dict)  # by kind and uid
        #: JobSets by uid, with what Kueue says, as they were reported.
        self._reported: dict[str, JobSetFacts] = {}
        self._workloads: dict[str, WorkloadFacts] = {}  # by uid of the owner
        #: By kind, the uids of those that are there, though they are not among those listed.
        self._unlisted: dict[str, set[str]] = defaultdict(set)
        self._listed: list[str] = []  # kinds of which everything is known now

    def of(self, run: str) -> Iterator[Change]:
        """What is known for a run."""
        for pod in self._known["Pod"].values():
            if isinstance(pod, PodFacts) and pod.run == run:
                yield PodChanged(pod)
        for jobset in self._reported.values():
            if jobset.run == run:
                yield JobSetChanged(jobset)
        for kind in self._listed:
            yield Listed(kind)

    def get(self, kind: str, uid: str) -> Facts | None:
        """An object, as it was last."""
        return self._known[kind].get(uid)

    def missing(self, kind: str, there: Collection[str]) -> list[Facts]:
        """Those that are not in the cluster any more. there: the uids of those that are."""
        return [one for uid, one in self._known[kind].items() if uid not in there]

    def has_unlisted(self, kind: str) -> bool:
        """Whether some are there that are not listed: see `add_unlisted`."""
        return bool(self._unlisted[kind])

    def replace(
        self, kind: str, found: Iterable[Facts], missing: Iterable[Facts], unlisted: set[str]
    ) -> ChangesByRun:
        """All of a kind were listed. missing: see there. unlisted: the uids of those among them
        that are there."""
        changes = ChangesByRun()
        self._unlisted[kind] = unlisted
        for facts in missing:
            if facts.uid not in unlisted:
                self._remove(kind, facts, changes)
        for facts in found:
            self._put(kind, facts, changes)
        if kind not in self._listed:
            self._listed.append(kind)
        return changes

    def put(self, kind: str, facts: Facts) -> ChangesByRun:
        """An object is there, or has changed."""
        changes = ChangesByRun()
        self._unlisted[kind].discard(facts.uid)
        self._put(kind, facts, changes)
        return changes

    def remove(self, kind: str, facts: Facts) -> ChangesByRun:
        """An object was deleted. facts: the last ones."""
        changes = ChangesByRun()
        self._unlisted[kind].discard(facts.uid)
        self._remove(kind, facts, changes)
        return changes

    def add_unlisted(self, kind: str, facts: Facts) -> None:
        """An object seems to be deleted, and is there: as it has lost its label."""
        self._unlisted[kind].add(facts.uid)

    def forget_list(self, kind: str) -> None:
        """Objects of a kind may have changed unseen, until they are listed again."""
        if kind in self._listed:
            self._listed.remove(kind)

    def _put(self, kind: str, facts: Facts, changes: ChangesByRun) -> None:
        if self._known[kind].get(facts.uid) == facts:
            return
        self._known[kind][facts.uid] = facts
        if isinstance(facts, PodFacts):
            changes.add(facts.run, PodChanged(facts))
        elif isinstance(facts, JobSetFacts):
            self._report(facts, changes)
        else:
            self._workloads[facts.owner] = facts
            self._report_owner(facts, changes)

    def _remove(self, kind: str, facts: Facts, changes: ChangesByRun) -> None:
        self._known[kind].pop(facts.uid, None)
        if isinstance(facts, PodFacts):
            changes.add(facts.run, PodChanged(gone(facts), is_gone=True))
        elif isinstance(facts, JobSetFacts):
            last = self._reported.pop(facts.uid, facts)
            changes.add(facts.run, JobSetChanged(last, is_gone=True))
        else:
            known = self._workloads.get(facts.owner)
            if known is not None and known.uid == facts.uid:  # else it was replaced meanwhile
                del self._workloads[facts.owner]
                self._report_owner(facts, changes)

    def _report_owner(self, workload: WorkloadFacts, changes: ChangesByRun) -> None:
        for kind in ("JobSet", "Job"):
            owner = self._known[kind].get(workload.owner)
            if isinstance(owner, JobSetFacts):
                self._report(owner, changes)

    def _report(self, jobset: JobSetFacts, changes: ChangesByRun) -> None:
        """Report a JobSet with what Kueue says of it, if that is new."""
        if (workload := self._workloads.get(jobset.uid)) is not None:
            jobset = replace(jobset, why_waiting=workload.why_waiting, evicted=workload.evicted)
        if self._reported.get(jobset.uid) != jobset:
            self._reported[jobset.uid] = jobset
            changes.add(jobset.run, JobSetChanged(jobset))
