"""Copy files between this machine and nodes behind a server (`api.node_messages`)."""

from __future__ import annotations

import os
from threading import Thread
from typing import IO, TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from muster.api.copies import (
    STREAM,
    Outcome,
    connect,
    hints_at_files_here,
    parse_places,
    receiver_here,
    sender_here,
)
from muster.api.node_messages import MOST_DATA, Copied
from muster.api.node_paths import NodePath
from muster.api.operations import PREFIX
from muster.api.problems import error_of
from muster.client.http.nodes import open_socket
from muster.errors import ServerUnavailable
from muster.node.files import write_all

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from muster.api.node_access import Progress
    from muster.client.http.connection import Connection

_COPIED: msgspec.json.Decoder[Copied] = msgspec.json.Decoder(Copied)


def copy(connection: Connection, source: str, target: str, progress: Progress) -> tuple[str, ...]:
    """See `NodeAccess.copy`."""
    start, end = parse_places(source, target)
    raw = STREAM in (start, end)
    if isinstance(start, NodePath) and isinstance(end, NodePath):
        outcome = _outcome(_open(connection, raw, source=start, target=end))
        if outcome.error is not None:
            raise outcome.error
        return outcome.left_out
    if isinstance(start, NodePath):
        sends = ServerEnd(_open(connection, raw, source=start), receives=False)
        return connect(sends, receiver_here(str(end), progress=progress))
    sender = sender_here(start, raw=raw, progress=progress)
    assert isinstance(end, NodePath)  # one of them is
    return connect(sender, ServerEnd(_open(connection, raw, target=end), receives=True))


def _open(connection: Connection, raw: bool, **places: NodePath) -> ClientConnection:
    """A WebSocket for a copy. places: `source` and `target`, as far as they are nodes. Raises
    InvalidInput, NotFound, Forbidden, EngineError, ServerUnavailable."""
    named = {name: str(place) for name, place in places.items()}
    query = urlencode({**named, "raw": str(raw).lower()}, errors="surrogateescape")
    with hints_at_files_here(*places.values()):
        return open_socket(connection, f"{PREFIX}/copy?{query}")


class ServerEnd:
    """The end of a copy that is at the server. See `End`. receives: whether it receives."""

    preamble = b""

    def __init__(self, connected: ClientConnection, *, receives: bool) -> None:
        self._socket, self._receives = connected, receives
        self._outcome = Outcome(failed=True)
        self._descriptor = -1
        self._thread = Thread(target=self._run, daemon=True)

    def start(self, descriptor: int) -> None:
        """See `End`."""
        self._descriptor = descriptor
        self._thread.start()

    def finish(self) -> Outcome:
        """See `End`."""
        self._thread.join()
        return self._outcome

    def stop(self) -> None:
        """See `End`."""
        self._socket.close()

    def _run(self) -> None:
        if self._receives:
            Thread(target=self._send, daemon=True).start()
            self._outcome = _outcome(self._socket)
            return
        try:
            with os.fdopen(self._descriptor, "wb", buffering=0) as pipe:
                self._outcome = _outcome(self._socket, pipe)
        except BrokenPipeError:
            self._socket.close()

    def _send(self) -> None:
        from websockets.exceptions import ConnectionClosed

        # closing the pipe ends the other end, when the server has ended the copy
        with os.fdopen(self._descriptor, "rb", buffering=0) as pipe:
            try:
                data = b" "
                while data:
                    data = pipe.read(MOST_DATA)
                    self._socket.send(data)
            except ConnectionClosed:
                pass


def _outcome(connected: ClientConnection, pipe: IO[bytes] | None = None) -> Outcome:
    """Receive until the copy has ended. pipe: where the data go. Raises BrokenPipeError."""
    from websockets.exceptions import ConnectionClosed

    try:
        while isinstance(message := connected.recv(), bytes):
            if pipe is None:
                continue
            if message:
                write_all(pipe.fileno(), message)
            else:
                pipe.close()
    except ConnectionClosed:
        error = ServerUnavailable("the connection to the server was lost, so the copy has ended")
        return Outcome(failed=True, error=error)
    connected.close()
    copied = _COPIED.decode(message)
    if copied.error is not None:
        return Outcome(failed=True, error=error_of(copied.error))
    return Outcome(copied.left_out)
