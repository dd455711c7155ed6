"""Docker's HTTP API over a Unix socket, as Docker and Podman have it.

The paths that are used here, and their bodies, are those of version 1.41, which Docker has had
since 20.10, and Podman's service since 3.0 (Docker Engine API).
"""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote, urlencode

from msgspec import Struct

#: Seconds for an answer. To create or remove containers takes long on a machine that is busy.
TIMEOUT = 120.0
_JSON = {"Content-Type": "application/json"}
#: Bytes of an answer that is an error.
_MOST_TEXT = 1 << 16


class CannotReach(Exception):  # noqa: N818
    """The engine does not answer. The text says why."""


class TookTooLong(CannotReach):
    """A command has not ended in time. It may still run."""

    def __init__(self, command: str) -> None:
        super().__init__("it has not ended in time")
        #: By which the engine knows it.
        self.command = command


class Refused(Exception):  # noqa: N818
    """The engine has answered that it cannot do something. The text is its own."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        #: The status of HTTP.
        self.status = status


class Daemon(Struct, frozen=True):
    """What listens on a socket."""

    path: str

    def get(self, *words: str, **query: Any) -> Any:
        """The answer to GET, as JSON has it. words: the parts of the path. Raises CannotReach,
        Refused."""
        return self.call("GET", words, query)

    def text(self, *words: str, **query: Any) -> str:
        """The answer to GET for the output of a container. Raises CannotReach, Refused."""
        connection = _Connection(self.path, TIMEOUT)
        try:
            data = _ask(connection, "GET", words, query, None, None).read()
        except (OSError, http.client.HTTPException) as error:
            raise CannotReach(_why(error)) from None
        finally:
            connection.close()
        return _without_headers(data).decode(errors="replace")

    def output(self, container: str) -> Iterator[tuple[int, bytes]]:
        """What a container writes, from its start to its end: parts, each with the number of its
        stream: 1, or 2 for standard error. Raises CannotReach, Refused."""
        query = dict.fromkeys(("follow", "stdout", "stderr"), "true")
        connection = _Connection(self.path, None)
        try:
            words = ("containers", container, "logs")
            response = _ask(connection, "GET", words, query, None, None)
            while len(header := response.read(8)) == 8:
                length = int.from_bytes(header[4:], "big")
                yield (2 if header[0] == 2 else 1), response.read(length)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CannotReach(_why(error)) from None
        finally:
            connection.close()

    def exit_code(self, container: str, argv: Sequence[str], timeout: float) -> int | None:
        """The exit code of a command that runs in a container. timeout: seconds for all of it,
        whatever it prints. Raises TookTooLong, CannotReach, Refused."""
        body = {"Cmd": list(argv), "AttachStdout": True, "AttachStderr": True}
        command = self.call("POST", ("containers", container, "exec"), {}, body)["Id"]
        deadline = time.monotonic() + timeout
        connection = _Connection(self.path, timeout)
        try:
            # its output follows without the headers of other answers; Podman learns of its end only
            # where that is read
            path, headers = f"/exec/{command}/start", {"Connection": "Upgrade", "Upgrade": "tcp"}
            connection.request("POST", path, b'{"Detach": false}', {**_JSON, **headers})
            _read_to_end(connection.sock, deadline)
        except TimeoutError:
            raise TookTooLong(command) from None
        except (OSError, http.client.HTTPException) as error:
            raise CannotReach(_why(error)) from None
        finally:
            connection.close()
        code = self.get("exec", command, "json").get("ExitCode")
        return None if code is None else int(code)

    def call(
        self,
        method: str,
        words: tuple[str, ...],
        query: Mapping[str, Any],
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> Any:
        """Raises CannotReach, also if the answer is lost; Refused."""
        connection = _Connection(self.path, timeout)
        try:
            response = _ask(connection, method, words, query, body, headers)
            return _parsed(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise CannotReach(_why(error)) from None
        finally:
            connection.close()

    def stream(
        self,
        method: str,
        words: tuple[str, ...],
        query: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        content: IO[bytes] | None = None,
    ) -> Stream:
        """An answer that is lines of JSON. timeout: seconds between two lines; None: any. content:
        a file that is sent. Raises CannotReach, Refused."""
        connection = _Connection(self.path, timeout)
        try:
            return Stream(connection, _ask(connection, method, words, query, content, headers))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise CannotReach(_why(error)) from None
        except BaseException:
            connection.close()
            raise


class Stream:
    """An answer that is lines of JSON."""

    def __init__(self, connection: _Connection, response: http.client.HTTPResponse) -> None:
        self._connection, self._response = connection, response
        # which the response may take from the connection
        self._socket = connection.sock

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Raises CannotReach."""
        try:
            while line := self._response.readline():
                found = _parsed(line)
                if isinstance(found, dict):
                    yield found
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CannotReach(_why(error)) from None

    def shut(self) -> None:
        """End it, from another thread than the one that reads."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended
            return

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        """Raises OSError."""
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self.path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def _read_to_end(sock: socket.socket, deadline: float) -> None:
    """Read until the other end closes. Raises TimeoutError at the deadline, OSError."""
    while (left := deadline - time.monotonic()) > 0:
        sock.settimeout(left)
        if not sock.recv(_MOST_TEXT):
            return
    raise TimeoutError


def _ask(
    connection: _Connection,
    method: str,
    words: tuple[str, ...],
    query: Mapping[str, Any],
    body: object,
    headers: Mapping[str, str] | None,
) -> http.client.HTTPResponse:
    """The response, whose content was not read. Raises Refused, CannotReach, OSError,
    HTTPException."""
    path = "/" + "/".join(quote(word, safe=":/@") for word in words)
    if query:
        path += "?" + urlencode({name: _in_query(value) for name, value in query.items()})
    sent = dict(headers or {})
    data: Any = None
    if isinstance(body, io.IOBase):
        data = body
        sent["Content-Length"] = str(os.fstat(body.fileno()).st_size)
    elif body is not None:
        data = json.dumps(body).encode()
        sent |= _JSON
    connection.request(method, path, data, sent)
    response = connection.getresponse()
    if response.headers.get("Api-Version") is None:
        raise CannotReach(f"what answers at {connection.path} is not Docker's API")
    if response.status >= 400:
        raise Refused(response.status, _message(response.read(_MOST_TEXT), response.status))
    return response


def _in_query(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _parsed(data: bytes) -> Any:
    if not data.strip():
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None  # as of /_ping


def _without_headers(data: bytes) -> bytes:
    """The output in a multiplexed stream: each part has a header of 8 bytes with its length."""
    parts = []
    while len(data) >= 8 and data[0] in (0, 1, 2) and data[1:4] == bytes(3):
        end = 8 + int.from_bytes(data[4:8], "big")
        parts.append(data[8:end])
        data = data[end:]
    return b"".join([*parts, data])


def _message(data: bytes, status: int) -> str:
    found = _parsed(data)
    if isinstance(found, dict) and isinstance(found.get("message"), str):
        return str(found["message"])
    return data.decode(errors="replace").strip()[:500] or f"HTTP status {status}"


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, http.client.HTTPException):
        return "the connection was lost"
    return getattr(error, "strerror", None) or str(error)
