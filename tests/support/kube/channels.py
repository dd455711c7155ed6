"""The WebSocket protocol of `exec` and `portforward`: channels over one connection."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Protocol

from websockets.exceptions import NegotiationError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from support.kube.containers import Container
from support.kube.objects import Obj

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
    streams: those of `stdin`, `stdout` and `stderr` that the client has."""
    try:
        process = subprocess.Popen(
            argv,
            env=container.env,
            cwd=folder,
            stdin=subprocess.PIPE if "stdin" in streams else subprocess.DEVNULL,
            stdout=subprocess.PIPE if "stdout" in streams else subprocess.DEVNULL,
            stderr=subprocess.PIPE if "stderr" in streams else subprocess.DEVNULL,
            start_new_session=True,
            **container.user.process_options(),
        )
    except OSError as error:
        text = f'exec: "{argv[0]}": {os.strerror(error.errno or 0)}'
        message = f"command terminated with exit code 126: {text}"
        channels.send(ERROR, json.dumps(_failure(126, message)).encode())
        channels.close()
        return
    outputs = [
        threading.Thread(target=_copy, args=(channels, number, pipe), daemon=True)
        for number, pipe in ((STDOUT, process.stdout), (STDERR, process.stderr))
        if pipe is not None
    ]
    reader = threading.Thread(target=_feed, args=(channels, process), daemon=True)
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
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _failure(code: int, message: str) -> Obj:
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _copy(channels: Channels, number: int, pipe: IO[bytes]) -> None:
    fd = pipe.fileno()
    while data := os.read(fd, _CHUNK):
        try:
            channels.send(number, data)
        except OSError:
            return


def _feed(channels: Channels, process: subprocess.Popen[bytes]) -> None:
    """Pass input on. A client that is gone ends the command, as a runtime ends one by SIGHUP."""
    for channel, data in channels.messages():
        if channel == STDIN and process.stdin is not None:
            try:
                process.stdin.write(data)
                process.stdin.flush()
            except OSError:
                continue  # it reads no more
        elif channel == CLOSE and data[:1] == bytes((STDIN,)) and process.stdin is not None:
            _close(process)
    _close(process)
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGHUP)
        except ProcessLookupError:
            pass


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
