"""The examples, run with real processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from support.runs import output, output_of_success, start

EXAMPLES = Path(__file__).parent.parent / "examples"

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


TIMEOUT = 240  # seconds


def printed(run: JobRun) -> list[str]:
    return output_of_success(run, TIMEOUT)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A copy of the example: checkpoints are written next to the spec."""
    folder = tmp_path / "digits"
    shutil.copytree(EXAMPLES / "pytorch-digits", folder)
    for path in (folder / "checkpoints").glob("*.pt"):
        path.unlink()
    return folder


@pytest.mark.shows(
    "distributed-jobs/capability-mounts",
    "distributed-jobs/managed-service",
    "jobs/storage-checkpoints",
    "jobs/storage-shared",
    "jobset/training",
)
@needs_torch
def test_training_on_two_nodes_continues_from_a_checkpoint(client: Client, digits: Path) -> None:
    records = printed(start(client, digits / "job.yaml"))
    assert {"rank 0 of 2 on node-0", "rank 1 of 2 on node-1"} <= set(records)
    (accuracy,) = (float(m.split()[-1]) for m in records if m.startswith("test accuracy"))
    assert accuracy > 0.9
    assert (digits / "checkpoints" / "epoch-5.pt").exists()

    records = printed(start(client, digits / "job.yaml", nodes=3, args=["--epochs", "1"]))
    assert "rank 2 of 3 on node-2" in records
    assert "resumes from epoch-5.pt" in records
    assert [m for m in records if m.startswith("epoch 6: loss")]


@pytest.mark.shows("jobs/runs-at-the-same-time")
@needs_torch
@pytest.mark.slow
def test_two_trainings_at_once_on_separate_networks(client: Client, digits: Path) -> None:
    """Both listen on torchrun's default port, without a conflict."""
    spec = digits / "job.yaml"
    spec.write_text(re.sub(r"nodes: 2", "nodes: 2\nnetwork: isolated", spec.read_text()))
    for name in ("a", "b"):
        (digits / name).mkdir()
    both = [
        start(
            client,
            spec,
            args=["--epochs", "1"],
            mounts=[{"source": str(digits / name), "path": "checkpoints"}],
        )
        for name in ("a", "b")
    ]
    for run in both:
        assert [m for m in printed(run) if m.startswith("test accuracy")]
    for name in ("a", "b"):
        assert [p.name for p in (digits / name).glob("*.pt")] == ["epoch-0.pt"]


SUM = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print(os.environ["RANK"], os.environ["LOCAL_RANK"], int(one.item()))
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # see examples/pytorch-digits/train.py
"""


@needs_torch
@pytest.mark.parametrize("isolation", ["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def test_several_processes_per_node_form_one_group(
    client: Client, tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolation == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    (tmp_path / "sum.py").write_text(SUM)
    job, new = client.job(tmp_path / "sum.py", framework="pytorch", processes_per_node=2)
    from muster.client.client import overrides_from

    run = client.start(client.prepare_run(job, overrides_from({"nodes": 2}), new_job=new))
    assert sorted(printed(run)) == ["0 0 4", "1 1 4", "2 0 4", "3 1 4"]


@pytest.mark.shows("distributed-jobs/capability-group-environment", "jobs/use-batch-inference")
def test_two_groups_without_a_framework(client: Client) -> None:
    records = printed(start(client, EXAMPLES / "preprocess" / "job.yaml"))
    assert [m for m in records if re.fullmatch(r"\d+ files for 3 workers", m)]
    assert sorted(m.split(":")[0] for m in records if m.startswith("worker ")) == [
        "worker 0",
        "worker 1",
        "worker 2",
    ]


@pytest.mark.shows("jobs/use-outside-notebooks")
@pytest.mark.skipif(find_spec("nbclient") is None, reason="nbclient is not installed")
@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
@pytest.mark.slow
def test_a_notebook_on_three_nodes(client: Client) -> None:
    run = start(client, EXAMPLES / "notebook" / "job.yaml")
    records = printed(run)
    found = {m.partition(":")[0]: float(m.split()[-1]) for m in records if "test accuracy" in m}
    assert found.keys() == {"trial 0", "trial 1", "trial 2"}
    assert found["trial 0"] > 0.95 > found["trial 2"]
    assert [one.rank for one in run.outputs()] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="cloudpickle is not installed")
@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
def test_a_function_on_four_nodes(client: Client) -> None:
    program = EXAMPLES / "function" / "digits.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, every = map(float, re.findall(r"0\.\d+", done.stdout))
    assert 0.8 < one < 0.9 < every
    (run,) = client.runs()
    records = sorted(output(run))
    assert records == [f"rank {rank} has grown 5 trees" for rank in range(4)]
