"""A run's cluster is found again, and no other one is taken for it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.kubernetes.api_stub import Answer, ApiStub, Request, status
from muster.engines.kubernetes import access, connection
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.watcher import watcher_of

pytest.importorskip("kubernetes")
SYSTEM, TEAM = "/api/v1/namespaces/kube-system", "/api/v1/namespaces/team"
MakeServer = Callable[..., ApiStub]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """Start an API server whose namespaces have these uids; others are not shown."""
    made: list[ApiStub] = []

    def start(**uids: str) -> ApiStub:
        def answer(request: Request) -> Answer:
            *_, place, name = request.path.split("/")
            if place != "namespaces":
                return Answer({"metadata": {"uid": "of-pod"}})
            uid = uids.get(name.replace("-", "_"))
            return Answer({"metadata": {"uid": uid}}) if uid else status(403, "forbidden")

        made.append(ApiStub(answer))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def no_configuration_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_FOR", 0.0)
    monkeypatch.setattr(access, "_DEFAULT_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def write(
    path: Path,
    current: str,
    user: Mapping[str, Any] | None = None,
    *,
    namespace: str = "team",
    **servers: ApiStub,
) -> Path:
    """A file with a context for each server."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "u", "namespace": namespace}}
            for name in servers
        ],
        "clusters": [
            {"name": name, "cluster": {"server": one.url}} for name, one in servers.items()
        ],
        "users": [{"name": "u", "user": dict(user or {"token": "t"})}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def bound(file: Path, profile: KubernetesProfile | None = None) -> ClusterRef:
    return Cluster(profile or KubernetesProfile(), {"KUBECONFIG": str(file)}).connection.bind()


def call(ref: ClusterRef, **environ: str) -> None:
    """A call of a later process."""
    Cluster(KubernetesProfile(), environ, ref, retry_for=0.0).read("Pod", "p")


def pods_read(stub: ApiStub) -> int:
    return sum(request.path.endswith("/pods/p") for request in stub.requests)


# --- what is recorded


def test_a_run_records_its_cluster(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server(kube_system="u-1")
    file = write(tmp_path / "config", "gpu", gpu=server)
    found = bound(file)
    assert found == ClusterRef(str(file), "gpu", "team", server.url, "u-1", "kube-system")
    assert [request.path for request in server.requests] == [SYSTEM]


def test_the_namespace_of_the_run_stands_for_its_cluster(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server(team="u-2")
    found = bound(write(tmp_path / "config", "gpu", gpu=server))
    assert (found.uid, found.uid_of) == ("u-2", "team")
    assert [request.path for request in server.requests] == [SYSTEM, TEAM]


def test_without_a_right_the_address_is_recorded(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    found = bound(write(tmp_path / "config", "gpu", gpu=server))
    assert (found.server, found.uid, found.uid_of) == (server.url, "", "")
    call(found)
    assert [request.path for request in server.requests] == [SYSTEM, TEAM, f"{TEAM}/pods/p"]


def test_paths_are_recorded_as_absolute_ones(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "config", "gpu", gpu=make_server(kube_system="u-1"))
    monkeypatch.chdir(tmp_path)
    assert bound(Path("config")).kubeconfig == str(file)


def test_an_error_is_no_missing_right(tmp_path: Path) -> None:
    answers = [status(500, "etcd is away"), Answer({"metadata": {"uid": "u-1"}})]
    server = ApiStub(lambda _: answers.pop(0))
    cluster = Cluster(
        KubernetesProfile(kubeconfig=str(write(tmp_path / "config", "gpu", gpu=server)))
    )
    try:
        with pytest.raises(CannotCall, match="etcd is away"):
            cluster.connection.bind()
        assert cluster.connection.bind().uid == "u-1"
    finally:
        server.close()


# --- how it is found


def test_the_current_context_does_not_matter_any_more(
    make_server: MakeServer, tmp_path: Path
) -> None:
    one, other = make_server(kube_system="u-1"), make_server(kube_system="u-2")
    file = write(tmp_path / "config", "gpu", gpu=one, lab=other)
    found = bound(file)
    write(file, "lab", gpu=one, lab=other)
    call(found)
    call(found, KUBECONFIG=str(write(tmp_path / "b", "lab", lab=other)))
    assert (pods_read(one), other.requests) == (2, [])


def test_the_namespace_of_the_context_does_not_matter_any_more(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server(kube_system="u-1")
    file = write(tmp_path / "config", "gpu", gpu=server)
    found = bound(file)
    write(file, "gpu", namespace="other", gpu=server)
    call(found)
    assert server.requests[-1].path == f"{TEAM}/pods/p"


def test_credentials_that_are_renewed_are_those_of_the_context(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """The file has another current context when it is read again, as a token has expired."""
    other = make_server(kube_system="u-2")
    valid = {"Bearer old"}

    def answer(request: Request) -> Answer:
        if request.headers["authorization"] not in valid:
            return status(401, "Unauthorized")
        return Answer({"metadata": {"uid": "u-1"}})

    one = ApiStub(answer)
    try:
        file = write(tmp_path / "config", "gpu", {"token": "old"}, gpu=one, lab=other)
        cluster = Cluster(KubernetesProfile(), {"KUBECONFIG": str(file)})
        cluster.connection.bind()
        valid |= {"Bearer new"}
        valid.remove("Bearer old")
        write(file, "lab", {"token": "new"}, gpu=one, lab=other)
        cluster.read("Pod", "p")
    finally:
        one.close()
    assert other.requests == []
    assert one.requests[-1].headers["authorization"] == "Bearer new"


def test_a_server_with_another_address_is_the_same_cluster(
    make_server: MakeServer, tmp_path: Path
) -> None:
    old, new = make_server(kube_system="u-1"), make_server(kube_system="u-1")
    file = write(tmp_path / "config", "gpu", gpu=old)
    found = bound(file)
    write(file, "gpu", gpu=new)
    call(found)
    assert pods_read(new) == 1


def test_a_file_that_is_gone_is_looked_for_in_the_environment(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(kube_system="u-1")
    file = write(tmp_path / "config", "gpu", gpu=server)
    found = bound(file)
    moved = tmp_path / "moved"
    file.rename(moved)
    monkeypatch.setenv("KUBECONFIG", str(moved))
    call(found, KUBECONFIG=str(file))
    assert pods_read(server) == 1


# --- when it is not


@pytest.mark.parametrize("uids", [{"kube_system": "u-1"}, {}])
def test_another_cluster_is_not_called(
    make_server: MakeServer, tmp_path: Path, uids: dict[str, str]
) -> None:
    """Neither by its uid nor, where that cannot be read, by its address."""
    one, other = make_server(**uids), make_server(**({"kube_system": "u-2"} if uids else {}))
    file = write(tmp_path / "config", "gpu", gpu=one)
    found = bound(file)
    write(file, "gpu", gpu=other)
    with pytest.raises(CannotCall) as said:
        call(found)
    assert f"context gpu of {file} is for " in str(said.value)
    assert f"{other.url}; the run is in context gpu ({one.url}): restore" in str(said.value)
    assert said.value.refused and not said.value.lasts
    assert (pods_read(one), pods_read(other)) == (0, 0)


def test_a_context_that_is_gone_is_named(make_server: MakeServer, tmp_path: Path) -> None:
    one, other = make_server(kube_system="u-1"), make_server(kube_system="u-2")
    file = write(tmp_path / "config", "gpu", gpu=one)
    found = bound(file)
    write(file, "lab", lab=other)
    with pytest.raises(CannotCall) as said:
        call(found)
    assert f"{file} has no context gpu; there are: lab" in str(said.value)
    assert "restore this context, or name a file that has it in $KUBECONFIG" in str(said.value)
    assert not said.value.lasts
    assert other.requests == []


def test_a_server_that_does_not_answer_may_be_the_one(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server(kube_system="u-1")
    found = bound(write(tmp_path / "config", "gpu", gpu=server))
    server.close()
    with pytest.raises(CannotCall, match="the cluster does not answer") as said:
        call(found)
    assert not said.value.refused


def test_a_run_of_a_pod_goes_on_in_its_cluster_only(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make_server(kube_system="u-1"), make_server(kube_system="u-2")
    found = ClusterRef("", "", "team", "https://10.0.0.1", "u-1", "kube-system")
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "config", "lab", lab=other)))
    with pytest.raises(CannotCall, match=r"Muster does not run in a pod; .*is for another cluster"):
        call(found)
    # given the same cluster has another address from outside
    write(tmp_path / "config", "gpu", gpu=one, lab=other)
    call(found)
    assert (pods_read(one), pods_read(other)) == (1, 0)


# --- the environment of a run


def test_plug_ins_have_the_environment_of_the_submitter(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(kube_system="u-1")
    plugin = tmp_path / "plug-in"
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        "status = {'token': '-'.join(map(os.environ.get, ('AWS_PROFILE', 'ACCOUNT', 'HERE')))}\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'kind': 'ExecCredential', 'status': status}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "env": [{"name": "ACCOUNT", "value": "own"}],
            "interactiveMode": "Never",
        }
    }
    file = write(tmp_path / "config", "gpu", user, gpu=server)
    before = file.read_text()
    monkeypatch.setenv("AWS_PROFILE", "now")
    monkeypatch.setenv("HERE", "here")
    environ = {"KUBECONFIG": str(file), "AWS_PROFILE": "submitter", "ACCOUNT": "theirs"}
    Cluster(KubernetesProfile(), environ).connection.bind()
    assert server.requests[0].headers["authorization"] == "Bearer submitter-own-here"
    assert file.read_text() == before


def test_what_the_submitter_has_not_set_is_that_of_the_process(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "config", "gpu", gpu=make_server(kube_system="u-1"))
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert Cluster(KubernetesProfile(), {"LANG": "C"}).connection.bind().kubeconfig == str(file)


# --- watchers


def test_runs_in_one_namespace_of_a_cluster_have_one_watcher(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """Though no profile names a cluster."""
    one, other = make_server(kube_system="u-1"), make_server(kube_system="u-2")
    first, second = (
        write(tmp_path / "a", "gpu", gpu=one, lab=other),
        write(tmp_path / "b", "lab", lab=other),
    )
    clusters = [
        Cluster(KubernetesProfile(), {"KUBECONFIG": str(file)}) for file in (first, first, second)
    ]
    for cluster in clusters:
        cluster.connection.bind()
    watchers = [*map(watcher_of, clusters)]
    assert watchers[0] is watchers[1]
    assert watchers[0] is not watchers[2]
    later = Cluster(KubernetesProfile(), os.environ, clusters[0].connection.bind())
    assert watcher_of(later) is watchers[0]
