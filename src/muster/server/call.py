"""One request to the server: who asks, for what, and its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.caller import Caller
from muster.errors import Conflict, InvalidInput, MusterError, Problem
from muster.service.audit import Origin

if TYPE_CHECKING:
    from muster.server.state import ServerState
    from muster.service.embedded import EmbeddedAPI

#: Bytes of a JSON body.
MOST_BODY = 64 << 20
#: Seconds between two parts of a body, and for a whole JSON body.
BODY_TIMEOUT = 30.0
_WHOLE_TIMEOUT = 300.0


class BodyTooLarge(MusterError):  # noqa: N818
    """A body has more bytes than are accepted."""


class Changed(Conflict):
    """What is to be changed is not as the request says it was (If-Match)."""


class ClientGone(Exception):  # noqa: N818
    """The client has closed the connection."""


class Call:
    """See the module."""

    def __init__(
        self,
        state: ServerState,
        scope: Mapping[str, Any],
        receive: Any,
        *,
        request_id: str,
        headers: Mapping[bytes, bytes],
        address: str,
    ) -> None:
        self.state = state
        #: The headers as they arrived.
        self.raw_headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        #: Who has signed a request of the OCI API; "" if that is not known.
        self.signer = ""
        self.verb: str = scope.get("method", "GET")  # a WebSocket has none
        #: The path as it arrived.
        self.target: str = scope["raw_path"].decode("latin-1")
        self.query: str = scope["query_string"].decode("latin-1")
        self.request_id = request_id
        #: The address of the client.
        self.address = address
        #: The template of the path; "" if there is no such route.
        self.route = ""
        #: The parameters in the path.
        self.path: Mapping[str, str] = {}
        self.span = state.tracer.request(self.verb, headers, request_id)
        self._headers = headers
        self._receive = receive
        self._caller: Caller | None = None

    @property
    def caller(self) -> Caller:
        """Who asks; set before a handler is called."""
        assert self._caller is not None
        return self._caller

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def user(self) -> str:
        """The name of who asks; "" if that is not known."""
        return self.signer if self._caller is None else self._caller.user

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return Origin(self.address, self.request_id)

    def header(self, name: str) -> str:
        """A header of the request, by its name in small letters; "" if it is missing."""
        return self._headers.get(name.encode(), b"").decode("latin-1")

    def api(
        self, environ: Mapping[str, str] | None = None, created_id: str | None = None
    ) -> EmbeddedAPI:
        """Muster for the caller. environ, created_id: see `Submission`."""
        may_start = self.verb == "POST"  # what starts or plans runs
        return self.state.api(
            self.caller, self.origin, environ or {}, created_id, may_start=may_start
        )

    async def body(self, most: int = MOST_BODY) -> bytes:
        """The body. most: bytes. Raises BodyTooLarge, InvalidInput, ClientGone."""
        try:
            async with asyncio.timeout(_WHOLE_TIMEOUT):
                parts = [part async for part in self.parts(most)]
        except TimeoutError:
            text = f"the body has not arrived within {_WHOLE_TIMEOUT:.0f} s"
            raise InvalidInput(Problem("", text, "send it again")) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def parts(self, most: int) -> AsyncIterator[bytes]:
        """The body in parts as they arrive. most: bytes in all. Raises as `body`."""
        declared = self.header("content-length")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        count, more = 0, True
        while more:
            try:
                async with asyncio.timeout(BODY_TIMEOUT):
                    message = await self._receive()
            except TimeoutError:
                text = f"no part of the body has arrived for {BODY_TIMEOUT:.0f} s"
                raise InvalidInput(Problem("", text, "send it again")) from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            part, more = message.get("body", b""), message.get("more_body", False)
            count += len(part)
            if count > most:
                raise _too_large(most)
            if part:
                yield part

    async def disconnected(self) -> None:
        """Return when the client has closed the connection. After the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body has more than {most:,} bytes")
