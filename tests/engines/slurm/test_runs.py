"""Runs on a real Slurm cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command import MUSTER, muster, output_of
from support.faults import until
from support.slurm_cluster import SlurmCluster, needs_slurm, shared_cluster, use_cluster

pytestmark = needs_slurm
ROOT = Path(__file__).parents[3]
#: Where a node is, in Slurm's words.
SAY = 'echo "rank $NODE_RANK on $SLURMD_NODENAME in $SLURM_JOB_ID, $SLURM_PROCID"'


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    use_cluster(shared_cluster(), monkeypatch)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return shared_cluster()


def said(output: str) -> dict[int, tuple[str, str]]:
    """rank -> the Slurm node, and the job."""
    found = {}
    for line in output.splitlines():
        if " rank " in line:
            _, _, words = line.partition(" rank ")
            rank, _, node, _, job = words.split()
            found[int(rank)] = node, job.rstrip(",")
    return found


def test_each_node_is_on_a_node_of_slurm(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTIND", "x")  # of the shell that starts a node
    script = f"{SAY}; umask"
    output = output_of("run", "--engine", "slurm", "--nodes", "4", "--", "sh", "-c", script)
    mask = os.umask(0)
    os.umask(mask)
    assert output.count(f"| {mask:04o}\n") == 4
    found = said(output)
    assert set(found) == set(range(4))
    assert len({node for node, _ in found.values()}) == 4
    assert len({job for _, job in found.values()}) == 1


def test_groups_with_other_needs_make_a_heterogeneous_job(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    say = ["sh", "-c", SAY]
    groups = [
        {"name": "a", "nodes": 2, "command": say},
        {"name": "b", "nodes": 1, "command": say, "resources": {"cpus": 2, "memory": "1GiB"}},
        {"name": "c", "nodes": 1, "command": say, "slurm": {"nodelist": "n9"}},
    ]
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({"name": "het", "engine": "slurm", "node_groups": groups}))
    found = said(output_of("run", str(path)))
    assert set(found) == set(range(4)) and found[3][0] == "n9"
    jobs = [int(job) for _, job in found.values()]
    assert max(jobs) - min(jobs) <= 2


def test_the_allocation_in_which_it_is_started_is_used(cluster: SlurmCluster) -> None:
    command = [*MUSTER, "run", "--engine", "slurm", "--nodes", "3", "--", "sh", "-c", SAY]
    salloc = shutil.which("salloc")
    assert salloc is not None
    done = subprocess.run(
        [salloc, "--nodes=3", *command], capture_output=True, text=True, check=True, timeout=120
    )
    found = said(done.stdout)
    assert len({node for node, _ in found.values()}) == 3
    (job,) = {job for _, job in found.values()}
    assert f"Granted job allocation {job}" in done.stderr


def test_an_allocation_that_is_too_small(cluster: SlurmCluster) -> None:
    command = [*MUSTER, "run", "--engine", "slurm", "--nodes", "3", "--", "true"]
    salloc = shutil.which("salloc")
    assert salloc is not None
    done = subprocess.run(
        [salloc, "--nodes=2", *command], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "in which this was started, cannot run it: Only allocated 2 nodes" in done.stderr


def test_each_replica_of_an_array_has_a_job_of_its_own(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    both = f"[ -e {tmp_path}/1 ] && [ -e {tmp_path}/2 ]"
    task = "squeue --noheader --jobs=$SLURM_JOB_ID --format='array %F task %K'"
    script = f"{SAY}; {task}; touch {tmp_path}/$MUSTER_PARAM_N; until {both}; do sleep 0.1; done"
    words = ["--array", "n=1..5", "--parallelism", "2", "--", "sh", "-c", script]
    output = output_of("run", "--engine", "slurm", *words)
    assert len({line.split()[-1] for line in output.splitlines() if " rank " in line}) == 2
    found = re.findall(r" array (\d+) task (\d)", output)
    assert len({array for array, _ in found}) == 1 and {task for _, task in found} == {"0", "1"}


def test_a_run_that_is_suspended_gets_another_job(cluster: SlurmCluster) -> None:
    count = "while :; do sleep 0.1; done"
    words = ("--engine", "slurm", "--name", "pausing", "--", "sh", "-c", count)
    muster("run", "--detach", *words, code=0)

    def is_in(state: str) -> bool:
        return str(json.loads(output_of("status", "pausing-1", "--json"))["state"]) == state

    until(lambda: is_in("IN_PROGRESS"), "it runs", pause=0.2)
    run_id = json.loads(output_of("status", "pausing-1", "--json"))["id"]
    muster("runs", "suspend", "pausing-1", code=0)
    until(lambda: not any(run_id in line for line in cluster.jobs()), "its job is gone", pause=0.2)
    muster("runs", "resume", "pausing-1", code=0)
    until(lambda: is_in("IN_PROGRESS"), "it runs", pause=0.2)
    assert any(run_id in line for line in cluster.jobs())
    muster("cancel", "pausing-1", code=0)
    until(lambda: not any(run_id in line for line in cluster.jobs()), "its job is gone", pause=0.2)


def test_secrets_are_not_in_what_slurm_keeps(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "hunter2")
    words = (
        "--engine",
        "slurm",
        "--name",
        "quiet",
        "--",
        "sh",
        "-c",
        "echo $MY_PASSWORD; sleep 60",
    )
    muster("run", "--detach", *words, code=0)

    def is_running() -> bool:
        return bool(json.loads(output_of("status", "quiet-1", "--json"))["state"] == "IN_PROGRESS")

    until(is_running, "it runs", pause=0.2)
    kept = [path for path in (cluster.folder / "state").rglob("*") if path.is_file()]
    assert any(b"SLURM_TIME_FORMAT" in path.read_bytes() for path in kept)  # the environment
    assert not any(b"hunter2" in path.read_bytes() for path in kept)
    for path in (own_home / "slurm").rglob("*"):
        if path.is_file() and b"hunter2" in path.read_bytes():
            # or it is in a folder that nobody else may enter
            around = [one for one in (path, *path.parents) if own_home / "slurm" in one.parents]
            assert any(one.stat().st_mode & 0o077 == 0 for one in around), path
    muster("cancel", "quiet-1", code=0)


def test_what_is_shown_is_what_is_submitted(cluster: SlurmCluster, own_home: Path) -> None:
    options = ("--engine", "slurm", "--nodes", "2", "--set", "slurm.extra=[--hold]")
    shown = output_of("explain", "--name", "held", *options, "--", "true").partition(
        "sbatch script:\n"
    )[2]
    muster("run", "--detach", "--name", "held", *options, "--", "true", code=0)
    run_id = json.loads(output_of("status", "held-1", "--json"))["id"]
    until(lambda: any(run_id in line for line in cluster.jobs()), "it is submitted", pause=0.2)
    (job,) = [line.split()[0] for line in cluster.jobs() if run_id in line]
    script = cluster.run("scontrol", "write", "batch_script", job, "-")
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    text = [line.strip() for line in shown.splitlines() if line.strip()]
    other = text[1].removeprefix("#SBATCH --job-name=muster-").removesuffix(".0")
    replaced = [line.replace(other, run_id).replace("held-?", "held-1") for line in text]
    assert replaced[: len(lines)] == lines
    muster("cancel", "held-1", code=0)


def test_a_python_that_nodes_lack(cluster: SlurmCluster) -> None:
    muster("engines", "add", "slurm", "--python", "/no/such/python", code=0)
    done = muster("run", "--engine", "slurm", "--", "true", code=1)
    assert "there is no /no/such/python on n" in done.stderr
