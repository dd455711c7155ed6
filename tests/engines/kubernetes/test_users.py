"""Pods whose user is not root, with volumes as a kubelet makes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import muster
from engines.kubernetes.conftest import StartJob
from engines.kubernetes.test_manifest import RESTRICTED, RESTRICTED_PATCH
from muster.engines.kubernetes.names import RUN
from muster.engines.kubernetes.pods import FOLDER, NODE
from support.kube import Cluster
from support.kube.pod_security import ENFORCE
from support.kube.users import open_folder
from support.kube_engine import add_engine
from support.kube_runs import PATIENCE, Job, pod_of

pytestmark = [
    pytest.mark.slow,  # they run real nodes in the double of a cluster
    pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user"),
]

USER, GROUP = 12345, 23456
CONTACTS: dict[str, dict[str, Any]] = {
    "exec": {},
    "dial": {"contact": "dial", "address": "127.0.0.1"},
}


def _may_run(python: str) -> bool:
    test = "import sys; sys.exit(sys.version_info < (3, 9))"
    try:
        done = subprocess.run(
            [python, "-c", test], user=USER, group=0, extra_groups=[], check=False
        )
    except PermissionError:
        return False
    return done.returncode == 0


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that all users of this machine may run."""
    known = (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin"))
    found = next((one for one in known if one is not None and _may_run(one)), None)
    if found is None:
        pytest.skip("no Python is there that other users may run")
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as made:
        (made / "flags").mkdir()
        (made / "flags").chmod(0o777)
        yield made


@pytest.fixture
def cluster_options(folder: Path) -> dict[str, Any]:
    return {"folder": folder}


@pytest.fixture
def start(folder: Path, cluster: Cluster) -> StartJob:
    def one(nodes: int = 2, **more: Any) -> Job:
        return Job(folder / "flags", nodes, **more)

    return one


def users_of(cluster: Cluster, job: Job) -> set[int]:
    """Whom processes of its pods run as, and own the files in the volumes of its nodes."""
    found = set()
    for pod in cluster.pods(**{RUN: job.run.id}):
        here = cluster.kubelet.pods[pod["metadata"]["uid"]]
        found.add(os.stat(f"/proc/{here.containers[NODE].process.pid}").st_uid)
        folder = Path(here.paths[NODE].mounts[FOLDER])
        assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (0, 0o777)
        found |= {path.lstat().st_uid for path in folder.rglob("*")}
    return found


@pytest.mark.parametrize("contact", CONTACTS)
def test_a_job_runs_as_the_user_that_it_names(
    cluster: Cluster, start: StartJob, own_home: Path, python: str, contact: str
) -> None:
    add_engine(own_home, cluster, python=python, **CONTACTS[contact])
    job = start(container={"user": f"{USER}:{GROUP}"}, failure={"max_restarts": 1})
    job.until_up(1, 1)
    assert users_of(cluster, job) == {USER}
    Path(f"{job.failing}1").touch()
    job.until_up(2, 2)
    assert job.end() == "SUCCEEDED"


def test_a_job_runs_as_the_user_of_its_image(
    cluster: Cluster, start: StartJob, own_home: Path, python: str
) -> None:
    add_engine(own_home, cluster, python=python)
    cluster.kubelet.image_users["train:1"] = USER
    job = start(image="train:1", container={"non_root": True})
    job.until_up(1, 1)
    assert users_of(cluster, job) == {USER}
    assert job.end() == "SUCCEEDED"


def test_a_program_that_is_not_root_runs_without_names_of_nodes(
    cluster: Cluster, start: StartJob, own_home: Path, python: str
) -> None:
    add_engine(own_home, cluster, python=python)
    job = start(1, container={"user": f"{USER}"}, first="grep -c Muster $HOME/etc-hosts")
    job.until_up(1)
    told = "muster-node: note: names of nodes do not resolve: "
    assert told in cluster.kubelet.container(pod_of(cluster, job, 0), NODE).log.tail()
    assert job.lines("0") == ["0"]
    assert job.end() == "SUCCEEDED"


def test_an_image_of_root_is_refused_where_that_was_asked_for(start: StartJob) -> None:
    job = start(container={"non_root": True})
    job.until_it_waits_for("container has runAsNonRoot and image will run as root")
    assert job.cancel() == "CANCELED"


@pytest.mark.parametrize("by", ["job", "profile"])
@pytest.mark.parametrize("contact", CONTACTS)
def test_a_job_runs_in_a_namespace_with_the_standard_restricted(
    cluster: Cluster, start: StartJob, own_home: Path, python: str, contact: str, by: str
) -> None:
    cluster.storage.update(
        *("namespaces", "", "default"),
        lambda one: one["metadata"].update(labels={ENFORCE: "restricted"}),
    )
    settings = {"pod": RESTRICTED_PATCH} if by == "profile" else {}
    add_engine(own_home, cluster, python=python, **CONTACTS[contact], **settings)
    job = start(**({} if by == "profile" else {"container": RESTRICTED}))
    job.until_up(1, 1)
    assert users_of(cluster, job) == {1000}
    assert job.end() == "SUCCEEDED"


def test_a_job_that_the_standard_forbids_says_so(cluster: Cluster, start: StartJob) -> None:
    cluster.storage.update(
        *("namespaces", "", "default"),
        lambda one: one["metadata"].update(labels={ENFORCE: "restricted"}),
    )
    job = start()
    why = "pod security restricted:latest of namespace default"
    job.until_it_waits_for(f"{why}: allowPrivilegeEscalation != false")
    assert job.cancel() == "CANCELED"


# --- the volume of a claim


@pytest.fixture
def claim(cluster: Cluster) -> Iterator[str]:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    kind = "PersistentVolumeClaim"
    cluster.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": "code"}, "spec": spec})
    yield "code"
    cluster.storage.delete("persistentvolumeclaims", "default", "code")


def program(folder: Path) -> Path:
    path = folder / "train.py"
    path.write_text("import os; print('runs as', os.geteuid())\n")
    return path


def test_code_is_shared_where_the_group_of_the_volume_may_write(
    cluster: Cluster, own_home: Path, tmp_path: Path, python: str, claim: str
) -> None:
    patch = {"spec": {"securityContext": {"fsGroup": GROUP}}}
    add_engine(own_home, cluster, python=python, claim=claim, pod=patch)
    cluster.kubelet.image_users["train:1"] = USER
    run = muster.run(program(tmp_path), engine="kubernetes", image="train:1", nodes=2)
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    messages = [line.message for line in run.logs()]
    assert [one for one in messages if "runs as" in one] == [f"runs as {USER}"] * 2


def test_a_volume_that_the_user_may_not_write_is_named(
    cluster: Cluster, own_home: Path, tmp_path: Path, python: str, claim: str
) -> None:
    add_engine(own_home, cluster, python=python, claim=claim)
    cluster.kubelet.image_users["train:1"] = USER
    run = muster.run(program(tmp_path), engine="kubernetes", image="train:1", nodes=1)
    assert run.wait(PATIENCE).state == "FAILED"
    assert "Permission denied" in str(run.details)
    assert f"code-{USER}" in str(run.details)


# --- what a pod can find


def test_a_pod_that_dials_sees_the_key_of_no_other(
    cluster: Cluster, start: StartJob, own_home: Path, python: str
) -> None:
    add_engine(own_home, cluster, python=python, **CONTACTS["dial"])
    job = start(container={"user": str(USER)})
    job.until_up(1, 1)
    keys = set()
    for index in (0, 1):
        here = cluster.kubelet.pods[pod_of(cluster, job, index)["metadata"]["uid"]]
        mounted = [path for path in here.paths[NODE].mounts.values() if "muster-key" in path]
        keys |= {Path(path).read_bytes() for path in mounted}
        assert len(mounted) == 1 and Path(mounted[0]).is_file()
        assert Path(mounted[0]).stat().st_mode & 0o777 == 0o444
    assert len(keys) == 2
    assert job.end() == "SUCCEEDED"
