"""WebSockets with anything that a client may send."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryFile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from muster.api.node_access import NodeCommand, Stdio
from muster.api.node_messages import MOST_DATA, MOST_UNREAD
from muster.client.http.api import HttpAPI
from muster.server import http_protocol
from muster.server.http_protocol import HttpProtocol
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from muster.store.account_records import AuditFilter
from support.api_runs import end, start
from support.embedded import variables_of
from support.faults import until
from support.server_thread import TOKEN, ServerThread, running_server


class World:
    def __init__(self, server: ServerThread, api: EmbeddedAPI, run_id: str) -> None:
        self.server, self.api, self.run_id = server, api, run_id

    def open(self, path: str = "nodes/0/exec", token: str = TOKEN) -> ClientConnection:
        url = f"ws://127.0.0.1:{self.server.port}/v1/runs/{self.run_id}/{path}"
        headers = {"Authorization": f"Bearer {token}"}
        # the server does not read what closes a connection while a command reads nothing
        return connect(
            url, additional_headers=headers, proxy=None, close_timeout=0.1, ping_interval=None
        )

    def defects(self) -> list[str]:
        lines = self.server.log.getvalue().splitlines()
        return [line for line in lines if json.loads(line)["level"] == "error"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    backend = Backend(Home(tmp_path_factory.mktemp("home")))
    with running_server(backend) as server:
        api = EmbeddedAPI(backend=backend)
        run = start(api, "sleep 600")
        until(lambda: all(node.state == "READY" for node in api.nodes(run.id)), "it is ready")
        try:
            yield World(server, api, run.id)
        finally:
            end(api, run.id)


def command(*argv: str, **more: Any) -> str:
    return json.dumps({"type": "Command", "argv": argv, **more})


def conversation(world: World, *messages: str | bytes) -> list[dict[str, Any]]:
    """The texts that the server answers until it closes the connection."""
    with world.open() as socket:
        for message in messages:
            socket.send(message)
        return [json.loads(each) for each in socket if isinstance(each, str)]


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ("", "the message is not JSON"),
        ("[]", "expected `object`, got `array`"),
        (b"\xff\xfe", "the message is not JSON"),
        ('{"a": ' + "[" * 5000, "the message is not JSON"),
        (command(), "length >= 1"),
        (command("a\0b"), "contain no NUL"),
        (command("true", env={"A=B": "c"}), "no name contains ="),
        (command("true", cwd="/\0"), "contain no NUL"),
        (command("true", terminal=[70000, 1]), "<= 65535"),
        (command("true", terminal=[-1, 1]), ">= 0"),
        ('{"type": "Signal", "number": 9}', "invalid value 'signal'"),
    ],
)
def test_what_is_no_command(world: World, first: str | bytes, text: str) -> None:
    (answer,) = conversation(world, first)
    assert answer["type"] == "Ended"
    assert text in answer["error"]["detail"], answer
    assert answer["error"]["type"] == "muster:InvalidInput"
    assert world.defects() == []


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "Signal", "number": 99999}',
        '{"type": "Signal", "number": -1}',
        '{"type": "Size", "rows": 1e9, "columns": 1}',
        '{"type": "Unknown"}',
        "no JSON",
    ],
)
def test_an_invalid_message_ends_the_command(world: World, message: str) -> None:
    started, ended = conversation(world, command("sleep", "600"), message)
    assert started == {"type": "Started"}
    assert ended["error"]["type"] == "muster:InvalidInput"
    assert world.defects() == []


def test_who_enters_a_node_is_in_the_audit_log(world: World) -> None:
    """Once for each request, with the node and the program, and without the program's arguments."""
    name = world.api.run(world.run_id).name

    def added(action: Callable[[], object]) -> list[tuple[str, str]]:
        log = world.api.store.audit
        before = max((one.seq for one in log.listing(AuditFilter(limit=1))), default=0)
        action()
        found = log.listing(AuditFilter(after=before))
        assert all(one.user and one.address == "127.0.0.1" and one.allowed for one in found)
        return [(one.action, one.object) for one in found]

    def forward() -> None:
        with world.open("nodes/0/forward?port=9") as socket:
            socket.close()

    def copy() -> None:
        url = f"ws://127.0.0.1:{world.server.port}/v1/copy?source={name}:0:/etc/hostname"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with connect(url, additional_headers=headers, proxy=None) as socket:
            assert [each for each in socket if isinstance(each, str)]

    secret = command("/bin/sh", "-c", "true word-of-ana", env={"TOKEN": "word-of-ana"})
    assert added(lambda: conversation(world, secret)) == [("runs.exec", f"{name}:0 sh")]
    for _ in range(2):  # the second one uses the way of the first
        assert added(forward) == [("runs.forward", f"{name}:0 port 9")]
    assert added(copy) == [("runs.copy", f"{name}:0 from /etc/hostname")]


def test_a_command_that_reads_nothing_keeps_nobody_out(world: World) -> None:
    with ExitStack() as stack:
        for socket in [stack.enter_context(world.open()) for _ in range(10)]:
            socket.send(command("sleep", "600"))
            assert json.loads(socket.recv()) == {"type": "Started"}
            for _ in range(3):
                socket.send(b"\0" + b"x" * 60_000)
        with world.open() as socket:
            socket.send(command("cat"))
            socket.send(b"\0hello")
            socket.send(b"\0")
            received = b"".join(each[1:] for each in socket if isinstance(each, bytes))
        assert received == b"hello"


def test_much_input_arrives_whole(world: World) -> None:
    data = bytes(range(256)) * 4000
    with world.open() as socket:
        socket.send(command("sh", "-c", "sleep 0.3; sha256sum; wc -c >&2 </dev/null"))
        for at in range(0, len(data), 60_000):
            socket.send(b"\0" + data[at : at + 60_000])
        socket.send(b"\0")
        output = b"".join(each[1:] for each in socket if isinstance(each, bytes))
    assert hashlib.sha256(data).hexdigest().encode() in output


def test_the_time_limits_of_requests_end_no_web_socket(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DRAIN_TIMEOUT", "WRITE_TIMEOUT"):
        monkeypatch.setattr(http_protocol, name, 0.1)
    timers = list[asyncio.TimerHandle]()
    expect = HttpProtocol._expect

    def noted(protocol: HttpProtocol, seconds: float) -> None:
        expect(protocol, seconds)
        assert protocol._to_send is not None
        timers.append(protocol._to_send)

    monkeypatch.setattr(HttpProtocol, "_expect", noted)
    with world.open() as socket:
        assert timers and all(timer.cancelled() for timer in timers), "the head has arrived"
        socket.send(command("sh", "-c", "sleep 1; head -c 5000000 /dev/zero"))
        received = b""
        for each in socket:
            if isinstance(each, bytes):
                if not received:
                    time.sleep(1)
                received += each[1:]
    assert len(received) == 5_000_000


def test_a_signal_does_not_wait_for_input_that_nobody_reads(world: World) -> None:
    api, ends = HttpAPI(world.server.address()), 'trap "exit 9" INT; echo up; sleep 600 & wait'
    with open("/dev/zero", "rb") as zeros, TemporaryFile() as output:
        given = NodeCommand(("sh", "-c", ends))
        process = api.node_access.execute(world.run_id, 0, given, Stdio(zeros, output, output))
        until(lambda: os.fstat(output.fileno()).st_size > 0, "it runs")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 9
    api.close()


def test_a_command_whose_input_nobody_reads_ends_with_its_client(world: World) -> None:
    with world.open() as socket:
        socket.send(command("sleep", "777"))
        for _ in range(MOST_UNREAD):
            socket.send(b"\0" + b"x" * MOST_DATA)
        until(lambda: in_node(world, "777") == 1, "it runs")
    until(lambda: in_node(world, "777") == 0, "it has ended", 60)


def in_node(world: World, argument: str) -> int:
    """How many programs with this argument run in the node."""
    argv = ["sh", "-c", f"grep -lzx {argument} /proc/[0-9]*/cmdline | wc -l"]
    with TemporaryFile() as output, open(os.devnull, "rb") as nothing:
        stdio = Stdio(nothing, output, output)
        access = world.api.node_access
        access.execute(world.run_id, 0, NodeCommand(tuple(argv)), stdio).wait()
        output.seek(0)
        # one of them is this `grep`
        return int(output.read()) - 1


@pytest.mark.slow
def test_a_pause_of_reading_or_writing_does_not_end_a_command(world: World) -> None:
    """Neither end answers pings while it waits to write, which it may do for longer than WebSockets
    usually wait for an answer: 20 s after one that is sent each 20 s."""
    size, wait = 50_000_000, 60
    argv = [sys.executable, "-m", "muster", "exec", world.run_id, "--", "sh", "-c"]
    environ = {**os.environ, **variables_of(world.server.address())}
    pipe = subprocess.PIPE
    run: Callable[..., subprocess.Popen[bytes]]
    run = partial(subprocess.Popen, stdin=pipe, stdout=pipe, env=environ)
    sends, receives = (
        run([*argv, f"head -c {size} /dev/zero"]),
        run([*argv, f"sleep {wait}; wc -c"]),
    )
    with sends, receives:
        assert receives.stdin is not None and sends.stdin is not None
        sends.stdin.close()
        receives.stdin.write(bytes(size))  # until the command has read it
        receives.stdin.close()
        assert sends.stdout is not None and receives.stdout is not None
        assert receives.stdout.read().strip() == b"%d" % size
        assert len(sends.stdout.read()) == size
    assert (sends.returncode, receives.returncode) == (0, 0)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nodes/0/forward", 422),
        ("nodes/0/forward?port=0", 422),
        ("nodes/0/forward?port=65536", 422),
        ("nodes/0/forward?port=" + "9" * 5000, 422),
        ("nodes/x/exec", 422),
        ("nodes/%00/exec", 422),
        ("nodes/7/exec", 422),
        ("nodes/0/nothing", 404),
    ],
)
def test_paths(world: World, path: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as caught, world.open(path):
        pass
    assert caught.value.response.status_code == status, caught.value.response.body
    assert world.defects() == []


def test_a_wrong_token(world: World) -> None:
    with pytest.raises(InvalidStatus) as caught, world.open(token="wrong"):
        pass
    assert caught.value.response.status_code == 401


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    first=st.sampled_from([command("cat"), command("true"), command("cat", terminal=[2, 2])])
    | st.text()
    | st.binary(),
    messages=st.lists(
        st.binary(max_size=20)
        | st.text(max_size=20)
        | st.sampled_from(['{"type": "Signal", "number": 15}', '{"type": "Size", "rows": 1}']),
        max_size=4,
    ),
)
def test_any_messages(world: World, first: str | bytes, messages: list[str | bytes]) -> None:
    with world.open() as socket:
        for message in (first, *messages):
            try:
                socket.send(message)
            except ConnectionClosed:
                break  # it was closed meanwhile
    assert world.defects() == []
