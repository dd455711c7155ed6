"""The model of JobSet's controller beside the cases of JobSet's own tests, C01 to C55.

As in those, there is no Job controller: a test sets the conditions of Jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.jobset import jobset, replicated, rules
from support.kube import Cluster
from support.kube.jobset_controller import ATTEMPT, INDEX, PREFIX
from support.kube.objects import Obj, condition, has_condition, key_of, labels_of, set_condition
from support.kube.storage import FOREGROUND

ALL = ("a-0", "b-0", "b-1", "b-2")
REASON, MESSAGE = "PodFailurePolicy", "Container main failed with exit code 3"


class JobSets:
    """A cluster with the JobSet `demo`, whose Jobs a test plays."""

    def __init__(self, cluster: Cluster, manifest: Obj) -> None:
        self.cluster = cluster
        cluster.manager.paused.add(cluster.jobs)
        cluster.create(manifest)
        cluster.manager.settle()

    @property
    def jobset(self) -> Obj:
        return self.cluster.get("jobsets", "demo")

    @property
    def status(self) -> Obj:
        status: Obj = self.jobset["status"]
        return status

    def names(self) -> list[str]:
        """The Jobs that are not being deleted, without the name of the JobSet."""
        return [
            one["metadata"]["name"].removeprefix("demo-")
            for one in self.cluster.storage.listed("jobs")
            if "deletionTimestamp" not in one["metadata"]
        ]

    def job(self, name: str) -> Obj:
        return self.cluster.get("jobs", f"demo-{name}")

    def do(self, step: str) -> None:
        """`complete JOB...`, `fail JOB... [REASON: MESSAGE]`, `ready JOB...`."""
        words, _, message = step.partition(": ")
        verb, *names = words.split()
        reason = names.pop() if message else "BackoffLimitExceeded"
        for name in names:
            self._change(name, verb, reason, message or "Job has reached the backoff limit")
        self.cluster.manager.settle()

    def _change(self, name: str, verb: str, reason: str, message: str) -> None:
        def change(obj: Obj) -> None:
            status = obj.setdefault("status", {})
            if verb == "ready":
                status |= {"active": 1, "ready": 1}
            elif verb == "complete":
                set_condition(obj, "Complete", True)
            else:
                set_condition(obj, "Failed", True, reason, message)

        place = ("jobs", "default", f"demo-{name}")
        self.cluster.storage.update(*place, change, subresource="*")

    def update(self, **spec: Any) -> None:
        self.cluster.storage.update(
            "jobsets", "default", "demo", lambda obj: obj["spec"].update(spec)
        )
        self.cluster.manager.settle()


@contextmanager
def played(folder: Path, manifest: Obj, **options: Any) -> Iterator[JobSets]:
    with Cluster(folder, manual=True, **options) as cluster:
        yield JobSets(cluster, manifest)


class After(NamedTuple):
    """What is to be seen after a step."""

    step: str
    end: str = ""
    restarts: int = 0
    counted: int = 0


class Case(NamedTuple):
    name: str
    spec: dict[str, Any]
    steps: tuple[After, ...]
    gate: bool = False


def rule(action: str, **fields: Any) -> dict[str, Any]:
    return {"action": action, **fields}


RESTART, FREE = "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"
FAIL = "FailJobSet"
TARGETS_B = {"operator": "All", "targetReplicatedJobs": ["b"]}
CASES = [
    Case("C02 all jobs", {}, (After("complete b-0 b-1 b-2"), After("complete a-0", "Completed"))),
    Case("C04 one is incomplete", {}, (After("complete a-0 b-0 b-1"),)),
    Case(
        "C05 All, empty targets",
        {"successPolicy": {"operator": "All", "targetReplicatedJobs": []}},
        (After("complete a-0"), After("complete b-0 b-1 b-2", "Completed")),
    ),
    Case(
        "C06 All, targets",
        {"successPolicy": TARGETS_B},
        (After("complete a-0 b-0"), After("complete b-1 b-2", "Completed")),
    ),
    Case(
        "C07 Any with target",
        {"successPolicy": {"operator": "Any", "targetReplicatedJobs": ["b"]}},
        (After("complete a-0"), After("complete b-1", "Completed")),
    ),
    Case(
        "C08 Any without target",
        {"successPolicy": {"operator": "Any"}},
        (After("complete a-0", "Completed"),),
    ),
    Case("C09 no failure policy", {}, (After("fail b-1", "Failed"),)),
    Case(
        "C12 max restarts",
        {"failurePolicy": {"maxRestarts": 1}},
        (After("fail a-0", "", 1, 1), After("fail a-0", "Failed", 1, 1)),
    ),
    Case("C13 FailJobSet", rules(rule(FAIL), most=3), (After("fail a-0", "Failed"),)),
    Case(
        "C14 reason does not match",
        rules(rule(FAIL, onJobFailureReasons=["DeadlineExceeded"]), most=3),
        (After(f"fail a-0 {REASON}: {MESSAGE}", "", 1, 1),),
    ),
    Case(
        "C15 message does not match",
        rules(rule(FAIL, onJobFailureMessagePatterns=["code 4"]), most=3),
        (After(f"fail a-0 {REASON}: {MESSAGE}", "", 1, 1),),
    ),
    Case(
        "C16 reason matches, message does not",
        rules(
            rule(FAIL, onJobFailureReasons=[REASON], onJobFailureMessagePatterns=["code 4"]), most=3
        ),
        (After(f"fail a-0 {REASON}: {MESSAGE}", "", 1, 1),),
    ),
    Case(
        "C17 both match",
        rules(
            rule(FAIL, onJobFailureReasons=[REASON], onJobFailureMessagePatterns=[".*code 3"]),
            most=3,
        ),
        (After(f"fail a-0 {REASON}: {MESSAGE}", "Failed"),),
    ),
    Case(
        "C18 unanchored",
        rules(rule(FAIL, onJobFailureMessagePatterns=["exit code"]), most=3),
        (After(f"fail a-0 {REASON}: {MESSAGE}", "Failed"),),
    ),
    Case("C19 RestartJobSet", rules(rule(RESTART), most=3), (After("fail a-0", "", 1, 1),)),
    Case(
        "C25 ignore max restarts",
        rules(rule(FREE), most=1),
        tuple(After("fail a-0", "", number, 0) for number in (1, 2, 3)),
    ),
    Case(
        "C26 target contains it",
        rules(rule(FAIL, targetReplicatedJobs=["b"]), most=3),
        (After("fail b-0", "Failed"),),
    ),
    Case(
        "C27 target does not",
        rules(rule(FAIL, targetReplicatedJobs=["b"]), most=3),
        (After("fail a-0", "", 1, 1),),
    ),
    Case(
        "C28 the first rule that matches",
        rules(rule(FREE), rule(FAIL), most=0),
        (After("fail a-0", "", 1, 0),),
    ),
    Case(
        "C29 free restarts, then FailJobSet",
        rules(
            rule(FREE, targetReplicatedJobs=["a"]), rule(FAIL, targetReplicatedJobs=["b"]), most=0
        ),
        (
            *(After("fail a-0", "", number, 0) for number in (1, 2, 3)),
            After("fail b-0", "Failed", 3, 0),
        ),
    ),
    Case(
        "several fail together: one restart",
        {"failurePolicy": {"maxRestarts": 2}},
        (After("fail a-0 b-0 b-2", "", 1, 1),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_of_success_and_failure(tmp_path: Path, case: Case) -> None:
    with played(tmp_path, jobset(**case.spec), restart_job=case.gate) as one:
        for after in case.steps:
            one.do(after.step)
            status = one.status
            found = (
                status.get("terminalState", ""),
                status["restarts"],
                status.get("restartsCountTowardsMax", 0),
            )
            assert found == after[1:], after.step
            if after.end:
                assert has_condition(one.jobset, after.end)


def test_C01_every_job_exists_under_its_name(tmp_path: Path) -> None:
    with played(tmp_path, jobset()) as one:
        assert one.names() == list(ALL)
        labels = labels_of(one.job("b-2"))
        assert labels[f"{PREFIX}/job-global-index"] == "3"
        assert labels[f"{PREFIX}/global-replicas"] == "4"
        assert (labels[INDEX], labels[ATTEMPT]) == ("2", "0")
        template = one.job("b-2")["spec"]["template"]
        assert template["metadata"]["annotations"][f"{PREFIX}/jobset-name"] == "demo"
        assert template["spec"]["subdomain"] == "demo"


def test_C03_jobs_of_another_owner_with_its_name_are_ignored(tmp_path: Path) -> None:
    with played(tmp_path, jobset()) as one:
        job = one.job("a-0")
        meta = {"name": "other", "namespace": "default"}
        owner = {**job["metadata"]["ownerReferences"][0], "uid": "another"}
        one.cluster.manager.paused.add(one.cluster.manager.controllers[0])
        foreign = {"kind": "Job", "metadata": {**meta, "ownerReferences": [owner]}}
        template = {k: v for k, v in job["spec"]["template"].items() if k != "metadata"}
        one.cluster.create({**foreign, "spec": {"template": template}})
        place = ("jobs", "default", "other")
        one.cluster.storage.update(
            *place, lambda obj: set_condition(obj, "Failed", True), subresource="*"
        )
        one.cluster.manager.settle()
        assert "terminalState" not in one.status


def test_C10_one_headless_service(tmp_path: Path) -> None:
    with played(tmp_path, jobset()) as one:
        (service,) = one.cluster.storage.listed("services")
        assert service["metadata"]["name"] == "demo"
        assert service["spec"]["clusterIP"] == "None"
        # C34: it is created again
        one.cluster.storage.delete("services", "default", "demo")
        one.cluster.manager.settle()
        assert one.cluster.find("services", "demo") is not None


def test_C20_the_condition_while_it_restarts(tmp_path: Path) -> None:
    spec = rules(rule(RESTART, name="Rule1"), most=1)
    with played(tmp_path, jobset(**spec)) as one:
        one.do("fail a-0")
        found = condition(one.jobset, "RestartingJobSet")
        assert (found["status"], found["reason"]) == ("True", "FailurePolicy_Rule1")
        assert found["message"].endswith("(first failed job: demo-a-0)")
        assert [labels_of(one.job(name))[ATTEMPT] for name in ALL] == ["1"] * 4
        one.do("ready a-0 b-0 b-1 b-2")
        found = condition(one.jobset, "RestartingJobSet")
        assert (found["status"], found["reason"]) == ("False", "JobsReady")


def test_C21_C22_one_job_restarts(tmp_path: Path) -> None:
    for action, counted in (("RestartJob", [1]), ("RestartJobAndIgnoreMaxRestarts", None)):
        folder = tmp_path / action
        folder.mkdir()
        spec = rules(rule(action, targetReplicatedJobs=["a"]), most=1)
        with played(folder, jobset(**spec), restart_job=True) as one:
            kept = one.job("b-0")["metadata"]["uid"]
            before = one.job("a-0")["metadata"]["uid"]
            one.do("fail a-0")
            row = next(row for row in one.status["replicatedJobsStatus"] if row["name"] == "a")
            assert row["jobRestarts"] == [1]
            assert row.get("jobRestartsCountTowardsMax") == counted
            assert one.status["restarts"] == 0
            assert one.job("b-0")["metadata"]["uid"] == kept
            assert one.job("a-0")["metadata"]["uid"] != before


@pytest.mark.parametrize(
    ("strategy", "others"), [("Recreate", ["b-0", "b-1", "b-2"]), ("BlockingRecreate", [])]
)
def test_C23_C24_while_an_old_job_is_still_there(
    tmp_path: Path, strategy: str, others: list[str]
) -> None:
    spec = {"failurePolicy": {"maxRestarts": 1, "restartStrategy": strategy}}
    with played(tmp_path, jobset(**spec)) as one:

        def held(obj: Obj) -> None:
            obj["metadata"]["finalizers"] = ["test/slow"]

        one.cluster.storage.update("jobs", "default", "demo-a-0", held, subresource="*")
        one.do("fail a-0")
        assert one.names() == others
        finalizers = one.job("a-0")["metadata"]["finalizers"]
        assert finalizers == ["test/slow"] and FOREGROUND not in finalizers

        def freed(obj: Obj) -> None:
            obj["metadata"]["finalizers"] = []

        one.cluster.storage.update("jobs", "default", "demo-a-0", freed, subresource="*")
        one.cluster.manager.settle()
        assert one.names() == list(ALL)


def test_C30_a_failure_goes_before_a_success(tmp_path: Path) -> None:
    spec = {"failurePolicy": {"maxRestarts": 1}, "successPolicy": {"operator": "Any"}}
    with played(tmp_path, jobset(**spec)) as one:
        one.cluster.manager.paused.add(one.cluster.jobsets)
        one.do("complete b-0")
        one.do("fail a-0")
        one.cluster.manager.resume(one.cluster.jobsets)
        one.cluster.manager.settle()
        assert (one.status["restarts"], one.status.get("terminalState")) == (1, None)
        one.do("complete b-0")
        assert one.status["terminalState"] == "Completed"


def test_C31_C32_suspended_and_resumed(tmp_path: Path) -> None:
    with played(tmp_path, jobset(suspend=True)) as one:
        assert [one.job(name)["spec"]["suspend"] for name in ALL] == [True] * 4
        assert [row["suspended"] for row in one.status["replicatedJobsStatus"]] == [3, 1]
        assert has_condition(one.jobset, "Suspended")
        jobs = one.jobset["spec"]["replicatedJobs"]
        changed = [{**job, "template": {**job["template"]}} for job in jobs]
        pod = changed[0]["template"]["spec"]["template"]["spec"]
        pod = {**pod, "nodeSelector": {"pool": "x"}, "tolerations": [{"key": "gpu"}]}
        inner = {"metadata": {"labels": {"new": "1"}}, "spec": pod}
        changed[0]["template"]["spec"] = {**changed[0]["template"]["spec"], "template": inner}
        one.update(replicatedJobs=changed, suspend=False)
        template = one.job("a-0")["spec"]["template"]
        assert template["metadata"]["labels"]["new"] == "1"
        assert template["spec"]["nodeSelector"] == {"pool": "x"}
        assert template["spec"]["tolerations"] == [{"key": "gpu"}]
        assert one.job("a-0")["spec"]["suspend"] is False
        assert condition(one.jobset, "Suspended")["reason"] == "ResumeJobs"


def test_C33_a_running_one_is_suspended(tmp_path: Path) -> None:
    with played(tmp_path, jobset()) as one:
        one.update(suspend=True)
        assert [one.job(name)["spec"]["suspend"] for name in ALL] == [True] * 4


def test_C35_claims(tmp_path: Path) -> None:
    mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    policies = [
        {
            "templates": [{"metadata": {"name": "data"}, "spec": {}}],
            "retentionPolicy": {"whenDeleted": "Retain"},
        }
    ]
    made = jobset([replicated("a", container=mount), replicated("b")], volumeClaimPolicies=policies)
    with played(tmp_path, made) as one:
        (claim,) = one.cluster.storage.listed("persistentvolumeclaims")
        assert claim["metadata"]["name"] == "data-demo"
        assert "ownerReferences" not in claim["metadata"]
        assert "volumes" not in one.job("b-0")["spec"]["template"]["spec"]


def test_C38_active_jobs_are_deleted_at_the_end(tmp_path: Path) -> None:
    with played(tmp_path, jobset(successPolicy={"operator": "Any"})) as one:
        one.do("complete b-1")
        assert one.names() == ["b-1"]


def test_C43_C44_in_order(tmp_path: Path) -> None:
    order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    with played(tmp_path, jobset(failurePolicy={"maxRestarts": 1}, **order)) as one:
        assert one.names() == ["a-0"]
        assert has_condition(one.jobset, "StartupPolicyInProgress")
        one.do("ready a-0")
        assert one.names() == list(ALL)
        one.do("ready b-0 b-1 b-2")
        assert has_condition(one.jobset, "StartupPolicyCompleted")
        one.do("fail a-0")
        assert one.names() == ["a-0"]


def test_C45_coordinator(tmp_path: Path) -> None:
    with played(tmp_path, jobset(coordinator={"replicatedJob": "a"})) as one:
        for name in ALL:
            assert labels_of(one.job(name))[f"{PREFIX}/coordinator"] == "demo-a-0-0.demo"


def test_C47_depends_on(tmp_path: Path) -> None:
    jobs = [
        replicated("a"),
        replicated("b", dependsOn=[{"name": "a", "status": "Complete"}]),
        replicated("c", 3, dependsOn=[{"name": "b", "status": "Ready"}]),
    ]
    with played(tmp_path, jobset(jobs)) as one:
        assert len(one.names()) == 1
        one.do("complete a-0")
        assert len(one.names()) == 2
        one.do("ready b-0")
        assert len(one.names()) == 5


def test_C51_another_controller(tmp_path: Path) -> None:
    with played(tmp_path, jobset(managedBy="example.com/other")) as one:
        assert one.names() == []
        assert "status" not in one.jobset


def test_C52_time_to_live(tmp_path: Path) -> None:
    with played(tmp_path, jobset(ttlSecondsAfterFinished=60)) as one:
        one.do("complete a-0 b-0 b-1 b-2")
        one.cluster.manager.advance(59)
        assert one.cluster.find("jobsets", "demo") is not None
        one.cluster.manager.advance(2)
        assert one.cluster.find("jobsets", "demo") is None
        assert one.cluster.left() == []


def test_an_active_job_that_is_deleted_by_hand_is_created_again(tmp_path: Path) -> None:
    with played(tmp_path, jobset()) as one:
        before = one.job("a-0")["metadata"]["uid"]
        one.cluster.storage.delete("jobs", *key_of(one.job("a-0")))
        one.cluster.manager.settle()
        assert one.job("a-0")["metadata"]["uid"] != before
        assert one.status["restarts"] == 0
