"""Which cluster is called, with which credentials, and through which proxy."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.api_stub import OBJECT, Answer, ApiStub, write_config
from muster.engines.kubernetes import access, tokens
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.profile import KubernetesProfile
from support.certificates import TlsFiles
from support.connect_proxy import connect_proxy

pytest.importorskip("kubernetes")


def test_a_pod_has_its_service_account(
    tls_server: ApiStub, tls: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", tls_server.url.rpartition(":")[2])
    cluster = Cluster(KubernetesProfile())
    cluster.read("Pod", "p")
    request = tls_server.requests[0]
    assert request.path == "/api/v1/namespaces/jobs/pods/p"
    assert request.headers["authorization"] == "Bearer of-account"
    # given the kubelet replaces it
    monkeypatch.setattr(tokens, "_TOKEN_AGE", 0.0)
    (account / "token").write_text("replaced")
    cluster.read("Pod", "p")
    assert tls_server.requests[1].headers["authorization"] == "Bearer replaced"


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
    tls_server: ApiStub, tls: TlsFiles, tmp_path: Path, login: str
) -> None:
    port = int(tls_server.url.rpartition(":")[2])
    with connect_proxy(port, login) as proxy:
        own = {"certificate-authority": str(tls.authority), "tls-server-name": "api.test"}
        own["proxy-url"] = proxy.url
        Cluster(write_config(tmp_path / "config", "https://cluster.test:6443", **own)).read(
            "Pod", "p"
        )
        assert proxy.hosts == {"cluster.test"}
    assert len(tls_server.requests) == 1
    assert not any(name.lower() == "proxy-authorization" for name in tls_server.requests[0].headers)


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


@pytest.mark.parametrize(
    ("server", "gets"),
    [
        ("http://127.9.9.9:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("https://a", True),
        ("http://a", False),
        ("HTTP://10.0.0.1", False),
        ("http://localhost.a", False),
        ("http://127.0.0.1.a", False),
    ],
)
@pytest.mark.parametrize("way", ["token", "tokenFile", "username", "exec"])
def test_credentials_are_sent_over_tls_only(
    tmp_path: Path, server: str, gets: bool, way: str
) -> None:
    """Unless nobody else can read them. A plug-in is not run either."""
    plugin = {"command": "none", "apiVersion": "client.authentication.k8s.io/v1"}
    value: Any = plugin if way == "exec" else "token"
    (tmp_path / "token").write_text("of-file")
    cluster = Cluster(write_config(tmp_path / "config", server, {way: value}))
    if way == "exec" and gets:
        with pytest.raises(ConnectionError, match="cannot be started"):
            cluster.connection.access()
    else:
        assert ("authorization" in dict(cluster.connection.access().headers)) is gets
