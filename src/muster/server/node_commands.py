"""Run commands in nodes for clients (`api.node_messages`)."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from contextlib import suppress
from typing import IO, TYPE_CHECKING, TypeVar

import msgspec

from muster.api.node_access import NodeCommand, NodeProcess, Stdio
from muster.api.node_messages import (
    MOST_DATA,
    MOST_UNREAD,
    Command,
    Ended,
    Signal,
    Size,
    Started,
    Taken,
)
from muster.api.problems import details_of
from muster.errors import EngineError, InvalidInput, MusterError, Problem
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.server.parameters import number_of, problem_of, read_number
from muster.server.web_socket import WebSocket
from muster.service.event_loop import in_own_thread, wait_for_readable, write_all
from muster.store.records import NodeRecord

if TYPE_CHECKING:
    from muster.service.embedded import EmbeddedAPI

#: Seconds between the signal to a command whose client has gone and the kill.
_KILL_AFTER = 2.0
#: Seconds that a client has to say what it runs.
_COMMAND_TIMEOUT = 30.0
_HIGHEST_RANK = (1 << 31) - 1
T = TypeVar("T")
_COMMAND: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_REQUEST: msgspec.json.Decoder[Signal | Size] = msgspec.json.Decoder(Signal | Size)


async def execute(call: Call, socket: WebSocket) -> None:
    """WebSocket /runs/{run_id}/nodes/{rank}/exec"""
    api = call.api()
    run_id, rank = await call.state.in_thread(_node_of, api, call.path["run_id"], call.path["rank"])
    await socket.accept()
    streams: _Streams | None = None
    try:
        async with asyncio.timeout(_COMMAND_TIMEOUT):
            command = _command_of(await socket.receive())
        streams = _Streams(command.terminal)
        given = NodeCommand(command.argv, command.env, command.cwd, command.terminal is not None)
        start = api.node_access.execute
        process = await call.state.in_thread(start, run_id, rank, given, streams.stdio)
        streams.close_theirs()
        await socket.send(Started())
        await _connect(socket, streams, process)
    except (MusterError, TimeoutError) as error:
        await socket.send(Ended(error=details_of(error, call.request_id)))
        await socket.close()
    finally:
        if streams is not None:
            streams.close()


def _command_of(message: bytes | str) -> Command:
    """Raises InvalidInput."""
    command = _decoded(_COMMAND, message)
    texts = (*command.argv, *command.env, *command.env.values(), command.cwd)
    if any("\0" in text for text in texts) or any("=" in name for name in command.env):
        text = "a command, its variables and its directory contain no NUL, and no name contains ="
        raise InvalidInput(Problem("", text))
    return command


def _decoded(decoder: msgspec.json.Decoder[T], message: bytes | str) -> T:
    """Raises InvalidInput."""
    try:
        return decoder.decode(message)
    except msgspec.ValidationError as error:
        raise InvalidInput(problem_of(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"the message is not JSON: {error}") from None


async def in_progress(call: Call) -> Answer:
    """GET /runs/{run_id}/in-progress: an error if the run has no processes."""

    def check() -> None:
        api = call.api()
        api.node_access.check_in_progress(api.find_run(call.path["run_id"]).id)

    await call.state.in_thread(check)
    return Answer(encoded(None))


async def running(call: Call) -> Answer:
    """GET /runs/{run_id}/nodes/running?rank=N: a node with processes; without a rank, the only
    one."""
    rank = read_number(call.query, "rank", _HIGHEST_RANK)

    def find() -> NodeRecord:
        api = call.api()
        run_id = api.find_run(call.path["run_id"]).id
        return api.node_access.find(run_id, rank)

    return Answer(encoded(await call.state.in_thread(find)))


def rank_of(text: str) -> int:
    """A rank in a path. Raises InvalidInput."""
    return number_of(text, "rank", _HIGHEST_RANK)


def _node_of(api: EmbeddedAPI, run: str, rank: str) -> tuple[str, int]:
    """The id of a run in progress, and the rank of its node. Raises InvalidInput, NotFound."""
    run_id = api.find_run(run).id
    return run_id, api.node_access.find(run_id, rank_of(rank)).rank


class _Streams:
    """The standard streams of a command: our ends, and those that it gets.

    terminal: its size; None for pipes.
    """

    def __init__(self, terminal: tuple[int, int] | None) -> None:
        self._theirs: list[IO[bytes]] = []
        if terminal is not None:
            ours, theirs = os.openpty()
            termios.tcsetwinsize(ours, terminal)
            #: What the client sends goes here; None when that has ended.
            self.input: int | None = ours
            #: Stream number -> where its output comes from.
            self.outputs = {1: os.dup(ours)}
            file = open(theirs, "r+b", buffering=0)  # noqa: SIM115  closed by `close_theirs`
            self._theirs = [file]
            self.stdio = Stdio(file, file, file)
        else:
            (stdin, self.input), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
            self.outputs = {1: out, 2: err}
            self._theirs = [open(stdin, "rb"), open(stdout, "wb"), open(stderr, "wb")]  # noqa: SIM115
            self.stdio = Stdio(*self._theirs)
        self.terminal = terminal is not None
        for descriptor in self.outputs.values():
            os.set_blocking(descriptor, False)
        os.set_blocking(self.input, False)

    def close_theirs(self) -> None:
        """Close what the command has got."""
        for file in self._theirs:
            file.close()

    def close_input(self) -> None:
        """The client sends nothing more. May be repeated."""
        descriptor, self.input = self.input, None
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close our ends, which hangs a terminal up."""
        self.close_theirs()
        self.close_input()
        for descriptor in self.outputs.values():
            os.close(descriptor)
        self.outputs = {}


async def _connect(socket: WebSocket, streams: _Streams, process: NodeProcess) -> None:
    """Pass data and signals on until the command has ended, or the client has gone."""
    ended = in_own_thread(process.wait)
    sending = [
        asyncio.ensure_future(_send_output(socket, number, descriptor))
        for number, descriptor in streams.outputs.items()
    ]
    unread: asyncio.Queue[bytes] = asyncio.Queue(MOST_UNREAD)
    receiving = asyncio.ensure_future(_receive(socket, streams, process, unread))
    passing_on = asyncio.ensure_future(_pass_on(socket, streams, unread))
    try:
        await asyncio.wait((ended, receiving), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            receiving.result()  # raises ClientGone, or InvalidInput for what is no message
        # a child of the command may keep a pipe open: what is there by now is sent
        await asyncio.wait(sending, timeout=1.0)
        try:
            await socket.send(Ended(ended.result()))
        except EngineError as error:
            await socket.send(Ended(error=details_of(error)))
        await socket.close()
    except BaseException:  # also if the server stops
        await _cancel(passing_on)  # before its descriptor is closed
        await _end(process, streams, ended)
        raise
    finally:
        await _cancel(receiving, passing_on, *sending)


async def _cancel(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _end(process: NodeProcess, streams: _Streams, ended: asyncio.Future[int]) -> None:
    """End a command whose client has gone."""
    streams.close_input()
    process.send_signal(signal.SIGHUP)
    done, _ = await asyncio.wait((ended,), timeout=_KILL_AFTER)
    if not done:
        process.send_signal(signal.SIGKILL)


async def _send_output(socket: WebSocket, number: int, descriptor: int) -> None:
    prefix = bytes([number])
    while True:
        await wait_for_readable([descriptor], None)
        try:
            data = os.read(descriptor, MOST_DATA)
        except BlockingIOError:
            continue
        except OSError:  # a terminal without processes
            data = b""
        await socket.send(prefix + data)
        if not data:
            return


async def _receive(
    socket: WebSocket, streams: _Streams, process: NodeProcess, unread: asyncio.Queue[bytes]
) -> None:
    """Take what the client sends. unread: where input goes."""
    while True:
        message = await socket.receive()
        if isinstance(message, bytes):
            await unread.put(message[1:])
            continue
        request = _decoded(_REQUEST, message)
        if isinstance(request, Signal):
            process.send_signal(request.number)
        elif streams.terminal and streams.input is not None:
            termios.tcsetwinsize(streams.input, (request.rows, request.columns))
            process.resize(request.rows, request.columns)


async def _pass_on(socket: WebSocket, streams: _Streams, unread: asyncio.Queue[bytes]) -> None:
    """Give input to the command, as fast as that reads it."""
    while True:
        data = await unread.get()
        if data and streams.input is not None:
            with suppress(OSError):  # the command does not read it
                await write_all(streams.input, data)
        elif not data and not streams.terminal:
            streams.close_input()
        await socket.send(Taken())
