"""Runs whose later supervisors, and commands, find other settings of kubectl: two doubles of a
cluster. See also `test_cluster_ref`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from engines.kubernetes.conftest import StartJob
from engines.kubernetes.test_observed import jobset
from muster.client.client import Client
from muster.engines.kubernetes.names import RUN
from muster.engines.kubernetes.record import RECORD, Allocation, Record
from muster.engines.remote.record import read_record, write_record
from muster.errors import MusterError
from muster.storage.home import Home
from support.faults import until
from support.kube import Cluster
from support.kube_engine import add_engine, write_contexts
from support.kube_runs import PATIENCE, names, until_nothing_is_left

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Cluster]:
    """Another cluster, to which the current context of kubectl leads sooner or later."""
    folder = tmp_path / "other"
    folder.mkdir()
    with Cluster(folder, nodes=2) as made:
        yield made
        assert made.left() == []
        assert not [one for one in made.calls if one.verb in ("patch", "create", "delete")]


@pytest.fixture
def file(tmp_path: Path, own_home: Path, cluster: Cluster) -> Iterator[Path]:
    """That of kubectl; the engine names neither a context nor a namespace. In the end it has the
    cluster of the test again, as what has begun is to end."""
    path = write_contexts(tmp_path / "config", "gpu", gpu=cluster)
    add_engine(own_home, cluster, kubeconfig=str(path))
    yield path
    write_contexts(path, "gpu", gpu=cluster)


def test_the_current_context_changes_while_there_is_no_supervisor(
    cluster: Cluster, other: Cluster, file: Path, start: StartJob, own_home: Path
) -> None:
    write_contexts(file, "gpu", gpu=cluster, lab=other)
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    before = names(cluster, job)
    job.kill_supervisor(own_home)
    write_contexts(file, "lab", gpu=cluster, lab=other)  # kubectl config use-context lab
    job.until_said("another one takes over")
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
    assert names(cluster, job) <= before
    until_nothing_is_left(cluster)


def test_a_context_that_is_gone_makes_nodes_unreachable(
    cluster: Cluster, other: Cluster, file: Path, start: StartJob, own_home: Path
) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    before = names(cluster, job)
    job.kill_supervisor(own_home)
    write_contexts(file, "lab", lab=other)
    job.until_said(
        f"cannot be reached: {file} has no context gpu; there are: lab; the run is in context gpu",
        "restore this context",
    )
    assert names(cluster, job) == before
    # given it is restored
    write_contexts(file, "lab", gpu=cluster, lab=other)
    job.until_said("can be reached again")
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
    assert "was deleted" not in job.story()


def test_a_canceled_run_is_not_taken_for_deleted_in_another_cluster(
    cluster: Cluster, other: Cluster, file: Path, start: StartJob, own_home: Path
) -> None:
    job = start(1)
    job.until_up(1)
    job.kill_supervisor(own_home)
    write_contexts(file, "gpu", gpu=other)  # of the same name
    job.until_said("is for another cluster, at ")
    run = job.run.cancel("enough")
    until(lambda: "cancel" in job.story(), "it is canceled", PATIENCE)
    assert not run.refresh().done
    assert len(names(cluster, job)) == 1
    write_contexts(file, "gpu", gpu=cluster)
    assert str(run.wait(PATIENCE).state) == "CANCELED"
    until_nothing_is_left(cluster)


def test_another_terminal_has_another_kubeconfig(
    tmp_path: Path,
    own_home: Path,
    cluster: Cluster,
    other: Cluster,
    start: StartJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_engine(own_home, cluster)
    profile = own_home / "engines" / "kubernetes.toml"
    lines = profile.read_text().splitlines(keepends=True)
    profile.write_text("".join(line for line in lines if not line.startswith("kubeconfig")))
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    job = start(1, failure={"max_restarts": 3})
    job.until_up(1)
    job.kill_supervisor(own_home)
    environ = {**os.environ, "KUBECONFIG": str(other.kubeconfig)}
    argv = [sys.executable, "-m", "muster", "cancel", "--yes", job.run.name]
    done = subprocess.run(
        argv, env=environ, text=True, capture_output=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(job.run.refresh().state) == "CANCELED"
    until_nothing_is_left(cluster)


def test_a_run_that_was_left_is_deleted_in_its_cluster(
    cluster: Cluster,
    other: Cluster,
    file: Path,
    start: StartJob,
    own_home: Path,
    client: Client,
) -> None:
    job = start(1)
    job.until_up(1)
    job.end()
    until_nothing_is_left(cluster)
    # given a JobSet was left, as is recorded
    record_file = Home(own_home).run_dir(job.run.id).path / RECORD
    record = read_record(record_file, Record)
    assert record is not None and record.cluster is not None and record.cluster.context == "gpu"
    name = _leave_jobset(cluster, record_file, record, job.run.id)
    write_contexts(file, "gpu", gpu=other)
    with pytest.raises(MusterError, match="is for another cluster, at "):
        client.run(job.run.id).delete()
    assert cluster.find("jobsets", name) is not None
    write_contexts(file, "lab", gpu=cluster, lab=other)
    client.run(job.run.id).delete()
    assert cluster.find("jobsets", name) is None


def _leave_jobset(cluster: Cluster, file: Path, record: Record, run_id: str) -> str:
    """A JobSet of a run that has ended. Returns its name."""
    write_record(file, replace(record, allocations=(Allocation(0, (), (0,), "uid"),)))
    left = jobset("sleep 600", name="left", suspend=True)
    left["metadata"]["labels"] = {RUN: run_id}
    return str(cluster.create(left)["metadata"]["name"])


def test_a_run_of_an_earlier_version_goes_on(
    cluster: Cluster, file: Path, start: StartJob, own_home: Path
) -> None:
    """Its record says nothing of the cluster."""
    job = start(1)
    job.until_up(1)
    job.kill_supervisor(own_home)
    record_file = Home(own_home).run_dir(job.run.id).path / RECORD
    record = read_record(record_file, Record)
    assert record is not None
    write_record(record_file, replace(record, cluster=None))
    job.until_said("another one takes over")
    assert job.end() == "SUCCEEDED"
    assert job.ups(0) == 1
