"""`NodeAccess` for nodes behind a server: commands and connections over WebSockets."""

from __future__ import annotations

import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, Semaphore, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from muster.api.node_access import NodeCommand, NodeProcess, PortForward, Stdio
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
from muster.api.operations import PREFIX
from muster.api.problems import ProblemDetails, error_of
from muster.client.http.connection import Connection, tls_context, unavailable
from muster.errors import EngineError, InvalidInput, MusterError
from muster.node.files import write_all
from muster.store.records import NodeRecord
from muster.type_info import decode_json

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from muster.api.node_access import Progress
    from muster.client.http.api import HttpAPI

#: Seconds for a connection to be accepted.
_TIMEOUT = 60.0
#: Seconds for the server to confirm that a connection is closed: it may be waiting for a node.
_CLOSE_TIMEOUT = 1.0
_ANSWER: msgspec.json.Decoder[Started | Taken | Ended] = msgspec.json.Decoder(
    Started | Taken | Ended
)


class ServerNodes:
    """See `NodeAccess`, which documents the methods."""

    def __init__(self, api: HttpAPI) -> None:
        self._api = api

    def check_in_progress(self, run_id: str) -> None:
        self._api.connection.request("GET", f"{PREFIX}/runs/{run_id}/in-progress")

    def find(self, run_id: str, rank: int | None) -> NodeRecord:
        query = "" if rank is None else f"?rank={rank}"
        path = f"{PREFIX}/runs/{run_id}/nodes/running{query}"
        return decode_json(self._api.connection.request("GET", path), NodeRecord)

    def execute(self, run_id: str, rank: int, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        path = f"{PREFIX}/runs/{run_id}/nodes/{rank}/exec"
        return ServerProcess(open_socket(self._api.connection, path), command, stdio)

    def forward(
        self, run_id: str, rank: int, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        query = urlencode([("port", port), *(("host", host) for host in hosts)])
        path = f"{PREFIX}/runs/{run_id}/nodes/{rank}/forward?{query}"
        return ServerForward(self._api.connection, path, listener)

    def copy(self, source: str, target: str, progress: Progress) -> tuple[str, ...]:
        from muster.client.http.copying import copy

        return copy(self._api.connection, source, target, progress)


def open_socket(connection: Connection, path: str) -> ClientConnection:
    """A WebSocket. Raises what the server answers, and ServerUnavailable."""
    from websockets.exceptions import InvalidHandshake, InvalidStatus
    from websockets.sync.client import connect

    address = connection.address
    url = f"ws{address.url.removeprefix('http').rstrip('/')}{path}"
    headers = connection.headers()
    context = tls_context(address) if url.startswith("wss:") else None
    try:
        made = connect(
            url,
            additional_headers=headers,
            user_agent_header=headers.pop("User-Agent"),
            ssl=context,
            compression=None,
            max_size=None,
            open_timeout=_TIMEOUT,
            close_timeout=_CLOSE_TIMEOUT,
            ping_timeout=None,  # a server that waits for a slow node answers late, and is not gone
            proxy=None,
        )
        return made.__enter__()  # as version 17 expects; who uses it closes it
    except InvalidStatus as error:
        try:
            details = decode_json(error.response.body or b"", ProblemDetails)
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise MusterError(f"the server answered {error.response.status_code}") from None
        raise error_of(details) from None
    except (OSError, InvalidHandshake) as error:
        raise unavailable(address.url, error) from None


class ServerProcess:
    """A command in a node behind a server. See `NodeProcess`."""

    in_process_group = False

    def __init__(self, connected: ClientConnection, command: NodeCommand, stdio: Stdio) -> None:
        from websockets.exceptions import ConnectionClosed

        self._socket = connected
        self._sending = Lock()
        self._room = Semaphore(MOST_UNREAD)
        self._ended = Event()
        self._code = 0
        self._error: Exception | None = None
        size, env = None, dict(command.env)
        if command.terminal:
            # keys, from the first on, are for the terminal in the node, which sends their signals
            tty.setraw(stdio.stdin.fileno(), termios.TCSANOW)
            size = termios.tcgetwinsize(stdio.stdin.fileno())
            env = {"TERM": os.environ.get("TERM", "dumb"), **env}
        try:
            self._send(Command(command.argv, env, command.cwd, size))
        except UnicodeEncodeError:
            self._socket.close()
            raise InvalidInput(
                "the command cannot be sent to the server: it contains bytes that are not UTF-8"
            ) from None
        try:
            first = _ANSWER.decode(str(self._socket.recv()))
        except ConnectionClosed:
            raise _lost() from None
        if isinstance(first, Ended):
            self._socket.close()
            raise (
                EngineError("the command has not started")
                if first.error is None
                else error_of(first.error)
            )
        files = (stdio.stdin, stdio.stdout, stdio.stderr)
        self._files = [os.dup(file.fileno()) for file in files]
        self._stopped, self._stop = os.pipe()
        Thread(target=self._send_input, daemon=True).start()
        Thread(target=self._receive, daemon=True).start()

    def wait(self) -> int:
        """See `NodeProcess.wait`."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._code

    def send_signal(self, number: int) -> None:
        """See `NodeProcess.send_signal`."""
        self._send(Signal(number))

    def resize(self, rows: int, columns: int) -> None:
        """See `NodeProcess.resize`."""
        self._send(Size(rows, columns))

    def _send(self, message: Command | Signal | Size | bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        with self._sending, suppress(ConnectionClosed):  # it has ended
            self._socket.send(
                message if isinstance(message, bytes) else msgspec.json.encode(message).decode()
            )

    def _send_input(self) -> None:
        stdin = self._files[0]
        poll = select.poll()
        for descriptor in (stdin, self._stopped):
            poll.register(descriptor, select.POLLIN)
        data = b"x"
        while data:
            self._room.acquire()
            if self._stopped in dict(poll.poll()):
                break
            try:
                data = os.read(stdin, MOST_DATA)
            except OSError:  # a terminal that was closed
                data = b""
            self._send(b"\0" + data)
        os.close(stdin)
        os.close(self._stopped)

    def _receive(self) -> None:
        from websockets.exceptions import ConnectionClosed

        answer: Started | Taken | Ended | None = None
        try:
            while not isinstance(answer, Ended):
                message = self._socket.recv()
                if isinstance(message, bytes):
                    _write(self._files[message[0]], message[1:])
                else:
                    answer = _ANSWER.decode(message)
                    if isinstance(answer, Taken):
                        self._room.release()
            assert isinstance(answer, Ended)
            self._code = answer.code
            self._error = None if answer.error is None else error_of(answer.error)
        except ConnectionClosed:
            self._error = _lost()
        except Exception as error:  # noqa: BLE001  raised by `wait`
            self._error = error
        finally:
            for descriptor in self._files[1:]:
                os.close(descriptor)
            os.close(self._stop)
            self._room.release()
            self._socket.close()
            self._ended.set()


def _lost() -> EngineError:
    return EngineError("the connection to the command was lost")


def _write(descriptor: int, data: bytes) -> None:
    try:
        write_all(descriptor, data)
    except BrokenPipeError:
        pass  # nobody reads it any more
    except OSError as error:
        sys.stderr.write(f"muster: output is lost: {error.strerror}\n")


class ServerForward:
    """Connects a listening socket with a port of a node behind a server. See `PortForward`."""

    def __init__(self, connection: Connection, path: str, listener: socket.socket) -> None:
        self._connection, self._path = connection, path
        # a first connection, so that a node or a port that does not exist is reported now
        open_socket(connection, path).close()
        self._listener = listener.dup()
        self._closed = Event()
        self._error: Exception | None = None
        self._open: set[ClientConnection] = set()
        self._lock = Lock()
        Thread(target=self._accept, daemon=True).start()

    def wait(self) -> None:
        """See `PortForward.wait`."""
        self._closed.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """See `PortForward.close`."""
        if not self._closed.is_set():
            self._closed.set()
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            with self._lock:
                connected = [*self._open]
            for one in connected:
                one.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._relay, args=(accepted,), daemon=True).start()

    def _relay(self, accepted: socket.socket) -> None:
        try:
            connected = open_socket(self._connection, self._path)
        except InvalidInput:  # the node has ended
            accepted.close()
            self.close()
            return
        except Exception as error:  # noqa: BLE001  raised by `wait`
            accepted.close()
            self._error = error
            self.close()
            return
        with self._lock:
            self._open.add(connected)
        back = Thread(target=_copy_back, args=(connected, accepted), daemon=True)
        back.start()
        _copy(accepted.recv, connected.send)
        back.join()
        with self._lock:
            self._open.discard(connected)
        connected.close()
        accepted.close()


def _copy(receive: Callable[[int], bytes], send: Callable[[Any], None]) -> None:
    from websockets.exceptions import ConnectionClosed

    with suppress(OSError, ConnectionClosed):
        while data := receive(MOST_DATA):
            send(data)
        send(b"")


def _copy_back(connected: ClientConnection, accepted: socket.socket) -> None:
    from websockets.exceptions import ConnectionClosed

    with suppress(OSError, ConnectionClosed):
        for data in connected:
            accepted.sendall(data if isinstance(data, bytes) else data.encode())
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
