"""What a node server does for the streams of its connections, with real processes."""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node.command_streams import Program
from muster.node.counters import Counters
from muster.node.file_streams import FileStreams
from muster.node.messages import HostFacts, Ready, Started
from muster.node.processes import state_of
from muster.node.stream_services import StreamServices
from muster.node.streams import WINDOW, Stream, Streams
from support.faults import until
from support.node_servers import Supervisor, server_pid


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Supervisor]:
    """A node with a program."""
    made = Supervisor(tmp_path / "server").greet()
    made.expect(HostFacts)
    made.start(0, "sleep", "1000", env={"OF_NODE": "yes"})
    made.expect(Started)
    made.expect(Ready)
    pid = server_pid(tmp_path / "server")
    yield made
    made.disconnect()
    os.kill(pid, signal.SIGTERM)
    until(lambda: state_of(pid) in ("", "Z"), "the server has ended")


def carry(source: Streams, target: Streams) -> None:
    """Carry what one end has to write to the other."""
    while frame := source.next_frame():
        target.take_frame(*frame)


def refusal(node: Supervisor, stream: Stream) -> str:
    node.until(lambda: bool(stream.canceled))
    return stream.canceled


# --- files


@pytest.mark.parametrize("size", [0, 1, 70_000, 5 * WINDOW + 1])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_file_is_read(node: Supervisor, tmp_path: Path, size: int, offset: int) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    stream = node.streams.open({"kind": "read", "path": f"{tmp_path}/file", "offset": offset})
    assert node.collect(stream) == content[offset:]
    assert stream.result == {"offset": max(size, offset)}


def test_a_file_is_followed_until_the_reader_is_done(node: Supervisor, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\n")
    about = {"kind": "read", "path": str(path), "offset": 0, "follow": True}
    streams = [node.streams.open(about), node.streams.open({**about, "offset": 2})]
    found: list[list[bytes]] = [[], []]

    def arrived(text: bytes) -> bool:
        for stream, parts in zip(streams, found, strict=True):
            parts.append(stream.take())
        return all(b"".join(parts).endswith(text) for parts in found)

    node.until(lambda: arrived(b"one\n") or arrived(b"e\n"))
    for line in (b"two\n", b"three\n"):
        with open(path, "ab") as file:
            file.write(line)
        node.until(lambda line=line: arrived(line))  # type: ignore[misc]
    with open(path, "ab") as file:
        file.write(b"last\n")
    for stream in streams:
        stream.finish({})
    ends = [node.collect(*both) for both in zip(streams, found, strict=True)]
    assert ends == [b"one\ntwo\nthree\nlast\n", b"e\ntwo\nthree\nlast\n"]
    assert streams[0].result == {"offset": len(ends[0])}


def test_a_reader_that_takes_nothing_holds_up_its_stream_only(
    node: Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(b"x" * 5 * WINDOW)
    (tmp_path / "small").write_bytes(b"small")
    slow = node.streams.open({"kind": "read", "path": f"{tmp_path}/large"})
    quick = node.streams.open({"kind": "read", "path": f"{tmp_path}/small"})
    assert node.collect(quick) == b"small"
    assert len(slow.take()) <= WINDOW
    slow.cancel("not needed")
    again = node.streams.open({"kind": "read", "path": f"{tmp_path}/small"})
    assert node.collect(again) == b"small"


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"kind": "read", "path": "/no/such"}, "No such file or directory"),
        ({"kind": "read", "path": "/dev/zero"}, "not a regular file"),
        ({"kind": "read", "path": "a\0b"}, "embedded null byte"),
        ({"kind": "read", "path": 1}, "a file is read from a path, an offset"),
        ({"kind": "read", "path": "/etc/passwd", "offset": 1.5}, "a file is read from a path"),
        ({"kind": "read", "path": "/etc/passwd", "offset": -1}, "a file is read from a path"),
        ({"kind": "read", "path": "/etc/passwd", "offset": 1 << 63}, "a file is read from a path"),
        ({"kind": "guess"}, "unknown kind of stream: 'guess'"),
        ({}, "unknown kind of stream: None"),
        ({"kind": "connect", "port": 0}, "a port is a number from 1 to 65535"),
        ({"kind": "connect", "port": 1}, "Connection refused"),
        ({"kind": "command"}, "an invalid request to run a command"),
        ({"kind": "command", "argv": ["true"]}, "an invalid request to run a command"),
        ({"kind": "command", "argv": ["true"], "input": float("inf")}, "an invalid request to run"),
        (
            {"kind": "command", "argv": ["true"], "input": 0, "output": 2, "errors": 4},
            "an invalid request to run a command",
        ),
    ],
)
def test_what_is_refused(node: Supervisor, about: dict[str, Any], why: str) -> None:
    assert why in refusal(node, node.streams.open(about))


def exchange(node: Supervisor, writes: Stream, reads: Stream, content: bytes) -> bytes:
    """Send what there is room for, until as much has come back."""
    left, found = [content], [b""]

    def step() -> bool:
        part, left[0] = left[0][: writes.room], left[0][writes.room :]
        writes.send(part)
        if not left[0]:
            writes.finish({})
        found.append(reads.take())
        return sum(map(len, found)) >= len(content)

    node.until(step)
    return b"".join(found)


# --- commands


class Command:
    def __init__(self, node: Supervisor, *argv: str, **more: Any) -> None:
        self._node = node
        names = ["input", "output"] if "terminal" in more else ["input", "output", "errors"]
        self.parts = {name: node.streams.open({"kind": name}) for name in names}
        numbers = {name: stream.number for name, stream in self.parts.items()}
        about = {"kind": "command", "argv": argv, **numbers, **more}
        self.stream = node.streams.open(about)
        self.out: list[bytes] = []

    def request(self, **request: Any) -> None:
        self.stream.send(json.dumps(request).encode() + b"\n")

    def wait_for(self, text: bytes) -> None:
        def arrived() -> bool:
            self.out.append(self.parts["output"].take())
            return text in b"".join(self.out)

        self._node.until(arrived)

    def end(self) -> tuple[int, bytes, bytes]:
        """Exit code, output and errors."""
        out = self._node.collect(self.parts["output"], self.out)
        errors = self._node.collect(self.parts["errors"]) if "errors" in self.parts else b""
        self._node.collect(self.stream)
        assert self.stream.result is not None
        return self.stream.result["code"], out, errors


def test_a_command_has_the_environment_and_folder_of_the_program(
    node: Supervisor, tmp_path: Path
) -> None:
    script = 'pwd; echo "$OF_NODE $MORE $LOCAL_RANK"; echo bad >&2; exit 3'
    command = Command(node, "sh", "-c", script, env={"MORE": "too"})
    assert command.end() == (3, f"{tmp_path}/server/node/work\nyes too 0\n".encode(), b"bad\n")
    assert Command(node, "pwd", cwd="/usr").end() == (0, b"/usr\n", b"")


def test_input_and_output_of_any_size(node: Supervisor) -> None:
    content = os.urandom(5 * WINDOW)
    command = Command(node, "cat")
    assert exchange(node, command.parts["input"], command.parts["output"], content) == content
    assert command.end()[0] == 0


def test_who_does_not_read_its_input(node: Supervisor) -> None:
    command = Command(node, "true")
    command.parts["input"].send(b"x" * WINDOW)
    assert command.end() == (0, b"", b"")


def test_a_program_that_does_not_exist(node: Supervisor) -> None:
    code, _, errors = Command(node, "no-such-program").end()
    assert code == 127
    assert b"no-such-program: command not found" in errors


def test_signals_reach_it(node: Supervisor) -> None:
    script = "trap 'echo got it; exit 5' USR1; echo up; while :; do sleep 0.01; done"
    command = Command(node, "sh", "-c", script)
    command.wait_for(b"up\n")
    command.request(signal=int(signal.SIGUSR1))
    assert command.end()[:2] == (5, b"up\ngot it\n")


@pytest.mark.parametrize("number", [-1, 0, 999, 1 << 80, float("inf"), "x", None])
def test_an_invalid_signal(node: Supervisor, number: object) -> None:
    command = Command(node, "sleep", "1000")
    command.request(signal=number)
    assert refusal(node, command.stream) == "an invalid request to a command"


def in_process() -> tuple[Streams, Streams, StreamServices]:
    """The client's streams, and those of a server in this process, with its services."""
    client, server = Streams(supervisor=True), Streams(supervisor=False)
    return client, server, StreamServices(server, "")


def request(client: Streams, *argv: str, **more: object) -> Stream:
    """Request to run a command."""
    numbers = {name: client.open({"kind": name}).number for name in ("input", "output", "errors")}
    return client.open({"kind": "command", "argv": argv, **numbers, **more})


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_signal_for_a_program_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    client, server, services = in_process()
    stream = request(client, "sleep", "1000")
    carry(client, server)
    services.step(Program(os.environ, "/"))

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "kill", refuse)  # as for sudo
    stream.send(b'{"signal": 15}\n')
    carry(client, server)
    services.step(None)
    carry(server, client)
    assert not stream.canceled
    services.close()


def test_a_terminal(node: Supervisor) -> None:
    script = "stty size; while read x; do stty size; done"
    command = Command(node, "sh", "-c", script, terminal=[20, 70])
    command.wait_for(b"20 70\r\n")
    command.request(size=[30, 90])
    command.parts["input"].send(b"again\n")
    command.wait_for(b"again\r\n30 90\r\n")
    command.parts["input"].send(b"\x04")
    assert command.end()[0] == 0


def test_ctrl_c_on_a_terminal(node: Supervisor) -> None:
    command = Command(node, "cat", terminal=[24, 80])
    command.parts["input"].send(b"up\n")
    command.wait_for(b"up\r\nup\r\n")  # the terminal's echo, and the program's
    command.parts["input"].send(b"\x03")
    assert command.end()[0] == 130


def test_who_closes_the_output_ends_what_writes_to_it(node: Supervisor) -> None:
    command = Command(node, "sh", "-c", "yes; kill -l $? >&2")
    command.wait_for(b"y")
    command.parts["output"].cancel("enough")
    assert node.collect(command.parts["errors"]) == b"PIPE\n"
    assert node.collect(command.stream).startswith(b'{"pid": ')


def test_the_end_of_a_terminals_input_hangs_it_up(node: Supervisor) -> None:
    command = Command(node, "sh", "-c", "trap 'exit 9' HUP; echo up; cat; cat", terminal=[24, 80])
    command.wait_for(b"up\r\n")
    command.parts["input"].finish({})
    assert command.end()[0] in (9, 129)


def test_the_python_of_the_node(node: Supervisor) -> None:
    script = 'exec "$MUSTER_NODE_PYTHON" -c "import sys; print(sys.executable)"'
    assert Command(node, "sh", "-c", script).end()[1] == f"{sys.executable}\n".encode()


def test_output_is_complete_though_another_process_has_it_open(node: Supervisor) -> None:
    command = Command(node, "sh", "-c", "sleep 1000 & seq 100000")
    code, out, _ = command.end()
    assert (code, out.count(b"\n")) == (0, 100_000)


@pytest.mark.parametrize("how", ["cancel", "disconnect", "invalid"])
def test_who_hangs_up_ends_the_command(node: Supervisor, how: str) -> None:
    command = Command(node, "sh", "-c", "trap '' HUP TERM; echo $$; sleep 1000; sleep 1000")
    command.wait_for(b"\n")
    pid = int(b"".join(command.out))
    if how == "cancel":
        command.stream.cancel("enough")
        node.until(lambda: state_of(pid) in ("", "Z"))
    elif how == "invalid":
        command.stream.send(b"nothing\n")
        assert refusal(node, command.stream) == "an invalid request to a command"
        node.until(lambda: state_of(pid) in ("", "Z"))
    else:
        node.disconnect()
    until(lambda: state_of(pid) in ("", "Z"), "the command has ended")


def test_nothing_of_a_command_is_kept() -> None:
    client, server, services = in_process()
    kept = []
    for number in range(3):
        stream = request(client, "true")
        parts = list(client._streams.values())
        parts[0].send(b"x" * WINDOW)  # most of it is not read
        parts[0].finish({})
        carry(client, server)
        kept += [weakref.ref(one) for one in server._streams.values()]
        services.step(Program(os.environ, "/"))
        while stream.result is None:
            pid, status = os.waitpid(-1, 0)
            services.reaped(pid, status)
            services.step(None)
            carry(server, client)
            stream.take()
        for one in parts:
            one.take()
            one.finish({})
        carry(client, server)
        services.step(None)
        assert (number, client._streams, server._streams) == (number, {}, {})
    gc.collect()
    assert len(kept) == 12
    assert [one for one in kept if one() is not None] == []


def test_nothing_of_a_command_that_was_refused_is_kept() -> None:
    client, server, services = in_process()
    refused = request(client, "true")
    canceled = client.open({"kind": "input"})
    carry(client, server)
    services.step(None)
    carry(server, client)
    assert refused.canceled == "no program runs there"
    canceled.cancel("not needed")
    client.open({"kind": "input"}).cancel("not needed")
    carry(client, server)
    services.step(None)
    assert (client._streams, server._streams) == ({}, {})
    assert len(services._commands._parts) == 1


@pytest.mark.parametrize("terminal", [None, [24, 80]])
def test_a_command_that_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, terminal: list[int] | None
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    client, server, services = in_process()
    real = os.pipe
    opened: list[tuple[int, int]] = []

    def pipe() -> tuple[int, int]:
        if len(opened) == 2:
            fail()
        opened.append(real())
        return opened[-1]

    monkeypatch.setattr(os, "pipe", pipe)
    monkeypatch.setattr(os, "fork", fail)
    before = descriptors()
    stream = request(client, "true", terminal=terminal)
    carry(client, server)
    services.step(Program(os.environ, "/"))
    carry(server, client)
    assert stream.canceled == "cannot run a command: Too many open files"
    assert descriptors() == before


# --- descriptors


def test_streams_leave_descriptors_to_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    client, server, services = in_process()
    about = {"kind": "read", "path": f"{tmp_path}/file", "follow": True}
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 40
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    streams = [client.open(about) for _ in range(200)]
    carry(client, server)
    services.step(None)
    carry(server, client)
    why = {stream.canceled for stream in streams}
    assert why == {"", "the node server has too many open files"}
    assert max(map(int, os.listdir("/proc/self/fd"))) < limit - 20
    services.close()


def test_a_file_that_cannot_be_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def fail(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(FileStreams, "_watch", fail)  # it is removed after it was opened
    client, server, services = in_process()
    before = descriptors()
    stream = client.open({"kind": "read", "path": f"{tmp_path}/file", "follow": True})
    carry(client, server)
    services.step(None)
    carry(server, client)
    assert stream.canceled == "No such file or directory"
    assert descriptors() == before


# --- ports


def test_a_connection_without_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    client, server, services = in_process()
    monkeypatch.setattr(socket, "socket", fail)
    stream = client.open({"kind": "connect", "port": 1})
    carry(client, server)
    services.step(Program(os.environ, "/"))
    carry(server, client)
    assert stream.canceled == "Too many open files"


def test_a_port_of_the_node(node: Supervisor) -> None:
    content = os.urandom(3 * WINDOW)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            sock, _ = server.accept()
            with sock:
                while data := sock.recv(1 << 16):
                    sock.sendall(data)

        thread = threading.Thread(target=echo)
        thread.start()
        stream = node.streams.open({"kind": "connect", "port": server.getsockname()[1]})
        assert exchange(node, stream, stream, content) == content
        node.collect(stream)
        thread.join(60)


def test_the_first_of_several_addresses_that_answers(node: Supervisor) -> None:
    with socket.create_server(("127.0.0.3", 0)) as server:
        port = server.getsockname()[1]
        hosts = ["127.0.0.2", "::1", "127.0.0.3"]
        stream = node.streams.open({"kind": "connect", "port": port, "hosts": hosts})
        stream.finish({})
        server.setblocking(False)
        node.until(lambda: bool(select.select([server], [], [], 0.01)[0]))
        server.accept()[0].close()
        node.collect(stream)
    assert "Connection refused" in refusal(node, node.streams.open(stream.about))


@pytest.mark.parametrize("hosts", [["localhost"], [1], 1, ["127.0.0.1", None], ["1.2.3.4\0"]])
def test_addresses_that_are_none(node: Supervisor, hosts: object) -> None:
    stream = node.streams.open({"kind": "connect", "port": 1, "hosts": hosts})
    assert refusal(node, stream) == "the hosts of a port are IP addresses"


# --- questions


def test_what_the_node_uses(node: Supervisor) -> None:
    stream = node.streams.open({"kind": "counters"})
    found = Counters(*json.loads(node.collect(stream)))
    assert (stream.result, found.processes, found.received) == ({"code": 0}, 1, None)


def test_stacks_of_a_node_without_python(node: Supervisor) -> None:
    assert json.loads(node.collect(node.streams.open({"kind": "stacks"}))) == []


def test_a_question_that_cannot_be_answered() -> None:
    client, server, services = in_process()
    stream = client.open({"kind": "counters"})
    carry(client, server)
    program = Program(os.environ, "/", agent=1 << 30)  # no process has this pid
    services.step(program)
    while stream.result is None:
        services.reaped(*os.waitpid(-1, 0))
        services.step(program)
        carry(server, client)
        assert stream.take() == b""
    assert stream.result == {"code": 1}


def test_who_does_not_wait_for_an_answer() -> None:
    before = descriptors()
    client, server, services = in_process()
    streams = [client.open({"kind": "stacks"}) for _ in range(2)]
    carry(client, server)
    services.step(Program(os.environ, "/", agent=os.getpid()))
    streams[0].cancel("enough")
    carry(client, server)
    services.step(None)
    services.close()
    assert descriptors() == before
    for _ in range(2):
        os.waitpid(-1, 0)
