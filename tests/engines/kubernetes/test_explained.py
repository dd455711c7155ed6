"""What people are shown of a run is what is applied for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace

from engines.conftest import PlanOf
from muster.cli.explain import explain
from muster.client.client import Client
from muster.control.persist import plan_to_run
from muster.engines.kubernetes.applied import hide, shown
from muster.engines.kubernetes.found_versions import found_versions, record_versions
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import Version, Versions
from muster.engines.profiles import file_of, profile_text, write_profile
from muster.engines.registry import engine_named
from muster.errors import InvalidInput
from muster.spec.formats.yaml_write import dump
from muster.storage.home import Home
from support.embedded import embedded
from support.faults import until
from support.kube import Cluster
from support.kube_engine import add_engine, require_client
from support.kube_runs import PATIENCE, Job

PROFILE = KubernetesProfile()
SERVERS = {"lab": "https://lab.test:6443", "gpu": "https://gpu.test"}


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file as kubectl reads it, with two clusters; lab is the current one."""
    path = tmp_path / "config"
    path.write_text(config_text("lab"))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def config_text(current: str) -> str:
    clusters = [{"name": n, "cluster": {"server": url}} for n, url in SERVERS.items()]
    contexts = [{"name": n, "context": {"cluster": n, "user": "ana"}} for n in SERVERS]
    users = [{"name": "ana", "user": {}}]
    parts = {"clusters": clusters, "contexts": contexts, "users": users}
    return json.dumps({**parts, "current-context": current})


def test_versions_are_those_that_the_cluster_has_said(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    assert found_versions(home, PROFILE) is None
    record_versions(home, SERVERS["lab"], Versions((1, 34), None, None))
    assert found_versions(home, PROFILE) == Versions((1, 34), None, None)
    assert found_versions(home, replace(PROFILE, context="gpu")) is None, "it is another cluster"
    config.write_text(config_text("gpu"))
    assert found_versions(home, PROFILE) is None, "kubectl's current context is another one"
    other = tmp_path / "other"
    other.write_text(config_text("lab"))
    monkeypatch.setenv("KUBECONFIG", str(other))
    assert found_versions(home, PROFILE) == Versions((1, 34), None, None), "in another file"
    other.unlink()
    assert found_versions(home, PROFILE) is None


def test_a_damaged_record_of_versions_is_no_fault(tmp_path: Path) -> None:
    home = Home(tmp_path)
    record_versions(home, SERVERS["lab"], Versions())
    (file,) = (tmp_path / "kubernetes").iterdir()
    file.write_text("{")
    assert found_versions(home, PROFILE) is None
    record_versions(home, SERVERS["lab"], Versions())
    assert found_versions(home, PROFILE) == Versions()


def test_what_is_made_for_each_run_is_hidden(plan_of: PlanOf) -> None:
    plan = plan_of(nodes=2)
    for one in shown(plan, PROFILE, Versions()):
        assert hide(one) == one
    dialed = replace(PROFILE, contact="dial", address="192.0.2.1")
    config = next(o for o in shown(plan, dialed, Versions()) if o["kind"] == "ConfigMap")
    supervisor = json.loads(config["data"]["run.json"])["settings"]["supervisor"]
    assert supervisor == {"address": "***", "authority": "***", "token_file": ""}


def test_explain_says_for_which_versions_it_writes(own_home: Path, plan_of: PlanOf) -> None:
    home, plan = Home(own_home), plan_of(failure={"max_restarts": 3})
    text = profile_text("kubernetes", "kubernetes", {"decision_window": "10m"})
    write_profile(file_of(home, "kubernetes"), text)
    first = engine_named("kubernetes", home).explain(plan)
    text = "the manifest is written for Kubernetes 1.36 with JobSet 0.12"
    assert f"{text}: `muster engines check` asks the cluster for its versions" in first
    assert any("no Muster process drives the run for 10m, JobSet replaces" in one for one in first)
    record_versions(home, SERVERS["lab"], Versions((1, 34), None, None))
    then = engine_named("kubernetes", home).explain(plan)
    assert "programs restart in their pods; a pod that is lost is replaced alone" in then
    assert "the manifest is written for Kubernetes 1.34 without JobSet" in then
    kinds = [title.split()[0] for title in engine_named("kubernetes", home).preview(plan)]
    assert kinds == ["Service", "ConfigMap", "Job"]
    assert not any("JobSet replaces" in one for one in then)


def test_explain_says_when_nothing_is_restarted(own_home: Path, plan_of: PlanOf) -> None:
    engine = engine_named("kubernetes", Home(own_home))
    first = engine.explain(plan_of())[0]
    assert first.startswith(
        "failure.max_restarts is 0: the run fails when a program fails or a pod"
    )
    assert engine.explain(plan_of(failure={"max_restarts": 1}))[0].startswith("programs restart")


@pytest.mark.parametrize("is_patched", [False, True])
@pytest.mark.parametrize(
    "source", ["volume:", "volume:..", "volume:a/b", "volume:a:/b", "scratch:a"]
)
def test_a_source_that_names_no_directory_is_refused(
    own_home: Path, tmp_path: Path, source: str, is_patched: bool
) -> None:
    """The engine would read the name."""
    spec = {"name": "demo", "command": "true", "mounts": [{"source": source, "path": "/data"}]}
    if is_patched:
        node = {"name": "node", "volumeMounts": [{"name": "a", "mountPath": "/data"}]}
        volume = {"name": "a", "emptyDir": {}}
        spec["kubernetes"] = {"pod": {"spec": {"containers": [node], "volumes": [volume]}}}
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    result = CliRunner().invoke(explain, [str(tmp_path / "job.yaml"), "--engine", "kubernetes"])
    assert isinstance(result.exception, InvalidInput)
    (problem,) = result.exception.problems
    assert problem.message.startswith(source)


# --- with the double of a cluster


@pytest.fixture
def cluster_with(
    tmp_path: Path, own_home: Path, client: Client
) -> Iterator[Callable[..., Cluster]]:
    require_client()
    folder = tmp_path / "kube"
    folder.mkdir()
    made: list[Cluster] = []

    def make(jobset: Version | None) -> Cluster:
        made.append(Cluster(folder, nodes=3, jobset=jobset).__enter__())
        return made[-1]

    yield make
    for run in client.runs():
        if not run.done:
            run.cancel("the test is over").wait(PATIENCE)
    for one in made:
        until(lambda one=one: one.left() == [], "nothing is left in the cluster", PATIENCE)  # type: ignore[misc]
        one.__exit__()


@pytest.mark.slow
@pytest.mark.parametrize("jobset", [(0, 12), (0, 6), None], ids=["newest", "oldest", "none"])
@pytest.mark.parametrize("contact", ["exec", "dial"])
def test_what_is_applied_is_what_explain_shows(
    tmp_path: Path,
    own_home: Path,
    client: Client,
    cluster_with: Callable[..., Cluster],
    jobset: Version | None,
    contact: str,
) -> None:
    cluster = cluster_with(jobset)
    dials = {"contact": "dial", "address": "127.0.0.1"} if contact == "dial" else {}
    add_engine(own_home, cluster, **dials)
    job = Job(tmp_path, failure={"max_restarts": 3})
    job.until_up(1, 1)
    plan = plan_to_run(Home(own_home), embedded(client).store.runs.get(job.run.id))
    explained = engine_named("kubernetes", Home(own_home)).preview(plan)
    bodies = [one.body for one in cluster.calls if one.verb == "patch" and one.user == "admin"]
    sent = [json.loads(body) for body in bodies]
    applied = {f"{one['kind']} {one['metadata']['name']}": dump(hide(one)) for one in sent}
    assert [*applied] == [*explained], "in this order"
    assert applied == explained
    # nothing is hidden of what has pods
    first = yaml.safe_load(next(iter(explained.values())))
    assert msgspec.json.encode(first) == bodies[0]
    assert job.end() == "SUCCEEDED"
