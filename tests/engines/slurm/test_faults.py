"""Faults of a real Slurm cluster."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.control import run_lock
from muster.engines.remote.record import read_record, write_record
from muster.engines.slurm import clean_up, client
from muster.engines.slurm.record import RECORD, Allocation, Record
from muster.engines.slurm.script import Component, batch_script
from muster.storage.home import RunDir
from support.command import muster
from support.faults import until
from support.slurm_cluster import FAST, SlurmCluster, needs_slurm, require_slurm, use_cluster

pytestmark = needs_slurm
#: Jobs of the partition `low` are preempted by those of `high`, and get time to end.
PREEMPTION = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=20 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP"""


@pytest.fixture(scope="module")
def shared() -> Iterator[SlurmCluster]:
    require_slurm()
    settings = f"{FAST}\n{PREEMPTION}"
    cluster = SlurmCluster(Path(tempfile.mkdtemp(prefix="slurm-")), nodes=4, settings=settings)
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(
    shared: SlurmCluster, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    """A cluster in which no job is left after the test, nor a file of a run."""
    use_cluster(shared, monkeypatch)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    yield shared
    for run in json.loads(muster("ps", "--json").stdout):  # of a test that has failed
        muster("cancel", run["name"])
    until(lambda: shared.jobs() == [], "no job is left", pause=0.1)
    until(shared.is_idle, "all nodes are idle", pause=0.1)
    left = [str(path.relative_to(own_home)) for path in own_home.glob("slurm/**/*")]
    assert [name for name in left if not name.startswith("slurm/program-")] == []


class Counting:
    """A run whose nodes count until it is told to end."""

    def __init__(self, home: Path, *words: str, nodes: int = 2, script: str = "") -> None:
        self.flag = home / "flag"
        script = script or (
            f"n=0; until [ -e {self.flag} ]; do n=$((n + 1)); echo line $n; sleep 0.1; done"
        )
        options = ("--engine", "slurm", "--nodes", str(nodes), *words)
        done = muster("run", "--detach", *options, "--", "sh", "-c", script, code=0)
        self.name = done.stderr.split()[0]
        self.home = home

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(muster("status", self.name, "--json", code=0).stdout)
        return found

    @property
    def folder(self) -> Path:
        return self.home / "runs" / str(self.status()["id"])

    def until_state(self, *states: str) -> dict[str, Any]:
        until(lambda: self.status()["state"] in states, f"{self.name} is {states}", pause=0.2)
        return self.status()

    def until_lines(self, attempt: int = 0, nodes: int = 2) -> None:
        """Wait until more has been written by each node."""
        paths = [self.folder / f"logs/{attempt}/workers-{rank}.out" for rank in range(nodes)]
        until(lambda: all(path.exists() for path in paths), "all have begun", pause=0.1)
        before = [path.stat().st_size for path in paths]
        until(
            lambda: all(p.stat().st_size > size for p, size in zip(paths, before, strict=True)),
            "more lines",
            pause=0.1,
        )

    def waits_for(self) -> str:
        return " ".join(str(node.get("waits_for") or "") for node in self.status()["nodes"])

    def kill_supervisor(self) -> None:
        """Any command has another one started from then on."""
        lock = RunDir(self.folder).lock
        pid = run_lock.last_holder(lock)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: not run_lock.is_held(lock), "its supervisor has ended")

    def job(self, cluster: SlurmCluster) -> str:
        (line,) = cluster.jobs()
        return line.split()[0]

    def end(self) -> dict[str, Any]:
        self.flag.touch()
        return self.until_state("SUCCEEDED", "FAILED", "CANCELED")


def test_a_job_that_slurm_refuses(cluster: SlurmCluster) -> None:
    words = ("run", "--engine", "slurm", "--set", "slurm.partition=nope", "--", "true")
    done = muster(*words, code=1)
    assert "Slurm refuses the job: invalid partition specified: nope" in done.stderr
    done = muster("run", "--dry-run", *words[1:])
    assert done.returncode == 2 and "invalid partition specified: nope" in done.stdout


def test_an_array_that_slurm_refuses(cluster: SlurmCluster) -> None:
    words = ("--array", "n=1..4", "--parallelism", "2", "--set", "slurm.partition=nope")
    done = muster("run", "--engine", "slurm", *words, "--", "true", code=1)
    assert "Slurm refuses the job: invalid partition specified: nope" in done.stderr
    assert "4 of 4 replicas" in done.stderr


#: Refuses arrays, as a cluster does that is configured so.
NO_ARRAYS = """\
#!/bin/sh
cat >{file}.$$
grep -q -e --array= {file}.$$ && {{
  echo "sbatch: error: Batch job submission failed: Invalid job array specification" >&2
  exit 1
}}
exec {sbatch} "$@" <{file}.$$
"""


def test_a_cluster_without_arrays(cluster: SlurmCluster, own_home: Path) -> None:
    program = own_home / "bin" / "sbatch"
    program.parent.mkdir()
    text = NO_ARRAYS.format(file=own_home / "script", sbatch=shutil.which("sbatch"))
    program.write_text(text)
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    words = ("--array", "n=1..4", "--parallelism", "2", "--", "true")
    done = muster("run", "--engine", "slurm", *words, env={**os.environ, "PATH": path}, code=0)
    assert "SUCCEEDED" in done.stderr
    texts = [path.read_text() for path in own_home.glob("script.*")]
    scripts = [text for text in texts if "#SBATCH" in text]
    assert sorted("--array=" in text for text in scripts) == [False, False, True]


#: Says how many run at the same time, and refuses all.
COUNTED = """\
#!/bin/sh
[ "$1" = --version ] && exec {sbatch} "$@"
touch {folder}/running.$$
ls {folder}/running.* | wc -l >>{folder}/counts
sleep 0.2
rm {folder}/running.$$
echo "sbatch: error: Batch job submission failed: Access denied" >&2
exit 1
"""


def test_the_tasks_of_an_array_are_submitted_a_few_at_a_time(
    cluster: SlurmCluster, own_home: Path
) -> None:
    """If Slurm refuses the array."""
    program = own_home / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(COUNTED.format(folder=program.parent, sbatch=shutil.which("sbatch")))
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    words = ("--array", "n=1..40", "--parallelism", "40", "--", "true")
    done = muster("run", "--engine", "slurm", *words, env={**os.environ, "PATH": path}, code=1)
    assert "40 of 40 replicas" in done.stderr
    counts = [int(line) for line in (program.parent / "counts").read_text().split()]
    assert len(counts) > 40 and 1 < max(counts) <= 8


@pytest.mark.slow
def test_an_array_whose_submission_was_not_answered(cluster: SlurmCluster, own_home: Path) -> None:
    words = ("--array", "n=1..6", "--parallelism", "3", "--set", "slurm.extra=[--hold]")
    run = Counting(own_home, *words, nodes=1, script="sleep 1")
    until(lambda: "scontrol release" in run.waits_for(), "it waits", pause=0.2)
    (job,) = {line.split()[0] for line in cluster.jobs()}
    file = run.folder / RECORD
    run.kill_supervisor()
    record = read_record(file, Record)
    assert record is not None and [one.key for one in record.allocations] == [
        f"{job}_{task}" for task in range(3)
    ]
    unknown = tuple(replace(one, job=None) for one in record.allocations)
    write_record(file, replace(record, allocations=unknown))
    run.status()  # any command has another one started
    cluster.run("scontrol", "release", job)
    assert run.until_state("SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"


@pytest.mark.parametrize("value", ["a b -o /x", "a#b", r"a\b", "it's", "$HOME `x`"])
def test_a_value_is_one_word_for_sbatch(cluster: SlurmCluster, value: str) -> None:
    part = Component((0,), ("--hold", f"--comment={value}"))
    text = batch_script("muster-r1.0", "demo", "/shared/r 1", [part])
    job = client.submit(text, {**os.environ, **cluster.environ})
    try:
        shown = cluster.run("scontrol", "show", "job", str(job))
        assert f"Comment={value}" in shown and "StdOut=/shared/r 1/job-0.log" in shown
    finally:
        client.cancel("muster-r1.0", str(job), {**os.environ, **cluster.environ})


def test_a_time_that_the_partition_does_not_allow(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "--dry-run", "--engine", "slurm", "--set", "max_runtime=5m", "--", "true")
    short = ("--set", "slurm.partition=short")
    done = muster(*words[:-2], *short, *words[-2:])
    assert done.returncode == 2
    assert "max_runtime=5m: needs a job of 11 minutes" in done.stderr
    assert "partition short allows 5:00" in done.stderr and "slurm.time" in done.stderr
    muster(*words[:-2], *short, "--set", 'slurm.time="5"', *words[-2:], code=0)
    muster(*words, code=0)  # the default partition has no limit


def test_more_nodes_than_there_are(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home, nodes=9)
    until(lambda: "it needs more" in run.waits_for(), "it says why it waits", pause=0.2)
    muster("cancel", run.name, code=0)
    assert run.until_state("CANCELED")


def test_a_job_that_is_held(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home, "--set", "slurm.extra=[--hold]")
    until(lambda: "scontrol release" in run.waits_for(), "it says why it waits", pause=0.2)
    cluster.run("scontrol", "release", run.job(cluster))
    run.until_lines()
    assert run.end()["state"] == "SUCCEEDED"


def test_a_job_that_is_canceled_in_slurm(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home)
    run.until_lines()
    cluster.run("scancel", run.job(cluster))
    cause = run.until_state("FAILED")["cause"]
    assert cause["reason"] == "canceled" and "was canceled in Slurm" in cause["message"]


def test_a_job_that_was_canceled_does_not_come_back(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home, "--set", "failure.max_restarts=2")
    run.until_lines()
    cluster.run("scancel", "--signal=KILL", run.job(cluster))
    status = run.until_state("FAILED")
    assert (status["cause"]["reason"], status["attempt"]) == ("canceled", 0)


#: Counts until it is told to end, and does so with exit code 0, as if it had saved its work.
COUNT = "while :; do n=$((n + 1)); echo line $n; sleep 0.1; done"
POLITE = f"trap 'echo told; exit 0' TERM; {COUNT}"


def test_a_run_that_was_preempted_gets_another_job(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home, "--set", "slurm.partition=low", script=POLITE)
    run.until_lines()
    first = run.job(cluster)
    script = own_home / "other.sh"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    words = ("--parsable", "--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null")
    other = cluster.run("sbatch", *words, str(script)).strip()
    try:
        until(lambda: run.status()["attempt"] == 1, "it was restarted", pause=0.2)
    finally:
        cluster.run("scancel", other)
    run.until_lines(attempt=1)
    until(lambda: len(cluster.jobs()) == 1, "the other job has ended")
    assert run.job(cluster) != first
    muster("cancel", run.name)


def test_a_node_that_is_down_is_replaced_by_a_spare_one(
    cluster: SlurmCluster, own_home: Path
) -> None:
    run = Counting(own_home, "--set", "slurm.spares=1", "--set", "failure.max_restarts=2")
    run.until_lines()
    job = run.job(cluster)
    lost = run.status()["nodes"][1]["host"]
    try:
        cluster.run("scontrol", "update", f"nodename={lost}", "state=down", "reason=test")
        run.until_lines(attempt=1)
        assert run.job(cluster) == job
        assert lost not in [node["host"] for node in run.status()["nodes"]]
        assert {node["host_id"] for node in run.status()["nodes"]} == {job}
        assert run.end()["state"] == "SUCCEEDED"
    finally:
        with contextlib.suppress(subprocess.SubprocessError):  # it may be back by itself
            cluster.run("scontrol", "update", f"nodename={lost}", "state=resume")


def test_a_controller_that_is_away_for_a_while(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home)
    run.until_lines()
    cluster.stop_controller()
    run.until_lines()
    cluster.start_controller()
    run.until_lines()
    assert run.end()["state"] == "SUCCEEDED"


def test_a_run_that_starts_while_the_controller_is_away(
    cluster: SlurmCluster, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.impatient))
    cluster.stop_controller()
    try:
        run = Counting(own_home, "--set", "engine=slurm")
        until(lambda: "does not answer" in run.waits_for(), "it says so", pause=0.5)
    finally:
        cluster.start_controller()
    run.until_lines()
    assert len(cluster.jobs()) == 1
    assert run.end()["state"] == "SUCCEEDED"


def test_a_supervisor_that_is_killed(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home)
    run.until_lines()
    job = run.job(cluster)
    for _ in range(2):
        run.kill_supervisor()
        run.status()  # any command has another one started
        run.until_lines()
    assert run.job(cluster) == job
    assert run.end()["state"] == "SUCCEEDED"


def test_a_supervisor_that_is_killed_while_the_job_waits(
    cluster: SlurmCluster, own_home: Path
) -> None:
    run = Counting(own_home, "--set", "slurm.extra=[--hold]")
    until(lambda: "scontrol release" in run.waits_for(), "it waits", pause=0.2)
    run.kill_supervisor()
    cluster.run("scontrol", "release", run.job(cluster))
    run.until_lines()
    assert len(cluster.jobs()) == 1
    assert run.end()["state"] == "SUCCEEDED"


def test_a_submission_whose_answer_was_lost(cluster: SlurmCluster, own_home: Path) -> None:
    """The supervisor is killed before it has recorded the job, which is not submitted again."""
    run = Counting(own_home, "--set", "slurm.extra=[--hold]")
    until(lambda: "scontrol release" in run.waits_for(), "it waits", pause=0.2)
    job, file = run.job(cluster), run.folder / RECORD
    run.kill_supervisor()
    record = read_record(file, Record)
    assert record is not None and [one.job for one in record.allocations] == [int(job)]
    unknown = tuple(Allocation(one.number, one.slots) for one in record.allocations)
    write_record(file, type(record)(record.folder, unknown, record.next))
    run.status()  # any command has another one started
    cluster.run("scontrol", "release", job)
    run.until_lines()
    assert run.job(cluster) == job
    assert run.end()["state"] == "SUCCEEDED"


def test_a_second_job_of_a_run_ends_at_once(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home)
    run.until_lines()
    job = run.job(cluster)
    script = cluster.run("scontrol", "write", "batch_script", job, "-")
    file = own_home / "again.sh"
    file.write_text(script)
    cluster.run("sbatch", str(file))
    until(lambda: [line.split()[0] for line in cluster.jobs()] == [job], "it has ended")
    run.until_lines()
    assert run.end()["state"] == "SUCCEEDED"


@pytest.mark.slow
def test_a_time_limit(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home, "--set", "slurm.time=1")
    cause = run.until_state("FAILED")["cause"]
    assert cause["reason"] == "deadline" and "reached its time limit" in cause["message"]


@pytest.mark.slow
def test_programs_save_before_a_time_limit(cluster: SlurmCluster, own_home: Path) -> None:
    save = "trap 'echo saved; exit 0' USR1; "
    options = ("slurm.time=1", "checkpoint.grace=20s", "failure.max_restarts=1")
    words = [word for option in options for word in ("--set", option)]
    run = Counting(own_home, *words, script=f"{save}{COUNT}")
    run.until_lines()
    first = run.job(cluster)
    until(lambda: run.status()["attempt"] == 1, "it was restarted", pause=0.5)
    cause = run.status()["cause"]
    assert cause["reason"] == "deadline" and "about to reach its time limit" in cause["message"]
    for rank in range(2):
        assert "saved" in (run.folder / f"logs/0/workers-{rank}.out").read_text()
    run.until_lines(attempt=1)
    until(lambda: len(cluster.jobs()) == 1, "the first job has ended", pause=0.2)
    assert run.job(cluster) != first
    muster("cancel", run.name)


@pytest.mark.slow
def test_a_group_that_has_ended_before_a_time_limit(
    cluster: SlurmCluster, own_home: Path, tmp_path: Path
) -> None:
    save = f"trap 'echo saved; exit 0' USR1; {COUNT}"
    job = {
        "engine": "slurm",
        "slurm": {"time": "1"},
        "checkpoint": {"grace": "20s"},
        "node_groups": [
            {"name": "short", "command": ["sleep", "1"]},
            {"name": "long", "command": ["sh", "-c", save]},
        ],
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    done = muster("run", "--detach", str(tmp_path / "job.yaml"), code=0)
    name = done.stderr.split()[0]

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(muster("status", name, "--json", code=0).stdout)
        return found

    until(lambda: status()["state"] == "FAILED", "it has failed", pause=0.5)
    cause = status()["cause"]
    assert cause["reason"] == "deadline" and "about to reach its time limit" in cause["message"]


@pytest.mark.slow
def test_a_supervisor_that_is_killed_while_programs_save(
    cluster: SlurmCluster, own_home: Path
) -> None:
    """The one that takes over does not tell them again, and takes them for what they are."""
    done = own_home / "done"
    wait = f"until [ -e {done} ]; do echo line; sleep 0.1; done"
    save = f"trap 'echo saving; {wait}; exit 0' USR1; "
    options = ("slurm.time=1", "checkpoint.grace=30s")
    words = [word for option in options for word in ("--set", option)]
    run = Counting(own_home, *words, script=f"{save}{COUNT}")
    run.until_lines()
    paths = [run.folder / f"logs/0/workers-{rank}.out" for rank in range(2)]
    until(lambda: all("saving" in path.read_text() for path in paths), "they save", pause=0.1)
    run.kill_supervisor()
    run.status()  # any command has another one started
    run.until_lines()
    done.touch()
    cause = run.until_state("FAILED", "SUCCEEDED")["cause"]
    assert cause["reason"] == "deadline" and "about to reach its time limit" in cause["message"]
    assert [path.read_text().count("saving") for path in paths] == [1, 1]


#: Takes its time, as it does when the controller is busy.
SLOW = """\
#!/bin/sh
sleep 5
exec {scancel} "$@"
"""


@pytest.mark.slow
def test_a_job_that_outlives_its_nodes(
    cluster: SlurmCluster, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its servers dial on, and are not taken for those of the next job."""
    program = own_home / "bin" / "scancel"
    program.parent.mkdir()
    program.write_text(SLOW.format(scancel=shutil.which("scancel")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    save = "trap 'echo saved; exit 0' USR1; "
    options = ("slurm.time=1", "checkpoint.grace=30s", "failure.max_restarts=1")
    words = [word for option in options for word in ("--set", option)]
    job = 'echo "job $SLURM_JOB_ID"; '
    run = Counting(own_home, *words, script=f"{save}{job}{COUNT}")
    run.until_lines()
    until(lambda: run.status()["attempt"] == 1, "it was restarted", pause=0.5)
    run.until_lines(attempt=1)
    jobs = [(run.folder / f"logs/{n}/workers-0.out").read_text().split()[:2] for n in range(2)]
    until(lambda: len(cluster.jobs()) == 1, "the first job has ended", pause=0.2)
    run.until_lines(attempt=1)
    assert jobs[0] != jobs[1] == ["job", run.job(cluster)]
    assert run.status()["attempt"] == 1
    muster("cancel", run.name)


def test_jobs_that_nobody_drives_are_ended(cluster: SlurmCluster, own_home: Path) -> None:
    run = Counting(own_home)
    run.until_lines()
    folder = RunDir(run.folder)
    run.kill_supervisor()
    clean_up.end_jobs(folder, folder.path.name, {**os.environ, **cluster.environ})
    assert cluster.jobs() == []
    run.until_state("FAILED", "IN_PROGRESS", "CANCELED")
    muster("cancel", run.name)
    run.until_state("FAILED", "CANCELED")


def test_a_job_of_others_that_has_an_id_of_the_run(cluster: SlurmCluster, own_home: Path) -> None:
    """A controller that has lost its state gives ids again."""
    other = int(cluster.run("sbatch", "--parsable", "--hold", "--wrap=true", "--output=/dev/null"))
    folder = RunDir(own_home / "runs" / "r1")
    folder.path.mkdir(parents=True)
    write_record(
        folder.path / RECORD, Record(str(own_home / "s"), (Allocation(0, (0,), other),), 1)
    )
    environ = {**os.environ, **cluster.environ}
    try:
        clean_up.end_jobs(folder, "r1", environ)
        client.cancel("muster-r1.0", str(other), environ)
        assert [line.split()[0] for line in cluster.jobs()] == [str(other)]
        client.cancel("wrap", str(other), environ)
        assert cluster.jobs() == []
        client.cancel("wrap", str(other), environ)  # it has ended
        client.cancel("wrap", str(other + 1000), environ)
    finally:
        cluster.run("scancel", str(other))


def test_slurm_that_is_absent(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(own_home))
    done = muster("run", "--engine", "slurm", "--", "true", code=2)
    assert "there is no sbatch, squeue, srun, scancel, scontrol, sinfo" in done.stderr


def test_slurm_without_a_configuration(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(own_home / "slurm.conf"))
    done = muster("run", "--engine", "slurm", "--", "true", code=2)
    assert f"there is no {own_home}/slurm.conf, which SLURM_CONF names" in done.stderr


def test_what_is_found(cluster: SlurmCluster) -> None:
    done = muster("engines", "add", "slurm", "--partition", "nope", "--python", sys.executable)
    assert done.returncode == 1 and "there is no nope" in done.stdout
    done = muster("engines", "add", "slurm", "--partition", "main", "--replace", code=0)
    assert "version 22" in done.stdout or "version 2" in done.stdout
    assert "main (4 nodes, limit infinite)" in done.stdout
    assert "nodes reach this machine at 127.0.0.1" in done.stdout
