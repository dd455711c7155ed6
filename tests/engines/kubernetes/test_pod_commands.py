"""Commands in pods, with a WebSocket server in the place of the API server."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State
from websockets.sync.server import ServerConnection
from websockets.uri import parse_uri

from engines.kubernetes.api_stub import ApiStub, status, write_config
from engines.kubernetes.test_exec_pipes import Cluster, Handler
from muster.engines.base import NodeCommand, Stdio
from muster.engines.kubernetes import exec_channels, pod_commands
from muster.engines.kubernetes.exec_channels import ExecChannels, keep_alive
from muster.engines.kubernetes.exec_pipes import Opened
from muster.engines.kubernetes.observed_pods import NodePod
from muster.engines.kubernetes.observed_record import ObservedRecord
from muster.engines.kubernetes.pod_commands import PodProcess, argv_of, exit_code, run
from muster.errors import EngineError
from support.faults import until

SUCCESS = {"metadata": {}, "status": "Success"}
BIG = bytes(range(256)) * 4000


def failure(code: object, reason: str = "ExitCode") -> dict[str, Any]:
    causes = [{"reason": reason, "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (SUCCESS, 0),
        (failure(5), 5),
        (failure(137), 137),
        (failure("x"), None),
        (failure(-1), None),
        (failure(4000), None),
        (failure(5, "Other"), None),
        ({"status": "Failure", "message": "Internal error", "code": 500}, None),
        ({"status": "Failure", "details": None}, None),
        ([], None),
        (7, None),
    ],
    ids=repr,
)
def test_exit_codes(status: object, code: int | None) -> None:
    assert exit_code(json.dumps(status).encode()) == code


def test_a_status_that_is_none_has_no_code() -> None:
    assert exit_code(b"not JSON") is None
    assert exit_code(b"[" * 100_000) is None


def test_variables_and_a_directory_are_given_by_programs_of_the_pod(tmp_path: Path) -> None:
    plain = NodeCommand(("pwd",))
    assert argv_of(plain) == ("pwd",)
    script = ("sh", "-c", 'echo "$A-$B-$0-$1"; pwd', "x", "y z")
    folder = tmp_path / "a b"
    folder.mkdir()
    argv = argv_of(NodeCommand(script, {"A": "1 2", "B": "'"}, str(folder)))
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"1 2-'-x-y z\n{folder}\n"


class Files:
    """The standard streams of a command."""

    def __init__(self) -> None:
        given, stdin = os.pipe()
        stdout, written = os.pipe()
        stderr, reported = os.pipe()
        self.stdin = os.fdopen(stdin, "wb", buffering=0)
        self.stdout, self.stderr = os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb")
        self._given = os.fdopen(given, "rb"), os.fdopen(written, "wb"), os.fdopen(reported, "wb")

    def start(self, channels: ExecChannels) -> PodProcess:
        process = PodProcess(channels, "train-0", NodeCommand(("true",)), Stdio(*self._given))
        for one in self._given:
            one.close()
        return process

    def close(self) -> None:
        for one in (self.stdin, self.stdout, self.stderr):
            one.close()


Start = Callable[[Handler], tuple[PodProcess, Files]]


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a command that a handler plays."""
    cluster, opened = Cluster(tmp_path, tls=request.param), list[Files]()

    def made(handler: Handler) -> tuple[PodProcess, Files]:
        opened.append(Files())
        return opened[-1].start(ExecChannels(cluster.connect(cluster.serve(handler)))), opened[-1]

    yield made
    for one in opened:
        one.close()
    cluster.close()


def end(connection: ServerConnection, status: object = SUCCESS) -> None:
    connection.send(b"\x03" + json.dumps(status).encode())


def test_both_directions_at_the_same_time(start: Start) -> None:
    """More than there is room for on the way."""

    def echo(connection: ServerConnection) -> None:
        for message in connection:
            assert isinstance(message, bytes)
            if message == b"\xff\x00":
                break
            connection.send(b"\x01" + message[1:])
            connection.send(b"\x02" + message[1:2])
        end(connection, failure(9))

    process, files = start(echo)
    found: dict[str, bytes] = {}

    def read(name: str, file: Any) -> None:
        found[name] = file.read()

    readers = [
        threading.Thread(target=read, args=("out", files.stdout)),
        threading.Thread(target=read, args=("err", files.stderr)),
    ]
    for one in readers:
        one.start()
    with files.stdin as stdin:
        view = memoryview(BIG)
        while view:
            view = view[stdin.write(view) :]
    assert process.wait() == process.wait() == 9
    for one in readers:
        one.join()
    assert found["out"] == BIG
    assert found["err"]


def test_a_program_that_reads_nothing_more_ends(start: Start) -> None:
    """Its input is open here, and may never end."""
    process, files = start(end)
    assert process.wait() == 0
    assert files.stdout.read() == files.stderr.read() == b""


def silent() -> tuple[ExecChannels, socket.socket, socket.socket]:
    """A stream, its socket, and the other end, which does nothing by itself."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    protocol = ClientProtocol(parse_uri("ws://localhost/exec"), state=State.OPEN)
    return ExecChannels(Opened(ours, protocol, [])), ours, theirs


def test_input_that_is_never_read_ends_with_its_command() -> None:
    channels, ours, theirs = silent()
    files = Files()

    def feed() -> None:
        with pytest.raises(BrokenPipeError):
            while True:
                files.stdin.write(BIG)

    process = files.start(channels)
    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    until(lambda: not select.select([], [ours], [], 0)[1], "there is no room for more")
    status = b"\x03" + json.dumps(SUCCESS).encode()
    theirs.sendall(bytes((0x82, len(status))) + status)
    assert process.wait() == 0
    feeder.join(120)
    assert not feeder.is_alive()
    theirs.close()
    files.close()


def test_sizes_behind_input_that_is_never_read_block_nobody() -> None:
    """`muster server` passes sizes and signals on in the thread of its event loop."""
    channels, ours, theirs = silent()
    keys, terminal = os.openpty()
    os.set_blocking(keys, False)
    process = in_terminal(channels, terminal)

    def is_full() -> bool:
        with contextlib.suppress(BlockingIOError):
            os.write(keys, BIG[:4096])
        return not select.select([], [ours], [], 0)[1]

    until(is_full, "there is no room for more")

    def change() -> None:
        for rows in range(100_000):  # more than a pipe holds
            process.resize(rows, 80)
        process.send_signal(1)

    changer = threading.Thread(target=change, daemon=True)
    changer.start()
    changer.join(120)
    assert not changer.is_alive()
    assert process.wait() == 129
    os.close(keys)
    os.close(terminal)
    theirs.close()


def in_terminal(channels: ExecChannels, terminal: int) -> PodProcess:
    with os.fdopen(os.dup(terminal), "r+b", buffering=0) as file:
        return PodProcess(
            channels, "train-0", NodeCommand(("top",), terminal=True), Stdio(file, file, file)
        )


def run_at(folder: Path, url: str, command: NodeCommand, stdio: Stdio) -> PodProcess:
    pod = NodePod(0, "uid", "train-w-0-0-x", "main", "", 0)
    profile = write_config(folder / "config", url)
    return run(pod, ObservedRecord("train", "team"), profile, command, stdio)


def test_a_pod_that_is_replaced(tmp_path: Path) -> None:
    stub = ApiStub(lambda _: status(404, 'pods "train-w-0-0-x" not found'))
    with open(os.devnull, "r+b") as unused, pytest.raises(EngineError) as caught:
        run_at(tmp_path, stub.url, NodeCommand(("true",)), Stdio(unused, unused, unused))
    assert str(caught.value) == (
        "the pod of node-0 is being replaced: try again in a moment (pod train-w-0-0-x is gone)"
    )
    stub.close()


def test_a_command_that_cannot_have_its_files_ends(tmp_path: Path) -> None:
    cluster, closed = Cluster(tmp_path, tls=False), threading.Event()

    def handler(connection: ServerConnection) -> None:
        until_closed(connection)
        closed.set()

    url = f"http://localhost:{cluster.serve(handler)}"
    with open(os.devnull, "r+b") as unused, pytest.raises(termios.error) as caught:
        command = NodeCommand(("true",), terminal=True)  # which this file is not
        run_at(tmp_path, url, command, Stdio(unused, unused, unused))
    assert closed.wait(120)  # not only when `caught` is freed
    del caught
    cluster.close()


def test_the_newest_size_is_sent(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tls=False)
    first, changed = threading.Event(), threading.Event()
    found = list[tuple[int, int]]()

    def handler(connection: ServerConnection) -> None:
        while (9, 99) not in found:
            message = connection.recv()
            assert isinstance(message, bytes)
            assert message[0] == 4
            size = json.loads(message[1:])
            found.append((size["Height"], size["Width"]))
            first.set()
            assert changed.wait(120)
        end(connection)

    keys, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (7, 77))
    process = in_terminal(ExecChannels(cluster.connect(cluster.serve(handler))), terminal)
    assert first.wait(120)
    process.resize(8, 88)
    process.resize(9, 99)
    changed.set()
    assert process.wait() == 0
    assert found[0] == (7, 77)
    os.close(keys)
    os.close(terminal)
    cluster.close()


def test_a_status_is_read_though_nothing_can_be_sent() -> None:
    channels, _, theirs = silent()
    status = b"\x03" + json.dumps(failure(6)).encode()
    theirs.sendall(bytes((0x82, 126)) + len(status).to_bytes(2) + status)
    theirs.shutdown(socket.SHUT_RD)
    with pytest.raises(BrokenPipeError):
        channels.send(0, b"input")
    assert next(channels.messages()) == (3, status[1:])
    channels.close()
    theirs.close()


def test_messages_of_a_runtime_are_those_of_a_shell(start: Start) -> None:
    text = 'Internal error: exec: "nosuch": executable file not found in $PATH: unknown'
    process, files = start(lambda one: end(one, {"status": "Failure", "message": text}))
    assert process.wait() == 127
    assert files.stderr.read().decode() == f"{text}\n"
    process, _ = start(lambda one: end(one, {"status": "Failure", "message": "out of pids"}))
    with pytest.raises(EngineError, match="cannot run a command in pod train-0: out of pids"):
        process.wait()
    process, _ = start(lambda one: end(one, {}))
    with pytest.raises(EngineError, match="in pod train-0: the cluster does not say why"):
        process.wait()


def test_a_connection_that_is_closed_without_a_status(start: Start) -> None:
    process, _ = start(lambda one: one.send(b"\x01x"))
    with pytest.raises(EngineError, match="pod train-0 is lost; the command may still be"):
        process.wait()


def speak(connection: ServerConnection) -> None:
    connection.send(b"\x01" + BIG)
    end(connection)


def started(channels: ExecChannels, stdin: int, stdout: int) -> PodProcess:
    """A command whose standard error is not read."""
    with (
        open(os.dup(stdin), "rb") as given,
        open(os.dup(stdout), "wb", buffering=0) as written,
        open(os.devnull, "wb") as unused,
    ):
        return PodProcess(channels, "train-0", NodeCommand(("x",)), Stdio(given, written, unused))


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, tls=False)
    with open("/dev/full", "r+b", buffering=0) as full:
        channels = ExecChannels(cluster.connect(cluster.serve(speak)))
        process = started(channels, full.fileno(), full.fileno())
        with pytest.raises(EngineError, match="the command's output: No space left on device"):
            process.wait()
    cluster.close()


def test_output_that_nobody_reads_ends_the_command(start: Start) -> None:
    closed = threading.Event()

    def handler(connection: ServerConnection) -> None:
        assert closed.wait(120)
        with contextlib.suppress(ConnectionClosed):
            speak(connection)

    process, files = start(handler)
    files.stdout.close()
    closed.set()
    assert process.wait() == 141


def test_files_that_do_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever shares them may have made them so."""
    real, refused = os.read, list[int]()

    def read(descriptor: int, size: int) -> bytes:
        if size == pod_commands._CHUNK and not refused:  # another process was faster
            refused.append(descriptor)
            raise BlockingIOError
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    cluster = Cluster(tmp_path, tls=False)
    given, stdin = os.pipe()
    stdout, written = os.pipe()
    os.set_blocking(written, False)

    def handler(connection: ServerConnection) -> None:
        connection.send(b"\x01" + BIG)
        end(connection, failure(3 if connection.recv() == b"\x00input" else 4))

    process = started(ExecChannels(cluster.connect(cluster.serve(handler))), given, written)
    until(lambda: not select.select([], [written], [], 0)[1], "there is no room for more")
    os.close(written)
    os.write(stdin, b"input")
    with open(stdout, "rb") as file:
        assert file.read() == BIG
    assert process.wait() == 3
    assert refused
    os.close(given)
    os.close(stdin)
    cluster.close()


def until_closed(connection: ServerConnection) -> None:
    try:
        while True:
            connection.recv()
    except ConnectionClosed:
        pass


def test_a_signal_ends_the_stream(start: Start) -> None:
    closed = threading.Event()

    def handler(connection: ServerConnection) -> None:
        until_closed(connection)
        closed.set()

    process, _ = start(handler)
    process.send_signal(15)
    assert process.wait() == 143
    assert closed.wait(120)
    process.send_signal(9)  # it has ended
    process.resize(3, 4)
    assert process.wait() == 143


def test_a_new_size_of_the_terminal_here_does_not_end_a_command_without_one(start: Start) -> None:
    sent = threading.Event()

    def handler(connection: ServerConnection) -> None:
        assert sent.wait(120)
        end(connection, failure(5))

    process, _ = start(handler)
    process.send_signal(signal.SIGWINCH)
    sent.set()
    assert process.wait() == 5


def test_a_stream_that_is_ended_keeps_its_keys(tmp_path: Path) -> None:
    """Else a thread that sends input at that moment would send it in clear."""
    cluster = Cluster(tmp_path, tls=True)
    opened = cluster.connect(cluster.serve(until_closed))
    channels = ExecChannels(opened)
    channels.interrupt()
    assert isinstance(opened.sock, ssl.SSLSocket)
    assert opened.sock.cipher() is not None
    with pytest.raises(OSError, match=r"EOF|Broken pipe"):
        channels.send(0, b"input")
    channels.close()
    cluster.close()


def test_a_connection_that_is_dead_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
        keep_alive(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        pause = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        count = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert idle + pause * count < 120
        sock.close()


def test_pings_of_the_cluster_are_answered(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_channels, "_PING_PAUSE", 3600.0)

    def handler(connection: ServerConnection) -> None:
        end(connection, failure(7 if connection.ping().wait(120) else 8))

    process, _ = start(handler)
    assert process.wait() == 7


def test_pings_keep_a_connection(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_channels, "_PING_PAUSE", 0.01)
    pings = threading.Semaphore(0)

    def handler(connection: ServerConnection) -> None:
        answer = connection.protocol.receive_data

        def receive(data: bytes) -> None:
            pings.release()
            answer(data)

        connection.protocol.receive_data = receive  # type: ignore[method-assign]
        for _ in range(20):
            pings.acquire()
        end(connection)

    process, _ = start(handler)
    assert process.wait() == 0
