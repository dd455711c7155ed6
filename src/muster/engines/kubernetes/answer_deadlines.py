"""Deadlines of whole answers. The timeout of a socket starts again with each byte, so that a server
or a proxy that sends one now and then never exceeds it."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from muster.engines.kubernetes.refusals import CannotCall

if TYPE_CHECKING:
    import socket

    from _typeshed import WriteableBuffer


class _Limit(Struct, frozen=True):
    """The deadline of the requests in a block."""

    #: Monotonic seconds.
    deadline: float
    #: Whether it holds for the status and the headers only.
    is_stream: bool
    #: What it says if it is exceeded, for people.
    text: str


_limit: ContextVar[_Limit] = ContextVar("limit")


@contextmanager
def complete_within(seconds: float, call: str, *, is_stream: bool) -> Iterator[None]:
    """The answer of what is requested in the block, with the classes of `POOL_CLASSES`, is complete
    in time, also if it is read later; else reading it raises CannotCall. call: what is requested,
    for people. is_stream: whether the content may take longer."""
    text = (
        f"the cluster does not answer: {call} has no complete answer after {seconds:g}s: check the "
        "network and the proxies on the way"
    )
    token = _limit.set(_Limit(time.monotonic() + seconds, is_stream, text))
    try:
        yield
    finally:
        _limit.reset(token)


class _Reader(io.RawIOBase):
    """What a socket receives until a deadline. Raises CannotCall when that has passed."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, limit: _Limit) -> None:
        self._raw, self._sock, self._text = raw, sock, limit.text
        self.deadline = limit.deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left, timeout = self.deadline - time.monotonic(), self._sock.gettimeout()
        assert timeout is not None  # each request has one
        if timeout <= left:
            return self._raw.readinto(buffer)
        too_slow = CannotCall(self._text, refused=False)
        if left <= 0:
            raise too_slow
        self._sock.settimeout(left)
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            raise too_slow from None
        finally:
            self._sock.settimeout(timeout)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Response(HTTPResponse):
    """Everything of it is read until the deadline, whichever part of it comes slowly. That of a
    proxy to CONNECT is one, too."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._limit = _limit.get()
        self._reader = _Reader(self.fp.detach(), sock, self._limit)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        super().begin()
        if self._limit.is_stream:
            self._reader.deadline = math.inf


class _HttpConnection(HTTPConnection):
    response_class = Response


class _HttpsConnection(HTTPSConnection):
    response_class = Response


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


#: Of a `PoolManager`, by the scheme of a URL.
POOL_CLASSES: dict[str, type] = {"http": _HttpPool, "https": _HttpsPool}
