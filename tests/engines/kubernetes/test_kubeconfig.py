"""Files of kubectl, and what is said of those that are wrong: never what is in them."""

from __future__ import annotations

import errno
import os
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.kubernetes.api_stub import write_config
from muster.engines.kubernetes import access, kubeconfig
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.kubeconfig import read_context
from muster.engines.kubernetes.profile import KubernetesProfile
from support.certificates import write_certificate

pytest.importorskip("kubernetes")
SECRET = "c2VjcmV0LWtleQ"


def write(path: Path, current: str, *, namespace: str = "team", **clusters: Any) -> Path:
    """A file with a context, a cluster and a user of each name."""
    path.parent.mkdir(exist_ok=True)
    inner = {"cluster": "{0}", "user": "{0}", "namespace": namespace}
    config = {
        "current-context": current,
        "contexts": [
            {"name": name, "context": {key: text.format(name) for key, text in inner.items()}}
            for name in clusters
        ],
        "clusters": [{"name": name, "cluster": fields} for name, fields in clusters.items()],
        "users": [{"name": name, "user": {"tokenFile": "token"}} for name in clusters],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_files_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    """The first that says something counts, and paths begin in the folder of their file."""
    first = write(tmp_path / "a" / "config", "", x={"server": "https://a:1"})
    second = write(
        tmp_path / "b" / "config",
        "y",
        namespace="other",
        x={"server": "https://b:1"},
        y={"server": "https://b:2", "certificate-authority": "ca.pem"},
    )
    third = write(tmp_path / "c" / "config", "x", z={"server": "https://c:1"})
    files = os.pathsep.join(map(str, (first, tmp_path / "none", second, third)))
    current = read_context(files, None)
    assert (current.name, current.namespace) == ("y", "other")
    assert current.cluster.path("certificate-authority") == tmp_path / "b" / "ca.pem"
    assert current.user.path("tokenFile") == tmp_path / "b" / "token"
    shared = read_context(files, "x")
    assert (shared.cluster.text("server"), shared.namespace) == ("https://a:1", "team")
    assert read_context(files, "z").cluster.text("server") == "https://c:1"


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    second = write(tmp_path / "config", "x", x={"server": "https://a:1"})
    assert read_context(f"{tmp_path / 'empty'}{os.pathsep}{second}", None).name == "x"


def test_the_first_document_of_a_file_counts(tmp_path: Path) -> None:
    file = write(tmp_path / "config", "x", x={"server": "https://a:1"})
    file.write_text(f"{file.read_text()}---\ncurrent-context: y\n")
    assert read_context(str(file), None).name == "x"


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "large"])
@pytest.mark.parametrize("field", ["tokenFile", "client-key", "config"])
def test_a_file_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str, field: str) -> None:
    bad = tmp_path / "bad"
    if kind == "fifo":
        os.mkfifo(bad)
    elif kind == "folder":
        bad.mkdir()
    elif kind == "device":
        bad.symlink_to("/dev/zero")
    else:
        bad.touch()
        os.truncate(bad, 17 << 20)
    user = {field: "bad"}
    if field == "client-key":
        user["client-certificate-data"] = GARBAGE
    profile = write_config(tmp_path / "config", "https://a:1", user)
    profile = KubernetesProfile(kubeconfig=str(bad)) if field == "config" else profile
    with pytest.raises(CannotCall) as said:
        Cluster(profile).read("Pod", "p")
    assert ("it has more than" if kind == "large" else "regular file") in str(said.value)


def test_names_are_shown_cut_and_on_one_line(tmp_path: Path) -> None:
    name = "\x1b[31m\n" + "x" * 300
    cluster = Cluster(KubernetesProfile(kubeconfig=str(write(tmp_path / "c", name, y={}))))
    with pytest.raises(CannotCall) as said:
        cluster.read("Pod", "p")
    assert f"no context \\x1b[31m\\n{'x' * 94}; there" in str(said.value)


def errors_of(files: str) -> Iterator[str]:
    """What is said of files by all that looks at them."""
    profile = KubernetesProfile(kubeconfig=files)
    access.configuration_of(profile, {})
    yield access.why_no_cluster(profile, {})
    ref = ClusterRef("", "", "team", "https://a:1")
    ways: list[Callable[[], object]] = [partial(access.load, profile, {})]
    ways += access.ways_to(ref, profile, {})[1:]
    for way in ways:
        with pytest.raises(CannotCall) as said:
            way()
        yield str(said.value)


def test_a_file_that_cannot_be_looked_at_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose network share is gone. One that is not there is left out."""
    bad, there = tmp_path / "bad", write(tmp_path / "config", "x", x={"server": "https://a:1"})
    stat = Path.stat

    def fail(path: Path, **how: bool) -> os.stat_result:
        if path == bad:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", fail)
    monkeypatch.setattr(kubeconfig, "bounded", lambda path, _: fail(path) and b"")
    for files in (str(bad), f"{bad}{os.pathsep}{there}"):
        said = [*errors_of(files)]
        assert said == [f"{bad} cannot be read: Stale file handle"] * 3
    monkeypatch.undo()
    long = tmp_path / ("x" * 300)
    assert [*errors_of(str(long))] == [f"{long} cannot be read: File name too long"] * 3


def test_the_home_of_nobody_is_no_file() -> None:
    files = "~no-such-user/config"
    assert [*errors_of(files)] == [f"there is no file {files} with the cluster"] * 2


GARBAGE = b64encode(f"no key: {SECRET}".encode()).decode()
#: What a user may wrongly have, and which field is named.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"token": 1234567}, "token of user u in {file} has to be a text: put it in quotes"),
    ({"token": [SECRET]}, "token of user u in {file} has to be a text"),
    ({"token": SECRET.encode()}, "token of user u in {file} has to be a text"),
    ({"token": f"{SECRET}\nx"}, "token of user u in {file} has characters that no header can"),
    ({"token": " \n"}, "token of user u in {file} is empty"),
    ({"tokenFile": "/dev/null"}, "the token in /dev/null cannot be read: not a regular file"),
    ({"username": "ana", "password": f"{SECRET}\ud800"}, "password of user u in {file} has half"),
    ({"token": f"{SECRET}\ud800"}, "token of user u in {file} has half of a character"),
    ({"client-key": f"{SECRET}\udc00"}, "client-key of user u in {file} has half of a character"),
    ({"client-certificate": "a.pem\0b"}, "client-certificate of user u in {file} is"),
    ({"client-certificate-data": GARBAGE}, "client-certificate of user u in {file} has no client"),
    ({"token": f"{SECRET}ä"}, "token of user u in {file} has characters that no header can"),
    ({"username": "ana", "password": 7654321}, "password of user u in {file} has to be a text"),
    ({"as-groups": [SECRET]}, "as-groups of user u in {file} has no effect without `as`"),
    ({"as": f"{SECRET}\nx"}, "as of user u in {file} has characters that no header can have"),
    ({"as": "a", "as-user-extra": {"x": [7]}}, "x of user u in {file} may have texts only"),
    ({"as": "a", "as-user-extra": {"x": [f"{SECRET}ä"]}}, "as-user-extra of user u in {file} has"),
    ({"tokenFile": "none"}, "the token in {folder}/none cannot be read: No such file"),
    ({"client-key-data": SECRET.encode()}, "client-key-data of user u in {file} has to be a text"),
    ({"client-key-data": f"{SECRET}%"}, "client-key-data of user u in {file} is not base64"),
    ({"client-key-data": f"{SECRET}ä"}, "client-key-data of user u in {file} is not base64"),
    ({"client-key-data": GARBAGE}, "client-certificate of user u in {file} is no certificate with"),
    ({"client-key": "a\0b"}, "which cannot be read: it is no path"),
    ({"client-key": "none"}, "client-key of user u in {file} is {folder}/none, which cannot be"),
    ({"exec": SECRET}, "exec of user u in {file} has to have fields"),
    ({"exec": {"command": [SECRET]}}, "command of user u in {file} has to be a text"),
    ({"exec": {"command": "x"}}, "exec of user u in {file} has to have a `command` and an"),
    (
        {"exec": {"command": "x", "apiVersion": "v1", "args": [SECRET, 7654321]}},
        "args of user u in {file} may have texts only",
    ),
    (
        {"exec": {"command": "x", "apiVersion": "v1", "env": [SECRET]}},
        "env of user u in {file} has to have fields",
    ),
    ({"exec": {"command": "x", "apiVersion": "v1", "env": 5}}, "env of user u in {file} has to be"),
    (
        {"exec": {"command": "a\0b", "apiVersion": "v1"}},
        "cannot be started: it has a field that no program can get",
    ),
    (
        {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{SECRET}.c"}}},
        "auth-provider of user u in {file} gives no token",
    ),
    ({"auth-provider": {"name": SECRET}}, "auth-provider of user u in {file} gives no token"),
]


@pytest.mark.parametrize(("user", "text"), WRONG)
def test_what_is_wrong_with_a_user_is_said_without_secrets(
    tmp_path: Path, user: dict[str, Any], text: str
) -> None:
    certificate = write_certificate(tmp_path, "api.test").cert
    has_key = any(name.startswith("client-key") for name in user)
    whole = {**user, "client-certificate": str(certificate)} if has_key else user
    with pytest.raises(CannotCall) as said:
        Cluster(write_config(tmp_path / "config", "https://a:1", whole)).read("Pod", "p")
    assert text.format(file=tmp_path / "config", folder=tmp_path) in str(said.value)
    assert said.value.refused and not said.value.lasts
    hidden = (SECRET, "1234567", "7654321", GARBAGE)
    logged = "".join(traceback.format_exception(said.value))
    assert not any(one in logged for one in hidden)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"server": None}, "server of cluster c in {file} is no URL: write https://HOST:PORT"),
        ({"server": "a:6443"}, "server of cluster c in {file} is no URL"),
        ({"server": "https://a:x"}, "server of cluster c in {file} is no URL"),
        ({"server": 7}, "server of cluster c in {file} has to be a text"),
        ({"certificate-authority-data": "eA"}, "certificate-authority-data of cluster c in"),
        (
            {"certificate-authority-data": GARBAGE},
            "certificate-authority of cluster c in {file} is",
        ),
        ({"insecure-skip-tls-verify": "yes"}, "of cluster c in {file} has to be true or false"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority": "a.pem"},
            "insecure-skip-tls-verify of cluster c in {file} has no meaning beside",
        ),
        ({"tls-server-name": 5}, "tls-server-name of cluster c in {file} has to be a text"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_said(
    tmp_path: Path, fields: Mapping[str, Any], text: str
) -> None:
    given: dict[str, Any] = {"url": "https://a:1", **fields}
    profile = write_config(tmp_path / "config", given.pop("url"), None, **given)
    with pytest.raises(CannotCall) as said:
        Cluster(profile).read("Pod", "p")
    assert text.format(file=tmp_path / "config") in str(said.value)
    assert SECRET not in str(said.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"users:\n- user: {{token: *{SECRET}}}\n", "is not YAML (line 2)"),
        (f"users:\n- token: '{SECRET}\n", "is not YAML"),
        ("users: 2026-99-99\n", "is not YAML"),
        ("a: \xff\ud83d", "is not YAML"),
        (SECRET, "is no configuration of kubectl"),
        (f"contexts: {SECRET}\n", "contexts of the configuration in {file} has to be a list"),
        (f"contexts: [{SECRET}]\n", "contexts of the configuration in {file} has to have fields"),
        (
            "contexts: [{name: x, context: {cluster: y}}]\ncurrent-context: x\n",
            "context x in {file} refers to cluster y, which is not defined there",
        ),
        (
            "contexts: [{name: x, context: {user: y}}]\ncurrent-context: x\n",
            "context x in {file} names no cluster",
        ),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(CannotCall) as said:
        Cluster(KubernetesProfile(kubeconfig=str(file))).read("Pod", "p")
    assert why.format(file=file) in str(said.value)
    assert str(file) in str(said.value) and SECRET not in str(said.value)
