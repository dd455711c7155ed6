"""The WebSocket protocol of `exec` and `portforward`: channels over one connection."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from websockets.exceptions import NegotiationError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from support.kube.containers import Container
from support.kube.objects import ApiError, Obj

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
#: The last one is as version 4, and can close one channel.
EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
FORWARD_PROTOCOLS = ("v4.channel.k8s.io", "v5.channel.k8s.io")
_CHUNK = 32 * 1024


class Stream(Protocol):
    """A connection that may be read by one thread and written by others."""

    def recv(self, size: int, /) -> bytes: ...

    def sendall(self, content: bytes, /) -> None: ...


class Channels:
    """One connection. Messages are a byte that names the channel, and data."""

    def __init__(self, connection: Stream, request: bytes, known: Sequence[str]) -> None:
        """Answer a request for a WebSocket. Raises ConnectionError if it is refused."""
        self._connection = connection
        self._lock = threading.Lock()

        def select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
            found = next((one for one in known if one in offered), None)
            if found is None:
                raise NegotiationError("no known subprotocol")
            return Subprotocol(found)

        self._protocol = ServerProtocol(select_subprotocol=select, max_size=None)
        self._protocol.receive_data(request)
        (event,) = self._protocol.events_received()
        assert isinstance(event, Request)
        response = self._protocol.accept(event)
        self._protocol.send_response(response)
        self._flush()
        if response.status_code != 101:
            raise ConnectionError(response.reason_phrase)
        self.protocol = str(self._protocol.subprotocol)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.sendall(data)

    def send(self, channel: int, data: bytes) -> None:
        """Send a message, unless the connection is closed."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_binary(bytes((channel,)) + data)
                self._flush()

    def close(self) -> None:
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._flush()

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Channel and data, until the other side closes."""
        parts = b""
        while True:
            try:
                data = self._connection.recv(65536)
            except OSError:
                return
            with self._lock:
                if data:
                    self._protocol.receive_data(data)
                else:
                    self._protocol.receive_eof()
                events = self._protocol.events_received()
                try:
                    self._flush()
                except OSError:
                    return
            for event in events:
                assert isinstance(event, Frame)
                if event.opcode is Opcode.CLOSE:
                    return
                if event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                    parts += bytes(event.data)
                    if event.fin:
                        if parts:
                            yield parts[0], parts[1:]
                        parts = b""
            if not data:
                return


# --- exec


def serve_exec(
    channels: Channels, argv: Sequence[str], container: Container, folder: str, streams: set[str]
) -> None:
    """Run a command in a container and pass its streams until it has ended, or its client is gone.
    streams: those of `stdin`, `stdout` and `stderr` that the client has, and `tty`."""
    terminal, theirs = pty.openpty() if "tty" in streams else (-1, -1)
    pipes = {one: _pipe(one, streams, theirs) for one in ("stdin", "stdout", "stderr")}
    try:
        process = subprocess.Popen(
            argv if terminal < 0 else ["setsid", "--ctty", *argv],
            env=container.env,
            cwd=folder,
            start_new_session=terminal < 0,
            **pipes,
            **container.user.process_options(),
        )
    except OSError as error:
        channels.send(ERROR, json.dumps(_not_started(argv[0], error)).encode())
        channels.close()
        return
    if terminal >= 0:
        os.close(theirs)
        sources, sink = [(STDOUT, terminal)], terminal
    else:
        found = ((STDOUT, process.stdout), (STDERR, process.stderr))
        sources = [(number, pipe.fileno()) for number, pipe in found if pipe is not None]
        sink = -1 if process.stdin is None else process.stdin.fileno()
    outputs = [
        threading.Thread(target=_copy, args=(channels, number, fd), daemon=True)
        for number, fd in sources
    ]
    reader = threading.Thread(target=_feed, args=(channels, process, sink), daemon=True)
    for one in (*outputs, reader):
        one.start()
    code = process.wait()
    for one in outputs:
        one.join()
    shown = code if code >= 0 else 128 - code
    made = (
        {"metadata": {}, "status": "Success"}
        if shown == 0
        else _failure(shown, f"command terminated with non-zero exit code: exit status {shown}")
    )
    try:
        channels.send(ERROR, json.dumps(made).encode())
        channels.close()
    except OSError:
        pass  # the client is gone
    reader.join(5)
    if terminal >= 0:
        os.close(terminal)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _pipe(name: str, streams: set[str], terminal: int) -> int:
    """What a command gets as one of its streams. terminal: -1: none."""
    if terminal >= 0:
        return terminal
    return subprocess.PIPE if name in streams else subprocess.DEVNULL


def _failure(code: int, message: str) -> Obj:
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _not_started(program: str, error: OSError) -> Obj:
    """As with containerd and runc."""
    why = os.strerror(error.errno or 0).lower()
    if isinstance(error, FileNotFoundError) and "/" not in program:
        why = "executable file not found in $PATH"
    text = (
        "error executing command in container: failed to exec in container: failed to start exec: "
        "OCI runtime exec failed: exec failed: unable to start container process: exec: "
        f'"{program}": {why}: unknown'
    )
    return ApiError(500, "InternalError", f"Internal error occurred: {text}").status()


def _copy(channels: Channels, number: int, fd: int) -> None:
    while data := _read(fd):
        try:
            channels.send(number, data)
        except OSError:
            return


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK)
    except OSError:  # how a terminal ends
        return b""


def _feed(channels: Channels, process: subprocess.Popen[bytes], sink: int) -> None:
    """Pass input on. A client that is gone ends the command, as a runtime ends one by SIGHUP."""
    for channel, data in channels.messages():
        if channel == STDIN and sink >= 0:
            try:
                _write(sink, data)
            except OSError:
                continue  # it reads no more
        elif channel == RESIZE and sink >= 0:
            size = json.loads(data)
            with contextlib.suppress(OSError):  # it has no terminal
                termios.tcsetwinsize(sink, (size["Height"], size["Width"]))
        elif channel == CLOSE and data[:1] == bytes((STDIN,)) and process.stdin is not None:
            _close(process)
            sink = -1
    _close(process)
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGHUP)
        except ProcessLookupError:
            pass


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass  # it reads no more


# --- port-forward


def serve_forward(channels: Channels, address: str, ports: Sequence[int]) -> None:
    """Pass the bytes of one connection for each port: channels 2 N and 2 N + 1 are data and errors
    of the N-th."""
    connections: list[socket.socket | None] = []
    for number, port in enumerate(ports):
        for channel in (2 * number, 2 * number + 1):
            channels.send(channel, struct.pack("<H", port))
        try:
            made = socket.create_connection((address, port), 10)
            made.settimeout(None)
        except OSError as error:
            text = f"error forwarding port {port} to pod: {error}"
            channels.send(2 * number + 1, text.encode())
            connections.append(None)
            continue
        connections.append(made)
        threading.Thread(target=_receive, args=(channels, 2 * number, made), daemon=True).start()
    for channel, data in channels.messages():
        connection = connections[channel // 2] if channel // 2 < len(connections) else None
        if connection is not None and channel % 2 == 0:
            try:
                connection.sendall(data)
            except OSError:
                break
    for one in connections:
        if one is not None:
            one.close()


def _receive(channels: Channels, number: int, connection: socket.socket) -> None:
    try:
        while data := connection.recv(_CHUNK):
            channels.send(number, data)
        channels.close()
    except OSError:
        return
