"""Nodes that dial their supervisor, and others who reach its port."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.engines.loop import RunLoop
from muster.engines.remote import listener as module
from muster.engines.remote.contact import Contact, SupervisorId
from muster.engines.remote.listener import RunListener
from muster.engines.remote.run_secrets import ContactSecrets, contact_secrets
from muster.node.connection import Connection
from muster.node.messages import Joined, Start
from muster.node.tls import client_context, supervisor_name
from muster.storage.home import RunDir
from support.contacts import Loop, Node, Owner, is_closed


class Run:
    """A run with a listener, and the contact with its node 0."""

    def __init__(self, loop: Loop, folder: Path, run_id: str) -> None:
        self.errors: list[Exception] = []
        self.loop = RunLoop(loop.loop, self.errors.append)
        self.secrets = secrets_of(folder, run_id)
        self.listener = RunListener(self.loop, run_id, self.secrets)
        self.owner = Owner(folder)
        self.supervisor = SupervisorId(run_id, 1)
        self.contact = self.expect(0, self.owner, compress=True)

    def expect(self, rank: int, owner: Owner, **more: Any) -> Contact:
        return Contact(self.loop, self.listener.of(rank), self.supervisor, owner, **more)

    def close(self) -> None:
        self.contact.close()
        self.listener.close()
        self.loop.close()


def secrets_of(folder: Path, run_id: str) -> ContactSecrets:
    (folder / run_id).mkdir(exist_ok=True)
    return contact_secrets(RunDir(folder / run_id))


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.run.close()
    made.loop.close()


@pytest.fixture
def run(loop: Loop, tmp_path: Path) -> Iterator[Run]:
    made = Run(loop, tmp_path, "r1")
    yield made
    made.close()
    assert not module._listeners


Dial = Callable[..., Node]


@pytest.fixture
def dial(loop: Loop, run: Run) -> Iterator[Dial]:
    """Makes nodes that dial the run's listener."""
    made: list[Node] = []

    def one(secrets: ContactSecrets | None = None, **more: Any) -> Node:
        made.append(Node(loop.loop, run.listener.port, secrets or run.secrets, **more))
        return made[-1]

    yield one
    for node in made:
        node.close()


@pytest.fixture
def stranger(run: Run) -> Iterator[Callable[[], socket.socket]]:
    """Makes bare connections to the port."""
    made: list[socket.socket] = []

    def one() -> socket.socket:
        made.append(socket.create_connection(("127.0.0.1", run.listener.port)))
        return made[-1]

    yield one
    for sock in made:
        sock.close()


def waiting() -> int:
    """How many connections have not proven themselves."""
    (one,) = module._listeners.values()
    return len(one._unproven)


def test_a_node_that_dials_is_talked_to(run: Run, dial: Dial, loop: Loop) -> None:
    node = dial()
    loop.until(lambda: run.contact.up and node.talks)
    assert (run.owner.told, run.owner.begun, node.compress) == (["reached"], 1, True)
    node.send(Joined(0))
    run.contact.send(Start(0))
    loop.until(lambda: run.owner.messages == [Joined(0)] and node.messages == [Start(0)])
    assert waiting() == 0


def test_a_node_dials_again(run: Run, dial: Dial, loop: Loop) -> None:
    """And nothing is lost."""
    node = dial()
    loop.until(lambda: node.talks)
    node.close()
    loop.until(lambda: not run.contact.up)
    run.contact.send(Start(0))
    node = dial(link=node.link, number=2)
    loop.until(lambda: node.messages == [Start(0)])
    assert run.owner.told == ["reached", "the other end has closed the connection", "reached"]
    assert run.owner.begun == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"token": "0" * 64}, "its token is not that of node 0 of run r1"),
        ({"token": ""}, "its token is not that of node 0 of run r1"),
        ({"token": "\ud800"}, "its token is not that of node 0 of run r1"),
        ({"token": None}, "its hello has no valid token"),
        ({"rank": -1}, "its hello has no valid rank"),
        ({"rank": 1}, "the supervisor does not expect node 1 now"),
        ({"version": None}, "its hello has no valid version"),
    ],
)
def test_who_is_refused_learns_why(
    run: Run, dial: Dial, loop: Loop, change: dict[str, Any], why: str
) -> None:
    node = dial(**change)
    loop.until(lambda: bool(node.ended))
    assert node.ended == why
    loop.until(lambda: waiting() == 0)
    assert run.owner.told == []


def test_a_node_cannot_pass_for_another_one(run: Run, dial: Dial, loop: Loop) -> None:
    node = dial(token=run.secrets.token(1))
    loop.until(lambda: bool(node.ended))
    assert node.ended == "its token is not that of node 0 of run r1"


def test_an_earlier_server_of_a_node_is_refused(run: Run, dial: Dial, loop: Loop) -> None:
    """Such as one of a job that has not ended yet, when another job has been submitted."""
    run.listener.of(0).server = 2
    for token in (run.secrets.token(0), run.secrets.token(0, 1)):
        node = dial(token=token)
        loop.until(lambda node=node: bool(node.ended))
        assert node.ended == "its token is not that of node 0 of run r1"
    node = dial(token=run.secrets.token(0, 2))
    loop.until(lambda: node.talks)


def test_the_secret_of_another_run(run: Run, dial: Dial, loop: Loop, tmp_path: Path) -> None:
    node = dial(token=secrets_of(tmp_path, "r2").token(0))
    loop.until(lambda: bool(node.ended))
    assert node.ended == "its token is not that of node 0 of run r1"
    assert run.owner.told == []


def test_a_supervisor_of_another_authority_is_told_no_token(
    run: Run, loop: Loop, tmp_path: Path, dial: Dial
) -> None:
    node = dial(secrets_of(tmp_path, "r2"))
    loop.until(lambda: bool(node.ended))
    assert node.ended.startswith("TLS: unable to get local issuer certificate")
    assert node.connection._unsent, "its hello"
    assert run.owner.told == []


def test_a_run_that_is_not_here(run: Run, dial: Dial, loop: Loop) -> None:
    node = dial(run_id="r2")
    loop.until(lambda: bool(node.ended))
    assert node.ended == "TLS: TLSV1_UNRECOGNIZED_NAME"
    assert run.owner.told == []


def test_a_certificate_is_good_for_its_own_run(
    run: Run, dial: Dial, loop: Loop, tmp_path: Path
) -> None:
    """Also if the other run has a supervisor on the same port."""
    other = Run(loop, tmp_path, "r2")
    assert other.listener.port == run.listener.port
    nodes = [dial(), dial(other.secrets, run_id="r2"), dial(run.secrets, run_id="r2")]
    loop.until(lambda: all(node.talks or node.ended for node in nodes))
    assert [node.talks for node in nodes] == [True, True, False]
    assert nodes[2].ended.startswith("TLS: ")
    other.close()
    node = dial(number=2, link=nodes[0].link)
    loop.until(lambda: node.talks)


def test_nobody_listens_after_the_last_run(loop: Loop, tmp_path: Path) -> None:
    run = Run(loop, tmp_path, "r1")
    silent = socket.create_connection(("127.0.0.1", run.listener.port))
    loop.until(lambda: waiting() == 1)
    run.close()
    assert is_closed(silent)
    silent.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", run.listener.port))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x01\x00\x00\x00\x02{}",
        b"\x16\x03\x01\x40\x00" + b"\x00" * 0x4000,
        b"\x00" * 100_000,
    ],
)
def test_what_is_not_tls_is_closed(
    run: Run, loop: Loop, stranger: Callable[[], socket.socket], data: bytes
) -> None:
    sock = stranger()
    sock.setblocking(False)
    sock.send(data)
    loop.until(lambda: is_closed(sock))
    loop.until(lambda: waiting() == 0)
    assert run.owner.told == []


def test_random_bytes(run: Run, loop: Loop, stranger: Callable[[], socket.socket]) -> None:
    for _ in range(50):
        sock = stranger()
        sock.sendall(os.urandom(4000))
        sock.close()
    loop.until(lambda: waiting() == 0)
    assert run.owner.told == []


@pytest.mark.parametrize("data", [b"\xff" * 5000, b"\x01\x00\x00\x00\x02[]"])
def test_what_is_no_hello_within_tls(
    run: Run, loop: Loop, stranger: Callable[[], socket.socket], data: bytes
) -> None:
    sock = stranger()
    context = client_context(run.secrets.authority)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=supervisor_name("r1"))
    sock.setblocking(False)

    def shaken() -> bool:
        try:
            incoming.write(sock.recv(65536))
        except BlockingIOError:
            pass
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            sock.send(outgoing.read() or b"")
        return True

    ticks = loop.loop.add(lambda _: None)
    ticks.watch(sock.fileno())
    loop.until(shaken)
    tls.write(data)
    sock.send(outgoing.read())
    found = bytearray()

    def answered() -> bool:
        try:
            incoming.write(sock.recv(65536))
            found.extend(tls.read(65536))
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        return b"hello" in found

    loop.until(answered)
    assert found[5:] == b"it does not say hello"
    ticks.close()


def test_who_says_nothing_is_given_up(
    run: Run,
    dial: Dial,
    loop: Loop,
    stranger: Callable[[], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.5)
    silent, slow = stranger(), stranger()
    slow.sendall(b"\x16\x03")  # of a handshake
    loop.until(lambda: waiting() == 2)
    node = dial()
    loop.until(lambda: node.talks)
    assert waiting() == 2
    loop.until(lambda: waiting() == 0)
    assert is_closed(silent)
    assert is_closed(slow)
    assert run.contact.up


def test_many_who_say_nothing_keep_nobody_out(
    run: Run,
    dial: Dial,
    loop: Loop,
    stranger: Callable[[], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor do those who come while a node proves itself."""
    monkeypatch.setattr(module, "_MOST", 3)
    before = [stranger() for _ in range(8)]
    node = dial()
    loop.until(lambda: any(one.has_spoken for one in newest()))
    after = [stranger() for _ in range(8)]
    begun = loop.loop.now()
    loop.until(lambda: node.talks)
    assert loop.loop.now() - begun < module._TIMEOUT / 2
    assert all(is_closed(one) for one in before)
    assert not is_closed(after[-1])
    assert waiting() <= 3


def test_many_who_say_something_are_closed_too(
    run: Run,
    loop: Loop,
    stranger: Callable[[], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    made: list[socket.socket] = []
    for _ in range(5):
        made.append(stranger())
        made[-1].sendall(b"\x16\x03")  # of a handshake
    loop.until(lambda: is_closed(made[0]) and is_closed(made[1]))
    assert [is_closed(one) for one in made[2:]] == [False, False, False]


def test_many_nodes_at_once_wait_for_each_other(
    run: Run, dial: Dial, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is given up while it proves itself, though others have connected after it."""
    monkeypatch.setattr(module, "_MOST", 2)
    monkeypatch.setattr(module, "_MOST_WAIT", 1000.0)
    nodes = [dial() for _ in range(6)]
    loop.until(lambda: all(node.talks or node.ended for node in nodes))
    assert not any("closed" in node.ended for node in nodes)


def newest() -> list[module._Unproven]:
    """The newest connection that waits."""
    (listener,) = module._listeners.values()
    return list(listener._unproven)[-1:]


def test_who_is_refused_is_not_waited_for(
    run: Run, dial: Dial, loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REFUSED_TIMEOUT", 0.1)
    monkeypatch.setattr(module, "_TIMEOUT", 1000.0)
    node = dial(token="x")
    monkeypatch.setattr(node, "close", lambda: None)
    loop.until(lambda: bool(node.ended))
    loop.until(lambda: waiting() == 0)


def test_a_client_that_vanishes_in_the_handshake(
    run: Run, loop: Loop, stranger: Callable[[], socket.socket]
) -> None:
    context = client_context(run.secrets.authority)
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=supervisor_name("r1"))
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    sock = stranger()
    sock.sendall(outgoing.read())
    loop.until(lambda: waiting() == 1)
    sock.close()
    loop.until(lambda: waiting() == 0)


def test_a_newer_connection_replaces_an_older_one(run: Run, dial: Dial, loop: Loop) -> None:
    old = dial(number=2)
    loop.until(lambda: old.talks)
    assert old.link is not None
    new = dial(number=3, link=old.link)
    loop.until(lambda: new.talks and run.contact.up)
    loop.until(lambda: bool(old.ended))
    late = dial(number=1)
    loop.until(lambda: bool(late.ended))
    assert late.ended == "the agent has another connection by now"
    assert run.contact.up
    assert run.owner.told == ["reached", "another connection has taken its place", "reached"]
    run.contact.send(Start(0))
    loop.until(lambda: new.messages == [Start(0)])


def test_two_servers_with_the_same_rank(run: Run, dial: Dial, loop: Loop) -> None:
    """The one that comes later stays, as its infrastructure has started it later."""
    old = dial(process="p1")
    loop.until(lambda: old.talks)
    new = dial(process="p2")
    loop.until(lambda: new.talks)
    loop.until(lambda: bool(old.ended))
    again = dial(process="p1", number=2, link=old.link)
    loop.until(lambda: bool(again.ended))
    assert again.ended == "another server of this node has taken its place"
    assert run.owner.begun == 2
    run.contact.send(Start(0))
    loop.until(lambda: new.messages == [Start(0)])


def test_another_version_is_refused_in_words(run: Run, dial: Dial, loop: Loop) -> None:
    node = dial(protocol=99, version="9.0", host="gpu-7")
    loop.until(lambda: bool(node.ended))
    assert node.ended.startswith("the agent on gpu-7 has Muster 9.0 (protocol 99), the supervisor")
    assert node.ended.endswith("use the same version on both")
    assert run.owner.told == []


def test_another_version_without_a_token_learns_nothing(run: Run, dial: Dial, loop: Loop) -> None:
    node = dial(protocol=99, token="wrong")
    loop.until(lambda: bool(node.ended))
    assert node.ended == "its token is not that of node 0 of run r1"


def test_an_error_of_a_run_is_its_own(run: Run, dial: Dial, loop: Loop, tmp_path: Path) -> None:
    other = Run(loop, tmp_path, "r2")

    def fail(connection: Connection) -> None:
        raise ZeroDivisionError(connection.hello)

    run.listener.of(0).take = fail
    nodes = [dial(), dial(other.secrets, run_id="r2")]
    loop.until(lambda: nodes[1].talks and bool(nodes[0].ended))
    assert nodes[0].ended == "its supervisor has failed"
    assert [type(error) for error in run.errors] == [ZeroDivisionError]
    assert other.errors == []
    other.close()


def test_the_secrets_stay(tmp_path: Path) -> None:
    first, second = secrets_of(tmp_path, "r1"), secrets_of(tmp_path, "r1")
    assert first == second
    assert first.token(1) != first.token(2)
    for path in (tmp_path / "r1" / "contact").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
