"""Requests to a server over HTTP."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from queue import Empty, LifoQueue
from typing import Any
from urllib.parse import urlsplit
from weakref import finalize

import msgspec

from muster.api.problems import ProblemDetails, error_of
from muster.client.contexts import Address
from muster.errors import MusterError, Problem, ServerUnavailable

#: Seconds for an answer to begin.
TIMEOUT = 60.0
#: Connections that are kept open for the next request.
_MOST_KEPT = 8
_BLOCK = 1 << 16


class Connection:
    """Connections to one server, which threads share."""

    def __init__(self, address: Address) -> None:
        self.address = address
        parts = urlsplit(address.url)
        self._secure = parts.scheme == "https"
        self._host, self._port, self._base = (
            parts.hostname or "",
            parts.port,
            parts.path.rstrip("/"),
        )
        self._idle: LifoQueue[http.client.HTTPConnection] = LifoQueue(_MOST_KEPT)
        finalize(self, _close_all, self._idle)  # for programs that close nothing

    def request(
        self,
        verb: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> bytes:
        """The body of an answer. Raises what the server answers (`api.problems`), and
        ServerUnavailable."""
        stream = self.stream(verb, path, body, headers, timeout=timeout)
        with stream as answer, self._explained():
            return answer.read()

    @contextmanager
    def stream(
        self,
        verb: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer whose body is read in the context. Raises as `request`."""
        connection, answer = self._answer(verb, path, body, headers or {}, timeout)
        try:
            if answer.status >= 400:
                raise _refusal(answer)
            yield answer
        finally:
            if answer.isclosed() and not answer.will_close:
                self._keep(connection)
            else:
                connection.close()

    def _answer(
        self,
        verb: str,
        path: str,
        body: bytes | Iterable[bytes] | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        given = {**self.headers(), **headers}
        if isinstance(body, bytes):
            given.setdefault("Content-Type", "application/json")
        while True:
            connection, is_new = self._connection(timeout)
            with self._explained():
                try:
                    connection.request(verb, f"{self._base}{path}", body, given)
                    return connection, connection.getresponse()
                except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
                    connection.close()
                    # the server has closed it since the last request, of which it saw nothing
                    if is_new or not (body is None or isinstance(body, bytes)):
                        raise
                except BaseException:
                    connection.close()
                    raise

    def headers(self) -> dict[str, str]:
        """Those of every request."""
        from muster import __version__

        made = {"User-Agent": f"muster/{__version__}", "Accept": "application/json"}
        if self.address.token:
            made["Authorization"] = f"Bearer {self.address.token}"
        if self.address.project is not None:
            made["Muster-Project"] = self.address.project
        return made

    def _connection(self, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it is new."""
        try:
            kept = self._idle.get_nowait()
        except Empty:
            pass
        else:
            if kept.sock is not None:
                kept.sock.settimeout(timeout)
            return kept, False
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout), True
        import ssl

        context = ssl.create_default_context(cafile=self.address.ca or None)
        made = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        return made, True

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        if self._idle.full():
            connection.close()
        else:
            self._idle.put_nowait(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise ServerUnavailable for errors of the connection."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise unavailable(self.address.url, error) from None

    def close(self) -> None:
        """Close the connections that are kept."""
        _close_all(self._idle)


def _close_all(idle: LifoQueue[http.client.HTTPConnection]) -> None:
    while True:
        try:
            idle.get_nowait().close()
        except Empty:
            return


def unavailable(url: str, error: Exception) -> ServerUnavailable:
    """The error for a server that cannot be reached, or whose answer was lost."""
    why = str(error) or type(error).__name__
    hint = "check that it runs, and its address: `muster context list`"
    if isinstance(error, ConnectionRefusedError):
        why = "nothing listens there"
    elif isinstance(error, socket.gaierror):
        why = "there is no such host"
    elif isinstance(error, TimeoutError):
        why = "it does not answer in time"
    elif type(error).__name__ == "SSLCertVerificationError":
        hint = "trust its authority: `muster login URL --ca FILE`"
    elif isinstance(error, (http.client.RemoteDisconnected, http.client.IncompleteRead)):
        why = "it has closed the connection before its answer was complete"
    return ServerUnavailable(str(Problem("", f"cannot reach the server {url}: {why}", hint)))


def _refusal(answer: http.client.HTTPResponse) -> Exception:
    body = answer.read(1 << 20)
    try:
        details = msgspec.json.decode(body, type=ProblemDetails)
    except (msgspec.DecodeError, msgspec.ValidationError):
        text = body[:200].decode(errors="replace")
        return MusterError(f"the server answered {answer.status} {answer.reason}: {text}")
    return error_of(details)


def lines_of(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines of a body as they arrive, without empty ones. Raises ConnectionError if the body
    was cut off."""
    rest = b""
    while block := answer.read1(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line for line in lines if line)
    if rest:
        raise http.client.IncompleteRead(rest)


def json_body(value: Any) -> bytes:
    """A value as the body of a request."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)
