"""`muster run --dry-run` and `muster engines check` ask the double of a cluster, which stores
nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.conftest import PlanOf
from muster.engines.findings import Finding
from muster.engines.registry import engine_named
from muster.plan.model import RunPlan
from muster.storage.home import Home
from support.kube import Cluster
from support.kube.discovery import Version
from support.kube_engine import add_engine, require_client


@pytest.fixture
def jobset(request: pytest.FixtureRequest) -> Version | None:
    return getattr(request, "param", (0, 12))


@pytest.fixture
def cluster(tmp_path: Path, own_home: Path, jobset: Version | None) -> Iterator[Cluster]:
    require_client()
    folder = tmp_path / "kube"
    folder.mkdir()
    with Cluster(folder, nodes=1, kueue=True, jobset=jobset) as made:
        made.add_queue("team-vision", {"cpu": "64", "memory": "1Ti"})
        add_engine(own_home, made)
        yield made
        assert made.left() == []


def findings(home: Path, plan: RunPlan) -> list[Finding]:
    return engine_named("kubernetes", Home(home)).dry_run(plan)


@pytest.mark.parametrize("jobset", [(0, 12), None], indirect=True, ids=["jobset", "jobs"])
def test_each_object_is_validated(
    cluster: Cluster, jobset: Version | None, own_home: Path, plan_of: PlanOf
) -> None:
    found = findings(own_home, plan_of(nodes=2, kueue={"queue": "team-vision"}))
    assert {one.says for one in found} == {"the cluster accepts it", "the run would wait here"}
    kinds = ["Service", "ConfigMap", "Job"]
    kinds = kinds if jobset is None else ["JobSet", "ConfigMap"]
    assert [one.name.split()[0] for one in found] == [*kinds, "queue"]
    writes = [one for one in cluster.calls if one.verb == "patch" and one.user == "admin"]
    assert len(writes) == len(kinds)


def test_what_a_cluster_would_refuse_is_said_of_its_object(
    cluster: Cluster, own_home: Path, plan_of: PlanOf
) -> None:
    first, *others = findings(own_home, plan_of(kubernetes={"pod": {"spec": {"bogus": True}}}))
    assert not first.works
    assert first.says.startswith("the cluster refuses it: ")
    assert "bogus" in first.says
    assert [one.works for one in others] == [True]


def test_a_queue_that_does_not_exist_is_found(
    cluster: Cluster, own_home: Path, plan_of: PlanOf
) -> None:
    *_, last = findings(own_home, plan_of(kueue={"queue": "team-visoin"}))
    text = "namespace default has no LocalQueue team-visoin; there are: team-vision"
    assert last == Finding("queue team-visoin", False, text)


def test_a_queue_that_is_stopped_is_found(
    cluster: Cluster, own_home: Path, plan_of: PlanOf
) -> None:
    def stop(queue: dict[str, Any]) -> None:
        stopped = {"type": "Active", "status": "False", "message": "ClusterQueue is stopped"}
        queue["status"] = {"conditions": [stopped]}

    cluster.storage.update("localqueues", "default", "team-vision", stop, subresource="status")
    *_, last = findings(own_home, plan_of(kueue={"queue": "team-vision"}))
    assert (last.works, last.says) == (
        False,
        "queue team-vision is not active: ClusterQueue is stopped",
    )


def test_a_cluster_that_does_not_answer(own_home: Path, tmp_path: Path, plan_of: PlanOf) -> None:
    require_client()
    profile = own_home / "engines" / "kubernetes.toml"
    profile.parent.mkdir(exist_ok=True)
    profile.write_text(f'kind = "kubernetes"\nkubeconfig = "{tmp_path}/nothing"\n')
    (found,) = findings(own_home, plan_of())
    assert (found.name, found.works) == ("cluster", False)
    assert "there is no file" in found.says


@pytest.mark.parametrize(
    ("field", "works", "text"),
    [
        ({}, True, "yes JobSet mine: the cluster accepts it"),
        ({"imag": "x"}, False, "no  JobSet mine: the cluster refuses it: "),
    ],
)
def test_a_manifest_of_the_users_is_validated(
    cluster: Cluster, tmp_path: Path, field: dict[str, str], works: bool, text: str
) -> None:
    done = dry_run_of(tmp_path, {"name": "mine"}, **field)
    assert (done.returncode == 0) is works, done.stderr
    assert text in done.stdout


@pytest.mark.parametrize(("queue", "works"), [("team-vision", "yes"), ("team-visoin", "no ")])
def test_the_queue_of_a_manifest_of_the_users_is_looked_for(
    cluster: Cluster, tmp_path: Path, queue: str, works: str
) -> None:
    labels = {"kueue.x-k8s.io/queue-name": queue}
    done = dry_run_of(tmp_path, {"name": "mine", "labels": labels})
    assert "yes JobSet mine: the cluster accepts it" in done.stdout
    assert f"{works} queue {queue}: " in done.stdout
    assert done.returncode == (0 if works == "yes" else 2)


def dry_run_of(
    folder: Path, metadata: dict[str, Any], **field: str
) -> subprocess.CompletedProcess[str]:
    """Of a JobSet with this metadata. field: another field of its container."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a", **field}]}
    job = {"name": "w", "template": {"spec": {"template": {"spec": pod}}}}
    manifest: dict[str, Any] = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    manifest |= {"metadata": metadata, "spec": {"replicatedJobs": [job]}}
    file = folder / "jobset.yaml"
    file.write_text(yaml.safe_dump(manifest))
    words = [sys.executable, "-m", "muster", "run", str(file), "--engine", "kubernetes"]
    return subprocess.run([*words, "--dry-run"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("settings", "name", "text"),
    [
        ({"namespace": "resarch"}, "namespace", "the cluster has no namespace resarch"),
        ({"queue": "team-visoin"}, "Kueue", "namespace default has no LocalQueue team-visoin"),
        ({"queue": "team-vision"}, None, ""),
    ],
)
def test_the_check_finds_what_does_not_exist(
    cluster: Cluster, own_home: Path, settings: dict[str, str], name: str | None, text: str
) -> None:
    add_engine(own_home, cluster, **settings)
    failed = [one for one in engine_named("kubernetes", Home(own_home)).findings() if not one.works]
    assert [one.name for one in failed] == ([] if name is None else [name])
    assert all(text in one.says for one in failed)
