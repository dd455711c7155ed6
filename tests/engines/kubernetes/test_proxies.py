"""Proxies that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engines.kubernetes.api_stub import Answer, ApiStub, write_config
from muster.engines.kubernetes.access import why_no_cluster
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.profile import KubernetesProfile

pytest.importorskip("kubernetes")
NO_URL = "is '{shown}', which is no URL of a proxy: write http://HOST:PORT"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        for one in (name, name.lower()):
            monkeypatch.delenv(one, raising=False)


#: What is written for a proxy, and what is said of it.
WRONG = [
    ("proxy:3128", NO_URL.format(shown="proxy:3128")),
    ("ana:secret@proxy:3128", NO_URL.format(shown="proxy:3128")),
    ("http://", NO_URL.format(shown="http://")),
    ("http://ana:secret@", NO_URL.format(shown="")),
    ("http://ana:secret@proxy:port", NO_URL.format(shown="proxy:port")),
    ("http://ana:secret@[::1", NO_URL.format(shown="[::1")),
    ("ftp://proxy", NO_URL.format(shown="ftp://proxy")),
    (" ", NO_URL.format(shown=" ")),
    (
        "socks5://ana:secret@proxy:1080",
        "is a SOCKS proxy (proxy:1080), which Muster cannot use: name one of HTTP",
    ),
    ("SOCKS5h://proxy", "is a SOCKS proxy"),
    ("http://proxy:99999", NO_URL.format(shown="http://proxy:99999")),
    ("http://ana:secret/x@proxy:1", NO_URL.format(shown="proxy:1")),
    (
        "https://ana:secret@proxy:3128",
        "is 'proxy:3128', which exec streams cannot use: name a proxy that begins with http://",
    ),
]


@pytest.mark.parametrize(("url", "why"), WRONG)
def test_a_proxy_that_is_none_is_said_without_its_password(
    tmp_path: Path, url: str, why: str
) -> None:
    profile = write_config(tmp_path / "config", "https://a:1", None, **{"proxy-url": url})
    with pytest.raises(CannotCall) as said:
        Cluster(profile).read("Pod", "p")
    assert f"proxy-url of cluster c in {tmp_path / 'config'} {why}" in str(said.value)
    assert "secret" not in str(said.value)
    assert said.value.refused and not said.value.lasts
    assert why_no_cluster(profile, {}) == str(said.value)


@pytest.mark.parametrize(("url", "why"), [one for one in WRONG if "://" in one[0]])
def test_so_is_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, why: str
) -> None:
    monkeypatch.setenv("https_proxy", url)
    with pytest.raises(CannotCall) as said:
        Cluster(write_config(tmp_path / "config", "https://a:1")).read("Pod", "p")
    assert f"HTTPS_PROXY of the environment {why}" in str(said.value)
    assert "secret" not in str(said.value)
    assert why_no_cluster(KubernetesProfile(kubeconfig=str(tmp_path / "config")), {}) == str(
        said.value
    )


@pytest.mark.parametrize("url", [None, ""])
def test_without_one_that_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    monkeypatch.setenv("https_proxy", "proxy:3128")
    profile = write_config(tmp_path / "config", "https://a:1", None, **{"proxy-url": url})
    assert Cluster(profile).connection.access().proxy == "http://proxy:3128"


@pytest.mark.parametrize("url", ["HTTPS://proxy:3128", "https://proxy:3128"])
def test_one_over_tls_is_used_where_no_stream_is(tmp_path: Path, url: str) -> None:
    profile = write_config(tmp_path / "config", "https://a:1", None, **{"proxy-url": url})
    assert (
        Cluster(replace(profile, contact="dial")).connection.access().proxy == "https://proxy:3128"
    )


@pytest.mark.parametrize("proxy", [None, "HTTP://proxy:3128"])
def test_a_scheme_may_have_upper_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str | None
) -> None:
    monkeypatch.setenv("https_proxy", "HTTP://proxy:3128")
    monkeypatch.setenv("http_proxy", "http://other:1")
    profile = write_config(tmp_path / "config", "HTTPS://a:1", None, **{"proxy-url": proxy})
    found = Cluster(profile).connection.access()
    assert (found.url, found.proxy) == ("https://a:1", "http://proxy:3128")
    assert found.ssl is not None


@pytest.mark.parametrize("server", ["http://a.test", "https://a.test"])
@pytest.mark.parametrize("login", ["", "ana:secret@"])
def test_a_proxy_that_makes_no_way_is_named(tmp_path: Path, server: str, login: str) -> None:
    own = {"proxy-url": f"http://{login}127.0.0.1:1"}
    cluster = Cluster(write_config(tmp_path / "config", server, None, **own), retry_for=0.0)
    with pytest.raises(CannotCall) as said:
        cluster.read("Pod", "p")
    why = "does not answer: 127.0.0.1:1 refuses connections"
    assert str(said.value) == f"the proxy 127.0.0.1:1 {why}"
    assert not said.value.refused


@pytest.mark.parametrize("server", ["http://a.test", "https://a.test"])
@pytest.mark.parametrize("code", [407, 502])
def test_what_a_proxy_answers_is_not_the_cluster_s(tmp_path: Path, server: str, code: int) -> None:
    stub = ApiStub(lambda _: Answer({}, code))
    try:
        own = {"proxy-url": stub.url.replace("//", "//ana:secret@")}
        cluster = Cluster(write_config(tmp_path / "config", server, None, **own), retry_for=0.0)
        with pytest.raises(CannotCall) as said:
            cluster.read("Pod", "p")
    finally:
        stub.close()
    place = stub.url.removeprefix("http://")
    if code == 407:
        assert f"the proxy {place} does not accept the credentials (407): wr" in str(said.value)
    elif server.startswith("https"):
        assert str(said.value).startswith(f"the proxy {place} answers 502")
    assert said.value.refused is (code == 407)
    assert "secret" not in str(said.value)
