"""What becomes of the slots of a run, whatever the cluster reports, in which order."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from engines.conftest import PlanOf
from muster.engines.base import RunContext
from muster.engines.kubernetes import hosts as module
from muster.engines.kubernetes import missing_pods, news, nodes
from muster.engines.kubernetes.changes import Away, Change, JobSetChanged, Listed, PodChanged
from muster.engines.kubernetes.cluster import CannotCall
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.connection import RETRY_FOR
from muster.engines.kubernetes.hosts import KubernetesHosts
from muster.engines.kubernetes.names import jobset_name
from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts, pod_facts
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.record import RECORD, Allocation, Record, cluster_of
from muster.engines.kubernetes.versions import Versions
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.hosts import Host
from muster.engines.remote.record import write_record
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason
from muster.node.greeting import Refusal
from muster.plan.model import RunPlan
from muster.storage.home import Home

TIMEOUT = 20.0
LISTED = (Listed("Pod"), Listed("JobSet"))


REF = ClusterRef("/home/config", "gpu", "team", "https://gpu.test", "u-1", "kube-system")


class FakeCluster:
    """Accepts everything."""

    def __init__(self, *_: object) -> None:
        self.connection = SimpleNamespace(namespace="team", server=REF.server, bind=lambda **_: REF)
        self.deleted: list[str] = []
        self.deleted_kinds: set[str] = set()
        self.is_installed = True  # JobSet
        self.applied: list[str] = []
        #: What the next calls that apply an object raise.
        self.errors: list[CannotCall] = []
        #: The events of any object, and of which objects they were read.
        self.said: list[dict[str, Any]] = []
        self.event_reads: list[tuple[str, str]] = []
        self.retried_for = 0.0  # seconds, when they were read last
        self.silent: CannotCall | None = None  # why they cannot be read
        #: What its JobSets are like, and how often they were read.
        self.jobset: dict[str, Any] | None = None
        self.reads = 0
        #: The kinds of all that was applied.
        self.kinds: list[str] = []

    def versions(self) -> Versions:
        return Versions() if self.is_installed else Versions(jobset=None)

    def missing_verbs(self, _wanted: object) -> list[tuple[str, str, str]]:
        return []

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        self.kinds.append(manifest["kind"])
        if manifest["kind"] == "JobSet":
            self.applied.append(manifest["metadata"]["name"])
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "uid"}}

    def delete(self, kind: str, name: str) -> None:
        self.deleted.append(name)
        self.deleted_kinds.add(kind)

    def close(self) -> None:
        pass

    def read(self, _kind: str, name: str, *, retry_for: float) -> dict[str, Any]:
        self.reads += 1
        self.retried_for = retry_for
        if self.jobset is None:
            raise CannotCall("nobody answers", refused=False)
        return {"metadata": {"uid": "uid", "name": name}, **self.jobset}

    def events(
        self, kind: str, name: str, reason: str = "", *, retry_for: float = RETRY_FOR
    ) -> list[dict[str, Any]]:
        self.event_reads.append((kind, name))
        self.retried_for = retry_for
        if self.silent is not None:
            raise self.silent
        return [one for one in self.said if reason in ("", one["reason"])]

    def log(self, *_: object, **_options: object) -> bytes:
        raise CannotCall("the pod is gone", refused=True)


class Call(NamedTuple):
    """What the owner of the hosts has learned."""

    what: str
    slot: int
    why: str = ""
    reason: Reason | None = None


class Owner:
    """Keeps what it learns."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.busy = False

    def queued(self, slots: Sequence[int], why: str) -> None:
        self.calls += [Call("queued", slot, why) for slot in slots]

    def placed(self, slot: int, host: Host) -> None:
        self.calls.append(Call("placed", slot, host.name))

    def refused(self, slot: int, why: str, *, final: bool = False) -> None:
        self.calls.append(Call("refused, for good" if final else "refused", slot, why))

    def gone(self, slot: int, why: str, reason: Reason = Reason.NODE_LOST, **_: Any) -> None:
        self.calls.append(Call("gone", slot, why, reason))

    def unreachable(self, slots: Sequence[int], why: str) -> None:
        self.calls += [Call("unreachable", slot, why) for slot in slots]

    def ending(self, slots: Sequence[int], why: str) -> None:
        self.calls += [Call("ending", slot, why) for slot in slots]

    def freeing(self, *, busy: bool, left: str = "") -> None:
        self.busy = busy


class Driven:
    """The hosts of a run, and the cluster that they see."""

    def __init__(
        self,
        plan: RunPlan,
        context: RunContext,
        profile: KubernetesProfile,
        doubts: list[float],
        with_jobs: list[bool],
    ) -> None:
        self.plan, self.home, self.owner = plan, context.home, Owner()
        self.loop = EventLoop()
        self.failures: list[Exception] = []
        run = RunLoop(self.loop, self.failures.append)
        owner: Any = self.owner
        self.hosts = KubernetesHosts(context, profile, run, owner)
        self.cluster: Any = self.hosts._cluster
        #: Since when its pods were doubted, and for each subscription, whether it has Jobs.
        self.doubts, self.with_jobs = doubts, with_jobs

    def until(self, holds: Callable[[], object]) -> None:
        late = self.loop.add(lambda _: pytest.fail(f"nothing has happened: {self.owner.calls}"))
        late.wake_at(self.loop.now() + TIMEOUT)
        while not holds():
            self.loop.run_once()
            assert self.failures == []
        late.close()

    def allocate(self, *slots: int) -> None:
        """Slots are requested, and their JobSet is applied."""
        self.hosts.allocate(slots)
        numbers = self.hosts._jobsets
        self.until(lambda: all((one := numbers.of_slot(s)) and one.uid for s in slots))

    def see(self, *changes: Change | PodFacts | JobSetFacts) -> list[Call]:
        """The cluster reports something. Returns what the owner learns."""
        self.owner.calls.clear()
        known = [_change(one) for one in changes]
        self.hosts._news._seen(known)
        self.settle()
        return [*self.owner.calls]

    def pass_time(self, seconds: float) -> None:
        """Let everything happen that happens in that time."""
        end = self.loop.now() + seconds
        self.loop.add(lambda _: None).wake_at(end)
        self.until(lambda: self.loop.now() >= end)

    def settle(self) -> None:
        """Let everything happen that was posted."""
        done: list[bool] = []
        self.loop.post(lambda: self.loop.post(lambda: done.append(True)))
        self.until(lambda: done)

    def pod(self, slot: int, uid: str = "", number: int = 0, **more: Any) -> PodFacts:
        name = jobset_name(self.plan, number)
        (group,) = self.plan.groups
        return pod(name, group.name, slot, uid or f"{number}-{slot}", **more)

    def jobset(self, number: int = 0, **facts: Any) -> JobSetFacts:
        name = jobset_name(self.plan, number)
        given = {"is_suspended": False, "is_ending": False, "restarts": 0}
        given |= {"has_succeeded": False, "failed": ""}
        return JobSetFacts(f"uid-{number}", name, self.plan.run_id, **{**given, **facts})


def _change(one: Change | PodFacts | JobSetFacts) -> Change:
    if isinstance(one, PodFacts):
        return PodChanged(one)
    return JobSetChanged(one) if isinstance(one, JobSetFacts) else one


def pod(
    jobset: str,
    group: str,
    index: int,
    uid: str,
    *,
    waiting: str = "",
    code: int | None = None,
    deleted: bool = False,
    disrupted: str = "",
    forged: bool = False,
    mounting: bool = False,
) -> PodFacts:
    """A pod that runs. waiting: what its container waits for. code: how that has
    ended. deleted: whether it is to end. forged: whether no Job has made it. mounting: whether its
    volumes are not mounted yet."""
    prefix = "jobset.sigs.k8s.io"
    labels = {
        f"{prefix}/jobset-name": jobset,
        f"{prefix}/replicatedjob-name": group,
        f"{prefix}/job-index": "0",
        "batch.kubernetes.io/job-completion-index": str(index),
        "muster.run/id": "r1",
    }
    state: dict[str, Any] = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
    if waiting:
        state = {"waiting": {"reason": "ImagePullBackOff", "message": waiting}}
    if mounting:
        state = {"waiting": {"reason": "ContainerCreating"}}
    if code is not None:
        state = {"terminated": {"exitCode": code}}
    status: dict[str, Any] = {
        "phase": "Pending" if waiting or mounting else "Running" if code is None else "Failed",
        "containerStatuses": [{"name": "node", "image": "python", "state": state}],
    }
    if disrupted:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}]
    about: dict[str, Any] = {"uid": uid, "name": f"pod-{uid}", "labels": labels}
    if not forged:
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{jobset}-{group}-0", "uid": "j"}
        about["ownerReferences"] = [{**job, "controller": True}]
    if deleted:
        about["deletionTimestamp"] = "2026-01-02T03:05:00Z"
    return pod_facts({"metadata": about, "spec": {"nodeName": "gpu-7"}, "status": status})


Drive = Callable[..., Driven]


@pytest.fixture
def drive(tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> Iterator[Drive]:
    """Open the hosts of a run with two nodes. alive: how an earlier session has left them, which
    has applied their JobSet. pods: the names of those in which it had them run."""

    class Watcher:
        def subscribe(self, *_: Any, has_jobs: bool) -> Watcher:
            with_jobs.append(has_jobs)
            return self

        def close(self) -> None:
            """Nothing was begun."""

        def doubt(self, since: float) -> None:
            doubts.append(since)

    doubts: list[float] = []
    with_jobs: list[bool] = []
    # what is reported because something takes long, only where a test is about that
    monkeypatch.setattr(module, "_SILENCE", 1000.0)
    monkeypatch.setattr(missing_pods, "_FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(module, "Cluster", FakeCluster)
    monkeypatch.setattr(news, "watcher_of", lambda _: Watcher())
    made: list[Driven] = []

    def one(
        *alive: NodeState,
        applied: bool = True,
        record: Record | None = None,
        pods: Sequence[str] = ("", ""),
        profile: KubernetesProfile = KubernetesProfile(),  # noqa: B008  frozen
    ) -> Driven:
        plan, home = plan_of(nodes=2), Home(tmp_path)
        folder = home.run_dir(plan.run_id)
        folder.path.mkdir(parents=True)
        if alive and applied and record is None:
            record = Record((Allocation(0, (0, 1), (0, 1), "uid"),), 1)
        if record is not None:
            write_record(folder.path / RECORD, record)
        nodes = {
            NodeRef(rank, 0): NodeStatus(state, host_id=pods[rank])
            for rank, state in enumerate(alive)
        }
        context = RunContext(plan, home, {}, sys.executable, alive=nodes)
        made.append(Driven(plan, context, profile, doubts, with_jobs))
        made[-1].until(lambda: made[-1].hosts._contact.is_ready)  # which a thread makes
        return made[-1]

    yield one
    for each in made:
        each.hosts.close()
        each.loop.close()


# --- pods


def test_a_slot_has_its_pod_when_that_runs(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    assert one.cluster.applied == [jobset_name(one.plan, 0)]
    waits = one.see(*LISTED, one.pod(0), one.pod(1, waiting="manifest unknown"))
    assert waits == [
        Call("placed", 0, "gpu-7"),
        Call("queued", 1, "image python cannot be pulled: manifest unknown"),
    ]
    assert one.see(one.pod(1)) == [Call("placed", 1, "gpu-7")]


def test_a_lost_pod_is_replaced_by_its_job(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    gone = "pod pod-0-1 on gpu-7 was deleted"
    ending = [Call("ending", 1, "its pod is being deleted")]
    assert one.see(one.pod(1, deleted=True)) == ending
    lost = one.see(one.pod(1, deleted=True, code=143))
    assert lost == [Call("gone", 1, gone, Reason.NODE_LOST)]
    assert one.see(PodChanged(one.pod(1, deleted=True, code=143), is_gone=True)) == []
    one.hosts.allocate([1])
    assert one.see(one.pod(1, "second")) == [Call("placed", 1, "gpu-7")]
    assert len(one.cluster.applied) == 1


def test_pods_that_fail_again_and_again_are_given_up(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED)
    for number in range(2):
        (said,) = one.see(one.pod(1, f"u{number}", code=1))
        assert said.what == "queued" and said.why.endswith("another one is created")
    (said,) = one.see(one.pod(1, "u2", code=1))
    assert (said.what, said.why) == ("refused", "pod pod-u2 on gpu-7 has exited with code 1")
    # given it gets another JobSet, the pods of the first one are not taken for its own
    one.allocate(1)
    assert one.see(one.pod(1, "u3")) == []
    assert one.see(one.pod(0, "u4", number=1)) == [Call("placed", 1, "gpu-7")]


def test_who_has_suspended_a_jobset_is_named(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    one.see(one.jobset(is_suspended=True))
    lost = one.see(one.pod(0, deleted=True, code=143))
    name = jobset_name(one.plan, 0)
    why = f"JobSet {name} was suspended in the cluster; its pod comes back when it resumes"
    assert lost == [Call("gone", 0, why, Reason.PREEMPTED)]
    one.see(one.jobset(is_suspended=True, evicted="Kueue has preempted it"))
    lost = one.see(one.pod(1, deleted=True, code=143))
    why = "Kueue has preempted it; its pod comes back when it is admitted again"
    assert lost == [Call("gone", 1, why, Reason.PREEMPTED)]


def test_the_log_of_a_pod_of_a_suspended_jobset_does_not_say_why_it_has_ended(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    one.cluster.log = lambda *_, **_options: b"step 7\n"
    suspended = one.jobset(is_suspended=True)
    (lost,) = one.see(suspended, one.pod(1, deleted=True, code=143))
    assert lost.reason is Reason.PREEMPTED
    assert lost.why.startswith(f"JobSet {suspended.name} was suspended in the cluster")


def test_why_a_pod_is_ended_counts_more_than_a_suspension(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    one.see(one.jobset(is_suspended=True))
    (lost,) = one.see(one.pod(0, deleted=True, code=143, disrupted="EvictionByEvictionAPI"))
    assert lost.reason is Reason.PREEMPTED and "was evicted, as when its node is" in lost.why


def test_a_pod_that_no_job_has_made_is_nobodys(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    assert one.see(one.pod(1, "copy", forged=True), one.pod(1, "copy", forged=True, code=1)) == []
    (lost,) = one.see(one.pod(1, deleted=True, code=143))
    assert lost.what == "gone"
    one.hosts.allocate([1])
    assert one.see(one.pod(1, "copy", forged=True)) == []
    assert one.see(one.pod(1, "second")) == [Call("placed", 1, "gpu-7")]


def test_a_pod_of_another_jobset_is_nobodys(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    other = replace(one.pod(0), jobset_uid="of-another")
    own = replace(one.pod(0), jobset_uid="uid")
    assert one.see(*LISTED, other) == []
    assert one.see(own) == [Call("placed", 0, "gpu-7")]


# --- what is not heard


def test_a_pod_that_is_out_of_contact_may_have_ended_unheard(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "NEWS_TIMEOUT", 0.05)
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    lost_at = one.loop.now()
    for slot in (0, 1):
        one.hosts._nodes._contact_lost(slot)
    one.until(lambda: one.doubts)
    (since,) = one.doubts  # once for both
    assert lost_at <= since <= one.loop.now() - 0.05


def test_a_pod_that_is_out_of_contact_again_is_doubted_after_a_pause(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "NEWS_TIMEOUT", 0.02)
    monkeypatch.setattr(nodes, "_DOUBT_PAUSE", 0.3)
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    one.hosts._nodes._contact_lost(1)
    before_first = one.loop.now()
    one.until(lambda: one.doubts)
    lost_at = one.loop.now()
    for _ in range(3):  # as dials fail
        one.hosts._nodes._contact_lost(1)
    one.until(lambda: len(one.doubts) == 2)
    assert one.loop.now() >= before_first + 0.3 and one.doubts[1] >= lost_at
    one.pass_time(0.4)
    assert len(one.doubts) == 2


def test_a_pod_that_is_in_contact_again_is_not_doubted(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "NEWS_TIMEOUT", 0.05)
    one = drive(profile=KubernetesProfile(contact="dial", address="127.0.0.1"))
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0))
    connection: Any = SimpleNamespace(hello={})
    with pytest.raises(Refusal):
        one.hosts._nodes._arrived(0, connection)  # it gets a host, which nothing listens to here
    arrivals = one.hosts._slots[0].arrivals
    assert arrivals is not None
    arrivals.take = lambda _: None
    one.hosts._nodes._contact_lost(0)
    one.hosts._nodes._arrived(0, connection)
    one.pass_time(0.2)
    assert one.doubts == []


def test_a_pod_whose_end_is_heard_is_not_doubted(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "NEWS_TIMEOUT", 0.05)
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    one.hosts._nodes._contact_lost(1)
    one.see(one.pod(1, deleted=True, code=143))
    one.pass_time(0.2)
    assert one.doubts == []


@pytest.mark.parametrize("is_answered", [True, False])
def test_pods_that_are_missing_are_doubted_if_no_event_says_why(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    monkeypatch.setattr(missing_pods, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(missing_pods, "_LONGEST_PAUSE", 0.01)
    one = drive()
    if not is_answered:
        one.cluster.silent = CannotCall("the cluster does not answer", refused=False)
    one.allocate(0, 1)
    one.see(*LISTED, one.jobset())
    one.until(lambda: len(one.cluster.event_reads) > 3)
    one.settle()
    assert bool(one.doubts) == is_answered


# --- what is not mounted


def _not_mounted(volume: str, why: str, time: str = "2026-01-02T03:04:05Z") -> dict[str, Any]:
    text = f'MountVolume.SetUp failed for volume "{volume}" : {why}'
    return {"reason": "FailedMount", "message": text, "lastTimestamp": time}


def test_a_volume_that_cannot_be_mounted_is_named(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_pods, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(missing_pods, "_LONGEST_PAUSE", 0.01)
    one = drive()
    one.allocate(0, 1)
    one.cluster.said = [_not_mounted("data", "mount.nfs: Connection timed out")]
    one.see(*LISTED, one.pod(0), one.pod(1, mounting=True))
    why = "volume data of its pod cannot be mounted on gpu-7: mount.nfs: Connection timed out"
    one.until(lambda: Call("queued", 1, why) in one.owner.calls)
    assert {name for kind, name in one.cluster.event_reads if kind == "Pod"} == {"pod-0-1"}
    # given nobody knows whether it can be mounted now
    one.cluster.silent = CannotCall("the cluster does not answer", refused=False)
    before = len(one.cluster.event_reads)
    one.until(lambda: len(one.cluster.event_reads) > before + 2)
    assert one.owner.calls[-1].why == why
    # given it can
    one.cluster.silent = None
    one.cluster.said.clear()
    one.until(lambda: one.owner.calls[-1].why == "its pod is being created on gpu-7")
    assert one.cluster.kinds == ["JobSet", "ConfigMap"]


def test_what_pods_mount_is_applied_again(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_pods, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(missing_pods, "_LONGEST_PAUSE", 0.01)
    one = drive()
    one.allocate(0, 1)
    one.cluster.kinds.clear()
    one.cluster.errors = [CannotCall("quota", refused=True, status=403)]
    one.cluster.said = [_not_mounted("muster-program", 'configmap "x" not found')]
    one.see(*LISTED, one.pod(0), one.pod(1, mounting=True))
    one.until(lambda: "cannot be applied again: quota" in str(one.owner.calls))
    assert "refused" not in {call.what for call in one.owner.calls}
    one.until(lambda: len(one.cluster.kinds) == 1)
    # then once for each time that they are missing
    before = len(one.cluster.event_reads)
    one.until(lambda: len(one.cluster.event_reads) > before + 3)
    assert one.cluster.kinds == ["ConfigMap"]
    one.cluster.said = [_not_mounted("muster-program", "no", "2026-01-02T03:04:06Z")]
    one.until(lambda: len(one.cluster.kinds) == 2)
    assert len(one.cluster.applied) == 1  # the JobSet stays as it is


# --- JobSets


def test_a_jobset_that_is_deleted_is_replaced_when_its_pods_have_ended(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1))
    name = jobset_name(one.plan, 0)
    assert one.see(one.jobset(is_ending=True)) == []  # kubectl delete --cascade=foreground
    assert one.see(one.pod(0, deleted=True, code=143)) == []
    lost = one.see(one.pod(1, deleted=True, code=143))
    why = f"JobSet {name} was deleted"
    assert lost == [Call("gone", slot, why, Reason.NODE_LOST) for slot in (0, 1)]
    one.allocate(0, 1)
    assert one.cluster.applied == [name, jobset_name(one.plan, 1)]


def test_the_first_node_lost_with_a_jobset_is_the_one_whose_pod_has_failed(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0), one.pod(1, waiting="manifest unknown"))
    one.see(one.pod(1, code=1))
    one.see(one.jobset(failed="JobSet x has failed: no"))
    lost = one.see(one.pod(0, deleted=True, code=143))
    assert [(call.what, call.slot, call.why) for call in lost] == [
        ("refused", 1, "pod pod-0-1 on gpu-7 has exited with code 1"),
        ("gone", 0, "JobSet x has failed: no"),
    ]


def test_a_replacement_waits_for_credentials(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_PAUSE", 0.01)
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.jobset(failed="JobSet x has failed: no"))
    one.owner.calls.clear()
    one.cluster.errors = [CannotCall("log in again", refused=True, status=401)]
    one.allocate(0, 1)
    why = "log in again"
    assert [call.why for call in one.owner.calls if call.what != "placed"] == [why, why]


def test_credentials_that_were_never_accepted_fail_the_run(drive: Drive) -> None:
    one = drive()
    one.cluster.errors = [CannotCall("log in again", refused=True, status=401)]
    one.hosts.allocate([0, 1])
    one.until(lambda: len(one.owner.calls) == 2)
    why = "log in again"
    assert one.owner.calls == [Call("refused, for good", slot, why) for slot in (0, 1)]


# --- nodes of an earlier session

RUNNING, STARTING, QUEUED = NodeState.RUNNING, NodeState.STARTING, NodeState.QUEUED


def test_nodes_are_found_with_their_pods(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING)
    one.hosts.allocate([0, 1])
    assert one.see(one.jobset()) == []
    assert one.see(one.pod(0)) == [Call("placed", 0, "gpu-7")]
    assert one.see(one.pod(1, deleted=True)) == [Call("placed", 1, "gpu-7")], "it may run"
    assert one.see(*LISTED) == []
    assert one.cluster.applied == []


def test_a_node_is_lost_if_its_pod_is_gone(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING)
    one.hosts.allocate([0, 1])
    one.see(one.jobset(), one.pod(0, code=137), *LISTED)
    one.until(lambda: len(one.owner.calls) == 2)  # when a log was read
    assert one.owner.calls == [
        Call("gone", 0, "pod pod-0-0 on gpu-7 was ended by SIGKILL", Reason.EXIT),
        Call("gone", 1, "its pod was deleted while no supervisor was running", Reason.NODE_LOST),
    ]


def test_earlier_pods_of_a_node_do_not_matter(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING)
    one.hosts.allocate([0, 1])
    every = (one.pod(0, "first", code=137), one.pod(0), one.pod(1), one.pod(1, "first", code=137))
    placed = one.see(one.jobset(), *every, *LISTED)
    assert placed == [Call("placed", slot, "gpu-7") for slot in (0, 1)]


def test_a_node_that_had_no_pod_yet_waits_for_it(drive: Drive) -> None:
    one = drive(STARTING, QUEUED)
    one.hosts.allocate([0, 1])
    assert one.see(one.jobset(), *LISTED) == [Call("queued", 0, "its pod has not been created yet")]
    placed = one.see(one.pod(0), one.pod(1))
    assert placed == [Call("placed", slot, "gpu-7") for slot in (0, 1)]


def test_a_node_is_lost_if_its_pod_is_another_one_that_waits(drive: Drive) -> None:
    one = drive(RUNNING, STARTING)
    one.hosts.allocate([0, 1])
    waits = "image python cannot be pulled: no"
    assert one.see(one.pod(0, waiting="no"), one.pod(1, waiting="no"), one.jobset()) == []
    assert one.see(*LISTED) == [
        Call("queued", 1, waits),
        Call("gone", 0, "its pod was deleted while no supervisor was running", Reason.NODE_LOST),
    ]


def test_a_node_is_lost_if_its_pod_was_replaced(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING, pods=["pod-first", "pod-0-1"])
    one.hosts.allocate([0, 1])
    one.cluster.log = lambda *_, **_options: b"CUDA error\n"
    ended = one.pod(0, "first", code=134)
    assert one.see(ended, one.pod(0), one.pod(1)) == [Call("placed", 1, "gpu-7")]
    one.see(one.jobset(), *LISTED)
    one.until(lambda: one.owner.calls)
    why = "pod pod-first on gpu-7 was ended by SIGABRT\nlast lines of its log:\nCUDA error"
    assert one.owner.calls == [Call("gone", 0, why, Reason.EXIT)]
    one.hosts.allocate([0])
    one.until(lambda: len(one.owner.calls) > 1)
    assert one.owner.calls[1:] == [Call("placed", 0, "gpu-7")]


def test_the_end_of_a_later_pod_does_not_say_why_a_node_is_lost(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING, pods=["pod-first", "pod-0-1"])
    one.hosts.allocate([0, 1])
    one.settle()
    assert one.see(Listed("Pod"), one.pod(0, code=1)) == []
    one.cluster.said = [PREEMPTED]
    one.see(one.jobset(), Listed("JobSet"))
    one.until(lambda: one.owner.calls)
    (lost,) = [call for call in one.owner.calls if call.slot == 0]
    assert (lost.what, lost.reason) == ("gone", Reason.PREEMPTED)
    assert lost.why.startswith("pod pod-first was preempted")


PREEMPTED = {"reason": "Preempted", "message": "Preempted by pod 77 on node gpu-7"}


@pytest.mark.parametrize(
    ("said", "why", "reason"),
    [
        ([], "was deleted while no supervisor was running", Reason.NODE_LOST),
        (
            [PREEMPTED],
            "was preempted by a pod of higher priority: Preempted by pod 77 on node gpu-7",
            Reason.PREEMPTED,
        ),
    ],
    ids=["no-event", "preempted"],
)
def test_events_say_why_a_pod_is_gone(
    drive: Drive, said: list[dict[str, Any]], why: str, reason: Reason
) -> None:
    one = drive(RUNNING, RUNNING, pods=["pod-first", "pod-0-1"])
    one.hosts.allocate([0, 1])
    one.cluster.said = said
    one.see(one.jobset(), one.pod(0), one.pod(1), *LISTED)
    one.until(lambda: one.owner.calls[-1].what == "gone")
    assert one.owner.calls[-1] == Call("gone", 0, f"pod pod-first {why}", reason)
    assert one.cluster.event_reads == [("Pod", "pod-first")]
    assert one.cluster.retried_for <= 2, "other nodes wait for the answer"


def test_a_node_that_had_not_begun_starts_in_a_pod_that_was_replaced(drive: Drive) -> None:
    one = drive(STARTING, RUNNING, pods=["of-the-incarnation-before", "pod-0-1"])
    one.hosts.allocate([0, 1])
    placed = one.see(one.jobset(), one.pod(0), one.pod(1), *LISTED)
    assert placed == [Call("placed", slot, "gpu-7") for slot in (0, 1)]


def test_a_jobset_that_was_suspended_meanwhile(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING)
    one.hosts.allocate([0, 1])
    assert one.see(Listed("Pod")) == []
    lost = one.see(one.jobset(evicted="Kueue has preempted it"), Listed("JobSet"))
    why = "Kueue has preempted it; its pod comes back when it is admitted again"
    assert lost == [Call("gone", slot, why, Reason.PREEMPTED) for slot in (0, 1)]


OF_JOBSET = Record((Allocation(0, (0, 1), (0, 1), "uid", owner="JobSet"),), 1)


@pytest.mark.parametrize("seen_to_end", [False, True])
@pytest.mark.parametrize(
    ("jobset", "why", "reason"),
    [
        ({"spec": {"suspend": True}}, "was suspended in the cluster", Reason.PREEMPTED),
        ({"spec": {}}, "was deleted", Reason.NODE_LOST),
        ({"spec": "odd"}, "was deleted", Reason.NODE_LOST),
        (None, "was deleted", Reason.NODE_LOST),
    ],
    ids=["suspended", "not", "odd", "no-answer"],
)
def test_a_suspension_that_is_not_heard_yet(
    drive: Drive, jobset: dict[str, Any] | None, why: str, reason: Reason, seen_to_end: bool
) -> None:
    """Pods of an earlier session were deleted; what is known of their JobSet may be older. It is
    read once, for all of them."""
    one = drive(NodeState.READY, NodeState.READY, record=OF_JOBSET)
    one.hosts.allocate((0, 1))
    one.cluster.jobset = jobset
    ending = [one.pod(slot, deleted=True) for slot in (0, 1)]
    if seen_to_end:
        one.see(one.jobset(), *ending, *LISTED)
    one.owner.calls.clear()
    ended = [one.pod(slot, deleted=True, code=143) for slot in (0, 1)]
    one.see(*([] if seen_to_end else [one.jobset()]), *ended, *LISTED)
    one.until(lambda: {call.slot for call in one.owner.calls if call.what == "gone"} == {0, 1})
    gone = [call for call in one.owner.calls if call.what == "gone"]
    assert all(why in call.why and call.reason is reason for call in gone), gone
    assert one.cluster.reads == 1
    assert one.cluster.retried_for == 2


def test_a_jobset_that_was_deleted_meanwhile(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING)
    one.hosts.allocate([0, 1])
    name = jobset_name(one.plan, 0)
    assert one.see(Listed("JobSet"), one.pod(0, deleted=True)) == [Call("placed", 0, "gpu-7")]
    # given its pods are not known when that is known
    assert one.see(Listed("Pod")) == []
    why = f"JobSet {name} was deleted while no supervisor was running"
    lost = one.see(one.pod(0, deleted=True, code=143))
    assert lost == [Call("gone", slot, why, Reason.NODE_LOST) for slot in (0, 1)]


def test_a_jobset_that_is_being_deleted_has_its_nodes_until_its_pods_end(drive: Drive) -> None:
    """Though its pods and its end are known before anybody asks for the nodes."""
    one = drive(RUNNING, RUNNING)
    assert one.see(*LISTED, one.pod(0), one.pod(1), one.jobset(is_ending=True)) == []
    one.hosts.allocate([0])
    one.settle()
    one.hosts.allocate([1])
    one.settle()
    assert one.owner.calls == [Call("placed", slot, "gpu-7") for slot in (0, 1)]
    assert one.cluster.deleted == []


@pytest.mark.parametrize("states", [(RUNNING, RUNNING), (STARTING, STARTING)])
def test_nodes_of_a_deleted_jobset_are_lost_when_all_are_asked_for(
    drive: Drive, states: Sequence[NodeState]
) -> None:
    one = drive(*states)
    assert one.see(one.jobset(is_ending=True), *LISTED) == []
    one.hosts.allocate([0])
    one.settle()
    assert one.owner.calls == []
    one.hosts.allocate([1])
    one.until(lambda: one.owner.calls)
    assert [(call.what, call.slot) for call in one.owner.calls] == [("gone", 0), ("gone", 1)]


def test_a_node_of_a_deleted_jobset_is_lost_when_the_others_are_given_up(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING)
    one.see(one.jobset(is_ending=True), *LISTED)
    one.hosts.allocate([0])
    one.settle()
    one.hosts.give_up(1)
    one.until(lambda: one.owner.calls)
    why = f"JobSet {jobset_name(one.plan, 0)} was deleted"
    assert one.owner.calls == [Call("gone", 0, why, Reason.NODE_LOST)]


def test_nodes_of_a_run_that_is_over(drive: Drive) -> None:
    one = drive(RUNNING, STARTING)
    one.hosts.allocate([0, 1])
    one.settle()
    one.hosts.place_ended()
    assert one.see(one.jobset(), one.pod(0)) == [Call("placed", 0, "gpu-7")]
    assert one.owner.busy, "the session does not close before it is known what is left"
    lost = one.see(*LISTED)
    assert [(call.what, call.slot) for call in lost] == [("gone", 1)]
    assert not one.owner.busy
    one.hosts.give_up(0)
    one.until(lambda: one.cluster.deleted == [jobset_name(one.plan, 0)])


def test_what_a_run_waits_for_when_the_cluster_is_back(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.see(*LISTED, one.pod(0))
    away = Away(1.0, "the cluster does not answer")
    assert one.see(away) == [Call("queued", 1, away.why)]
    back = Away(1.0, away.why, is_back=True)
    assert one.see(back) == [Call("queued", 1, "its pod has not been created yet")]


# --- its cluster


def test_the_cluster_is_recorded_before_anything_is_applied(drive: Drive) -> None:
    one = drive()
    assert cluster_of(one.home.run_dir(one.plan.run_id)) is None
    seen: list[ClusterRef | None] = []
    apply = one.cluster.apply

    def applied(manifest: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(cluster_of(one.home.run_dir(one.plan.run_id)))
        return apply(manifest)  # type: ignore[no-any-return]

    one.cluster.apply = applied
    one.allocate(0, 1)
    assert {*seen} == {REF}


@pytest.mark.parametrize("owner", ["JobSet", "Service", ""])
def test_jobs_are_followed_if_the_run_has_some(drive: Drive, owner: str) -> None:
    """Though JobSet may be installed by now."""
    one = drive(RUNNING, RUNNING, record=Record((Allocation(0, (0, 1), (0, 1), "u", owner),), 1))
    assert one.with_jobs == [owner == "Service"]


def test_a_cluster_that_cannot_be_identified_yet_is_waited_for(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY_PAUSE", 0.01)
    one = drive()
    answers: list[CannotCall] = [CannotCall("the cluster does not answer", refused=False)]

    def bind(**_: object) -> ClusterRef:
        if answers:
            raise answers.pop()
        return REF

    one.cluster.connection.bind = bind
    one.allocate(0, 1)
    why = "the cluster does not answer"
    assert one.owner.calls == [Call("queued", slot, why) for slot in (0, 1)]


def test_a_cluster_that_is_silent_is_said_to_be(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SILENCE", 0.01)
    one, may_answer = drive(), threading.Event()

    def bind(**_: object) -> ClusterRef:
        assert may_answer.wait(TIMEOUT)
        return REF

    one.cluster.connection.bind = bind
    one.hosts.allocate([0, 1])
    one.until(lambda: one.owner.calls)
    why = "the API server has not answered yet"
    assert one.owner.calls == [Call("queued", slot, why) for slot in (0, 1)]
    may_answer.set()
    one.until(lambda: one.cluster.applied)


def test_no_cluster_at_all_fails_the_run(drive: Drive) -> None:
    one = drive()

    def bind(**_: object) -> ClusterRef:
        raise CannotCall("there is no cluster", refused=True)

    one.cluster.connection.bind = bind
    one.hosts.allocate([0, 1])
    one.until(lambda: one.owner.calls)
    why = "there is no cluster"
    assert one.owner.calls == [Call("refused, for good", slot, why) for slot in (0, 1)]
    assert one.cluster.applied == []


def test_a_run_stays_in_its_namespace(drive: Drive) -> None:
    profile = KubernetesProfile(namespace="elsewhere")
    one = drive(record=Record(cluster=REF), profile=profile)
    found: list[str] = []
    apply = one.cluster.apply

    def applied(manifest: Mapping[str, Any]) -> dict[str, Any]:
        found.append(manifest["metadata"]["namespace"])
        return apply(manifest)  # type: ignore[no-any-return]

    one.cluster.apply = applied
    one.allocate(0, 1)
    assert {*found} == {REF.namespace}


def test_nodes_of_a_cluster_that_says_nothing_cannot_be_reached(drive: Drive) -> None:
    one = drive(RUNNING, QUEUED)
    one.hosts.allocate([0, 1])
    one.settle()
    why = "config has no context gpu"
    assert one.see(Away(1.0, why)) == [
        Call("unreachable", 0, why),
        Call("queued", 1, why),
    ]
    assert one.see(Away(1.0, why, is_back=True), one.jobset(), one.pod(0)) == [
        Call("queued", 1, "its pod has not been created yet"),
        Call("placed", 0, "gpu-7"),
    ]


def test_that_the_cluster_says_nothing_may_be_known_first(drive: Drive) -> None:
    one = drive(RUNNING, RUNNING)
    assert one.see(Away(1.0, "no context gpu")) == []
    one.hosts.allocate([0, 1])
    one.settle()
    assert one.owner.calls == [Call("unreachable", slot, "no context gpu") for slot in (0, 1)]


def test_what_was_applied_is_deleted_whatever_is_installed_meanwhile(drive: Drive) -> None:
    one = drive()
    one.allocate(0, 1)
    one.cluster.is_installed = False
    for slot in (0, 1):
        one.hosts.give_up(slot)
    one.until(lambda: one.cluster.deleted)
    assert one.cluster.deleted_kinds == {"JobSet"}
