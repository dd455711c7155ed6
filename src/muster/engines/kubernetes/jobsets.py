"""The JobSets of one run in the cluster: applies and deletes them, and keeps their record.

What calls the API server is done by threads. A JobSet is applied first, then the ConfigMap and the
Secret that its pods mount, which belong to it: so the cluster deletes them with it, whatever
happens in between. Pods that are faster wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.kubernetes.applied import (
    MOUNTED_KINDS,
    Contents,
    PodDialing,
    objects,
    owned,
)
from muster.engines.kubernetes.cluster import RETRY_BRIEFLY, CannotCall, Cluster
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.found_versions import record_versions
from muster.engines.kubernetes.layout import JobLayout, layout
from muster.engines.kubernetes.names import RUN, jobset_name
from muster.engines.kubernetes.native_restarts import restarts_left
from muster.engines.kubernetes.pod_facts import PodFacts
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.record import RECORD, Allocation, Record
from muster.engines.kubernetes.refusals import rules_text
from muster.engines.kubernetes.role import rights_to_follow
from muster.engines.kubernetes.versions import Versions
from muster.engines.loop import RunLoop
from muster.engines.node_program import node_program
from muster.engines.remote.allocations import Allocations, NotRemoved

#: HTTP: others own fields of an object.
_CONFLICT = 409
#: Gets the number of an allocation, and why its JobSet was not applied; None if it was.
Applied = Callable[[int, CannotCall | None], object]


class JobSets(Allocations[Allocation, Record]):
    """See `Allocations`."""

    place = "in the cluster"

    def __init__(
        self,
        context: RunContext,
        profile: KubernetesProfile,
        loop: RunLoop,
        cluster: Cluster,
        freeing: Callable[[bool, str], object],
    ) -> None:
        self._profile = profile
        self._cluster, self._home = cluster, context.home
        super().__init__(context, RECORD, Record, loop, freeing)
        #: By the names of JobSets and, without JobSet in the cluster, of their Jobs: the number of
        #: the allocation, and its replicated Jobs by their names.
        self._named: dict[str, tuple[int, dict[str, JobLayout]]] = {}
        self._may_follow = False  # whether the rights for that were found
        #: The numbers of those that may be in the cluster.
        self._sent = {one.number for one in self}
        for one in self:
            self._name_parts(one)

    # --- their cluster

    @property
    def may_be_anywhere(self) -> bool:
        """Whether their cluster is not recorded yet, and is to be: not if an earlier version of
        Muster has applied some."""
        return self._record.cluster is None and self._record.next == 0

    def find_cluster(self, done: Callable[[CannotCall | None], object]) -> None:
        """Record where they are going to be applied: no later session applies them elsewhere."""
        self._loop.in_thread(self._find_cluster, partial(self._cluster_found, done))

    def _find_cluster(self) -> ClusterRef | CannotCall:
        """In a thread."""
        try:
            return self._cluster.connection.bind(
                retry_for=RETRY_BRIEFLY
            )  # the caller tries it again
        except CannotCall as error:
            return error

    def _cluster_found(
        self, done: Callable[[CannotCall | None], object], answer: ClusterRef | CannotCall
    ) -> None:
        if self._closed:
            return
        if isinstance(answer, CannotCall):
            done(answer)
            return
        self._record = replace(self._record, cluster=answer)
        self._write()
        done(None)

    # --- by their names

    def name(self, one: Allocation) -> str:
        """The name of its JobSet."""
        return jobset_name(self._plan, one.number)

    def named(self, name: str) -> Allocation | None:
        """The allocation whose JobSet has this name or, without JobSet in the cluster, one of its
        Jobs."""
        known = self._named.get(name)
        return None if known is None else self.get(known[0])

    def slot_of(self, pod: PodFacts) -> int | None:
        """The slot that a pod serves; None if its allocation does not serve it any more, or the pod
        was made by others than the Jobs of that."""
        number, jobs = self._named.get(pod.jobset, (-1, {}))
        job = jobs.get(pod.group) if self._is_owned(pod, number) else None
        slot = None if job is None else job.slot(pod.job, pod.index)
        return slot if slot is not None and self._serving.get(slot) == number else None

    def _is_owned(self, pod: PodFacts, number: int) -> bool:
        one = self.get(number)
        uid = "" if one is None else one.uid
        return pod.is_of_job and (not uid or pod.jobset_uid in ("", uid))

    def job_of(self, one: Allocation, slot: int) -> str:
        """The name of the Job that makes the pod of a slot."""
        for job in layout(self._plan, one.made_for):
            if slot in job.slots:
                return f"{self.name(one)}-{job.name}-{job.slots.index(slot) // job.nodes}"
        raise ValueError(f"allocation {one.number} was not made for slot {slot}")

    def number_of(self, pod: PodFacts) -> int:
        """The number of the allocation whose JobSet has a pod; -1: of none."""
        return self._named.get(pod.jobset, (-1, {}))[0]

    def _name_parts(self, one: Allocation) -> None:
        jobs = {job.name: job for job in layout(self._plan, one.made_for)}
        start, known = self.name(one), (one.number, jobs)
        self._named[start] = known
        for job in jobs.values():
            for number in range(job.jobs):
                self._named[f"{start}-{job.name}-{number}"] = known

    def add(self, slots: Sequence[int], restarts: int) -> Allocation:
        """A new allocation for these slots. restarts: how often JobSet has restarted the run. Only
        one that has all nodes of the run is restarted by JobSet."""
        is_whole = all(other.is_unneeded for other in self)
        one = Allocation(
            self._record.next,
            tuple(slots),
            tuple(slots),
            avoid=self._record.unfit,
            max_restarts=restarts_left(self._plan, self._profile, restarts) if is_whole else 0,
            restarts=restarts,
        )
        self._name_parts(one)
        self._add(one)
        return one

    def avoid(self, machine: str) -> None:
        """Pods of later allocations avoid a machine."""
        if machine not in self._record.unfit:
            self._record = replace(self._record, unfit=(*self._record.unfit, machine))
            self._write()

    def restarts_run(self, one: Allocation) -> bool:
        """Whether a restart of an allocation by JobSet is one of the whole run."""
        return one.max_restarts > 0 and all(o.is_unneeded or o.number == one.number for o in self)

    # --- applying

    def apply(
        self,
        one: Allocation,
        dialing: PodDialing | None,
        done: Applied,
    ) -> None:
        """Apply the JobSet of an allocation; again, if that was done before. dialing: see
        `Contents`. done: not called if it was given up meanwhile."""
        work = partial(self._apply, one, dialing)
        self._make(one.number, work, partial(self._applied, one.number, done))

    def _apply(self, one: Allocation, dialing: PodDialing | None) -> Allocation | CannotCall | None:
        """In a thread. Returns it with what is known then; None if it is not needed any more."""
        if not self._slots.get(one.number):  # since it waits for a thread
            return None
        try:
            versions = self._cluster.versions()
            record_versions(self._home, self._cluster.connection.server, versions)
            contents = Contents(node_program(), dialing)
            first, *others = objects(self._plan, self._profile, versions, one, contents)
            self._check_rights(versions)
            self._sent.add(one.number)
            uid = str(self._apply_first(first)["metadata"]["uid"])
            for part in others:
                self._cluster.apply(owned(part, first, uid))
        except CannotCall as error:
            return error
        return replace(one, uid=uid, owner=str(first["kind"]))

    def _check_rights(self, versions: Versions) -> None:
        """Before anything is applied: otherwise pods would run that nobody sees, or reaches. In a
        thread. Raises CannotCall."""
        if self._may_follow:
            return
        needed, newer = rights_to_follow(self._profile, versions)
        try:
            missing = self._cluster.missing_verbs([*needed, *newer])
        except CannotCall as error:
            if not error.lasts:
                raise
            missing = []  # nobody may ask here
        if set(missing).intersection(needed):
            where = f"your Role in namespace {self._cluster.connection.namespace}"
            text = f"nothing was applied, as {where} lacks {rules_text(missing)}"
            hint = "`muster engines check` lists all that is missing"
            raise CannotCall(f"{text}: {hint}", refused=True)
        self._may_follow = True

    def _apply_first(self, first: Mapping[str, Any]) -> Mapping[str, Any]:
        """Apply a JobSet. Raises CannotCall. If an earlier answer was lost, others, such as Kueue,
        may have changed fields of it, which is a conflict: then it is as it ought to be."""
        try:
            return self._cluster.apply(first)
        except CannotCall as error:
            if error.status != _CONFLICT or first["kind"] != "JobSet":
                raise
            about = first["metadata"]
            found = self._cluster.read("JobSet", about["name"])
            owner = (found["metadata"].get("labels") or {}).get(RUN)
            if owner != about["labels"][RUN] or found["metadata"].get("deletionTimestamp"):
                raise
            return found

    def restore(self, one: Allocation, dialing: PodDialing | None, done: Applied) -> None:
        """Apply again what the pods of an allocation mount, and somebody has deleted. The JobSet is
        not: others, such as Kueue, manage some of its fields by now, and one that is deleted at
        this moment would be made again. See `apply`."""
        if one.uid:
            work = partial(self._restore, one, dialing)
            self._make(one.number, work, partial(self._applied, one.number, done))

    def _restore(self, one: Allocation, dialing: PodDialing | None) -> Allocation | CannotCall:
        """In a thread."""
        try:
            versions = self._cluster.versions()
            contents = Contents(node_program(), dialing)
            first, *others = objects(self._plan, self._profile, versions, one, contents)
            for part in others:
                if part["kind"] in MOUNTED_KINDS:
                    self._cluster.apply(owned(part, first, one.uid))
        except CannotCall as error:
            return error
        return one

    def _applied(self, number: int, done: Applied, answer: Allocation | CannotCall | None) -> None:
        one = self[number]
        if isinstance(answer, Allocation):
            self._put(replace(one, uid=answer.uid, owner=answer.owner))
        if one.is_unneeded:
            self.remove_unneeded()
        elif not self._closed:
            done(number, answer if isinstance(answer, CannotCall) else None)

    # --- deleting

    def _label(self, one: Allocation) -> str:
        return f"JobSet {self.name(one)}"

    def _remedy(self, those: Sequence[Allocation]) -> str:
        kind = "service" if those[0].owner == "Service" else "jobset"
        ref = self._record.cluster
        namespace = f" -n {ref.namespace}" if ref is not None else ""
        if len(those) == 1:
            return f"`kubectl delete {kind} {self.name(those[0])}{namespace}` deletes it"
        selector = f"{RUN}={self._plan.run_id}"
        return f"`kubectl delete {kind} -l {selector}{namespace}` deletes them"

    def _remove(self, one: Allocation) -> NotRemoved | None:
        if one.number not in self._sent:
            return None  # a run without a cluster ends without one
        try:
            delete_owner(self._cluster, self.name(one), one.owner)
        except CannotCall as error:
            return NotRemoved(str(error), is_final=error.lasts)
        return None


def delete_owner(cluster: Cluster, name: str, kind: str = "") -> None:
    """Delete what owns all that an allocation has. kind: see `Allocation.owner`. Raises
    CannotCall."""
    cluster.delete(kind or owner_kind(cluster), name)


def owner_kind(cluster: Cluster) -> str:
    """The kind of what owns all that an allocation gets now. Raises CannotCall."""
    return "Service" if cluster.versions().jobset is None else "JobSet"
