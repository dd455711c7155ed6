"""Node servers that dial their supervisor."""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from muster.engines.remote.contact import Contact, SupervisorId
from muster.engines.remote.listener import RunListener
from muster.engines.remote.run_secrets import ContactSecrets, contact_secrets
from muster.node import dialer as module
from muster.node.dialer import Dialer, parse_address
from muster.node.files import replace_file
from muster.node.messages import Ended, HostFacts, Joined, Start
from muster.node.processes import state_of
from muster.node.serve import SETTINGS, TOKEN, Supervisor
from muster.storage.home import RunDir
from support.contacts import Loop, Owner
from support.faults import until
from support.node_servers import PROGRAM, launch
from support.node_servers import Supervisor as Driver


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.run.close()
    made.loop.close()


@pytest.fixture
def secrets(tmp_path: Path) -> ContactSecrets:
    (tmp_path / "r1").mkdir()
    return contact_secrets(RunDir(tmp_path / "r1"))


class Server:
    """A node server in the foreground, as an infrastructure starts it."""

    def __init__(self, folder: Path, environ: Mapping[str, str], **settings: Any) -> None:
        self.folder, self.log = folder, folder.with_suffix(".log")
        told = json.dumps({"run_id": "r1", "rank": 0, **settings})
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "serve", str(folder)],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, SETTINGS: told, **environ},
            )


Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path, secrets: ContactSecrets) -> Iterator[Serve]:
    """Starts servers of one folder that dial an address."""
    made: list[Server] = []

    def one(address: str, environ: Mapping[str, str] | None = None, **more: Any) -> Server:
        told = {TOKEN: secrets.token(0)} if environ is None else environ
        supervisor = {"address": address, "authority": secrets.authority, **more}
        made.append(Server(tmp_path / "server", told, supervisor=supervisor))
        return made[-1]

    yield one
    for server in made:
        server.process.terminate()
        server.process.wait(60)


class Supervised:
    """A supervisor that listens, and its contact with the node."""

    def __init__(self, loop: Loop, secrets: ContactSecrets, folder: Path, turn: int = 1) -> None:
        self.listener = RunListener(loop.run, "r1", secrets)
        self.owner = Owner(folder)
        self.contact = Contact(
            loop.run, self.listener.of(0), SupervisorId("r1", turn), self.owner, compress=True
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.port}"

    def close(self) -> None:
        self.contact.close()
        self.listener.close()


@pytest.fixture
def supervised(loop: Loop, secrets: ContactSecrets, tmp_path: Path) -> Iterator[Supervised]:
    made = Supervised(loop, secrets, tmp_path / "server")
    yield made
    made.close()


def run(loop: Loop, one: Supervised, *argv: str) -> str:
    """Run a program on the node. Returns its output."""
    loop.until(lambda: bool(one.owner.messages))
    one.contact.send(launch(one.owner.folder, 0, *argv))
    loop.until(lambda: isinstance(one.owner.messages[-1], Joined))
    one.contact.send(Start(0))
    loop.until(lambda: isinstance(one.owner.messages[-1], Ended))
    return (one.owner.folder / "logs/0.out").read_text()


def test_a_server_dials_and_its_programs_do_not_have_its_token(
    serve: Serve, supervised: Supervised, loop: Loop, secrets: ContactSecrets
) -> None:
    serve(supervised.address)
    shown = run(loop, supervised, "env")
    assert "PATH=" in shown
    facts = supervised.owner.messages[0]
    assert isinstance(facts, HostFacts)
    for text in (shown, str(facts.environ)):
        assert secrets.token(0) not in text
        assert SETTINGS not in text


def test_a_token_in_a_file(
    serve: Serve, supervised: Supervised, loop: Loop, secrets: ContactSecrets, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(secrets.token(0) + "\n")
    serve(supervised.address, {}, token_file=str(tmp_path / "token"))
    loop.until(lambda: supervised.contact.up)


def test_a_supervisor_that_takes_over_listens_elsewhere(
    serve: Serve, supervised: Supervised, loop: Loop, secrets: ContactSecrets, tmp_path: Path
) -> None:
    """The server reads the address when it dials; and continues to talk through its socket."""
    address = tmp_path / "address"
    address.write_text(supervised.address + "\n")
    server = serve(str(address))
    loop.until(lambda: supervised.contact.up)
    supervised.close()
    with socket.socket() as taken:  # so that the port is not used again; it refuses connections
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", supervised.listener.port))
        by_socket = Driver(server.folder, turn=2).greet()
        by_socket.expect(HostFacts)
        by_socket.disconnect()
        other = Supervised(loop, secrets, server.folder, turn=3)
        assert other.address != supervised.address
        replace_file(address, other.address.encode())
        loop.until(lambda: other.contact.up)
    assert run(loop, other, "echo", "hello") == "hello\n"
    other.close()


def test_a_server_that_is_refused_says_so_once_and_goes_on(
    serve: Serve, supervised: Supervised, loop: Loop, secrets: ContactSecrets
) -> None:
    server = serve(supervised.address, {TOKEN: secrets.token(1)})
    why = "its token is not that of node 0 of run r1"
    line = f"muster: the supervisor at {supervised.address} cannot be reached: {why}\n"
    loop.until(lambda: server.log.read_text() == line)
    taken: list[object] = []
    listener = supervised.listener

    class Counted(ContactSecrets, frozen=True):
        def is_token(self, token: str, rank: int, server: int = 0) -> bool:
            taken.append(rank)
            return super().is_token(token, rank, server)

    listener._secrets = Counted(secrets.authority, secrets.certificate, secrets.key, secrets.secret)
    loop.until(lambda: len(taken) == 2)
    assert server.log.read_text() == line
    assert server.process.poll() is None


@pytest.fixture
def silent_address() -> Iterator[str]:
    """An address that does not answer: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        full = []
        for _ in range(3):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(address)
            full.append(sock)
        yield f"127.0.0.1:{address[1]}"
        for sock in full:
            sock.close()


def test_a_server_that_dials_can_be_reached_and_ended(serve: Serve, silent_address: str) -> None:
    """Also while nobody answers."""
    server = serve(silent_address)
    socket_file = server.folder / "socket"
    until(socket_file.exists, "it listens")
    until(lambda: _children(server.process.pid), "it dials")
    (dialing,) = _children(server.process.pid)
    driver = Driver(server.folder).greet()
    driver.expect(HostFacts)
    driver.start(0, "true")
    driver.disconnect()
    server.process.terminate()
    assert server.process.wait(60) == 0
    until(lambda: state_of(dialing) in ("", "Z"), "nothing is left")


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.parametrize(
    ("told", "supervisor", "message"),
    [
        ("{", {}, "the settings are invalid: Expecting property name"),
        ("[]", {}, "the settings are invalid: Settings must be an object, not []"),
        (None, {"authority": "x"}, "the settings are invalid: not a certificate: "),
        (None, {"address": 1}, "the settings are invalid: Supervisor: address must be a string"),
        (None, {"token_file": "/nowhere"}, "[Errno 2] No such file or directory: '/nowhere'"),
    ],
)
def test_wrong_settings(
    tmp_path: Path,
    secrets: ContactSecrets,
    told: str | None,
    supervisor: dict[str, Any],
    message: str,
) -> None:
    supervisor = {"address": "h:1", "authority": secrets.authority, **supervisor}
    right = json.dumps({"run_id": "r1", "rank": 0, "supervisor": supervisor})
    done = subprocess.run(
        [*PROGRAM, "serve", str(tmp_path / "n")],
        env={**os.environ, SETTINGS: right if told is None else told},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"muster-node: {message}"), done.stderr


def dialer_of(secrets: ContactSecrets, address: str) -> Dialer:
    return Dialer(Supervisor(address, secrets.authority), "r1", "token")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "not an address, HOST:PORT: '127.0.0.1'"),
        ("127.0.0.1:0", "not an address, HOST:PORT: '127.0.0.1:0'"),
        ("127.0.0.1:99999", "not an address, HOST:PORT: '127.0.0.1:99999'"),
        ("/nowhere/address", "No such file or directory"),
        ("127.0.0.1:1", "Connection refused"),
    ],
)
def test_why_an_address_cannot_be_dialed(
    secrets: ContactSecrets, address: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dialer = dialer_of(secrets, address)
    shown = ""

    def failed() -> bool:
        nonlocal shown
        assert dialer.step(wanted=True) is None
        shown += capsys.readouterr().err
        return bool(shown)

    until(failed, "it has failed", pause=0.005)
    assert shown == f"muster: the supervisor at {address} cannot be reached: {why}\n"


def test_a_failure_alone_is_followed_by_another_try(secrets: ContactSecrets) -> None:
    """The end of the process that has dialed may have been noticed before its answer."""
    dialer = dialer_of(secrets, "127.0.0.1:1")
    dialer.step(wanted=True)
    (answer,) = dialer.interest()
    until(lambda: select.select([answer], [], [], 0)[0], "it has failed")
    assert dialer.step(wanted=True) is None
    assert dialer.interest() == {}
    assert dialer.due is not None


def test_a_process_that_cannot_be_started_is_tried_again(
    secrets: ContactSecrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    dialer = dialer_of(secrets, "127.0.0.1:1")
    assert dialer.step(wanted=True) is None
    assert dialer.due is not None


def test_pauses_grow_and_differ(secrets: ContactSecrets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is drawn between nothing and twice what the one before was drawn from, up to a limit."""
    now = 1000.0
    monkeypatch.setattr(module.clock, "now", lambda: now)
    most: list[float] = []
    monkeypatch.setattr(module.random, "uniform", lambda low, high: most.append(high) or high)  # type: ignore[func-returns-value]
    dialer = dialer_of(secrets, "127.0.0.1:1")
    monkeypatch.setattr(dialer, "_begin", lambda: setattr(dialer, "due", None))  # it fails
    assert dialer.due == now, "it dials at once"
    for _ in range(7):
        dialer.step(wanted=True)
        assert dialer.due == now + most[-1]
        now = dialer.due
    assert most == [1, 2, 4, 8, 16, 20, 20]
    dialer.reached()
    dialer.step(wanted=False)
    dialer.step(wanted=True)
    assert (most[-1], dialer.due) == (1, now + 1)


def test_addresses() -> None:
    assert parse_address("login.cluster:9") == ("login.cluster", 9)
    assert parse_address("[::1]:9") == ("::1", 9)


def test_a_server_that_is_dialed_imports_no_ssl() -> None:
    """The import would take half of its start."""
    code = "import sys, muster.node.serve; print(sorted({'ssl', 'random'} & set(sys.modules)))"
    argv = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:] = {sys.path}; {code}"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "[]\n"
