"""A WebSocket of the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from muster.server.answers import Answer, Header, Send, headers_of
from muster.server.call import ClientGone

#: Close codes (RFC 6455, section 7.4.1).
NORMAL, GOING_AWAY, INVALID = 1000, 1001, 1007


class WebSocket:
    """See the module. Several tasks may send."""

    def __init__(self, receive: Any, send: Send) -> None:
        self._receive, self._send = receive, send
        self._accepted = self._closed = False

    async def accept(self) -> None:
        """Accept the connection."""
        message = await self._receive()
        if message["type"] != "websocket.connect":
            raise ClientGone
        await self._deliver({"type": "websocket.accept"})
        self._accepted = True

    async def refuse(self, answer: Answer, headers: Sequence[Header]) -> None:
        """Answer the request with an error; close the connection if it was accepted."""
        if self._accepted:
            await self.close(INVALID)
            return
        self._closed = True
        start = {"type": "websocket.http.response.start", "status": answer.status}
        await self._deliver({**start, "headers": [*headers_of(answer), *headers]})
        await self._deliver({"type": "websocket.http.response.body", "body": answer.body})

    async def receive(self) -> bytes | str:
        """The next message: bytes, or text. Raises ClientGone."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._closed = True
            raise ClientGone
        data: bytes | str | None = message.get("bytes")
        return data if data is not None else message["text"]

    async def send(self, data: bytes | Struct) -> None:
        """Send bytes, or a Struct as JSON in a text."""
        if self._closed:
            raise ClientGone
        if isinstance(data, bytes):
            await self._deliver({"type": "websocket.send", "bytes": data})
        else:
            text = msgspec.json.encode(data).decode()
            await self._deliver({"type": "websocket.send", "text": text})

    async def _deliver(self, message: dict[str, Any]) -> None:
        """Raises ClientGone."""
        try:
            await self._send(message)
        except OSError:  # as ASGI has it
            self._closed = True
            raise ClientGone from None

    async def close(self, code: int = NORMAL) -> None:
        """Close the connection. May be repeated."""
        if not self._closed:
            self._closed = True
            await self._deliver({"type": "websocket.close", "code": code})
