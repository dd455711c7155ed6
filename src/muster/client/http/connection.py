"""Requests to a server over HTTP."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from queue import Empty, LifoQueue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import finalize

import msgspec

from muster.api.operations import Operation
from muster.api.problems import ProblemDetails, error_of
from muster.client.contexts import Address
from muster.client.http.protocol import Answer, ConnectionLost, HttpSocket, NothingArrived
from muster.errors import InvalidInput, MusterError, Problem, ServerUnavailable
from muster.type_info import decode_json, encode_json

if TYPE_CHECKING:
    from ssl import SSLContext

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
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._base = parts.path.rstrip("/")
        self._host_header = parts.netloc
        self._idle: LifoQueue[HttpSocket] = LifoQueue(_MOST_KEPT)
        finalize(self, _close_all, self._idle)  # for programs that close nothing

    def request(
        self,
        verb: str,
        path: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> bytes:
        """The body of an answer. Raises what the server answers (`api.problems`), and
        ServerUnavailable."""
        stream = self.stream(verb, path, body, headers, timeout=timeout)
        with stream as answer, self._explained():
            return answer.read()

    def call(self, operation: Operation, given: Mapping[str, Any], answer: Any) -> Any:
        """What an operation answers. given: all parameters of its method. answer: the type.
        Raises as `request`."""
        body = b""
        if operation.body:
            body = encode_json({name: given[name] for name in operation.body})
        return decode_json(self.request(operation.verb, operation.url(given), body), answer)

    @contextmanager
    def stream(
        self,
        verb: str,
        path: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> Iterator[Answer]:
        """An answer whose body is read in the context. Raises as `request`."""
        connection, answer = self._answer(verb, path, body, headers or {}, timeout)
        try:
            if answer.status >= 400:
                with self._explained():
                    refusal = _refusal(answer, self.address.url)
                raise refusal
            yield answer
        finally:
            if answer.complete and answer.reusable:
                self._keep(connection)
            else:
                connection.close()

    def _answer(
        self,
        verb: str,
        path: str,
        body: bytes | Iterable[bytes],
        headers: Mapping[str, str],
        timeout: float,
    ) -> tuple[HttpSocket, Answer]:
        given = {"Host": self._host_header, **self.headers(), **headers}
        if isinstance(body, bytes) and body:
            given.setdefault("Content-Type", "application/json")
        while True:
            with self._explained():
                connection, is_new = self._connection(timeout)
                try:
                    return connection, connection.request(verb, f"{self._base}{path}", given, body)
                except (ConnectionResetError, BrokenPipeError):
                    connection.close()
                    # the server has closed it since the last request, of which it saw nothing
                    if is_new or not isinstance(body, bytes):
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

    def _connection(self, timeout: float) -> tuple[HttpSocket, bool]:
        """A connection, and whether it is new."""
        while True:
            try:
                kept = self._idle.get_nowait()
            except Empty:
                break
            # that of a parent is used there, too
            if kept.process == os.getpid() and not kept.dropped:
                kept.settimeout(timeout)
                return kept, False
            kept.close()
        context = tls_context(self.address) if self._secure else None
        return HttpSocket(self._host, self._port, timeout, context), True

    def _keep(self, connection: HttpSocket) -> None:
        if self._idle.full():
            connection.close()
        else:
            self._idle.put_nowait(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise ServerUnavailable for errors of the connection."""
        try:
            yield
        except OSError as error:
            raise unavailable(self.address.url, error) from None

    def close(self) -> None:
        """Close the connections that are kept."""
        _close_all(self._idle)


def _close_all(idle: LifoQueue[HttpSocket]) -> None:
    while True:
        try:
            idle.get_nowait().close()
        except Empty:
            return


def tls_context(address: Address) -> SSLContext:
    """How to check the server's certificate. Raises InvalidInput for a file of `muster login --ca`
    that is not there any more, or has no certificate."""
    import ssl

    try:
        return ssl.create_default_context(cafile=address.ca or None)
    except OSError as error:
        why = error.strerror
        if isinstance(error, ssl.SSLError):
            why = "it has no certificate in PEM"
        text = f"cannot read {address.ca}, the certificates to trust for {address.url}: {why}"
        hint = "`muster login URL --ca FILE` names another file"
        raise InvalidInput(Problem("--ca", text, hint)) from None


def unavailable(url: str, error: Exception) -> ServerUnavailable:
    """The error for a server that cannot be reached, or whose answer was lost."""
    why = str(error) or type(error).__name__
    hint = "check that it runs, and its address: `muster context list`"
    if isinstance(error, ConnectionRefusedError):
        why = "nothing listens there"
    elif isinstance(error, socket.gaierror):
        why = "there is no such host"
    elif isinstance(error, (TimeoutError, NothingArrived)):
        why = "it does not answer in time"
    elif type(error).__name__ == "SSLCertVerificationError":
        hint = "trust its authority: `muster login URL --ca FILE`; with MUSTER_URL, SSL_CERT_FILE"
    elif getattr(error, "reason", "") in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        why, hint = "it does not use TLS", f"write http{url.removeprefix('https')}"
    elif isinstance(error, ConnectionResetError) and url.startswith("http:"):
        hint += f"; if it uses TLS, write https{url.removeprefix('http')}"
    return ServerUnavailable(str(Problem("", f"cannot reach the server {url}: {why}", hint)))


def _refusal(answer: Answer, url: str) -> Exception:
    body = answer.read(1 << 20)
    try:
        details = decode_json(body, ProblemDetails)
    except (msgspec.DecodeError, msgspec.ValidationError):
        text = body[:200].decode(errors="replace")
        if answer.status in (502, 503, 504):  # of a proxy
            return unavailable(url, OSError(f"{answer.status} {answer.reason}"))
        return MusterError(f"the server answered {answer.status} {answer.reason}: {text}")
    return error_of(details)


def lines_of(answer: Answer) -> Iterator[bytes]:
    """The lines of a body as they arrive, without empty ones. Raises ConnectionError if the body
    was cut off."""
    rest = b""
    while block := answer.read1(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line for line in lines if line)
    if rest:
        raise ConnectionLost("the answer was cut off")
