"""Credentials, and connections that are secure."""

from __future__ import annotations

import os
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.kubernetes.api_stub import OBJECT, Answer, ApiStub, write_config
from muster.engines.kubernetes import access
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.profile import KubernetesProfile
from support.certificates import TlsFiles, write_certificate
from support.connect_proxy import connect_proxy

pytest.importorskip("kubernetes")


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    return write_certificate(tmp_path, "api.test")


@pytest.fixture
def server(tls: TlsFiles) -> Iterator[ApiStub]:
    made = ApiStub(lambda _: OBJECT, tls)
    yield made
    made.close()


def test_a_client_has_a_certificate(server: ApiStub, tls: TlsFiles, tmp_path: Path) -> None:
    user = {
        "client-certificate-data": b64encode(tls.cert.read_bytes()).decode(),
        "client-key-data": b64encode(tls.key.read_bytes()).decode(),
    }
    authority = b64encode(tls.authority.read_bytes()).decode()
    own = {"certificate-authority-data": authority, "tls-server-name": "api.test"}
    cluster = Cluster(write_config(tmp_path / "config", server.url, user, **own))
    cluster.read("Pod", "p")
    assert "api.test" in server.requests[0].headers["client"]
    found = cluster.connection.access()
    assert (found.url, found.server_name) == (server.url, "api.test")
    assert found.ssl is not None


def test_an_unknown_authority_is_refused(server: ApiStub, tmp_path: Path) -> None:
    cluster = Cluster(write_config(tmp_path / "config", server.url))
    with pytest.raises(CannotCall, match=r"is not secure: .*self-signed certificate") as found:
        cluster.read("Pod", "p")
    assert found.value.refused
    assert not server.requests


def test_people_may_trust_everybody(server: ApiStub, tmp_path: Path) -> None:
    own = {"insecure-skip-tls-verify": True}
    Cluster(write_config(tmp_path / "config", server.url, **own)).read("Pod", "p")
    assert len(server.requests) == 1


def test_a_certificate_for_another_name_is_refused(
    server: ApiStub, tls: TlsFiles, tmp_path: Path
) -> None:
    own = {"certificate-authority": str(tls.authority), "tls-server-name": "other.test"}
    cluster = Cluster(write_config(tmp_path / "config", server.url, **own))
    with pytest.raises(CannotCall, match=r"is not secure: .*other\.test"):
        cluster.read("Pod", "p")


def test_a_pod_has_its_service_account(
    server: ApiStub, tls: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("of-account\n")
    (account / "ca.crt").write_bytes(tls.authority.read_bytes())
    (account / "namespace").write_text("jobs\n")
    monkeypatch.setattr(access, "_ACCOUNT", account)
    monkeypatch.setattr(access, "_DEFAULT_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
    cluster = Cluster(KubernetesProfile())
    cluster.read("Pod", "p")
    request = server.requests[0]
    assert request.path == "/api/v1/namespaces/jobs/pods/p"
    assert request.headers["authorization"] == "Bearer of-account"
    # given the kubelet replaces it
    monkeypatch.setattr(access, "_TOKEN_AGE", 0.0)
    (account / "token").write_text("replaced")
    cluster.read("Pod", "p")
    assert server.requests[1].headers["authorization"] == "Bearer replaced"


@pytest.mark.parametrize(
    ("environ", "cluster", "proxy"),
    [
        ({}, {}, None),
        ({"HTTPS_PROXY": "http://proxy:1", "HTTP_PROXY": "http://other:2"}, {}, "http://proxy:1"),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "10.0.0.0/8"}, {}, None),
        ({"NO_PROXY": "10.0.0.0/8"}, {"proxy-url": "http://own:3"}, "http://own:3"),
    ],
)
def test_a_proxy_is_that_of_the_cluster_or_the_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    cluster: dict[str, str],
    proxy: str | None,
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        for one in (name, name.lower()):
            monkeypatch.delenv(one, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    profile = write_config(tmp_path / "config", "https://10.0.0.1:6443", **cluster)
    assert Cluster(profile).connection.access().proxy == proxy


@pytest.mark.parametrize("login", ["", "ana:a/b c"])
def test_calls_go_through_a_proxy(
    server: ApiStub, tls: TlsFiles, tmp_path: Path, login: str
) -> None:
    port = int(server.url.rpartition(":")[2])
    with connect_proxy(port, login) as proxy:
        own = {"certificate-authority": str(tls.authority), "tls-server-name": "api.test"}
        own["proxy-url"] = proxy.url
        Cluster(write_config(tmp_path / "config", "https://cluster.test:6443", **own)).read(
            "Pod", "p"
        )
        assert proxy.hosts == {"cluster.test"}
    assert len(server.requests) == 1
    assert not any(name.lower() == "proxy-authorization" for name in server.requests[0].headers)


def test_a_proxy_for_http_gets_the_password(tmp_path: Path) -> None:
    proxy = ApiStub(lambda _: OBJECT)
    try:
        own = {"proxy-url": proxy.url.replace("//", "//ana:a%2Fb@")}
        Cluster(write_config(tmp_path / "config", "http://cluster.test", **own)).read("Pod", "p")
        headers = proxy.requests[0].headers
        assert headers["Proxy-Authorization"] == f"Basic {b64encode(b'ana:a/b').decode()}"
    finally:
        proxy.close()


#: A plug-in that says how often it has run.
PLUGIN = """#!/bin/sh
echo run >> {log}
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
"status": {{"token": "secret-1"}}}}'
"""


def test_a_token_may_end_with_a_line(tmp_path: Path) -> None:
    server = ApiStub(lambda _: OBJECT)
    try:
        profile = write_config(tmp_path / "config", server.url, {"token": "secret-1\n"})
        Cluster(profile).read("Pod", "p")
        assert server.requests[-1].headers["authorization"] == "Bearer secret-1"
    finally:
        server.close()


def test_clusters_of_one_configuration_share_its_credentials(tmp_path: Path) -> None:
    log, plugin = tmp_path / "log", tmp_path / "plugin"
    plugin.write_text(PLUGIN.format(log=log))
    plugin.chmod(0o755)
    how = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    user = {"exec": {**how, "interactiveMode": "Never"}}
    answer = Answer({**OBJECT.body, "groups": [], "major": "1", "minor": "36"})
    server = ApiStub(lambda _: answer)
    try:
        profile = write_config(tmp_path / "config", server.url, user)
        first, second = Cluster(profile), Cluster(profile)
        for one in (first, second):
            one.read("Pod", "p")
            one.versions()
        assert log.read_text().splitlines() == ["run"]
        assert len([path for path in server.paths() if path.endswith("/version")]) == 1
        first.close()
        second.read("Pod", "p")
        assert log.read_text().splitlines() == ["run"]
        second.close()  # the last one
        second.read("Pod", "p")
        assert log.read_text().splitlines() == ["run", "run"]
        # another configuration in the same file
        other = Cluster(write_config(tmp_path / "config", server.url, {"token": "secret-2"}))
        other.read("Pod", "p")
        assert server.requests[-1].headers["authorization"] == "Bearer secret-2"
    finally:
        server.close()


@pytest.mark.parametrize("given", ["", "/nonexistent/config"])
def test_no_cluster_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr(access, "_DEFAULT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("KUBECONFIG", given)
    named = given or str(tmp_path / "none")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    cluster = Cluster(KubernetesProfile())
    with pytest.raises(CannotCall, match=f"there is no cluster: {named} is not a file"):
        cluster.read("Pod", "p")
    with pytest.raises(ConnectionError, match="there is no cluster"):
        cluster.connection.access()


ACTING = {
    "token": "t",
    "as": "ana",
    "as-uid": "7",
    "as-groups": ["a, b", "c"],
    "as-user-extra": {"example.com/scopes": ["x", "y"], "50%": ["z"]},
}


def test_a_user_acts_as_another(server: ApiStub, tls: TlsFiles, tmp_path: Path) -> None:
    own = {"certificate-authority": str(tls.authority), "tls-server-name": "api.test"}
    with connect_proxy(int(server.url.rpartition(":")[2])) as proxy:
        for url, way in ((server.url, {}), ("https://cluster.test", {"proxy-url": proxy.url})):
            profile = write_config(tmp_path / "config", url, ACTING, **own, **way)
            Cluster(profile).read("Pod", "p")
            given = server.requests[-1].headers.items()
            found = [(name[12:], value) for name, value in given if name.startswith("Impersonate")]
            assert sorted(found) == [
                ("Extra-50%25", "z"),
                ("Extra-example.com%2Fscopes", "x"),
                ("Extra-example.com%2Fscopes", "y"),
                ("Group", "a, b"),
                ("Group", "c"),
                ("Uid", "7"),
                ("User", "ana"),
            ]


def test_no_groups_are_lost_on_the_way_through_a_proxy(tmp_path: Path) -> None:
    proxy = {"proxy-url": "http://127.0.0.1:1"}
    cluster = Cluster(write_config(tmp_path / "config", "http://a:1", ACTING, **proxy))
    with pytest.raises(CannotCall, match=r"as of user u in .* names several groups or values"):
        cluster.read("Pod", "p")


def test_the_file_that_is_named_is_that_of_whoever_submits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    named = str(tmp_path / "none")
    cluster = Cluster(KubernetesProfile(), {"KUBECONFIG": named})
    with pytest.raises(CannotCall, match=f"there is no cluster: {named} is not a file"):
        cluster.read("Pod", "p")


def test_the_proxy_of_the_environment_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://first:1")
    cluster = Cluster(write_config(tmp_path / "config", "https://10.0.0.1:6443"))
    assert cluster.connection.access().proxy == "http://first:1"
    monkeypatch.setenv("https_proxy", "http://second:2")
    assert cluster.connection.access().proxy == "http://first:1"


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_no_key_is_left_in_a_file(
    server: ApiStub,
    tls: TlsFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_memory_files: bool,
) -> None:
    """Nor has it a name while it is used, so that none is left if this process is killed."""
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    names: list[str] = []
    nameless = access._nameless

    @contextmanager
    def noted(content: bytes) -> Iterator[str]:
        with nameless(content) as path:
            yield path
            names.extend(os.listdir(scratch))
            assert Path(path).read_bytes() in (tls.cert.read_bytes(), tls.key.read_bytes())

    monkeypatch.setattr(access, "_nameless", noted)
    user = {
        "client-certificate-data": b64encode(tls.cert.read_bytes()).decode(),
        "client-key-data": b64encode(tls.key.read_bytes()).decode(),
    }
    authority = b64encode(tls.authority.read_bytes()).decode()
    own = {"certificate-authority-data": authority, "tls-server-name": "api.test"}
    Cluster(write_config(tmp_path / "config", server.url, user, **own)).read("Pod", "p")
    assert "api.test" in server.requests[0].headers["client"]
    assert names == [] and os.listdir(scratch) == []
