"""Commands in nodes behind a server that goes away."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from websockets.sync.server import ServerConnection, serve

from muster.api.node_access import Stdio
from muster.client.contexts import Address
from muster.client.http.api import HttpAPI
from muster.engines.base import NodeCommand
from muster.errors import EngineError, InvalidInput

STDIO = Stdio(sys.__stdin__, sys.__stdout__, sys.__stderr__)


@contextmanager
def connected(handler: Callable[[ServerConnection], None]) -> Iterator[HttpAPI]:
    """A client of a server with this handler."""
    with serve(handler, "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        api = HttpAPI(Address(f"http://127.0.0.1:{server.socket.getsockname()[1]}", "token"))
        yield api
        api.close()
        server.shutdown()
        thread.join()


def test_a_server_that_is_killed_before_the_command_has_started() -> None:
    def lose(connection: ServerConnection) -> None:
        connection.recv()
        connection.socket.shutdown(socket.SHUT_RDWR)

    with connected(lose) as api, pytest.raises(EngineError, match="the command was lost"):
        api.node_access.execute("run", 0, NodeCommand(("true",)), STDIO)


def test_a_command_that_cannot_be_sent() -> None:
    def wait(connection: ServerConnection) -> None:
        assert list(connection) == []

    command = NodeCommand(("ls", os.fsdecode(b"caf\xe9")))
    with connected(wait) as api, pytest.raises(InvalidInput, match="bytes that are not UTF-8"):
        api.node_access.execute("run", 0, command, STDIO)
