"""Copy files between clients and nodes, and between two nodes (`api.node_messages`)."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from io import FileIO
from urllib.parse import parse_qs

from muster.api.copies import End, Outcome, finish, start
from muster.api.node_messages import MOST_DATA, Copied
from muster.api.node_paths import NodePath, parse_path
from muster.api.problems import details_of
from muster.errors import InvalidInput, MusterError, Problem
from muster.server.call import Call, ClientGone
from muster.server.web_socket import WebSocket
from muster.service.copying import node_receiver, node_sender
from muster.service.event_loop import in_own_thread, wait_for_readable, write_all


async def copy(call: Call, socket: WebSocket) -> None:
    """WebSocket /copy?source=RUN:RANK:PATH&target=RUN:RANK:PATH&raw=true

    An end that is left out is at the client. raw: the client's end is a stream, so that only the
    content of a file is sent.
    """
    sent = parse_qs(call.query, errors="surrogateescape", max_num_fields=8)
    source, target = _place("source", sent), _place("target", sent)
    if source is None and target is None:
        text = "at least one of source and target must be given"
        raise InvalidInput(Problem("", text, "write RUN:RANK:PATH for a path on a node"))
    api, raw, in_thread = call.api(), sent.get("raw") == ["true"], call.state.in_thread
    sender: End = _ClientSender(socket)
    receiver: End = _ClientReceiver(socket)
    if source is not None:
        make = partial(node_sender, api, source, raw=raw, progress=lambda _size: None)
        sender = await in_thread(make)
    if target is not None:
        receiver = await in_thread(partial(node_receiver, api, target, raw=raw))
    await socket.accept()
    try:
        await in_thread(start, sender, receiver)
        answer = Copied(await _finished(call, socket, sender, receiver))
    except ClientGone:
        raise
    except Exception as error:  # noqa: BLE001  every error is answered
        if not isinstance(error, MusterError):
            call.state.log.defect("internal error in a copy", error, call.request_id)
        answer = Copied(error=details_of(error, call.request_id))
    await socket.send(answer)
    await socket.close()


async def _finished(call: Call, socket: WebSocket, sender: End, receiver: End) -> tuple[str, ...]:
    """Wait for the end of a copy; stop it when the client has gone, or the server stops. Returns
    what was left out."""
    finished = in_own_thread(partial(finish, sender, receiver))
    listen = sender.listen if isinstance(sender, _ClientSender) else partial(_ignore, socket)
    listening = asyncio.ensure_future(listen())
    try:
        await asyncio.wait((finished, listening), return_when=asyncio.FIRST_COMPLETED)
        if not finished.done():
            listening.result()  # ClientGone
        return finished.result()
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        if not finished.done():
            for end in (sender, receiver):
                await call.state.in_thread(end.stop)
            await asyncio.gather(finished, return_exceptions=True)


async def _ignore(socket: WebSocket) -> None:
    """Read what a client sends that has nothing to send. Raises ClientGone."""
    while True:
        await socket.receive()


def _place(name: str, sent: dict[str, list[str]]) -> NodePath | None:
    """A place in the query; None if it is not given. Raises InvalidInput."""
    (text,) = sent.get(name, [""])[-1:]
    if not text:
        return None
    place = parse_path(text)
    if isinstance(place, str) or "\0" in text:
        shown = text[:200].encode(errors="replace").decode()
        raise InvalidInput(Problem(name, f"{shown!r} is not RUN:RANK:PATH"))
    return place


class _ClientSender:
    """The end at a client that sends. See `End`."""

    preamble = b""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._descriptor = -1

    def start(self, descriptor: int) -> None:
        """See `End`. `listen` is to be called then."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def listen(self) -> None:
        """Pass on what the client sends. Raises ClientGone."""
        with (
            os.fdopen(self._descriptor, "wb", buffering=0) as pipe,
            suppress(BrokenPipeError),  # the other end reads no more
        ):
            while data := await self._socket.receive():
                if isinstance(data, bytes):
                    await write_all(pipe.fileno(), data)
        await _ignore(self._socket)

    def finish(self) -> Outcome:
        """See `End`. Whether all has arrived, the other end knows."""
        return Outcome()

    def stop(self) -> None:
        """See `End`. `listen` is to be canceled before."""


class _ClientReceiver:
    """The end at a client that receives. See `End`."""

    preamble = b""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._sent: Future[None] | None = None  # from `start` on

    def start(self, descriptor: int) -> None:
        """See `End`."""
        os.set_blocking(descriptor, False)
        # here, as what is stopped at once does not begin to send
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        self._sent = asyncio.run_coroutine_threadsafe(self._send(pipe), self._loop)

    def finish(self) -> Outcome:
        """See `End`. Raises ClientGone."""
        assert self._sent is not None, "it has been started"
        self._sent.result()
        return Outcome()

    def stop(self) -> None:
        """See `End`."""
        if self._sent is not None:
            self._sent.cancel()

    async def _send(self, pipe: FileIO) -> None:
        with pipe:
            data: bytes | None = b" "
            while data:
                await wait_for_readable([pipe.fileno()], None)
                data = pipe.read(MOST_DATA)
                if data is not None:
                    await self._socket.send(data)
