"""Entering nodes on other machines, through their supervisor. See also the contract tests."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest

from muster.engines.base import NodeCommand, NodeProcess, RunningNode, Stdio
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.registry import engine_named
from muster.engines.remote import client as client_module
from muster.engines.remote import proxy, questions
from muster.engines.remote.client import Client
from muster.errors import EngineError
from muster.node import unix_sockets
from muster.node.connection import Connection
from muster.node.streams import MOST, WINDOW, Streams
from muster.storage.home import Home, RunDir
from support.faults import until
from support.node_servers import kill
from support.sessions import Session

MakeSession = Callable[..., Session]


@pytest.fixture
def kind(prepare: Callable[[str], str]) -> str:
    return prepare("servers")


@pytest.fixture
def nodes(session: MakeSession) -> Session:
    """Two nodes that sleep."""
    one = session("exec sleep 1000", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    return one


def folder_of(one: Session) -> RunDir:
    return Home(one.home).run_dir(one.plan.run_id)


def start(one: Session, rank: int, script: str, stdin: int, stdout: int) -> NodeProcess:
    """Start a script of the shell. stdin, stdout: descriptors, which are closed."""
    node = RunningNode(folder_of(one), rank, one.pid, one.engine)
    with open(stdin, "rb") as reading, open(stdout, "wb") as writing:
        stdio = Stdio(reading, writing, sys.__stderr__)
        return engine_named("servers", node.folder.home).run_in_node(
            node, NodeCommand(("sh", "-c", script)), stdio
        )


def run(one: Session, rank: int, script: str, data: bytes = b"") -> tuple[bytes, int]:
    """Run a script with this as its input; its output and exit code."""
    to_read, write = os.pipe()
    read, to_write = os.pipe()
    process = start(one, rank, script, to_read, to_write)

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), open(write, "wb") as file:
            file.write(data)

    feeding = Thread(target=feed)
    feeding.start()
    with open(read, "rb") as file:
        found = file.read()
    feeding.join()
    return found, process.wait()


def null() -> int:
    return os.open(os.devnull, os.O_RDWR)


def memory(pid: int) -> int:
    """Bytes in memory."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_lot_of_binary_data_both_ways(nodes: Session) -> None:
    data = os.urandom(1 << 20) * 100
    assert run(nodes, 0, "exec cat", data) == (data, 0)


def test_several_clients_at_once(nodes: Session) -> None:
    def one(number: int) -> tuple[bytes, int]:
        script = f"seq {number} 100000; cat; exit {number}"
        return run(nodes, number % 2, script, f"input {number}\n".encode())

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(8)))
    for number, (out, code) in enumerate(found):
        lines = [*map(str, range(number, 100001)), f"input {number}"]
        assert (out.decode().split("\n"), code) == ([*lines, ""], number)


def test_who_does_not_read_holds_up_nobody(nodes: Session) -> None:
    read, to_write = os.pipe()
    before = memory(nodes.pid)
    process = start(nodes, 0, "yes & yes >&2", null(), to_write)
    assert os.read(read, 2) == b"y\n"
    for _ in range(20):
        assert run(nodes, 0, "seq 100000")[0].endswith(b"100000\n")
    assert memory(nodes.pid) - before < 16 << 20
    os.close(read)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == 137


def test_a_client_that_is_stopped_fills_no_memory(nodes: Session) -> None:
    code = (
        "import sys\n"
        "from muster.engines.base import NodeCommand, RunningNode, Stdio\n"
        "from muster.engines.registry import engine_named\n"
        "from muster.storage.home import RunDir\n"
        "from pathlib import Path\n"
        "node = RunningNode(RunDir(Path(sys.argv[1])), 0, 0, 'servers')\n"
        "stdio = Stdio(sys.stdin, sys.stdout, sys.stderr)\n"
        "command = NodeCommand(('sh', '-c', 'exec cat /dev/zero'))\n"
        "engine = engine_named('servers', node.folder.home)\n"
        "sys.exit(engine.run_in_node(node, command, stdio).wait())\n"
    )
    words = [sys.executable, "-c", code, str(folder_of(nodes).path)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.read(10 << 20)  # its buffers are as large as they get
        before = memory(nodes.pid)
        client.send_signal(signal.SIGSTOP)
        for _ in range(10):
            assert run(nodes, 0, "seq 100000")[0].endswith(b"100000\n")
        assert memory(nodes.pid) - before < 8 << 20
        client.kill()
    server = nodes.servers()[0]
    until(lambda: b"/dev/zero" not in commands_of(server), "the command has ended")


def commands_of(server: int) -> bytes:
    """The command lines of the children of a node's server."""
    found = b""
    for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        with contextlib.suppress(OSError):
            found += Path(f"/proc/{pid}/cmdline").read_bytes()
    return found


def test_contact_that_is_lost_ends_the_command(nodes: Session) -> None:
    read, to_write = os.pipe()
    process = start(nodes, 1, "echo up; exec sleep 1000", null(), to_write)
    assert os.read(read, 3) == b"up\n"
    kill(nodes.servers()[1])
    with pytest.raises(EngineError, match="contact with node-1 was lost"):
        process.wait()
    assert os.read(read, 1) == b""
    os.close(read)
    assert run(nodes, 0, "echo still there") == (b"still there\n", 0)


def test_a_supervisor_that_is_killed_ends_the_command(
    nodes: Session, alive: Callable[[str], list[str]]
) -> None:
    read, to_write = os.pipe()
    process = start(nodes, 0, "echo up; exec sleep 8642", null(), to_write)
    assert os.read(read, 3) == b"up\n"
    kill(nodes.pid)
    with pytest.raises(EngineError, match="contact with the run's supervisor was lost"):
        process.wait()
    os.close(read)
    until(lambda: not alive("8642"), "the command has ended")
    with pytest.raises(EngineError, match="the run's supervisor cannot be reached: Connection ref"):
        run(nodes, 0, "true")


def test_a_node_that_is_restarted_in_place(session: MakeSession) -> None:
    one = session("exec sleep 1000", keep=True)
    one.start(0)
    one.ready(0)
    read, to_write = os.pipe()
    process = start(one, 0, "echo up; exec sleep 1000", null(), to_write)
    assert os.read(read, 3) == b"up\n"
    os.close(read)
    node = RunningNode(folder_of(one), 0, one.pid, one.engine)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        engine = engine_named("servers", node.folder.home)
        forwarded = engine.forward(node, ["127.0.0.1"], 1, listener)
    waiting = Thread(target=forwarded.wait)
    waiting.start()
    one.kill(0)
    one.ended(0)
    assert process.wait() == 137
    one.start(0, incarnation=1)
    one.ready(0, incarnation=1)
    assert run(one, 0, "echo again") == (b"again\n", 0)
    assert waiting.is_alive()  # the node is the same
    one.kill(0, incarnation=1)
    one.ended(0, incarnation=1)
    one.release(0, incarnation=1)
    waiting.join(30)
    assert not waiting.is_alive()
    forwarded.close()


def test_what_is_refused(nodes: Session) -> None:
    with pytest.raises(EngineError, match="cannot run a command in node-7: node-7 has no proc"):
        run(nodes, 7, "true")
    with pytest.raises(EngineError, match="the command line and its variables are too long"):
        run(nodes, 0, "x" * (1 << 20))


def test_counters_of_the_nodes_that_answer(nodes: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_COUNTERS_TIMEOUT", 60.0)
    folder = folder_of(nodes)
    engine = engine_named("servers", folder.home)
    found = engine.counters(folder, nodes.pid)
    assert {rank: one.processes for rank, one in found.items()} == {0: 1, 1: 1}
    stopped = nodes.servers()[1]
    os.kill(stopped, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(questions, "_COUNTERS_TIMEOUT", 5.0)
        assert list(engine.counters(folder, nodes.pid)) == [0]
    os.kill(stopped, signal.SIGCONT)
    nodes.kill(0)
    nodes.ended(0)
    assert list(engine.counters(folder, nodes.pid)) == [1]


def test_a_connection_to_a_port_that_nobody_listens_on(
    nodes: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    node = RunningNode(folder_of(nodes), 0, nodes.pid, nodes.engine)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        engine = engine_named("servers", node.folder.home)
        forwarded = engine.forward(node, ["127.0.0.1", "::1"], 1, listener)
        address = listener.getsockname()
        for _ in range(2):
            with socket.create_connection(address, timeout=30) as one:
                assert one.recv(1) == b""
    forwarded.close()
    forwarded.wait()
    assert capfd.readouterr().err == "muster: port 1 of the node: Connection refused\n" * 2


def test_forwarding_fails_without_contact(nodes: Session) -> None:
    node = RunningNode(folder_of(nodes), 1, nodes.pid, nodes.engine)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        engine = engine_named("servers", node.folder.home)
        forwarded = engine.forward(node, ["127.0.0.1"], 1, listener)
        kill(nodes.servers()[1])
        with pytest.raises(EngineError, match="cannot forward to node-1: contact with node-1 was"):
            forwarded.wait()
        while nodes.event()["event"] != "NodeEnded":
            pass  # as it was unreachable, and is not any more
        with pytest.raises(EngineError, match="cannot forward to node-1: no program runs there"):
            engine_named("servers", node.folder.home).forward(node, ["127.0.0.1"], 1, listener)


def test_the_whole_output_arrives_though_its_reader_is_slow(nodes: Session) -> None:
    """More than pipes and streams hold, after the command has ended."""
    read, to_write = os.pipe()
    process = start(nodes, 0, "head -c 1500000 /dev/zero; exit 4", null(), to_write)
    until(lambda: b"head" not in commands_of(nodes.servers()[0]), "the command has ended")
    with open(read, "rb") as file:
        assert len(file.read()) == 1_500_000
    assert process.wait() == 4


# --- the socket


class Contact:
    """In place of the contact with a node's server, whose streams are `server`."""

    def __init__(self) -> None:
        self.up = True
        self.why_lost = ""
        self.connect()

    def connect(self) -> None:
        self.streams, self.server = Streams(supervisor=True), Streams(supervisor=False)

    def wake(self) -> None:
        """Carry what is to be written."""
        carry(self.streams, self.server)


def carry(source: Streams, target: Streams) -> None:
    while frame := source.next_frame():
        target.take_frame(*frame)


class Proxied:
    """A proxy in this process, which has contact with node 3, and a client."""

    def __init__(self, folder: Path) -> None:
        self.loop, self._errors = EventLoop(), list[Exception]()
        self.proxy = proxy.Proxy(RunLoop(self.loop, self._errors.append), str(folder))
        self.contact = Contact()
        self.proxy.add(3, self.contact)  # type: ignore[arg-type]
        with ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(Client, RunDir(folder))
            while not connecting.done():
                self.turn()
        self.client = connecting.result()
        self.work()

    def turn(self) -> None:
        """One round of the proxy's loop."""
        self.loop.post(lambda: None)
        self.loop.run_once()
        assert self._errors == []

    def work(self) -> None:
        """Carry what is to be carried."""
        connection = self.client._connection
        for _ in range(20):
            connection.interest()
            connection.step()
            self.turn()

    def close(self) -> None:
        self.client.close()
        self.proxy.close()
        self.loop.close()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    one = Proxied(tmp_path)
    yield one
    one.close()


def test_what_arrives_in_any_step_is_passed_on(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it does so while something is written."""
    client = proxied.client
    stream = client.open(3, "anything")
    sent: list[int] = []
    step = Connection.step

    def step_of_proxy(connection: Connection) -> object:
        if connection is not client._connection:  # more arrives before each step
            if len(sent) < 2:
                sent.append(1000)
                stream.send(b"x" * 1000)
            step(client._connection)
        return step(connection)

    monkeypatch.setattr(Connection, "step", step_of_proxy)
    proxied.work()
    (opened,) = proxied.contact.server.opened()
    assert opened.about == {"kind": "anything"}
    assert len(opened.take()) == sum(sent)


def test_no_more_is_taken_than_the_node_has_room_for(proxied: Proxied) -> None:
    stream = proxied.client.open(3, "anything")
    sent = 0
    for _ in range(10):
        sent += stream.room
        stream.send(b"x" * stream.room)
        proxied.work()
    (opened,) = proxied.contact.server.opened()
    # what the node has, what is on its way to it, and what the supervisor has not taken
    assert sent <= 3 * WINDOW
    taken = 0
    for _ in range(10):
        taken += len(opened.take())
        carry(proxied.contact.server, proxied.contact.streams)
        proxied.proxy.changed(3)
        proxied.work()
    assert taken == sent


def test_contact_that_is_lost_or_was(proxied: Proxied) -> None:
    contact = proxied.contact
    streams = [proxied.client.open(3, "input") for _ in range(2)]
    proxied.work()
    first, _ = contact.server.opened()
    first.cancel("the node's own reason")
    carry(contact.server, contact.streams)
    proxied.proxy.changed(3)
    proxied.work()
    assert [one.canceled for one in streams] == ["the node's own reason", ""]
    contact.up, contact.why_lost = False, "no route to host"
    contact.streams.close("the connection is closed")
    proxied.proxy.changed(3)
    proxied.work()
    assert streams[1].canceled == "contact with node-3 was lost"
    streams.append(proxied.client.open(3, "input"))
    streams.append(proxied.client.open(4, "input"))
    nodes = proxied.client.streams.open({"kind": "nodes"})
    proxied.work()
    assert [one.canceled for one in streams[2:]] == [
        "node-3 cannot be reached now: no route to host",
        "node-4 has no processes",
    ]
    assert nodes.result == {"reachable": [], "unreachable": [3]}
    # a command with streams of the connection before
    before = streams[0].number
    contact.up = True
    contact.connect()
    command = proxied.client.open(3, "command", argv=["true"], input=before)
    proxied.work()
    assert command.canceled == "an invalid request to run a command"


def test_requests_that_are_none(proxied: Proxied) -> None:
    client = proxied.client
    wrongs: list[dict[str, object]] = [{}, {"node": "3"}, {"node": True}]
    streams = [client.streams.open({"kind": "input", **about}) for about in wrongs]
    proxied.work()
    assert [one.canceled for one in streams] == ["no node given"] * 3
    for wrong in (7, "0", None, streams[0].number):
        command = client.open(3, "command", argv=["true"], input=wrong)
        proxied.work()
        assert command.canceled == "an invalid request to run a command"
    many = [client.open(3, "input") for _ in range(MOST - 100)]
    proxied.work()
    refused = {one.canceled for one in many}
    assert refused == {"", "too many commands run in node-3, or connections are open to it"}
    assert proxied.contact.streams.count == MOST - 200
    proxied.client.close()
    proxied.turn()
    proxied.turn()
    assert proxied.contact.streams.count == 0


@pytest.fixture
def sock(nodes: Session) -> Iterator[socket.socket]:
    """A connection to the supervisor."""
    with unix_sockets.connect(str(folder_of(nodes).path), proxy.SOCKET) as one:
        one.settimeout(30)
        yield one


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b'\x01\0\0\0\x0e{"protocol":9}', b"the run was started by another version of Muster"),
        (b"GET / HTTP/1.0\r\n\r\n", b"it does not say hello"),
        (b"\x01\0\0\0\x02[]", b"it does not say hello"),
        (b"\x03\xff\xff\xff\xff", b"it does not say hello"),
    ],
)
def test_what_is_no_client_is_refused(
    nodes: Session, sock: socket.socket, sent: bytes, answer: bytes
) -> None:
    sock.sendall(sent)
    found = b""
    while answer not in found:
        data = sock.recv(1 << 16)
        assert data, found
        found += data
    assert run(nodes, 0, "echo well") == (b"well\n", 0)


def test_no_more_clients_than_there_may_be(nodes: Session) -> None:
    folder = str(folder_of(nodes).path)
    many = [unix_sockets.connect(folder, proxy.SOCKET) for _ in range(proxy._MOST_CLIENTS)]
    for one in many:
        one.settimeout(30)
        assert one.recv(1)  # it is served
    with pytest.raises(EngineError, match="reached: too many processes have connected to it"):
        Client(folder_of(nodes))
    for one in many:
        one.close()

    def is_served() -> bool:
        try:
            return run(nodes, 0, "echo well") == (b"well\n", 0)
        except EngineError:  # it has not noticed yet
            return False

    until(is_served)


def test_a_supervisor_that_does_not_answer(nodes: Session) -> None:
    os.kill(nodes.pid, signal.SIGSTOP)
    with pytest.raises(EngineError, match="the run's supervisor does not answer"):
        Client(folder_of(nodes), 0.1)
    os.kill(nodes.pid, signal.SIGCONT)


def test_a_supervisor_of_another_version(nodes: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PROTOCOL", 9)
    with pytest.raises(EngineError, match="the run was started by another version of Muster"):
        Client(folder_of(nodes))
