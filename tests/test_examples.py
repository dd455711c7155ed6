"""The examples, run for real: PyTorch over several nodes, and two groups without a framework."""

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

EXAMPLES = Path(__file__).parent.parent / "examples"

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A copy of its own: checkpoints are written beside the spec."""
    folder = tmp_path / "digits"
    shutil.copytree(EXAMPLES / "pytorch-digits", folder)
    for path in (folder / "checkpoints").glob("*.pt"):
        path.unlink()
    return folder


def start(client: Client, target: Path, **overrides: object) -> JobRun:
    from muster.client.client import overrides_from

    job, new = client.job(target)
    return client.start(client.draft(job, overrides_from(overrides), new_job=new))


def messages(run: JobRun) -> list[str]:
    assert run.wait(240).state == "SUCCEEDED", run.details
    return [record.message for record in run.logs(streams=["stdout", "stderr"])]


@pytest.mark.shows(
    "distributed-jobs/capability-mounts",
    "distributed-jobs/managed-service",
    "jobs/storage-checkpoints",
    "jobs/storage-shared",
    "jobset/training",
)
@needs_torch
def test_training_over_two_nodes_and_going_on_from_a_checkpoint(
    client: Client, digits: Path
) -> None:
    said = messages(start(client, digits / "job.yaml"))
    assert {"rank 0 of 2 on node-0", "rank 1 of 2 on node-1"} <= set(said)
    (accuracy,) = (float(m.split()[-1]) for m in said if m.startswith("test accuracy"))
    assert accuracy > 0.9
    assert (digits / "checkpoints" / "epoch-5.pt").exists()

    said = messages(start(client, digits / "job.yaml", nodes=3, args=["--epochs", "1"]))
    assert "rank 2 of 3 on node-2" in said
    assert "goes on from epoch-5.pt" in said
    assert [m for m in said if m.startswith("epoch 6: loss")]


@pytest.mark.shows("jobs/runs-at-the-same-time")
@needs_torch
def test_two_trainings_at_once_on_networks_of_their_own(client: Client, digits: Path) -> None:
    """Each listens on torchrun's usual port; neither sees the other."""
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
        assert [m for m in messages(run) if m.startswith("test accuracy")]
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
def test_several_processes_a_node(
    client: Client, tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolation == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    (tmp_path / "sum.py").write_text(SUM)
    job, new = client.job(tmp_path / "sum.py", framework="pytorch", processes_per_node=2)
    from muster.client.client import overrides_from

    run = client.start(client.draft(job, overrides_from({"nodes": 2}), new_job=new))
    assert sorted(messages(run)) == ["0 0 4", "1 1 4", "2 0 4", "3 1 4"]


@pytest.mark.shows("distributed-jobs/capability-group-environment", "jobs/use-batch-inference")
def test_two_groups_without_a_framework(client: Client) -> None:
    said = messages(start(client, EXAMPLES / "preprocess" / "job.yaml"))
    assert [m for m in said if re.fullmatch(r"\d+ files for 3 workers", m)]
    assert sorted(m.split(":")[0] for m in said if m.startswith("worker ")) == [
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
    said = messages(run)
    found = {m.partition(":")[0]: float(m.split()[-1]) for m in said if "test accuracy" in m}
    assert found.keys() == {"trial 0", "trial 1", "trial 2"}
    assert found["trial 0"] > 0.95 > found["trial 2"]
    assert [path.parent.name for path in run.outputs] == ["rank-0", "rank-1", "rank-2"]


@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="cloudpickle is not installed")
@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
def test_a_function_on_four_nodes(client: Client) -> None:
    program = EXAMPLES / "function" / "digits.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, every = map(float, re.findall(r"0\.\d+", done.stdout))
    assert 0.8 < one < 0.9 < every
    (run,) = client.runs()
    said = sorted(record.message for record in run.logs(streams=["stdout", "stderr"]))
    assert said == [f"rank {rank} has grown 5 trees" for rank in range(4)]
