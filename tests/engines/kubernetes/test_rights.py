"""The Role has every verb that Muster uses, and no other one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster
from muster.engines.kubernetes.profile import read_settings
from muster.engines.kubernetes.role import needed_rights, role
from muster.engines.kubernetes.versions import Versions
from support.kube import Cluster
from support.kube.access import Rule
from support.kube.discovery import Version
from support.kube_engine import add_engine, require_client

pytestmark = pytest.mark.slow

PATIENCE = 60.0
#: What is needed otherwise: `muster adopt` reads a JobSet, and what nobody drives any more is
#: listed before it is deleted.
OTHERWISE = {("get", "jobsets"), ("list", "services"), ("get", "localqueues")}
#: What may be needed: events say why pods are not created, if that takes a while.
PERHAPS = {("list", "events")}


@pytest.fixture(params=[(0, 12), None], ids=["jobset", "jobs"])
def jobset(request: pytest.FixtureRequest) -> Version | None:
    found: Version | None = request.param
    return found


@pytest.fixture
def cluster(tmp_path: Path, jobset: Version | None) -> Iterator[Cluster]:
    require_client()
    folder = tmp_path / "kube"
    folder.mkdir()
    with Cluster(folder, jobset=jobset, kueue=True) as made:
        yield made


def used(cluster: Cluster, user: str) -> set[tuple[str, str]]:
    """The rights that calls of a user have needed. What is applied may have been created; and an
    exec stream takes both verbs since Kubernetes 1.35."""
    found = set()
    for one in cluster.calls:
        if one.user == user and one.namespace:
            what = one.resource + (f"/{one.subresource}" if one.subresource else "")
            also = ["create"] if one.verb == "patch" or one.subresource == "exec" else []
            found.update((verb, what) for verb in (one.verb, *also))
    return found


def test_a_role_is_what_runs_use(
    cluster: Cluster, jobset: Version | None, own_home: Path, tmp_path: Path
) -> None:
    profile, versions = read_settings({}), Versions(jobset=jobset)
    rules = role(profile, versions)["rules"]
    granted = [Rule(one["verbs"], one["resources"], one["apiGroups"], "default") for one in rules]
    cluster.grant("token-of-ana", "ana", tuple(granted))
    file = cluster.write_kubeconfig("token-of-ana", path=tmp_path / "kubeconfig")
    add_engine(own_home, cluster, kubeconfig=str(file))
    run = muster.run(command=[sys.executable, "-c", "print(1)"], engine="kubernetes", nodes=2)
    assert run.wait(PATIENCE).state == "SUCCEEDED"

    flag = tmp_path / "flag"
    side = {"name": "side", "role": "main", "image": "side:1"}
    side["command"] = f"sh -c 'mkdir {flag} && exit 3; exit 0'"  # its pod is replaced
    group = {"name": "w", "image": "app:1", "command": "sleep 2", "extra_containers": [side]}
    spec = {"name": "two", "node_groups": [group], "failure": {"max_restarts": 1}}
    (tmp_path / "two.yaml").write_text(json.dumps(spec))
    run = muster.run(tmp_path / "two.yaml", engine="kubernetes")
    assert run.wait(PATIENCE).state == "SUCCEEDED", run.details

    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    broken.chmod(0o755)
    add_engine(own_home, cluster, kubeconfig=str(file), python=str(broken))
    run = muster.run(command=["true"], engine="kubernetes")
    assert run.wait(PATIENCE).state == "FAILED"
    assert "it is broken" in str(run.details)

    wanted = {(verb, what) for verb, _, what in needed_rights(profile, versions)}
    assert wanted - used(cluster, "ana") - PERHAPS == OTHERWISE & wanted
