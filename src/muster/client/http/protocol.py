"""HTTP/1.1 (RFC 9112), as far as a client of a Muster server needs it: requests with bodies of a
known length, and answers that are read as they arrive.

`http.client` does more, but importing it takes 24 ms, which is most of the duration of a command.
"""

from __future__ import annotations

import os
import re
import select
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BufferedReader
from typing import TYPE_CHECKING, cast

from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from ssl import SSLContext

_BLOCK = 1 << 16
#: Limits of what is read before the body.
_MOST_LINE, _MOST_HEADERS = 1 << 16, 128

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: ([^\r\n]*))?\r\n")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*\r\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_TARGET = re.compile(r"/[!-~]*")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")


class ConnectionLost(ConnectionError):  # noqa: N818
    """The connection ended before the answer was complete, or the answer is not valid."""


class NothingArrived(ConnectionLost):
    """The server did not answer in time."""


class HttpSocket:
    """A connection to a server, for one request at a time."""

    def __init__(
        self, host: str, port: int, timeout: float, context: SSLContext | None = None
    ) -> None:
        """timeout: seconds for each step. context: for HTTPS. Raises OSError."""
        #: The id of the process that has made it.
        self.process = os.getpid()
        made = socket.create_connection((host, port), timeout)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                made = context.wrap_socket(made, server_hostname=host)
            self._socket = made
            self._reader = cast(BufferedReader, made.makefile("rb", _BLOCK))
        except BaseException:
            made.close()
            raise

    def settimeout(self, timeout: float) -> None:
        """Seconds for each step from now on."""
        self._socket.settimeout(timeout)

    @property
    def dropped(self) -> bool:
        """Whether the server has closed it, between two requests."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def request(
        self,
        verb: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] = b"",
    ) -> Answer:
        """Send a request, and read the head of its answer.

        headers: with `Host` and, if the body is not bytes, `Content-Length`. Raises OSError, and
        InvalidInput for a target or header that cannot be sent.
        """
        head = _head(verb, target, headers, body)
        try:
            if isinstance(body, bytes):
                self._socket.sendall(head + body)
            else:
                self._socket.sendall(head)
                for part in body:
                    self._socket.sendall(part)
            return Answer(self._reader, self._socket, verb)
        except TimeoutError:
            raise NothingArrived("it does not answer in time") from None

    def close(self) -> None:
        """Close the connection. May be repeated."""
        with suppress(OSError):
            self._reader.close()
        self._socket.close()


class Answer:
    """An answer, whose body is read as it arrives. Raises ConnectionLost, and other OSErrors."""

    def __init__(self, reader: BufferedReader, connected: socket.socket, verb: str) -> None:
        self._reader, self._socket = reader, connected
        version = 1
        self.status, self.reason = 100, ""
        while self.status < 200:  # 1xx: the answer follows
            version, self.status, self.reason = self._status_line()
            #: Name in small letters -> text.
            self.headers = self._header_lines()
        self._chunked = False
        #: Bytes of the body, or of the present chunk, that are not read; None: to the end of the
        #: connection.
        self._left: int | None = 0
        if verb != "HEAD" and self.status not in (204, 304):
            self._chunked, self._left = self._framing()
        #: Whether the body has been read to its end.
        self.complete = self._left == 0 and not self._chunked
        closes = version == 0 or "close" in self.headers.get("connection", "").lower()
        #: Whether the connection can be used for another request, when the body is complete.
        self.reusable = not closes and self._left is not None

    def read(self, most: int | None = None) -> bytes:
        """The rest of the body. most: at least so many bytes, if there are."""
        parts, size = [], 0
        while (most is None or size < most) and (part := self.read1(_BLOCK)):
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def read1(self, most: int) -> bytes:
        """What has arrived of the body, at most so many bytes; waits for the first one. b"" at the
        end."""
        if self.complete:
            return b""
        try:
            return self._read1(most)
        except TimeoutError:
            raise NothingArrived("it does not answer in time") from None
        except ValueError as error:  # `abort` in another thread
            raise ConnectionLost(str(error)) from None

    def abort(self) -> None:
        """End the connection, so that another thread that reads it returns."""
        with suppress(OSError):
            # that of TLS would also forget its keys, and the other thread read what is encrypted
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _read1(self, most: int) -> bytes:
        if self._chunked and not self._left:
            self._left = self._next_chunk()
            if not self._left:
                self.complete = True
                return b""
        size = most if self._left is None else min(most, self._left)
        data = self._reader.read1(size)
        if self._left is None:
            self.complete = not data
            return data
        if not data:
            raise ConnectionLost("the answer was cut off")
        self._left -= len(data)
        if not self._left:
            if self._chunked:
                if self._reader.read(2) != b"\r\n":
                    raise ConnectionLost("the answer was cut off")
            else:
                self.complete = True
        return data

    def _next_chunk(self) -> int:
        """The size of the next chunk; 0 after the last one, whose trailer is read."""
        found = _CHUNK.fullmatch(self._line())
        if found is None:
            raise ConnectionLost("the answer is not valid HTTP: the size of a part")
        size = int(found[1], 16)
        if not size:
            self._header_lines()
        return size

    def _status_line(self) -> tuple[int, int, str]:
        line = self._reader.readline(_MOST_LINE)
        if not line:
            raise ConnectionResetError("it has closed the connection before its answer")
        found = _STATUS.fullmatch(line)
        if found is None:
            raise ConnectionLost("the answer is not valid HTTP: is this the address of a server?")
        return int(found[1]), int(found[2]), (found[3] or b"").decode("latin-1")

    def _header_lines(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if line == b"\r\n":
                return found
            header = _HEADER.fullmatch(line)
            if header is None:
                raise ConnectionLost("the answer is not valid HTTP: a header")
            name, value = header[1].decode().lower(), header[2].decode("latin-1")
            found[name] = f"{found[name]}, {value}" if name in found else value
        raise ConnectionLost("the answer is not valid HTTP: too many headers")

    def _line(self) -> bytes:
        line = self._reader.readline(_MOST_LINE)
        if not line.endswith(b"\r\n"):
            raise ConnectionLost("the answer was cut off")
        return line

    def _framing(self) -> tuple[bool, int | None]:
        """Whether the body comes in chunks, and how much is to be read first."""
        encoding, length = self.headers.get("transfer-encoding"), self.headers.get("content-length")
        if encoding is not None:
            if encoding.lower() != "chunked" or length is not None:
                raise ConnectionLost("the answer is not valid HTTP: the encoding of its body")
            return True, 0
        if length is None:
            return False, None
        if not (length.isascii() and length.isdecimal()) or len(length) > 18:
            raise ConnectionLost("the answer is not valid HTTP: the length of its body")
        return False, int(length)


def _head(
    verb: str, target: str, headers: Mapping[str, str], body: bytes | Iterable[bytes]
) -> bytes:
    """What precedes the body of a request. Raises InvalidInput."""
    given = dict(headers)
    if isinstance(body, bytes) and (body or verb in ("POST", "PUT", "PATCH")):
        given["Content-Length"] = str(len(body))
    if _TARGET.fullmatch(target) is None:
        raise InvalidInput(Problem("", f"{target[:200]!r} cannot be requested from a server"))
    for name, value in given.items():
        if _VALUE.fullmatch(value) is None:  # the value may be a token, which is not shown
            text = "has a character that cannot be sent to a server"
            raise InvalidInput(Problem(name, text, "look for a line break in it"))
    lines = [f"{verb} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
