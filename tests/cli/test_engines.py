"""`muster engines`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from engines.kubernetes.api_stub import write_config
from muster.cli.engines import engines
from muster.engines.findings import Finding
from muster.engines.hosts.engine import HostsEngine
from muster.engines.kubernetes.engine import KubernetesEngine
from muster.engines.profiles import profile_text
from muster.errors import InvalidInput

pytestmark = pytest.mark.embedded("engines are added on the machine of the server")


@pytest.fixture(autouse=True)
def machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine is asked."""
    monkeypatch.setattr(HostsEngine, "findings", lambda _: [])


def call(*words: str) -> Result:
    return CliRunner().invoke(engines, list(words), catch_exceptions=False)


def settings_of(home: Path, name: str = "hosts") -> list[str]:
    return (home / "engines" / f"{name}.toml").read_text().splitlines()


def test_machines_are_added_checked_listed_and_removed(own_home: Path) -> None:
    added = call("add", "hosts", "--host", "ana@gpu1", "--host", "gpu2:22", "--gpus", "0")
    file = own_home / "engines" / "hosts.toml"
    assert added.exit_code == 0
    assert added.stderr == f"wrote engine hosts to {file}\n"
    assert settings_of(own_home) == [
        'kind = "hosts"',
        'hosts = ["ana@gpu1", "gpu2:22"]',
        "gpus = 0",
    ]
    assert call("check", "hosts").exit_code == 0
    (found,) = (one for one in json.loads(call("list", "--json").stdout) if one["name"] == "hosts")
    assert (found["from"], found["capabilities"]["detached"]) == ("its profile", True)
    removed = call("remove", "hosts")
    assert (removed.exit_code, removed.stdout) == (0, "")
    assert removed.stderr == f"removed {file}\n"
    assert "hosts" not in call("list").stdout.split()


def test_every_setting(own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--host", "a", "--name", "lab", "--slots", "2", "--python", "/opt/python"]
    words += ["--folder", "~/runs", "--ssh-config", "my config", "--isolation-timeout", "10m"]
    assert call("add", "hosts", *words).exit_code == 0
    assert sorted(settings_of(own_home, "lab")) == sorted(
        [
            'kind = "hosts"',
            'hosts = ["a"]',
            "slots = 2",
            'python = "/opt/python"',
            'folder = "~/runs"',
            f'ssh_config = "{tmp_path}/my config"',
            'isolation_timeout = "10m"',
        ]
    )


def test_the_configuration_of_ssh_may_be_below_the_home(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    call("add", "hosts", "--host", "a", "--ssh-config", "~/.ssh/lab")
    assert 'ssh_config = "/home/ana/.ssh/lab"' in settings_of(own_home)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "-v"], "--host: must be [USER@]HOST[:PORT], not '-v'"),
        (["--host", "a", "--host", "a"], "--host: a is listed twice"),
        (["--host", "a", "--name", "../x"], "--name: '../x' cannot be the name of an engine"),
        (["--host", "a", "--name", "local"], "--name: there is an engine local already"),
        (["--host", "a", "--isolation-timeout", "5"], "--isolation-timeout: 5 has no unit"),
        (["--host", "a", "--python", "-c"], "--python: must be an interpreter"),
    ],
)
def test_what_cannot_be_added(own_home: Path, words: list[str], says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        call("add", "hosts", *words)
    assert str(error.value).startswith(says)
    assert not (own_home / "engines").exists()


@pytest.mark.parametrize("words", [[], ["--host=a", "--gpus=-1"], ["--host=a", "--slots=0"]])
def test_wrong_usage(own_home: Path, words: list[str]) -> None:
    assert call("add", "hosts", *words).exit_code == 2
    assert not (own_home / "engines").exists()


def test_an_engine_is_replaced_on_request(own_home: Path) -> None:
    call("add", "hosts", "--host", "a")
    with pytest.raises(InvalidInput, match="engine hosts exists already"):
        call("add", "hosts", "--host", "b")
    assert call("add", "hosts", "--host", "b", "--replace").exit_code == 0
    assert 'hosts = ["b"]' in settings_of(own_home)


@pytest.mark.parametrize("command", [("check", "hosts"), ("add", "hosts", "--host", "a")])
def test_what_does_not_work_is_said(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    call("add", "hosts", "--host", "a")
    found = [
        Finding("a", True, "Python 3.11"),
        Finding("b", False, "no route to host", "`ssh b` shows more"),
    ]
    monkeypatch.setattr(HostsEngine, "findings", lambda self: found)
    words = (*command, "--replace") if command[0] == "add" else command
    done = call(*words)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "yes a: Python 3.11",
        "no  b: no route to host",
        "    for more: `ssh b` shows more",
    ]
    assert (own_home / "engines" / "hosts.toml").exists(), "it can be repaired, and checked again"


def test_a_defect_of_a_kind_is_not_hidden(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: HostsEngine) -> list[Finding]:
        raise KeyError("a")

    call("add", "hosts", "--host", "a")
    monkeypatch.setattr(HostsEngine, "findings", fail)
    with pytest.raises(KeyError):
        call("check", "hosts")


def test_an_engine_that_is_not_there(own_home: Path) -> None:
    with pytest.raises(InvalidInput, match="no engine hosts was added"):
        call("check", "hosts")
    with pytest.raises(InvalidInput, match=r"no engine local was added \(added: none\)"):
        call("remove", "local")


def test_an_engine_that_cannot_be_used_is_listed_with_the_reason(own_home: Path) -> None:
    (own_home / "engines").mkdir(parents=True, exist_ok=True)
    (own_home / "engines" / "lab.toml").write_text('kind = "hosts"\nhosts = ["-v"]\n')
    done = call("list")
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["lab", "its", "profile", "no"] in rows
    assert "lab.toml:2: hosts[0]: must be" in " ".join(done.stdout.split())


def test_without_ssh(own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call("add", "hosts", "--host", "a")
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert "hosts cannot be used here: ssh is not installed" in call("list").stdout


@pytest.fixture
def cluster_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is asked."""
    monkeypatch.setattr(KubernetesEngine, "findings", lambda _: [])


@pytest.mark.usefixtures("cluster_findings")
def test_a_cluster_is_added(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--name", "lab", "--context", "gpu-cluster", "--namespace", "research"]
    words += ["--kubeconfig", f"own{os.pathsep}~/other", "--queue", "team", "--code-limit", "1GiB"]
    words += ["--image-pull-secret", "a", "--image-pull-secret", "b", "--claim", "shared"]
    words += ["--contact", "dial", "--address", "10.0.0.1", "--ports", "7000-7100"]
    monkeypatch.setenv("HOME", "/home/ana")
    (tmp_path / "own").write_text(
        "contexts: [{name: gpu-cluster, context: {cluster: c}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
    )
    assert call("add", "kubernetes", *words).exit_code == 0
    assert sorted(settings_of(own_home, "lab")) == sorted(
        [
            'kind = "kubernetes"',
            'context = "gpu-cluster"',
            'namespace = "research"',
            f'kubeconfig = "{tmp_path}/own{os.pathsep}/home/ana/other"',
            'queue = "team"',
            'code_limit = "1GiB"',
            'image_pull_secrets = ["a", "b"]',
            'claim = "shared"',
            'contact = "dial"',
            'address = "10.0.0.1"',
            'ports = "7000-7100"',
        ]
    )


@pytest.mark.usefixtures("cluster_findings")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--namespace", "My_Jobs"], "--namespace: must be a name in Kubernetes"),
        (["--code-limit", "much"], "--code-limit: 'much' is not a size"),
        (["--contact", "dial"], "--address: is missing, and pods dial it"),
        (["--ports", "1-2"], "--ports: has no effect"),
        (["--queue-priority", "A"], "--queue-priority: must be a name in Kubernetes"),
        (["--image-pull-secret", "A"], "--image-pull-secret: must be a list of names of secrets"),
    ],
)
def test_what_no_cluster_can_have(own_home: Path, words: list[str], says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        call("add", "kubernetes", *words)
    assert str(error.value).startswith(says)
    assert not (own_home / "engines").exists()


def test_the_role_of_a_cluster_is_printed(own_home: Path, tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    file = write_config(tmp_path / "config", "http://127.0.0.1:1").kubeconfig
    (own_home / "engines").mkdir(parents=True)
    text = profile_text("lab", "kubernetes", {"kubeconfig": file, "context": "none"})
    (own_home / "engines" / "lab.toml").write_text(text)
    done = call("role", "lab", "--user", "ana", "--service-account", "tools:ci")
    assert done.exit_code == 0
    role, binding = yaml.safe_load_all(done.stdout)
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
    assert [one["name"] for one in binding["subjects"]] == ["ana", "ci"]


def test_other_engines_have_no_role(own_home: Path) -> None:
    with pytest.raises(InvalidInput, match="engine local needs no rights that somebody grants"):
        call("role", "local")
