"""The engine contract for ports of nodes (`Engine.forward`)."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from muster.engines.base import PortForward, RunningNode
from muster.engines.registry import engine_named
from muster.storage.home import Home
from support.sessions import REAL_KINDS, Session

pytestmark = pytest.mark.capability("forward")

MakeSession = Callable[..., Session]


@pytest.fixture(params=REAL_KINDS)
def kind(request: pytest.FixtureRequest, prepare: Callable[[str], str]) -> str:
    return prepare(request.param)


#: Sends back what it receives, on a port that it prints first.
ECHO = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(100):
                connection.sendall(data)
"""


@pytest.fixture
def serving(session: MakeSession, tmp_path: Path) -> Session:
    """A node with an echo server, whose port is its output."""
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    one = session(f"exec {sys.executable} {script}")
    one.start(0)
    one.ready(0)
    one.wait_for_output("\n")
    return one


def start(one: Session) -> tuple[PortForward, int]:
    """Forward a local port, which is returned as well, to that of the server."""
    home = Home(one.home)
    node = RunningNode(home.run_dir(one.plan.run_id), 0, one.pid, one.engine)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(one.output())
        forwarded = engine_named(one.engine, home).forward(node, ["127.0.0.1"], port, listener)
        return forwarded, listener.getsockname()[1]


def echo(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(100)


def test_connections_are_forwarded_until_it_is_closed(serving: Session) -> None:
    forwarded, port = start(serving)
    waiting = Thread(target=forwarded.wait)
    waiting.start()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        assert echo(connection, b"one") == b"one"
        assert waiting.is_alive()
        forwarded.close()
        assert connection.recv(100) == b""
    waiting.join(20)
    assert not waiting.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=20)
    forwarded.close()
    forwarded.wait()
    serving.kill(0)
    serving.ended(0)
    assert serving.close() == 0


def test_it_ends_with_the_node(serving: Session) -> None:
    forwarded, port = start(serving)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        assert echo(connection, b"one") == b"one"
    serving.kill(0)
    serving.ended(0)
    forwarded.wait()
    forwarded.close()
