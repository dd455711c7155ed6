"""HTTP connections that nobody keeps busy: limits of time and size for what clients send and read.

uvicorn itself waits for ever for the rest of a request, and for a client that reads nothing.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

#: Seconds that a client has to send the line and the headers of a request, from the first byte on,
#: and the first byte of a new connection.
HEAD_TIMEOUT = 20.0
#: Bytes of the line and the headers of a request; one packet more may be read.
MOST_HEAD = 1 << 16
#: Seconds that a client has to send what is left of a body that nobody reads any more.
DRAIN_TIMEOUT = 10.0
#: Seconds for which a client may read nothing of what is sent to it.
WRITE_TIMEOUT = 60.0


class HttpProtocol(HttpToolsProtocol):
    """See the module. Each connection has one."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        #: Whether the line and the headers of a request are awaited, and how many bytes of them
        #: are there.
        self._in_head, self._head = True, 0
        self._body_complete = True
        #: The request that is being answered.
        self._running: RequestResponseCycle | None = None
        #: Ends the connection: while the client has to send something, or to read something.
        self._to_send: TimerHandle | None = None
        self._to_read: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(HEAD_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        # uvicorn only tells the last one of several requests that were sent at once
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        self.resume_writing()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_web_socket = self.transport.get_protocol() is not self  # from now on
        if is_web_socket or self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
            if self._head > MOST_HEAD:
                self.send_400_response(f"The request has more than {MOST_HEAD} bytes of headers.")
            elif self._to_send is None:  # the first bytes of another request
                self._expect(HEAD_TIMEOUT)
        elif self._idle and self._to_send is None:  # empty lines, which begin no request
            self._expect(HEAD_TIMEOUT)

    @property
    def _idle(self) -> bool:
        return self._body_complete and (self.cycle is None or self.cycle.response_complete)

    def on_message_begin(self) -> None:
        self._in_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = self._body_complete = False
        self._expect_nothing()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_complete = True
        self._expect_nothing()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._body_complete:
            self._expect(DRAIN_TIMEOUT)

    def shutdown(self) -> None:
        """The server stops: close the connection when its request is answered."""
        super().shutdown()
        # with TLS, to close is to wait for the client's answer, for half a minute
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._to_read = self.loop.call_later(WRITE_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        if self._to_read is not None:
            self._to_read.cancel()
            self._to_read = None
        super().resume_writing()

    def _expect(self, seconds: float) -> None:
        self._expect_nothing()
        self._to_send = self.loop.call_later(seconds, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._to_send is not None:
            self._to_send.cancel()
            self._to_send = None
