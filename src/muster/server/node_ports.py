"""Connect clients to ports of nodes: each WebSocket is one connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket as sockets
import tempfile
import time
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.errors import EngineError, InvalidInput, Problem
from muster.server.call import Call, ClientGone
from muster.server.node_commands import rank_of
from muster.server.parameters import parse_query, read_number
from muster.server.web_socket import WebSocket
from muster.service import inside

if TYPE_CHECKING:
    from muster.api.node_access import PortForward
    from muster.engines.base import RunningNode

_BLOCK = 1 << 16
#: Seconds that a forwarded port is kept for the next connection.
_KEPT = 60.0
_BACKLOG = 128


async def forward(call: Call, socket: WebSocket) -> None:
    """WebSocket /runs/{run_id}/nodes/{rank}/forward?port=N&host=H"""
    port = read_number(call.query, "port", 65535)
    if not port:
        raise InvalidInput(Problem("port", "is missing"))
    hosts = parse_query(call.query).get("host") or ["127.0.0.1", "::1"]
    forwarded = await call.state.in_thread(
        _forwarded_port, call, call.path["run_id"], call.path["rank"], tuple(hosts), port
    )
    try:
        reader, writer = await asyncio.open_unix_connection(forwarded.path)
    except OSError as error:
        raise EngineError(f"port {port} of the node cannot be reached: {error}") from None
    await socket.accept()
    sending = asyncio.ensure_future(_send(socket, reader))
    try:
        while True:
            data = await socket.receive()
            if isinstance(data, str) or not data:
                writer.write_eof()
                continue
            writer.write(data)
            await writer.drain()
    except (ClientGone, ConnectionError):
        pass
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _send(socket: WebSocket, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_BLOCK):
        await socket.send(data)
    await socket.close()


class ForwardedPort(Struct):
    """A Unix socket of this machine whose connections go to a port of a node."""

    path: str
    forward: PortForward
    #: When it was last used, on the monotonic clock.
    used: float


class ForwardedPorts:
    """The ports of nodes that were used lately. Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[tuple[Any, ...], ForwardedPort] = {}
        self._folder: str | None = None  # of the sockets, from the first on
        self._count = 0

    def find(self, node: RunningNode, hosts: tuple[str, ...], port: int) -> ForwardedPort:
        """A port of a node, which is forwarded from now on if it was not yet. hosts: of which the
        first that accepts connections is used. Raises InvalidInput, EngineError."""
        key, now = (node.folder.path, node.rank, hosts, port), time.monotonic()
        with self._lock:
            for old, one in [*self._open.items()]:
                if now - one.used > _KEPT:
                    del self._open[old]
                    one.forward.close()
            found = self._open.get(key)
            if found is not None:
                found.used = now
                return found
            self._folder = self._folder or tempfile.mkdtemp(prefix="muster-ports-")  # mode 0700
            self._count += 1
            path = f"{self._folder}/{self._count}"
        with sockets.socket(sockets.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(_BACKLOG)
            made = ForwardedPort(path, inside.forward(node, hosts, port, listener), now)
        with self._lock:
            self._open[key] = made
        Thread(target=self._forget_at_end, args=(key, made), daemon=True).start()
        return made

    def _forget_at_end(self, key: tuple[Any, ...], one: ForwardedPort) -> None:
        with suppress(EngineError):
            one.forward.wait()
        with self._lock:
            if self._open.get(key) is one:
                del self._open[key]
        with suppress(OSError):
            os.unlink(one.path)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            ports, self._open = [*self._open.values()], {}
        for one in ports:
            one.forward.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _forwarded_port(
    call: Call, run: str, rank: str, hosts: tuple[str, ...], port: int
) -> ForwardedPort:
    api = call.api()
    run_id, number = api.find_run(run).id, rank_of(rank)
    node = api.node_to_forward(run_id, number, f"port {port}")
    return call.state.forwarded_ports.find(node, hosts, port)
