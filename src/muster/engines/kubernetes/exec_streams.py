"""Connections to node servers in pods, which exec streams of the API server carry (`exec_pipes`).
A few threads open them."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from msgspec import Struct

from muster.engines.kubernetes.answers import error_body
from muster.engines.kubernetes.connection import Connection
from muster.engines.kubernetes.connection_errors import in_words
from muster.engines.kubernetes.exec_pipes import Ending, ExecPipes, Opened, open_stream
from muster.engines.kubernetes.kinds import KINDS
from muster.engines.kubernetes.refusals import CannotCall, Operation, redirect, refusal

#: Threads that open streams: more would not be faster, and the API server limits requests.
_MOST_OPENING = 8
#: Characters of a text of the cluster that are shown.
_LONGEST = 1000


class _Wanted(Struct, frozen=True):
    """A stream that is to be opened."""

    pipes: ExecPipes
    pod: str
    #: Of the request.
    query: str


class ExecStreams:
    """The streams of a run into the pods of a namespace."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wanted: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._threads = 0
        self._closed = False

    def open(
        self,
        pod: str,
        container: str,
        argv: Sequence[str],
        explain: Callable[[str], str] = lambda why: why,
    ) -> ExecPipes:
        """Run a program in a container. Returns its standard input and output, which end when the
        stream does. Does not wait until the stream is up. explain: called with why the stream has
        ended, for the text of that; it may know better."""
        pipes = ExecPipes(lambda ending: explain(why_ended(ending)))
        self._wanted.put(_Wanted(pipes, pod, exec_query(container, argv)))
        if self._threads < _MOST_OPENING:
            self._threads += 1
            threading.Thread(target=self._open_all, daemon=True, name="exec").start()
        return pipes

    def close(self) -> None:
        """Open no more streams. Those that are up belong to their connections."""
        self._closed = True
        for _ in range(self._threads):
            self._wanted.put(None)

    def _open_all(self) -> None:
        """In a thread."""
        while (one := self._wanted.get()) is not None and not self._closed:
            try:
                one.pipes.set_result(self.connect(one.pod, one.query))
            except Exception as error:  # noqa: BLE001  only this stream ends, whatever is wrong
                one.pipes.set_result(error)

    def connect(self, pod: str, query: str) -> Opened:
        """Open a stream, and wait until it is up. query: see `exec_query`. In any thread. Raises
        OSError, CannotCall, websockets' InvalidHandshake."""
        from websockets.exceptions import InvalidStatus

        try:
            access = self._connection.access()  # for each stream, as credentials may be renewed
        except ConnectionError as error:  # there are none
            raise CannotCall(str(error), refused=False) from None
        operation = Operation("create", "", "pods/exec", "Pod", self._connection.namespace, pod)
        path = KINDS["Pod"].path(operation.namespace, pod, "exec")
        try:
            return open_stream(access, f"{path}?{query}")
        except InvalidStatus as error:
            response = error.response
            if 300 <= response.status_code < 400:
                raise redirect(response.headers.get("Location", "")) from None
            if response.status_code == 401:
                self._connection.not_accepted(access)
            body = error_body(bytes(response.body or b""), response.headers)
            raise refusal(operation, response.status_code, body) from None


def exec_query(container: str, argv: Sequence[str], *, terminal: bool = False) -> str:
    """What a request says of the program that it runs. terminal: whether that has a terminal, which
    standard error is then, too."""
    query = [("container", container), ("stdin", "true"), ("stdout", "true")]
    query.append(("tty", "true") if terminal else ("stderr", "true"))
    words = [("command", word) for word in argv]
    return urlencode([*query, *words], errors="surrogateescape")  # bytes as they were typed


def why_ended(ending: Ending) -> str:
    """Why a stream has ended, as a phrase."""
    if isinstance(ending.failure, CannotCall):
        return str(ending.failure)
    if ending.failure is not None:
        return f"the cluster does not answer: {in_words(ending.failure)}"
    why = "" if ending.status is None else status_text(ending.status, ending.error)
    return why or "its node server has closed the connection"


def status_text(status: bytes, error: bytes) -> str:
    """Why a program has ended, as a phrase; "" if it has succeeded. status: what is in channel 3.
    error: what it has written to standard error."""
    try:
        said = json.loads(status)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return _in_a_line(status.decode(errors="replace"))
    if said.get("status") == "Success":
        return ""
    lines = error.decode(errors="replace").strip().splitlines()
    return _in_a_line(lines[-1] if lines else str(said.get("message") or ""))


def _in_a_line(text: str) -> str:
    """A text that may reach a terminal, without characters that would control it."""
    words = " ".join(text.split())
    return "".join(one if one.isprintable() else "?" for one in words)[:_LONGEST]
