"""Forward connections into the network of a node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from typing import IO, NoReturn

from muster.engines.base import RunningNode
from muster.engines.local import entry, namespaces
from muster.engines.local.child_process import ChildProcess
from muster.errors import EngineError
from muster.unix_account import become


class ChildForward:
    """See `engines.base.PortForward`. process: serves until the node ends. errors: a pipe from it,
    with the reason if it cannot serve."""

    def __init__(self, rank: int, process: ChildProcess, errors: IO[str]) -> None:
        self._rank, self._process, self._errors = rank, process, errors
        self._failure = ""

    def wait(self) -> None:
        """See `PortForward.wait`."""
        self._process.wait()
        if not self._errors.closed:
            with self._errors as file:
                self._failure = file.read()
        if self._failure:
            raise EngineError(f"cannot forward to node-{self._rank}: {self._failure}")

    def close(self) -> None:
        """See `PortForward.close`."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._errors.close()


def forward(
    node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
) -> ChildForward:
    """See `Engine.forward`."""
    way = entry.find(node, ("net",))
    try:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run_child(way, hosts, port, listener, writing)
    finally:
        way.close()
    os.close(writing)
    return ChildForward(node.rank, ChildProcess(pid), open(reading, encoding="utf-8"))


def _run_child(
    way: entry.Entry, hosts: Sequence[str], port: int, listener: socket.socket, errors: int
) -> NoReturn:
    """Serve in the forked child. The listening socket stays in the network that it is from.
    errors: a descriptor for the reason if that is not possible."""
    code = 1
    try:
        os.setpgid(0, 0)  # Ctrl-C is for the caller, which ends this process
        agent = os.pidfd_open(way.agent)
        entry.enter(way)
        if way.account is not None:
            become(way.account)
        namespaces.die_with_parent()
        asyncio.run(_serve(listener, hosts, port, agent))
        code = 0
    except OSError as error:
        os.write(errors, str(error).encode())
    finally:
        os._exit(code)


async def _serve(listener: socket.socket, hosts: Sequence[str], port: int, agent: int) -> None:
    """Serve until the agent has ended."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner = await _connect(hosts, port)
            await asyncio.gather(_copy(reader, inner[1]), _copy(inner[0], writer))
        except OSError as error:
            entry.say(f"port {port} of the node: {error.strerror or error}")
        finally:
            writer.close()

    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(agent, ended.set)
    async with await asyncio.start_server(handle, sock=listener):
        await ended.wait()


async def _connect(
    hosts: Sequence[str], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first host that accepts. Raises OSError if none does."""
    for host in hosts[:-1]:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(host, port)
    return await asyncio.open_connection(hosts[-1], port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of one direction, and pass the end on."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
