"""Credential plug-ins, as programs that are run."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engines.kubernetes.api_stub import OBJECT, ApiStub, write_config
from muster.engines.kubernetes import access, plugins
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.profile import KubernetesProfile
from support.certificates import write_certificate
from support.faults import until

pytest.importorskip("kubernetes")
VERSION = "client.authentication.k8s.io/v1"
TIMEOUT = 120.0
SECRET = "s3cr3t"


@pytest.fixture
def server() -> Iterator[ApiStub]:
    made = ApiStub(lambda _: OBJECT)
    yield made
    made.close()


def user_of(folder: Path, script: str, **fields: Any) -> dict[str, Any]:
    """A user with a plug-in, which counts how often it runs in the file `runs`."""
    plugin = folder / "plug-in"
    plugin.write_text(f"#!/bin/sh\necho run >> runs\n{script}\n")
    plugin.chmod(0o755)
    return {"exec": {"apiVersion": VERSION, "command": "./plug-in", **fields}}


def credential(**status: Any) -> str:
    """A plug-in that issues something."""
    found = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(found)}\nEND"


def runs(folder: Path) -> int:
    file = folder / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def child(folder: Path) -> int:
    """The process that a plug-in has started, as it has noted."""
    file = folder / "child"
    until(lambda: file.exists() and file.read_text().strip(), "it runs", TIMEOUT)
    return int(file.read_text())


@pytest.fixture
def until_then(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """The time that a plug-in has begins when something has returned."""
    started = plugins._started

    def use(happens: Callable[[], object]) -> None:
        def start(*given: Any) -> subprocess.Popen[bytes]:
            process = started(*given)
            happens()
            return process

        monkeypatch.setattr(plugins, "_started", start)

    return use


#: With a process of its own that keeps its output open.
HANGS = "sleep 1000 &\necho $! > child\nwait"


def test_one_that_hangs_is_killed_with_its_children(
    server: ApiStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_then: Any
) -> None:
    monkeypatch.setattr(plugins, "_TIMEOUT", 0.5)
    until_then(lambda: child(tmp_path))
    profile = write_config(tmp_path / "config", server.url, user_of(tmp_path, HANGS))
    with pytest.raises(CannotCall) as said:
        Cluster(profile).read("Pod", "p")
    text = (
        f"the credential plug-in ./plug-in of user u in {tmp_path / 'config'} was killed, as it "
        "has not ended within 0.5 seconds: run it by hand to see what it waits for"
    )
    assert str(said.value) == text
    assert not said.value.refused  # it may work later
    until(lambda: not is_alive(child(tmp_path)), "its child has ended", TIMEOUT)
    assert not server.requests


def test_one_that_asks_a_person_has_more_time(
    server: ApiStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_then: Any
) -> None:
    """It stays in the session of the terminal, and is killed alone."""
    until_then(lambda: child(tmp_path))
    monkeypatch.setattr(plugins, "_TIMEOUT", 0.0)
    monkeypatch.setattr(plugins, "_LOGIN_TIMEOUT", 0.5)
    monkeypatch.setattr(plugins, "_is_interactive", lambda *_: True)
    user = user_of(tmp_path, "echo $$ > child; exec sleep 1000")
    profile = write_config(tmp_path / "config", server.url, user)
    with pytest.raises(CannotCall, match=r"it has not ended within 0\.5 seconds"):
        Cluster(profile).read("Pod", "p")
    assert not is_alive(child(tmp_path))


def test_those_who_wait_for_it_fail_with_it(
    server: ApiStub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until_then: Any,
    waiting: set[int],
) -> None:
    """They do not wait one after the other."""
    monkeypatch.setattr(plugins, "_TIMEOUT", 0.1)
    until_then(lambda: until(lambda: len(waiting) == 8, "all wait", TIMEOUT))
    profile = write_config(tmp_path / "config", server.url, user_of(tmp_path, HANGS))
    clusters, errors = [Cluster(profile, retry_for=0.0) for _ in range(8)], list[CannotCall]()

    def call(cluster: Cluster) -> None:
        try:
            cluster.read("Pod", "p")
        except CannotCall as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(one,)) for one in clusters]
    for one in threads:
        one.start()
    for one in threads:
        one.join(TIMEOUT)
    assert [str(one).rpartition(" was ")[2][:6] for one in errors] == ["killed"] * 8
    assert runs(tmp_path) == 1


def test_nobody_kills_what_has_the_number_of_one_that_has_ended(
    server: ApiStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leaves running has that of its group here."""
    made: list[subprocess.Popen[bytes]] = []
    guard = plugins._guard

    def noted(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
        found = guard(process)
        assert found is not None
        made.append(found)
        return found

    monkeypatch.setattr(plugins, "_guard", noted)
    leaves = "sleep 1000 >&- 2>&- & echo $! > child"
    user = user_of(tmp_path, f"{leaves}\n{credential(token='of-plugin')}")
    Cluster(write_config(tmp_path / "config", server.url, user)).read("Pod", "p")
    try:
        assert [one.returncode for one in made] == [0]  # it has ended by itself
        assert is_alive(child(tmp_path))
    finally:
        os.kill(child(tmp_path), signal.SIGKILL)


@pytest.mark.parametrize("code", [0, 3])
def test_what_it_leaves_running_may_hold_its_messages(
    server: ApiStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(plugins, "_TIMEOUT", TIMEOUT)
    leaves = "sleep 1000 >&- & echo $! > child; echo log in first >&2"
    script = f"{leaves}\n{credential(token='of-plugin')}\nexit {code}"
    cluster = Cluster(write_config(tmp_path / "config", server.url, user_of(tmp_path, script)))
    began = time.monotonic()
    try:
        if code:
            with pytest.raises(CannotCall, match="has failed with exit code 3: log in first"):
                cluster.read("Pod", "p")
        else:
            cluster.read("Pod", "p")
        assert time.monotonic() - began < TIMEOUT / 2
        assert is_alive(child(tmp_path))
    finally:
        os.kill(child(tmp_path), signal.SIGKILL)


@pytest.mark.parametrize("signal_number", [None, signal.SIGKILL])
def test_it_is_killed_at_once_when_nobody_waits_for_it(
    tmp_path: Path, signal_number: int | None
) -> None:
    """As that process has ended, however it has."""
    config = write_config(tmp_path / "config", "https://a", user_of(tmp_path, HANGS)).kubeconfig
    program = (
        "import os, threading\n"
        "from muster.engines.kubernetes import plugins\n"
        "from muster.engines.kubernetes.cluster import Cluster\n"
        "from muster.engines.kubernetes.profile import KubernetesProfile\n"
        "runs, guard = threading.Event(), plugins._guard\n"
        "plugins._guard = lambda *args: (guard(*args), runs.set())[0]\n"
        f"cluster = Cluster(KubernetesProfile(kubeconfig={config!r}))\n"
        "threading.Thread(target=cluster.read, args=('Pod', 'p'), daemon=True).start()\n"
        f"assert runs.wait({TIMEOUT})\n"
        f"while not os.path.exists({str(tmp_path / 'child')!r}): pass\n"
        f"os.kill(os.getpid(), {signal_number}) if {signal_number} else os._exit(0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=TIMEOUT)
    assert ended.returncode == -(signal_number or 0)
    until(lambda: not is_alive(child(tmp_path)), "its child has ended", TIMEOUT)


@pytest.mark.parametrize(
    ("expires", "expected"),
    [("2999-01-01T00:00:00Z", 1), ("2026-01-01T00:00:00.123456789Z", 3), (None, 1)],
)
def test_credentials_are_renewed_when_they_expire(
    server: ApiStub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expires: str | None,
    expected: int,
) -> None:
    monkeypatch.setattr(access, "_LEAST_USE", 0.0)
    user = user_of(tmp_path, credential(token="of-plugin", expirationTimestamp=expires))
    profile = write_config(tmp_path / "config", server.url, user)
    cluster = Cluster(replace(profile, namespace="team"))
    for _ in range(3):
        cluster.read("Pod", "p")
    assert runs(tmp_path) == expected
    assert {one.headers["authorization"] for one in server.requests} == {"Bearer of-plugin"}


def test_it_may_issue_a_certificate(tmp_path: Path) -> None:
    tls = write_certificate(tmp_path, "api.test")
    status = {
        "clientCertificateData": tls.cert.read_text(),
        "clientKeyData": tls.key.read_text(),
    }
    server = ApiStub(lambda _: OBJECT, tls, needs_certificate=True)
    own: dict[str, Any] = {"certificate-authority": "authority.pem", "tls-server-name": "api.test"}
    try:
        user = user_of(tmp_path, credential(**status))
        Cluster(write_config(tmp_path / "config", server.url, user, **own)).read("Pod", "p")
        assert "api.test" in server.requests[0].headers["client"]
    finally:
        server.close()


def test_it_finds_what_it_needs(server: ApiStub, tmp_path: Path) -> None:
    """Its variables, the cluster, and no terminal."""
    script = 'echo "$KUBERNETES_EXEC_INFO" > info; echo "$OWN $*" > given\n' + credential(token="t")
    user = user_of(
        tmp_path,
        script,
        args=["-a", "b c"],
        env=[{"name": "OWN", "value": "own"}],
        provideClusterInfo=True,
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"on": date(2026, 1, 2)}}
    profile = write_config(tmp_path / "config", server.url, user, extensions=[extension])
    Cluster(profile).read("Pod", "p")
    assert (tmp_path / "given").read_text() == "own -a b c\n"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": VERSION,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {"server": server.url, "config": {"on": "2026-01-02"}},
        },
    }


def test_one_that_asks_needs_a_terminal(server: ApiStub, tmp_path: Path) -> None:
    user = user_of(tmp_path, credential(token="t"), interactiveMode="Always")
    profile = write_config(tmp_path / "config", server.url, user)
    with pytest.raises(CannotCall, match="needs a terminal: log in with kubectl"):
        Cluster(profile).read("Pod", "p")
    assert runs(tmp_path) == 0


def test_one_that_is_missing_says_how_it_is_installed(server: ApiStub, tmp_path: Path) -> None:
    user = user_of(tmp_path, "", command="no-such-plug-in", installHint="Get it\n at x.test")
    profile = write_config(tmp_path / "config", server.url, user)
    with pytest.raises(CannotCall, match=r"cannot be started: No such file .*; Get it at x\.test"):
        Cluster(profile).read("Pod", "p")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (f"echo {SECRET}", "has not written an ExecCredential"),
        (f'echo \'{{"status": {{"token": "{SECRET}"}}}}\'', "has not written an ExecCredential"),
        (credential(token=[SECRET]), "has not written an ExecCredential"),
        (credential(token=SECRET, expirationTimestamp="soon"), "has not written an ExecCred"),
        (credential(), "has written neither a token nor a certificate with its key"),
        (credential(clientKeyData=SECRET), "has written neither a token nor a certificate"),
        (credential(token=SECRET).replace("/v1", "/v1beta1"), "has another apiVersion than"),
        (credential(token=f"{SECRET}\nx"), "exec of user u in {file} gives a token that has chara"),
        (credential(token=SECRET).replace('"ExecCredential"', '"Pod"'), "has not written an"),
        ("printf '[%.0s' $(seq 5000)", "has not written an ExecCredential"),
        (
            f'printf \'{{"apiVersion": "{VERSION}", "kind": "ExecCredential", "x": \'; '
            "printf '[%.0s' $(seq 5000); printf ']%.0s' $(seq 5000); echo '}'",
            "has not written an ExecCredential",
        ),
        (f"while echo {SECRET}; do :; done; sleep 1000", "has written more than 1 MiB"),
        (f"echo got x{SECRET}.0123456789_abcdef >&2; exit 1", "exit code 1: got ***"),
        ("printf 'a\\033[31mred\\n' >&2; exit 1", r"exit code 1: a\x1b[31mred"),
        (f"printf '\\377{SECRET}'", "has not written an ExecCredential"),
    ],
)
def test_output_that_is_wrong_is_not_shown(
    server: ApiStub, tmp_path: Path, script: str, text: str
) -> None:
    profile = write_config(tmp_path / "config", server.url, user_of(tmp_path, script))
    with pytest.raises(CannotCall) as said:
        Cluster(profile).read("Pod", "p")
    assert text.format(file=tmp_path / "config") in str(said.value)
    assert SECRET not in str(said.value)
    assert said.value.refused and not said.value.lasts
    assert not server.requests


def test_the_token_of_an_old_login_is_used(server: ApiStub, tmp_path: Path) -> None:
    """That of an `auth-provider`."""
    claims = json.dumps({"exp": time.time() + 3600}).encode()
    token = f"a.{urlsafe_b64encode(claims).decode().rstrip('=')}.c"
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    Cluster(write_config(tmp_path / "config", server.url, user)).read("Pod", "p")
    assert server.requests[0].headers["authorization"] == f"Bearer {token}"
    assert os.listdir(tmp_path) == ["config"]


def test_a_login_that_is_renewed_needs_the_python_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}}
    profile = write_config(tmp_path / "config", "https://localhost:1", user)
    with pytest.raises(CannotCall, match=r"auth-provider of user u .* pip install kubernetes"):
        Cluster(profile).read("Pod", "p")


def test_an_issuer_that_says_nothing_is_given_up(
    server: ApiStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_then: Any
) -> None:
    monkeypatch.setattr(plugins, "_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as issuer:
        until_then(lambda: select.select([issuer], [], [], TIMEOUT))  # it is requested
        url = f"http://127.0.0.1:{issuer.getsockname()[1]}"
        claims = urlsafe_b64encode(json.dumps({"exp": 1}).encode()).decode().rstrip("=")
        how = {"id-token": f"a.{claims}.c", "idp-issuer-url": url, "refresh-token": SECRET}
        how |= {"client-id": "muster", "client-secret": SECRET}
        user = {"auth-provider": {"name": "oidc", "config": how}}
        profile = write_config(tmp_path / "config", server.url, user)
        began = time.monotonic()
        with pytest.raises(CannotCall) as said:
            Cluster(profile, retry_for=0.0).read("Pod", "p")
        assert time.monotonic() - began < TIMEOUT
        issuer.settimeout(TIMEOUT)
        issuer.accept()[0].close()  # it was asked
    why = "gives no token in time: see whether its issuer answers kubectl"
    assert str(said.value) == f"auth-provider of user u in {tmp_path / 'config'} {why}"
    assert not said.value.refused


def test_a_profile_without_the_client_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "why_not_installed", lambda: "it is not installed")
    with pytest.raises(CannotCall, match="it is not installed"):
        Cluster(KubernetesProfile()).read("Pod", "p")
