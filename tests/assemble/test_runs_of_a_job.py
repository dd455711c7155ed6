"""A cluster of single runs of one Job, as people launch it with Muster."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster

PROGRAM = """
import os
from distributed import Client

with Client() as client:
    print("sum:", client.submit(sum, range(10)).result(), os.environ["HELLO"])
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "printhello.py").write_text(PROGRAM)
    return folder


@pytest.mark.shows(
    "cluster-design/cluster-is-a-job",
    "cluster-design/job-for-each-launch",
    "cluster-design/run-names",
    "cluster-design/run-states",
    "cluster-design/work-dir-reused",
)
@pytest.mark.usefixtures("client")
def test_two_launches_of_one_file_in_one_work_dir_at_once(tmp_path: Path, code: Path) -> None:
    """Each is a Job of its own, with a scheduler and a worker that are runs of it."""
    spec = tmp_path / "cluster.yaml"
    env = {
        "nprocs": 1,
        "nthread": 1,
        "death_timeout": 60,
        "WORK_DIR": str(tmp_path / "meet"),
        "CODE_DIR": str(code),
        "WORKER_COUNT": 1,
        "CLUSTER_TYPE": "DASK",
        "EPHEMERAL": 1,
        "HELLO": "WORLD",
    }
    (tmp_path / "meet").mkdir()
    lines = "".join(f"  {name}: {value}\n" for name, value in env.items())
    spec.write_text(f"name: dask-trial-2\ncommand: muster node\nenv:\n{lines}")
    jobs = [muster.create_job(spec, new=True) for _ in range(2)]
    main = {"MODE": "MAIN", "ENTRY_POINT": "printhello.py"}
    schedulers = [job.run(env=main, run_name="scheduler") for job in jobs]
    workers = [job.run(env={"MODE": "WORKER"}, run_name="worker") for job in jobs]
    for run in (*schedulers, *workers):
        assert run.wait(120).state == "SUCCEEDED", [record.message for record in run.logs()]
    for job, scheduler in zip(jobs, schedulers, strict=True):
        assert "sum: 45 WORLD" in [record.message for record in scheduler.logs()]
        assert [run.display_name for run in job.runs()] == ["worker", "scheduler"]
    folders = [folder.name.rpartition(".")[2] for folder in (tmp_path / "meet").iterdir()]
    assert sorted(folders) == sorted(job.id for job in jobs)
