"""What the server sends: whole answers, and streams."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from muster.secrets import SEALED, SEALED_MARK
from muster.type_info import encode_json

JSON = "application/json"
#: One JSON value in each line.
JSON_LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
BYTES = "application/octet-stream"
#: Seconds after which a stream without news sends something, so that both ends notice when the
#: connection is gone.
KEEP_ALIVE = 15.0

_SEALED = re.compile(SEALED.encode())
_MARK = SEALED_MARK.encode()

#: The name of a header in small letters, and its value.
Header = tuple[bytes, bytes]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Answer(Struct, frozen=True):
    """A whole answer."""

    body: bytes = b""
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = {}


class Stream(Struct, frozen=True):
    """An answer in parts, which may go on for days, or one that is too long for the memory."""

    parts: AsyncGenerator[bytes]
    media_type: str
    #: What is sent when there is no news.
    keep_alive: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


def encoded(value: Any) -> bytes:
    """A value as JSON, without the encrypted parts of secrets: what is shown of them remains."""
    data = encode_json(value)
    return _SEALED.sub(b"", data) if _MARK in data else data


def etag_of(body: bytes) -> str:
    """The entity tag of a body (RFC 9110, section 8.8.3)."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def matches(header: str, tag: str) -> bool:
    """Whether If-Match or If-None-Match names an entity tag; a weak one of the same, too."""
    tags = [each.strip().removeprefix("W/") for each in header.split(",")]
    return tag in tags or tags == ["*"]


async def send_answer(send: Send, answer: Answer, headers: Sequence[Header]) -> None:
    """Send a whole answer. headers: besides its own."""
    if "content-length" not in answer.headers:  # the answer to HEAD has that of what GET returns
        headers = [*headers, (b"content-length", b"%d" % len(answer.body))]
    await send(_start(answer, headers))
    await send({"type": "http.response.body", "body": answer.body})


async def send_stream(
    send: Send, stream: Stream, headers: Sequence[Header], disconnected: Awaitable[None]
) -> None:
    """Send a stream until it ends or the client has closed the connection."""
    if "cache-control" not in stream.headers:
        headers = [*headers, (b"cache-control", b"no-store")]
    await send(_start(stream, headers))
    sending = asyncio.ensure_future(_send_parts(send, stream))
    gone = asyncio.ensure_future(disconnected)
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        for task in (sending, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        await stream.parts.aclose()


async def _send_parts(send: Send, stream: Stream) -> None:
    parts = stream.parts.__aiter__()
    coming: asyncio.Future[bytes] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(parts.__anext__())
            done, _ = await asyncio.wait((coming,), timeout=KEEP_ALIVE)
            part = stream.keep_alive
            if done:
                try:
                    part = coming.result()
                except StopAsyncIteration:
                    break
                coming = None
            if part:
                await send({"type": "http.response.body", "body": part, "more_body": True})
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await coming
    await send({"type": "http.response.body", "body": b""})


def headers_of(answer: Answer | Stream) -> list[Header]:
    """The headers of an answer as they are sent."""
    given = {"content-type": answer.media_type, **answer.headers}
    return [(name.encode(), text.encode("latin-1")) for name, text in given.items()]


def _start(answer: Answer | Stream, headers: Sequence[Header]) -> dict[str, Any]:
    return {
        "type": "http.response.start",
        "status": answer.status,
        "headers": [*headers_of(answer), *headers],
    }
