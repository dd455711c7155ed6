"""Examples, of this repository and of JobSet, run to their ends in the double of a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from conformance.jobset_examples import EXAMPLES, Runs, name_of
from conformance.test_jobset_examples import write_example
from muster.client.client import Client
from muster.spec.formats.convert import convert_file
from support.kube import Cluster
from support.kube_engine import add_engine, require_client, shared_cluster
from support.pages import ROOT

pytestmark = pytest.mark.slow

#: JobSets of which each shows another policy.
JOBSETS = (
    "simple/success-policy",
    "startup-policy/startup-driver-ready",
    "failure-policy/restartjobset-action",
)


@pytest.fixture
def cluster(own_home: Path) -> Cluster:
    require_client()
    cluster = shared_cluster()
    add_engine(own_home, cluster)
    return cluster


def run(target: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "muster", "run", str(target), "--engine", "kubernetes"]
    folder = target.parent
    environ = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        argv, cwd=folder, env=environ, text=True, capture_output=True, timeout=280, check=False
    )


def copy_of(example: str, folder: Path) -> Path:
    """The job of an example, in a folder where it may write."""
    ignored = shutil.ignore_patterns("*.pt")  # of a run in the source tree, such as `make demo`
    shutil.copytree(ROOT / "examples" / example, folder / example, ignore=ignored)
    return folder / example / "job.yaml"


def test_a_crash_is_survived_in_the_same_pods(tmp_path: Path, cluster: Cluster) -> None:
    before = len(cluster.calls)
    done = run(copy_of("recovery", tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done after step 60") == 4
    assert "restart 1 of the run: node-2 (group workers, rank 2) failed" in done.stderr
    written = [one for one in cluster.calls[before:] if one.verb in ("patch", "create", "delete")]
    kinds = [(one.verb, one.resource) for one in written if one.subresource != "exec"]
    expected = [("patch", name) for name in ("jobsets", "configmaps")]
    assert kinds == [*expected, ("delete", "jobsets")], "a restart writes nothing"
    cluster.until(lambda: cluster.left() == [], "nothing of the run is left")


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_training_with_pytorch_keeps_its_checkpoints(tmp_path: Path, cluster: Cluster) -> None:
    job = copy_of("pytorch-digits", tmp_path)
    for path in (job.parent / "checkpoints").glob("*.pt"):
        path.unlink()
    done = run(job)
    assert done.returncode == 0, done.stderr
    (accuracy,) = (line for line in done.stdout.splitlines() if "test accuracy" in line)
    assert float(accuracy.split()[-1]) > 0.9
    assert (job.parent / "checkpoints" / "epoch-5.pt").exists()


@pytest.mark.parametrize("example", JOBSETS)
def test_a_jobset_becomes_a_run_with_its_policies(
    example: str, tmp_path: Path, own_home: Path, cluster: Cluster
) -> None:
    entry = EXAMPLES[example]
    assert isinstance(entry, Runs)
    job = tmp_path / "job.yaml"
    job.write_text(convert_file(write_example(example, tmp_path), None, "muster")[0])
    done = run(job)
    (ended,) = Client(own_home).runs()
    assert ended.name.startswith(name_of(example)), done.stderr
    assert (str(ended.state), ended.to_dict()["restarts"]) == (entry.state, entry.restarts)
