"""Containers beside that of a node: what they get of the job, and what becomes of the node when one
fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.run import JobRun
from muster.engines.kubernetes.names import RUN
from support.faults import until
from support.kube import Cluster
from support.kube.access import Rule
from support.kube_engine import add_engine, require_client, shared_cluster

pytestmark = pytest.mark.slow

PATIENCE = 60.0


@pytest.fixture
def cluster(own_home: Path) -> Cluster:
    require_client()
    made = shared_cluster()
    add_engine(own_home, made)
    return made


def start(folder: Path, group: dict[str, Any], **more: Any) -> JobRun:
    spec = folder / "job.yaml"
    node = {"name": "w", "image": "app:1", **group}
    spec.write_text(json.dumps({"name": "extra", "node_groups": [node], **more}))
    return muster.run(spec, engine="kubernetes")


def beside(script: str, role: str = "main", **more: Any) -> dict[str, Any]:
    command = ["sh", "-c", script]
    return {"name": "side", "role": role, "image": "side:1", "command": command, **more}


def ended(run: JobRun) -> JobRun:
    until(lambda: run.refresh().done, "it has ended", PATIENCE, pause=0.2)
    return run


def test_a_node_fails_with_a_container_that_runs_with_it(cluster: Cluster, tmp_path: Path) -> None:
    side = beside("echo no such bucket; exit 3")
    run = ended(start(tmp_path, {"command": ["sleep", "60"], "extra_containers": [side]}))
    assert (run.state, run.exit_code) == ("FAILED", 3)
    assert run.details is not None
    assert "container side of pod " in run.details
    assert "has exited with code 3" in run.details
    assert "no such bucket" in run.details


def test_its_node_starts_again_in_another_pod(cluster: Cluster, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    # the other one goes on, and would keep the pod
    script = f"if mkdir {flag}; then exit 3; fi; exec sleep 0.5"
    stays = {**beside("exec sleep 3"), "name": "stays"}
    command = ["sh", "-c", f"while ! test -e {flag}; do sleep 0.1; done; sleep 2"]
    run = start(
        tmp_path,
        {"command": command, "nodes": 2, "extra_containers": [beside(script), stays]},
        failure={"max_restarts": 1},
    )
    cluster.calls.clear()
    seen = set[str]()

    def done() -> bool:
        seen.update(pod["metadata"]["uid"] for pod in cluster.pods(**{RUN: run.id}))
        return run.refresh().done

    until(done, "it has ended", PATIENCE, pause=0.1)
    assert (run.state, len(seen)) == ("SUCCEEDED", 3), run.details
    deleted = [one for one in cluster.calls if one.verb == "delete" and one.resource == "pods"]
    assert len(deleted) == 1


def test_a_pod_that_may_not_be_deleted_is_named(
    cluster: Cluster, own_home: Path, tmp_path: Path
) -> None:
    most = ("jobsets", "pods/log", "configmaps", "secrets", "pods/exec", "events")
    rules = Rule(("*",), most), Rule(("list", "watch"), ("pods",))
    cluster.grant("token-of-bo", "bo", rules)
    file = cluster.write_kubeconfig("token-of-bo", "default", tmp_path / "kubeconfig")
    add_engine(own_home, cluster, kubeconfig=str(file))
    stays = {**beside("exec sleep 60"), "name": "stays"}
    group = {"command": ["sleep", "60"], "extra_containers": [beside("exit 3"), stays]}
    run = start(tmp_path, group, failure={"max_restarts": 1})

    def events() -> str:
        return "\n".join(str(event) for event in run.events())

    until(lambda: "cannot be deleted" in events(), "it is said", PATIENCE, pause=0.5)
    assert "is not replaced, as it cannot be deleted: " in events()
    (old,) = cluster.pods(**{RUN: run.id})
    cluster.storage.delete("pods", "default", old["metadata"]["name"])  # as somebody else may

    def new() -> bool:
        pods = cluster.pods(**{RUN: run.id})
        return bool(pods) and pods[0]["metadata"]["uid"] != old["metadata"]["uid"]

    until(new, "there is another one", PATIENCE)
    run.cancel()
    assert ended(run).state == "CANCELED"


def test_a_node_succeeds_when_all_have(cluster: Cluster, tmp_path: Path) -> None:
    flag, pid = tmp_path / "flag", tmp_path / "pid"
    side = beside(f"while ! test -e {flag}; do sleep 0.1; done; exit 4")
    command = ["sh", "-c", f"echo $$ > {pid}"]
    run = start(tmp_path, {"command": command, "extra_containers": [side]})
    until(lambda: pid.exists() and pid.read_text(), "its program runs", PATIENCE)
    program = Path("/proc", pid.read_text().strip())
    until(lambda: not program.exists(), "its program has ended", PATIENCE)
    assert not run.refresh().done
    flag.touch()
    assert (ended(run).state, run.exit_code) == ("FAILED", 4)


def test_placeholders_are_filled_in_the_pod(cluster: Cluster, tmp_path: Path) -> None:
    script = f'echo "$WHO $1" > {tmp_path}/of-$INDEX'
    side = beside(
        script,
        role="init",
        env={"COST": "$$5 $(HOME)"},
        node_env={"WHO": "${run.name}/${rank}", "INDEX": "${index}"},
        node_args=["-", "$${rank} ${hostname}"],
    )
    run = ended(start(tmp_path, {"command": ["true"], "nodes": 2, "extra_containers": [side]}))
    assert run.state == "SUCCEEDED", run.details
    for rank in range(2):
        assert (tmp_path / f"of-{rank}").read_text() == f"{run.name}/{rank} ${{rank}} node-{rank}\n"


#: A Python in whose mount namespace a folder is that of a volume of the pod.
BINDING = """#!/bin/sh
for one; do case "$one" in */server) server=$one;; esac; done
test -n "$server" || exec {python} "$@"
exec unshare --mount sh -c 'mount --bind "$0" {path} && exec "$@"' \
  "$(dirname "$server")/../scratch-0" {python} "$@"
"""


@pytest.fixture
def shared(own_home: Path, tmp_path: Path) -> Path:
    """The path at which the first scratch volume of pods is mounted."""
    require_client()
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces are not possible here")
    (shared := tmp_path / "shared").mkdir()
    python = tmp_path / "python3"
    python.write_text(BINDING.format(path=shared, python=sys.executable))
    python.chmod(0o755)
    add_engine(own_home, shared_cluster(), python=str(python))
    return shared


@pytest.mark.parametrize(("owner", "finds"), [("node", ["one"]), ("incarnation", [])])
def test_a_scratch_directory_is_at_its_path(
    shared: Path, tmp_path: Path, owner: str, finds: list[str]
) -> None:
    flag = tmp_path / "flag"
    there = f"test $MUSTER_MOUNT_SHARED = {shared} || exit 4"
    script = f"echo found $(ls {shared}); {there}; echo > {shared}/one; ! mkdir {flag}"
    group = {
        "command": ["sh", "-c", script],
        "mounts": [{"source": f"scratch:{owner}/data", "path": str(shared)}],
    }
    run = ended(start(tmp_path, group, failure={"max_restarts": 1}))
    assert run.state == "SUCCEEDED", run.details
    found = [one.message for one in run.logs(attempt="all") if one.message.startswith("found")]
    assert [one.split()[1:] for one in found] == [[], finds]
    assert os.listdir(shared) == []


def test_a_scratch_directory_is_shared(shared: Path, tmp_path: Path) -> None:
    source = "scratch:incarnation/data"
    load = beside("echo loaded > /data/file", "init", mounts=[{"source": source, "path": "/data"}])
    flag = tmp_path / "flag"
    # it fails at first: a restart in place finds what was loaded once for the pod
    script = f"cat $MUSTER_MOUNT_SHARED/file && mkdir {flag} && exit 5; cat {shared}/file"
    group = {
        "command": ["sh", "-c", script],
        "mounts": [{"source": source, "path": str(shared)}],
        "extra_containers": [load],
    }
    run = ended(start(tmp_path, group, failure={"max_restarts": 1}))
    assert run.state == "SUCCEEDED", run.details
    assert os.listdir(shared) == []
