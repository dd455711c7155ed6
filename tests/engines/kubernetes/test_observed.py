"""JobSets of the user's in the double of a cluster: applied as they are, or adopted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import muster
from conformance.jobset_examples import EXAMPLES, Runs
from conformance.test_jobset_examples import write_example
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.engines.kubernetes.names import FIELD_MANAGER, PART_OF, RUN
from muster.engines.kubernetes.observed_pods import read_pods
from muster.errors import EngineError, InvalidInput, NoLogs
from muster.storage.home import Home
from support.faults import until
from support.kube import Cluster
from support.kube.cluster import ADMIN
from support.kube.objects import Obj, Resource
from support.kube_engine import add_engine, write_contexts
from support.observed_runs import (
    PATIENCE,
    WAIT,
    begin,
    forbid,
    jobset,
    states_of,
    until_state,
    write,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("kubernetes") is None, reason="the extra `kubernetes` is not installed"
    ),
]
#: JobSet's examples of which each shows another policy.
JOBSETS = (
    "simple/success-policy",
    "startup-policy/startup-driver-ready",
    "failure-policy/restartjobset-action",
)


@pytest.fixture
def cluster(tmp_path: Path, own_home: Path, client: Client) -> Iterator[Cluster]:
    folder = tmp_path / "kube"
    folder.mkdir()
    with Cluster(folder, nodes=3) as made:
        add_engine(own_home, made)
        yield made
        for run in client.runs():
            if not run.done:
                run.cancel("the test is over").wait(PATIENCE)


def lines(run: JobRun, attempt: int | str | None = "all") -> list[str]:
    return [line.message for line in run.logs(attempt=attempt, streams=["stdout"])]


def story(run: JobRun) -> str:
    return "\n".join(str(entry) for entry in run.events())


def kill_supervisor(home: Path, run: JobRun) -> None:
    lock = Home(home).run_dir(run.id).lock
    pid = run_lock.holder_pid(lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not run_lock.is_held(lock), "the supervisor has ended", PATIENCE)


def command(*argv: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "muster", *argv]
    return subprocess.run(
        words, text=True, capture_output=True, timeout=90, check=False, stdin=subprocess.DEVNULL
    )


def is_subset(part: Any, whole: Any) -> bool:
    """Whether all that a manifest says is in an object that has defaults as well."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and is_subset(value, whole[key]) for key, value in part.items()
        )
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_subset, part, whole))
    return bool(part == whole)


# --- applied as they are


@pytest.mark.parametrize("example", JOBSETS)
def test_examples_of_jobset_run_unchanged(
    example: str, tmp_path: Path, own_home: Path, cluster: Cluster
) -> None:
    entry = EXAMPLES[example]
    assert isinstance(entry, Runs)
    path = write_example(example, tmp_path)
    *_, manifest = yaml.safe_load_all(path.read_text())

    run = muster.run(path, engine="kubernetes")
    until(lambda: cluster.find("jobsets", manifest["metadata"]["name"]), "it is applied", PATIENCE)
    applied = cluster.get("jobsets", manifest["metadata"]["name"])
    assert is_subset(manifest["spec"], applied["spec"])
    assert applied["metadata"]["labels"] == {
        PART_OF: "muster",
        **(manifest["metadata"].get("labels") or {}),
        RUN: run.id,
    }
    run.wait(PATIENCE)
    assert (str(run.state), run.to_dict()["restarts"]) == (entry.state, entry.restarts), story(run)
    until(lambda: cluster.left() == [], "nothing of the run is left", PATIENCE)
    written = {(one.verb, one.resource) for one in cluster.calls if one.user == "admin"}
    written = {one for one in written if one[0] in ("patch", "create", "delete")}
    assert written == {("create", "jobsets"), ("delete", "jobsets")}


def test_a_run_is_told_as_any_other(tmp_path: Path, cluster: Cluster) -> None:
    flag = tmp_path / "flag"
    run = begin(tmp_path, jobset(WAIT.format(flag=flag)))
    until_state(run, "RUNNING", "RUNNING")
    manager = cluster.get("jobsets", "train")["metadata"]["managedFields"][0]["manager"]
    assert manager == FIELD_MANAGER
    pods = cluster.pods()
    assert all(RUN not in pod["metadata"]["labels"] for pod in pods)
    assert all([one["name"] for one in pod["spec"]["containers"]] == ["main"] for pod in pods)
    until(lambda: sorted(lines(run)) == ["up 0", "up 1"], "the output is there", PATIENCE)
    assert {node.host for node in run.nodes} <= {"node-0", "node-1", "node-2"}
    flag.touch()
    assert str(run.wait(PATIENCE).state) == "SUCCEEDED"
    assert sorted(lines(run)) == ["down 0", "down 1", "up 0", "up 1"]


def test_the_first_failure_has_its_code_and_its_lines(tmp_path: Path, cluster: Cluster) -> None:
    script = "if [ $N = 1 ]; then echo 'ValueError: bad batch' >&2; exit 7; fi; sleep 600"
    run = begin(tmp_path, jobset(script)).wait(PATIENCE)
    assert (str(run.state), run.exit_code) == ("FAILED", 7)
    assert "node-1 (group w, rank 1) failed with exit code 7" in run.details
    assert "ValueError: bad batch" in run.details
    assert "JobSet train has failed" in run.details
    assert states_of(run) == ["STOPPED", "FAILED"]
    until(lambda: cluster.left() == [], "nothing of the run is left", PATIENCE)


def test_restarts_of_jobset_are_attempts(tmp_path: Path, cluster: Cluster) -> None:
    mark = tmp_path / "mark"
    script = f"echo start $N; [ $N = 1 ] && mkdir {mark} 2>/dev/null && exit 3; sleep 1; exit 0"
    run = begin(tmp_path, jobset(script, failurePolicy={"maxRestarts": 2})).wait(PATIENCE)
    assert (str(run.state), run.to_dict()["restarts"]) == ("SUCCEEDED", 1), story(run)
    assert "has exited with code 3" in story(run)
    assert sorted(lines(run, attempt=1)) == ["start 0", "start 1"]


def test_a_pod_that_its_job_replaces_is_a_node_that_restarts(
    tmp_path: Path, cluster: Cluster
) -> None:
    mark = tmp_path / "mark"
    script = f"echo start $N; [ $N = 1 ] && mkdir {mark} 2>/dev/null && exit 3; sleep 2; exit 0"
    run = begin(tmp_path, jobset(script, retries=2)).wait(PATIENCE)
    assert str(run.state) == "SUCCEEDED", story(run)
    assert sorted(lines(run)) == ["start 0", "start 1", "start 1"]
    assert "its-job-makes-another-pod" in story(run)


def test_cancel_deletes_what_was_applied(tmp_path: Path, cluster: Cluster) -> None:
    run = begin(tmp_path, jobset("sleep 600"))
    until_state(run, "RUNNING", "RUNNING")
    run.cancel().wait(PATIENCE)
    assert str(run.state) == "CANCELED"
    assert set(states_of(run)) == {"STOPPED"}
    assert cluster.left() == []
    # the stream of changes says when pods are gone
    listed = [one for one in cluster.calls if one.verb == "list" and one.resource == "pods"]
    assert len({one.query.get("labelSelector") for one in listed}) == len(listed) == 1


def test_cancel_ends_though_the_watch_is_dead(tmp_path: Path, cluster: Cluster) -> None:
    run = begin(tmp_path, jobset("sleep 1000"))
    until_state(run, "RUNNING", "RUNNING")
    cluster.server.stall_streams()
    # before the stream is given up for its silence
    assert run.cancel("enough").wait(60).state == "CANCELED"


def test_what_has_its_own_lifetime_stays(tmp_path: Path, cluster: Cluster) -> None:
    manifest = jobset("exit 0", ttlSecondsAfterFinished=3600)
    assert str(begin(tmp_path, manifest).wait(PATIENCE).state) == "SUCCEEDED"
    assert cluster.find("jobsets", "train") is not None


def test_another_jobset_of_the_name_is_left_alone(tmp_path: Path, cluster: Cluster) -> None:
    cluster.create(jobset("sleep 600"))
    run = begin(tmp_path, jobset("sleep 600")).wait(PATIENCE)
    assert str(run.state) == "FAILED"
    assert "there is a JobSet train in namespace default already: adopt it" in run.details
    assert RUN not in (cluster.get("jobsets", "train")["metadata"].get("labels") or {})


def test_of_two_runs_of_one_manifest_one_has_it(tmp_path: Path, cluster: Cluster) -> None:
    cluster.faults.add(verb="create", resource="jobsets", delay=2.0, times=2)
    flag = tmp_path / "flag"
    both = [begin(tmp_path, jobset(WAIT.format(flag=flag), pods=1)) for _ in range(2)]
    until(lambda: any(run.refresh().done for run in both), "one is refused", PATIENCE)
    refused, other = sorted(both, key=lambda run: not run.done)
    assert str(refused.state) == "FAILED"
    hint = f"wait for it, or `muster cancel {other.id}`"
    assert f"JobSet train in namespace default belongs to run {other.id}: {hint}" in refused.details
    until_state(other, "RUNNING")
    flag.touch()
    assert str(other.wait(PATIENCE).state) == "SUCCEEDED", story(other)


def test_a_lost_answer_creates_nothing_twice(tmp_path: Path, cluster: Cluster) -> None:
    cluster.faults.add(verb="create", resource="jobsets", drop="after")
    run = begin(tmp_path, jobset("exit 0", pods=1)).wait(PATIENCE)
    assert str(run.state) == "SUCCEEDED", story(run)
    created = [one for one in cluster.calls if (one.verb, one.resource) == ("create", "jobsets")]
    assert len(created) == 2


def test_what_the_server_refuses_fails_the_run(tmp_path: Path, cluster: Cluster) -> None:
    manifest = jobset("exit 0", unknownField=1)
    run = begin(tmp_path, manifest).wait(PATIENCE)
    assert str(run.state) == "FAILED"
    assert "unknownField" in run.details


def test_a_supervisor_that_is_killed_is_followed_by_another(
    tmp_path: Path, own_home: Path, cluster: Cluster
) -> None:
    flag = tmp_path / "flag"
    run = begin(tmp_path, jobset(WAIT.format(flag=flag)))
    until(lambda: sorted(lines(run)) == ["up 0", "up 1"], "the output is there", PATIENCE)
    kill_supervisor(own_home, run)
    flag.touch()
    with Client(own_home) as other:
        found = other.run(run.id).wait(PATIENCE)
        assert str(found.state) == "SUCCEEDED", story(found)
        assert sorted(lines(found)) == ["down 0", "down 1", "up 0", "up 1"]
    until(lambda: cluster.left() == [], "nothing of the run is left", PATIENCE)


def test_what_was_reported_is_not_reported_by_the_next_supervisor(
    tmp_path: Path, own_home: Path, cluster: Cluster
) -> None:
    mark, flag = tmp_path / "mark", tmp_path / "flag"
    script = f"mkdir {mark} 2>/dev/null && echo first && exit 3; {WAIT.format(flag=flag)}"
    run = begin(tmp_path, jobset(script, pods=1, retries=6))
    until(lambda: lines(run) == ["first", "up 0"], "its second pod runs", PATIENCE)
    until_state(run, "RUNNING")
    failures = story(run).count("exit code 3")
    kill_supervisor(own_home, run)
    with Client(own_home) as other:
        found = other.run(run.id)
        until(lambda: "can be reached again" in story(found), "it knows the pod", PATIENCE)
        flag.touch()
        assert str(found.wait(PATIENCE).state) == "SUCCEEDED", story(found)
        assert states_of(found) == ["SUCCEEDED"]
        assert story(found).count("exit code 3") == failures, story(found)
        assert lines(found) == ["first", "up 0", "down 0"]


@pytest.mark.parametrize("is_next", [False, True], ids=["same supervisor", "next supervisor"])
def test_a_pod_without_an_index_that_fails_unseen(
    is_next: bool, tmp_path: Path, own_home: Path, cluster: Cluster
) -> None:
    """The list has the pod that was made for it, and the others, in any order."""
    mark, flag = tmp_path / "mark", tmp_path / "flag"
    fail = f"until [ -e {flag} ]; do sleep 0.1; done; exit 3"
    manifest = jobset(f"mkdir {mark} 2>/dev/null && {{ {fail}; }}; sleep 600", pods=3, retries=6)
    job = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["completionMode"] = "NonIndexed"
    del job["template"]["spec"]["containers"][0]["env"]
    run = begin(tmp_path, manifest)
    until_state(run, "RUNNING", "RUNNING", "RUNNING")
    before = [node.host_id for node in run.refresh().nodes]

    def names(phase: str) -> set[str]:
        pods = cluster.pods()
        return {one["metadata"]["name"] for one in pods if one["status"].get("phase") == phase}

    with cluster.away():
        if is_next:
            kill_supervisor(own_home, run)
        flag.touch()
        cluster.until(lambda: names("Failed") and len(names("Running")) == 3, "it is replaced")
    (failed,) = names("Failed")
    with Client(own_home) as other:
        found = other.run(run.id)

        def hosts() -> list[str]:
            return [node.host_id for node in found.refresh().nodes]

        until(lambda: failed not in hosts(), "its node is replaced", PATIENCE)
        until_state(found, "RUNNING", "RUNNING", "RUNNING")
        after = hosts()
        assert story(found).count("has exited with code 3") == 1, story(found)
    assert [old for old, new in zip(before, after, strict=True) if old != new] == [failed]
    pods = read_pods(Home(own_home).run_dir(run.id))
    assert [pods[rank].name for rank in range(3)] == after


def test_commands_say_what_to_type_instead(
    tmp_path: Path, client: Client, cluster: Cluster
) -> None:
    run = begin(tmp_path, jobset("sleep 600", pods=1))
    until_state(run, "RUNNING")
    (pod,) = cluster.pods()
    forward = f"use `kubectl port-forward -n default {pod['metadata']['name']} 8080`"
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(InvalidInput) as said:
        client.node_access.forward(run.id, 0, ["127.0.0.1"], 8080, listener)
    assert forward in str(said.value)
    assert "Muster cannot connect to ports of JobSet train: it was applied" in str(said.value)
    done = command("stacks", run.name)
    assert done.returncode == 2
    assert "stacks of JobSet train cannot be read: it was applied as it is" in done.stderr
    assert "`muster exec RUN --rank N -- py-spy dump --pid 1` shows them" in done.stderr
    by_hand = r"kubectl patch jobset train .* '{.spec.: {.suspend.: true}}'"
    with pytest.raises(InvalidInput, match=by_hand):
        run.suspend()
    with pytest.raises(InvalidInput, match="runs as it is, and cannot be scaled"):
        run.scale("w", 2)
    assert f"(`muster cancel {run.name}` ends its programs)" in command("rerun", run.name).stderr
    assert "so that its pods have no $MUSTER_OUTPUTS" in command("outputs", run.name).stderr


def test_a_lost_answer_and_a_refusal_leave_no_jobset_behind(
    tmp_path: Path, cluster: Cluster
) -> None:
    """The JobSet was applied, and is the run's."""
    flag = tmp_path / "flag"
    cluster.faults.add(verb="create", resource="jobsets", drop="after")
    cluster.faults.add(verb="create", resource="jobsets", status=401, times=2)
    run = begin(tmp_path, jobset(WAIT.format(flag=flag), pods=1))
    until_state(run, "RUNNING")
    flag.touch()
    assert str(run.wait(PATIENCE).state) == "SUCCEEDED", story(run)
    until(lambda: cluster.left() == [], "nothing of the run is left", PATIENCE)


@pytest.mark.parametrize("killed", [False, True], ids=["same-supervisor", "another-supervisor"])
def test_a_jobset_that_may_be_there_is_not_given_up(
    killed: bool, tmp_path: Path, own_home: Path, client: Client, cluster: Cluster
) -> None:
    """The answer is lost, and the credentials are not accepted from then on: nobody knows whether
    the JobSet was applied."""

    def expire(resource: Resource, _new: Obj, old: Obj | None, _part: str) -> None:
        if resource.plural == "jobsets" and old is None:
            cluster.server.access.revoke(ADMIN)

    cluster.storage.admissions.append(expire)
    cluster.faults.add(verb="create", resource="jobsets", drop="after")
    flag = tmp_path / "flag"
    run = begin(tmp_path, jobset(WAIT.format(flag=flag), pods=1))
    until(lambda: cluster.find("jobsets", "train"), "it is applied", PATIENCE)
    if killed:
        pid = run_lock.holder_pid(Home(own_home).run_dir(run.id).lock)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def waits() -> bool:
        (node,) = client.run(run.id).nodes
        return "does not accept the credentials" in node.waits_for

    until(waits, "its node waits for the credentials", PATIENCE, pause=0.2)
    cluster.grant("renewed", "admin")
    cluster.write_kubeconfig("renewed")
    until_state(run, "RUNNING")
    flag.touch()
    assert str(run.wait(PATIENCE).state) == "SUCCEEDED", story(run)
    until(lambda: cluster.left() == [], "nothing of the run is left", PATIENCE)


def test_another_current_context_is_not_another_cluster(
    tmp_path: Path, own_home: Path, client: Client, cluster: Cluster
) -> None:
    folder, flag = tmp_path / "other", tmp_path / "flag"
    folder.mkdir()
    file = write_contexts(tmp_path / "config", "gpu", gpu=cluster)
    add_engine(own_home, cluster, kubeconfig=str(file))
    with Cluster(folder) as other:
        run = begin(tmp_path, jobset(WAIT.format(flag=flag), pods=1))
        until_state(run, "RUNNING")
        pid = run_lock.holder_pid(Home(own_home).run_dir(run.id).lock)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        write_contexts(file, "lab", lab=other)
        until(
            lambda: "has no context gpu; there are: lab" in story(client.run(run.id)),
            "its node cannot be reached",
            PATIENCE,
            pause=0.2,
        )
        write_contexts(file, "lab", lab=other, gpu=cluster)
        flag.touch()
        assert str(run.wait(PATIENCE).state) == "SUCCEEDED", story(run)
        assert not [one for one in other.calls if one.resource == "jobsets"]
    until(lambda: cluster.left() == [], "nothing of the run is left", PATIENCE)


def test_what_is_applied_is_what_convert_shows(tmp_path: Path, cluster: Cluster) -> None:
    """With the namespace of the context."""
    cluster.add_namespace("research")
    cluster.write_kubeconfig(namespace="research")
    path = write(tmp_path, jobset("exit 0", pods=1, ttlSecondsAfterFinished=3600))
    argv = [sys.executable, "-m", "muster", "convert", str(path), "--to", "jobset"]
    done = subprocess.run(
        [*argv, "--engine", "kubernetes"], text=True, capture_output=True, timeout=60, check=True
    )
    shown = yaml.safe_load(done.stdout)
    assert shown["metadata"]["namespace"] == "research"
    assert str(muster.run(path, engine="kubernetes").wait(PATIENCE).state) == "SUCCEEDED"
    created = (one for one in cluster.calls if (one.verb, one.resource) == ("create", "jobsets"))
    (sent,) = (json.loads(one.body) for one in created)
    sent["metadata"]["labels"][RUN] = shown["metadata"]["labels"][RUN]  # each run has an id
    assert sent == shown


# --- adopted


@pytest.mark.parametrize("reference", ["jobset/train", "train"])
def test_a_jobset_that_runs_is_adopted_and_not_changed(
    reference: str, tmp_path: Path, client: Client, cluster: Cluster
) -> None:
    flag = tmp_path / "flag"
    cluster.create(jobset(WAIT.format(flag=flag)))
    until(lambda: len(cluster.pods()) == 2, "there are pods", PATIENCE)
    before = cluster.get("jobsets", "train")["metadata"]
    run = client.adopt(reference, name="mine")
    assert run.name == "mine-1"
    until_state(run, "RUNNING", "RUNNING")
    until(lambda: sorted(lines(run)) == ["up 0", "up 1"], "the output is there", PATIENCE)
    flag.touch()
    assert str(run.wait(PATIENCE).state) == "SUCCEEDED"
    after = cluster.get("jobsets", "train")["metadata"]
    assert (after.get("labels"), after["generation"]) == (
        before.get("labels"),
        before["generation"],
    )
    assert not [one for one in cluster.calls if one.verb in ("patch", "update", "delete")]


def test_what_happened_before_the_adoption_is_told(
    tmp_path: Path, client: Client, cluster: Cluster
) -> None:
    mark, flag = tmp_path / "mark", tmp_path / "flag"
    script = f"mkdir {mark} 2>/dev/null && exit 3; [ $N = 0 ] && exit 0; {WAIT.format(flag=flag)}"
    cluster.create(jobset(script, failurePolicy={"maxRestarts": 2}))

    def is_restarted() -> bool:
        phases = [pod["status"].get("phase") for pod in cluster.pods()]
        return sorted(map(str, phases)) == ["Running", "Succeeded"]

    until(is_restarted, "it has restarted, and one pod has succeeded", PATIENCE)
    run = client.adopt("train")
    until_state(run, "SUCCEEDED", "RUNNING")
    assert run.to_dict()["restarts"] == 1
    flag.touch()
    assert str(run.wait(PATIENCE).state) == "SUCCEEDED"


def test_a_jobset_is_adopted_once(client: Client, cluster: Cluster) -> None:
    cluster.create(jobset("sleep 600", pods=1))
    run = client.adopt("jobset/train")
    with pytest.raises(InvalidInput, match=f"jobset/train is adopted by {run.name} already"):
        client.adopt("train", name="again")
    until_state(run, "RUNNING")
    run.cancel().wait(PATIENCE)
    # given another one has its name later
    until(lambda: cluster.left() == [], "it is deleted", PATIENCE)
    cluster.create(jobset("sleep 600", pods=1))
    assert client.adopt("train").name == "train-2"


def test_cancel_of_an_adopted_run_asks(
    client: Client, cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.create(jobset("sleep 600"))
    run = client.adopt("jobset/train")
    until_state(run, "RUNNING", "RUNNING")
    argv = [sys.executable, "-m", "muster", "cancel", run.name]
    done = subprocess.run(
        argv, text=True, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2
    text = f"delete jobset/train and its pods, which {run.name} has adopted: no terminal"
    assert text in done.stderr
    assert cluster.find("jobsets", "train") is not None
    done = subprocess.run([*argv, "--yes"], text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert str(run.refresh().state) == "CANCELED"
    until(lambda: cluster.left() == [], "it is deleted", PATIENCE)


def test_an_adopted_jobset_is_kept_if_the_user_wants(client: Client, cluster: Cluster) -> None:
    cluster.create(jobset("sleep 600"))
    run = client.adopt("jobset/train")
    until_state(run, "RUNNING", "RUNNING")
    done = command("cancel", "--keep", run.name)
    assert done.returncode == 0, done.stderr
    assert "JobSet train is left in the cluster as it is" in done.stderr
    assert str(run.refresh().state) == "CANCELED"
    assert set(states_of(run)) == {"STOPPED"}
    assert len(cluster.pods()) == 2
    assert not [one for one in cluster.calls if one.verb in ("patch", "update", "delete")]
    again = client.adopt("jobset/train")
    until_state(again, "RUNNING", "RUNNING")


def test_what_was_not_adopted_is_not_kept(tmp_path: Path, cluster: Cluster) -> None:
    run = begin(tmp_path, jobset("sleep 600", pods=1))
    with pytest.raises(InvalidInput, match="has adopted nothing that could be kept"):
        run.cancel(keep=True)
    assert not run.refresh().cancel_requested


def test_a_jobset_that_may_not_be_deleted_is_left_by_force(
    tmp_path: Path, own_home: Path, cluster: Cluster
) -> None:
    run = begin(tmp_path, jobset("sleep 600", pods=1))
    until_state(run, "RUNNING")
    forbid(cluster, "delete", "jobsets")
    run.cancel()
    lacks = "lacks {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [delete]}"
    until(lambda: lacks in run.refresh().nodes[0].unreachable_why, "it is said", PATIENCE)
    kill_supervisor(own_home, run)  # the next one tries it as well
    until(lambda: story(run).count(lacks) == 2, "it is said again", PATIENCE)
    assert str(run.refresh().state) == "CANCELING"
    done = command("cancel", "--force", run.name)
    assert done.returncode == 0, done.stderr
    assert "JobSet train may be left in the cluster" in done.stderr
    assert lacks in done.stderr
    assert "`kubectl delete jobset train -n default` deletes it" in done.stderr
    assert str(run.refresh().state) == "CANCELED"
    assert cluster.find("jobsets", "train") is not None


def test_pods_that_may_not_be_listed_do_not_keep_a_run_from_its_end(
    tmp_path: Path, cluster: Cluster
) -> None:
    forbid(cluster, "list", "pods")
    run = begin(tmp_path, jobset("sleep 600", pods=1))
    lacks = 'lacks {apiGroups: [""], resources: [pods], verbs: [list]}'
    until(lambda: lacks in story(run), "what it waits for is said", PATIENCE)
    run.cancel()
    until(lambda: cluster.find("jobsets", "train") is None, "it is deleted", PATIENCE)
    assert str(run.cancel(force=True).wait(PATIENCE).state) == "CANCELED"
    assert "it was deleted, and its pods have not ended yet" in run.details


def test_rights_are_checked_before_a_jobset_is_adopted(client: Client, cluster: Cluster) -> None:
    cluster.create(jobset("sleep 600"))
    forbid(cluster, "list", "pods")
    with pytest.raises(EngineError, match="JobSet train cannot be watched: your Role") as said:
        client.adopt("train")
    assert '{apiGroups: [""], resources: [pods], verbs: [list]}' in str(said.value)
    assert client.runs() == []
    forbid(cluster, "get", "pods/log")
    with pytest.warns(NoLogs, match=r"the run will have no logs: .* resources: \[pods/log\]"):
        run = client.adopt("train")
    until_state(run, "RUNNING", "RUNNING")


def test_what_cannot_be_adopted_is_said(tmp_path: Path, client: Client, cluster: Cluster) -> None:
    cluster.create(jobset("sleep 600"))
    with pytest.raises(InvalidInput, match="there is no JobSet trian in namespace default") as said:
        client.adopt("jobset/trian")
    assert 'did you mean "train"?' in str(said.value)
    with pytest.raises(InvalidInput, match="pod/train' is not a JobSet"):
        client.adopt("pod/train")
    with pytest.raises(InvalidInput, match="engine local cannot run a JobSet as it is"):
        client.adopt("train", engine="local")
    run = begin(tmp_path, jobset("sleep 600", name="ours"))
    until_state(run, "RUNNING", "RUNNING")
    with pytest.raises(InvalidInput, match=f"belongs to run {run.id} of Muster already"):
        client.adopt("ours")


def test_missing_rights_are_named(own_home: Path, client: Client, cluster: Cluster) -> None:
    cluster.grant("token-of-nobody", "nobody", ())
    path = cluster.write_kubeconfig("token-of-nobody", path=cluster.folder / "nobody")
    add_engine(own_home, cluster, "nobody", kubeconfig=str(path))
    with pytest.raises(EngineError, match=r"JobSet train cannot be read: .* get jobsets"):
        client.adopt("train", engine="nobody")
