"""A cluster whose nodes are separate runs of one Job."""

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


@pytest.mark.slow
@pytest.mark.shows(
    "cluster-design/cluster-is-a-job",
    "cluster-design/job-for-each-launch",
    "cluster-design/run-names",
    "cluster-design/run-states",
    "cluster-design/work-dir-reused",
)
@pytest.mark.usefixtures("client")
def test_two_clusters_of_one_file_share_a_work_dir(tmp_path: Path, code: Path) -> None:
    """Each cluster is a separate Job, with a run for the scheduler and one for the worker."""
    spec = tmp_path / "cluster.yaml"
    env = {
        "nprocs": 1,
        "nthread": 1,
        "death_timeout": 60,
        "WORK_DIR": str(tmp_path / "shared"),
        "CODE_DIR": str(code),
        "WORKER_COUNT": 1,
        "CLUSTER_TYPE": "DASK",
        "EPHEMERAL": 1,
        "HELLO": "WORLD",
    }
    (tmp_path / "shared").mkdir()
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
    folders = [folder.name.rpartition(".")[2] for folder in (tmp_path / "shared").iterdir()]
    assert sorted(folders) == sorted(job.id for job in jobs)
