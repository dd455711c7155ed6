"""Commands in nodes behind a server that goes away."""

from __future__ import annotations

import socket
import sys
from threading import Thread

import pytest
from websockets.sync.server import ServerConnection, serve

from muster.api.node_access import Stdio
from muster.client.contexts import Address
from muster.client.http.api import HttpAPI
from muster.engines.base import NodeCommand
from muster.errors import EngineError


def test_a_server_that_is_killed_before_the_command_has_started() -> None:
    def lose(connection: ServerConnection) -> None:
        connection.recv()
        connection.socket.shutdown(socket.SHUT_RDWR)

    with serve(lose, "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        api = HttpAPI(Address(f"http://127.0.0.1:{server.socket.getsockname()[1]}", "token"))
        stdio = Stdio(sys.__stdin__, sys.__stdout__, sys.__stderr__)
        with pytest.raises(EngineError, match="the connection to the command was lost"):
            api.node_access.execute("run", 0, NodeCommand(("true",)), stdio)
        api.close()
        server.shutdown()
        thread.join()
