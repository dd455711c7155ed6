"""JobSet's end-to-end tests, E01 to E16, and those of its controller's tests that need real
processes: manifests are run on this machine. docs/internals/conformance.md has all cases."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.engines.local.namespaces import unavailable_reason
from muster.spec.override_flags import overrides_from_flags
from support.embedded import embedded
from support.jobset import MAX_INT32, jobset, replicated, rules, write
from support.runs import PROGRAM_OUTPUT

isolated = pytest.mark.skipif(
    bool(unavailable_reason()), reason="names resolve in separate namespaces only"
)
FOREVER = "while :; do sleep 0.01; done"


def sh(text: str) -> list[str]:
    return ["sh", "-c", text]


def start(client: Client, manifest: dict[str, Any], folder: Path) -> JobRun:
    job, new = client.job(write(manifest, folder))
    return client.start(client.prepare_run(job, new_job=new))


def succeed(client: Client, manifest: dict[str, Any], folder: Path) -> JobRun:
    run = start(client, manifest, folder).wait(60)
    assert run.state == "SUCCEEDED", (run.details, [r.message for r in run.logs()])
    return run


def output_of(run: JobRun, attempt: str | int = "all") -> list[tuple[int, str]]:
    """(rank, line) of the programs' output."""
    return sorted(
        (record.rank, record.message)
        for record in run.logs(attempt=attempt, streams=PROGRAM_OUTPUT)
    )


def nodes(run: JobRun) -> list[tuple[str, str]]:
    return [(node.group, node.state) for node in run.nodes]


# --- names


@pytest.mark.shows("jobset/custom-subdomain", "jobset/stable-hostnames")
@isolated
@pytest.mark.parametrize(
    ("network", "domain"),
    [
        pytest.param({}, "demo", id="E01"),
        pytest.param({"subdomain": "example"}, "example", id="E02"),
    ],
)
def test_pods_find_each_other(
    network: dict[str, Any], domain: str, client: Client, tmp_path: Path
) -> None:
    names = [f"demo-{job}-0.{domain}" for job in ("a-0", "b-0", "b-1")]
    look = sh(
        f"hostname; for n in {' '.join(names)}; do getent hosts $n >/dev/null || exit 1; done"
    )
    jobs = [replicated("a", command=look), replicated("b", 2, command=look)]
    run = succeed(client, jobset(jobs, network=network), tmp_path)
    assert output_of(run) == [(rank, name.partition(".")[0]) for rank, name in enumerate(names)]


@pytest.mark.shows("jobset/headless-service")
@isolated
def test_names_resolve_with_the_namespace_s_domain(client: Client, tmp_path: Path) -> None:
    ends = ("", ".team", ".team.svc", ".team.svc.cluster.local")
    names = [f"{name}{end}" for name in ("demo-b-1-0.demo", "demo") for end in ends]
    look = (
        "import socket, sys\n"
        "for name in sys.argv[1:]:\n"
        "    found = {a[4][0].rpartition('.')[2] for a in socket.getaddrinfo(name, 80)}\n"
        "    print(name, *sorted(found))\n"
        "print(socket.getfqdn())"
    )
    jobs = [
        replicated("a", command=["python3", "-c", look, *names]),
        replicated("b", 2, command=["true"]),
    ]
    manifest = jobset(jobs)
    manifest["metadata"]["namespace"] = "team"
    run = succeed(client, manifest, tmp_path)
    one, every = [f"demo-b-1-0.demo{end} 3" for end in ends], [f"demo{end} 1 2 3" for end in ends]
    fqdn = "demo-a-0-0.demo.team.svc.cluster.local"
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == [
        *one,
        *every,
        fqdn,
    ]


def test_a_pod_does_not_inherit_the_submitter_s_environment(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBMITTER_S", "1")
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("PASSED_ON", "yes")
    show = "import os; print(*sorted(n for n in os.environ if not n.startswith('MUSTER_')))"
    jobs = [replicated("a", command=["python3", "-c", show], env={"MINE": "1"})]
    job, new = client.job(write(jobset(jobs), tmp_path))
    overrides = overrides_from_flags(env=["PASSED_ON"], environ=os.environ)
    run = client.start(client.prepare_run(job, overrides, new_job=new)).wait(60)
    assert run.state == "SUCCEEDED", run.details
    ((_, names),) = output_of(run)
    variables = set(names.split())
    assert {"MINE", "PASSED_ON", "HOSTNAME", "JOB_COMPLETION_INDEX", "PATH", "HOME"} <= variables
    assert (
        not {"SUBMITTER_S", "RANK", "WORLD_SIZE", "NODE_RANK", "FQDN", "JOB_RUN_OCID"} & variables
    )


# --- deletion and volumes


@isolated
@pytest.mark.parametrize(("policy", "state"), [("Never", "FAILED"), ("OnFailure", "SUCCEEDED")])
def test_a_retried_pod_has_an_empty_volume(
    policy: str, state: str, client: Client, tmp_path: Path
) -> None:
    """A restarted container stays in its pod; a retry creates a new pod."""
    job = replicated("a", command=sh("test -e /v/x && exit 0; touch /v/x; exit 1"))
    spec = job["template"]["spec"]
    spec["backoffLimit"] = 1
    pod = spec["template"]["spec"]
    pod["restartPolicy"] = policy
    pod["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "tmp", "mountPath": "/v"}]
    assert start(client, jobset([job]), tmp_path).wait(60).state == state


def test_E03_expired_runs_are_deleted(client: Client, tmp_path: Path) -> None:
    """Also C52: only expired runs are deleted, by the next command."""
    kept = succeed(client, jobset({"a": 1}, name="kept"), tmp_path)
    expired = succeed(client, jobset({"a": 1}, name="expired", ttlSecondsAfterFinished=0), tmp_path)
    later = succeed(client, jobset({"a": 1}, name="later", ttlSecondsAfterFinished=60), tmp_path)
    folders = [embedded(client).home.run_dir(run.id).path for run in (kept, expired, later)]
    embedded(client).close()
    again = Client(embedded(client).home.root)
    assert sorted(run.name for run in again.runs()) == ["kept-1", "later-1"]
    assert [folder.exists() for folder in folders] == [True, False, True]
    embedded(again).close()


def test_the_time_to_live_starts_with_the_end(client: Client, tmp_path: Path) -> None:
    """JobSet's rows: without a time to live, expired, not expired, and not ended."""
    without = succeed(client, jobset({"a": 1}, name="without"), tmp_path)
    timed = succeed(client, jobset({"a": 1}, name="timed", ttlSecondsAfterFinished=60), tmp_path)
    paused = jobset({"a": 1}, name="paused", ttlSecondsAfterFinished=0, suspend=True)
    waiting = start(client, paused, tmp_path)
    db = embedded(client).store
    assert db.runs.get(without.id).expires_at is None
    record = db.runs.get(timed.id)
    assert record.finished_at is not None
    assert record.expires_at == record.finished_at + 60
    assert db.runs.expired(record.expires_at - 0.1) == []
    assert db.runs.expired(record.expires_at + 0.1) == [timed.id]
    assert db.runs.get(waiting.id).expires_at is None
    waiting.cancel().wait(60)


def test_E04_deleting_a_run_leaves_nothing(
    client: Client, tmp_path: Path, alive: Callable[[str], list[str]]
) -> None:
    """Only an ended run can be deleted; a cancel ends all its processes."""
    jobs = [replicated(n, 2, command=sh(f"echo up; {FOREVER}"), env={"E04": "1"}) for n in "ab"]
    run = start(client, jobset(jobs), tmp_path)
    for rank in range(4):
        assert next(run.logs(follow=True, ranks=[rank])).message == "up"
    with pytest.raises(muster.InvalidInput, match="muster cancel"):
        run.delete()
    run.cancel().wait(60)
    assert alive("E04=1") == []
    folder = embedded(client).home.run_dir(run.id).path
    run.delete()
    assert (client.runs(), folder.exists()) == ([], False)


@pytest.mark.shows("jobset/failure-recreates-all")
@isolated
def test_E11_folders_of_claims_are_deleted_or_retained(client: Client, tmp_path: Path) -> None:
    """Also C35 and C36: folders are created with the first node; one is deleted with the run."""
    claims = [
        {"templates": [{"metadata": {"name": "deleted"}, "spec": {}}]},
        {
            "templates": [{"metadata": {"name": "kept"}, "spec": {}}],
            "retentionPolicy": {"whenDeleted": "Retain"},
        },
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("deleted", "kept")]
    command = sh("echo up > /deleted/$HOSTNAME; cp /deleted/$HOSTNAME /kept/")
    mounted = replicated("a", 2, command=command, container={"volumeMounts": mounts})
    manifest = jobset([mounted, replicated("b")], volumeClaimPolicies=claims, suspend=True)
    run = start(client, manifest, tmp_path)
    home = embedded(client).home.root
    assert not (home / "volumes").exists()
    assert run.resume().wait(60).state == "SUCCEEDED", run.details
    (kept,) = (home / "volumes").iterdir()
    assert kept.name == "kept-demo"
    assert sorted(file.name for file in kept.iterdir()) == ["demo-a-0-0", "demo-a-1-0"]
    run.delete()
    assert sorted(file.name for file in kept.iterdir()) == ["demo-a-0-0", "demo-a-1-0"]
    assert list((home / "runs").iterdir()) == []


# --- suspension


def test_E05_a_run_is_resumed_with_other_settings(client: Client, tmp_path: Path) -> None:
    """Also C32, W04, W09, W10 and W12: all that a run may override can change while it is
    suspended, except the nodes of a replica (C55). The engine decides where nodes run (selectors,
    gates, E06)."""
    command = sh("echo $SIZE $MUSTER_ATTEMPT; test $MUSTER_ATTEMPT = 1 || sleep 1000")
    job = replicated("a", 2, command=command, env={"SIZE": "small"})
    run = start(client, jobset([job]), tmp_path)
    for rank in (0, 1):
        assert next(run.logs(follow=True, ranks=[rank])).message == "small 0"
    others = {"env": {"SIZE": "large"}, "failure": {"max_restarts": 3}}
    with pytest.raises(muster.InvalidInput, match="not SUSPENDED"):
        run.resume(**others)
    assert run.suspend().wait(60).state == "SUSPENDED"
    with pytest.raises(muster.InvalidInput, match="nodes of a replica cannot change"):
        run.resume(nodes=2)
    run.resume(**others).wait(60)
    assert (run.state, run.attempt) == ("SUCCEEDED", 1)
    assert output_of(run, 1) == [(0, "large 1"), (1, "large 1")]


def test_a_resume_is_not_counted_as_a_restart(client: Client, tmp_path: Path) -> None:
    """In JobSet, suspend and resume do not change the label; a restart does."""
    label = {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}
    look = (
        "echo $RESTARTS $MUSTER_ATTEMPT; case $MUSTER_ATTEMPT in 0) sleep 1000;; 1) exit 1;; esac"
    )
    env = [{"name": "RESTARTS", "valueFrom": {"fieldRef": label}}]
    job = replicated("a", command=sh(look), container={"env": env})
    run = start(client, jobset([job], **rules(most=1)), tmp_path)
    assert next(run.logs(follow=True, streams=["stdout", "stderr"])).message == "0 0"
    assert run.suspend().wait(60).state == "SUSPENDED"
    assert run.resume().wait(60).state == "SUCCEEDED"
    assert output_of(run) == [(0, "0 0"), (0, "0 1"), (0, "1 2")]


# --- order


def test_E07_the_trainer_starts_after_its_initializers(client: Client, tmp_path: Path) -> None:
    both = [{"name": n, "status": "Complete"} for n in ("dataset", "model")]
    env = {"WHERE": str(tmp_path)}
    jobs = [
        replicated("dataset", command=sh("echo data > $WHERE/dataset"), env=env),
        replicated("model", command=sh("echo weights > $WHERE/model"), env=env),
        replicated(
            "trainer",
            1,
            2,
            command=sh("cat $WHERE/dataset $WHERE/model"),
            env=env,
            dependsOn=both,
        ),
    ]
    run = succeed(client, jobset(jobs), tmp_path)
    assert output_of(run) == [(rank, text) for rank in (2, 3) for text in ("data", "weights")]


@pytest.mark.shows("jobset/startup-order")
def test_E08_workers_wait_for_a_ready_coordinator(client: Client, tmp_path: Path) -> None:
    up, done = tmp_path / "up", tmp_path / "done"
    serve = sh(f"sleep 0.2; touch {up}; while [ ! -e {done} ]; do sleep 0.01; done")
    probe = {"exec": {"command": ["test", "-e", str(up)]}, "periodSeconds": 1}
    jobs = [
        replicated("coordinator", command=serve, probe=probe),
        replicated(
            "workers",
            2,
            command=sh(f"test -e {up} && touch {done}"),
            dependsOn=[{"name": "coordinator", "status": "Ready"}],
        ),
    ]
    run = succeed(client, jobset(jobs), tmp_path)
    started = [node.started_at or 0 for node in run.nodes]
    assert min(started[1:]) > started[0]


@pytest.mark.shows("jobset/hpc")
@isolated
def test_E09_workers_connect_to_a_launcher_that_started_first(
    client: Client, tmp_path: Path
) -> None:
    """1 + 5 Jobs: the launcher starts first, and receives the names of all workers."""
    launcher = (
        "import socket\n"
        "server = socket.create_server((socket.gethostname(), 29500))\n"
        "print(sorted(server.accept()[0].recv(9).decode() for _ in range(5)))\n"
    )
    worker = (
        "import os, socket, time\n"
        "while True:\n"
        "    try:\n"
        "        peer = socket.create_connection(('demo-launcher-0-0.demo', 29500))\n"
        "        break\n"
        "    except OSError:\n"
        "        time.sleep(0.01)\n"
        "peer.send(socket.gethostname().split('-')[2].encode())\n"
    )
    jobs = [
        replicated("launcher", command=["python3", "-c", launcher]),
        replicated("workers", 5, command=["python3", "-c", worker]),
    ]
    order = {"startupPolicyOrder": "InOrder"}
    target = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    run = succeed(client, jobset(jobs, startupPolicy=order, successPolicy=target), tmp_path)
    assert (0, "['0', '1', '2', '3', '4']") in output_of(run)


# --- identity


def test_E10_the_same_manifest_is_the_same_job(client: Client, tmp_path: Path) -> None:
    first = succeed(client, jobset(), tmp_path)
    again = succeed(client, jobset(), tmp_path)
    assert (first.job_id, first.name, again.name) == (again.job_id, "demo-1", "demo-2")
    assert succeed(client, jobset({"a": 2}), tmp_path).job_id != first.job_id


# --- restarts


@pytest.mark.shows("jobset/failure-max-restarts", "jobset/failure-recreates-all")
def test_E12_the_run_restarts_and_recovers(client: Client, tmp_path: Path) -> None:
    """The whole run restarts, with the nodes that had succeeded."""
    fails = sh("echo $MUSTER_ATTEMPT; test $MUSTER_ATTEMPT = 1")
    label = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
    env = [{"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": label}}}]
    waits = f"echo $LABEL; test $LABEL = 1 || {FOREVER}"
    jobs = [
        replicated("a", command=fails),
        replicated("b", 2, command=sh(waits), container={"env": env}),
    ]
    run = succeed(client, jobset(jobs, **rules({"action": "RestartJobSet"}, most=1)), tmp_path)
    assert run.attempt == 1
    assert run.to_dict()["restarts"] == 1
    assert [message for rank, message in output_of(run) if rank == 0] == ["0", "1"]
    assert output_of(run, 1) == [(0, "1"), (1, "1"), (2, "1")]


def test_E13_only_the_failed_job_restarts(client: Client, tmp_path: Path) -> None:
    """The others keep their processes and their attempt."""
    mark = tmp_path / "failed"
    once = sh(f"echo up; test -e {mark} && exit 0; touch {mark}; exit 1")
    persists = sh(f"echo up; while [ ! -e {mark} ]; do sleep 0.01; done")
    jobs = [replicated("a", command=persists), replicated("b", command=once)]
    run = succeed(client, jobset(jobs, **rules({"action": "RestartJob"}, most=1)), tmp_path)
    assert output_of(run) == [(0, "up"), (1, "up"), (1, "up")]
    assert (run.attempt, run.to_dict()["restarts"]) == (0, 1)


@pytest.mark.shows("jobset/fast-recovery")
def test_E14_nodes_restarted_in_place_keep_their_files(client: Client, tmp_path: Path) -> None:
    """JobSet's test only checks that the strategy is accepted."""
    text = (
        "echo $(cat kept 2>/dev/null); echo $MUSTER_ATTEMPT >> kept; "
        f"touch {tmp_path}/$MUSTER_ATTEMPT.$JOB_COMPLETION_INDEX; "
        f"while [ $(ls {tmp_path} | grep -c ^$MUSTER_ATTEMPT.) -lt 2 ]; do sleep 0.01; done; "
        "test $MUSTER_ATTEMPT = 2"
    )
    job = {"backoffLimit": MAX_INT32, "podReplacementPolicy": "Failed"}
    policy = {"maxRestarts": 2, "restartStrategy": "InPlaceRestart"}
    manifest = jobset([replicated("a", 1, 2, command=sh(text), job=job)], failurePolicy=policy)
    run = succeed(client, manifest, tmp_path)
    assert output_of(run, 2) == [(0, "0 1"), (1, "0 1")]


# --- simple runs and gangs


@pytest.mark.shows("jobset/group-of-jobs")
def test_E15_a_simple_run_succeeds(client: Client, tmp_path: Path) -> None:
    run = succeed(client, jobset([replicated("a", 2, 2, command=sh("echo hello"))]), tmp_path)
    assert output_of(run) == [(rank, "hello") for rank in range(4)]


def test_E16_all_nodes_of_a_gang_run_together(client: Client, tmp_path: Path) -> None:
    """Nodes start in one step, and each waits until it has seen the other three."""
    wait_for_all = sh(
        f"touch {tmp_path}/$JOB_COMPLETION_INDEX; "
        f"while [ $(ls {tmp_path} | grep -c '^[0-3]$') -lt 4 ]; do sleep 0.01; done"
    )
    run = succeed(client, jobset([replicated("a", 1, 4, command=wait_for_all)]), tmp_path)
    starts = [e for e in run.events() if e.data.get("state") == "STARTING"]
    assert [entry.data["ranks"] for entry in starts] == ["0-3"]


# --- failures, with real exit codes and signals


BY_CODE = "failed with exit code"


@pytest.mark.shows("jobset/failure-none")
@pytest.mark.parametrize(
    ("text", "details"),
    [
        pytest.param("exit 7", "failed with exit code 7", id="a code"),
        pytest.param("kill -9 $$$$", f"{BY_CODE} 137 (signal 9, SIGKILL)", id="a signal"),
        pytest.param("echo boom >&2; exit 1", "failed with exit code 1:\nboom", id="stderr"),
    ],
)
def test_the_first_failure_is_final(
    text: str, details: str, client: Client, tmp_path: Path
) -> None:
    """C09, where the other processes end by SIGTERM. ($$ is $ in a manifest.)"""
    jobs = [replicated("a", command=sh(text)), replicated("b", 3, command=sh(FOREVER))]
    run = start(client, jobset(jobs), tmp_path).wait(60)
    assert (run.state, run.details) == ("FAILED", f"node-0 (group a, rank 0) {details}")
    assert nodes(run) == [("a", "FAILED")] + [("b", "STOPPED")] * 3


def test_a_job_has_its_own_deadline(client: Client, tmp_path: Path) -> None:
    """C14's reason with a real deadline: activeDeadlineSeconds causes DeadlineExceeded."""
    job = {"activeDeadlineSeconds": 1}
    jobs = [replicated("a", command=sh(FOREVER), job=job), replicated("b")]
    rule = {"action": "RestartJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
    fatal = {"action": "FailJobSet"}
    run = start(client, jobset(jobs, **rules(rule, fatal, most=1)), tmp_path).wait(60)
    assert (run.state, run.attempt) == ("FAILED", 1), "it was restarted once"
    assert run.cause is not None and run.cause["reason"] == "deadline"


def test_retries_come_before_the_policy(client: Client, tmp_path: Path) -> None:
    """In Kubernetes, backoffLimit replaces pods of a Job before JobSet sees a failure."""
    count = f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) = 3"
    jobs = [replicated("a", command=sh(count), job={"backoffLimit": 2})]
    run = succeed(client, jobset(jobs, **rules({"action": "FailJobSet"})), tmp_path)
    assert run.to_dict()["restarts"] == 2
    assert os.path.getsize(tmp_path / "tries") == 6


def test_a_pod_failure_policy_comes_before_retries(client: Client, tmp_path: Path) -> None:
    """In Kubernetes, ignored failures do not count, and failures that end the Job are final."""
    count = f"echo x >> {tmp_path}/tries; n=$(wc -l < {tmp_path}/tries)"
    script = f"{count}; exit $(echo 3 3 1 7 | cut -d' ' -f$n)"
    codes = [("Ignore", 3), ("FailJob", 7)]
    policy = [{"action": a, "onExitCodes": {"operator": "In", "values": [c]}} for a, c in codes]
    job = {"backoffLimit": 1, "podFailurePolicy": {"rules": policy}}
    jobs = [replicated("a", command=sh(script), job=job)]
    run = start(client, jobset(jobs), tmp_path).wait(60)
    assert (run.state, run.to_dict()["restarts"]) == ("FAILED", 3), run.details
    assert run.details == "node-0 (group a, rank 0) failed with exit code 7\nrule a.at-once"
