"""The server as an ASGI application: finds who asks, calls the handler, sends the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.api.operations import PREFIX
from muster.api.problems import MEDIA_TYPE, ProblemDetails, details_of
from muster.caller import Caller
from muster.errors import MusterError, NotAuthenticated, TooManyRequests, shortage_from
from muster.iam.authenticate import OutsideProject
from muster.iam.oidc.issuer import IssuerError
from muster.identity import new_id
from muster.server.answers import Answer, Header, Send, Stream, send_answer, send_stream
from muster.server.call import BodyTooLarge, Call, Changed, ClientGone
from muster.server.handlers import open_routes, socket_routes, token_routes
from muster.server.limits import RateLimits
from muster.server.metrics import NO_ROUTE
from muster.server.oci import service as oci
from muster.server.oci.service import OciService
from muster.server.routes import WrongVerb
from muster.server.state import ServerState
from muster.server.web_socket import GOING_AWAY, WebSocket
from muster.server.webhooks import WEBHOOK, Webhooks
from muster.service.audit import entry_of, refused

_NO_TOKEN = "this server needs a token: `muster login URL` stores one"
#: What is logged of a request whose client did not wait for the answer; nginx calls it so, too.
_CLIENT_GONE = 499
#: Of every answer. Answers are data: no browser is to run or frame them.
_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


class App:
    """See the module. One for a server: `server.serve` gives it to uvicorn."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._routes = token_routes()
        self._open_routes = open_routes()
        self._open_routes.add("POST", WEBHOOK, Webhooks(state).receive)
        self._sockets = socket_routes()
        self._limits = RateLimits(
            state.settings.file.requests_per_second, state.settings.file.burst
        )
        self._oci = OciService(state, self._limits)

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve_request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)

    async def _serve_lifespan(self, receive: Any, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def _call(self, scope: Mapping[str, Any], receive: Any) -> Call:
        client = scope.get("client")
        return Call(
            *(self._state, scope, receive),
            request_id=new_id(),
            headers=dict(scope["headers"]),
            address=client[0] if client else "",
        )

    async def _serve_socket(self, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        """Serve a WebSocket until one side closes it, or the server stops."""
        began, call, socket = (
            time.perf_counter(),
            self._call(scope, receive),
            WebSocket(receive, send),
        )
        path, status = scope["raw_path"].decode("latin-1"), 101
        self._state.metrics.open_streams += 1
        try:
            call.caller = await self._authenticated(call)
            call.route, handler, call.path = self._sockets.find("GET", path)
            conversation = asyncio.ensure_future(handler(call, socket))
            stopping = asyncio.ensure_future(self._state.stopping.wait())
            await asyncio.wait((conversation, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not conversation.done():
                conversation.cancel()
                await asyncio.gather(conversation, return_exceptions=True)
                await socket.close(GOING_AWAY)
            else:
                conversation.result()
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001  every error is answered
            answer = self._error(call, error)
            status = answer.status
            with suppress(ClientGone):
                await socket.refuse(answer, _headers(call))
        finally:
            self._state.metrics.open_streams -= 1
            self._log_request(call, path, status, time.perf_counter() - began)

    async def _serve_request(self, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        began, call = time.perf_counter(), self._call(scope, receive)
        path = scope["raw_path"].decode("latin-1")
        try:
            answer = await self._handle(call, path)
        except ClientGone:
            self._log_request(call, path, _CLIENT_GONE, time.perf_counter() - began)
            return
        except Exception as error:  # noqa: BLE001  every error is answered
            answer = self._error(call, error)
        status = answer.status
        self._state.metrics.request(
            call.verb, call.route or NO_ROUTE, status, time.perf_counter() - began
        )
        try:
            if isinstance(answer, Stream):
                self._state.metrics.open_streams += 1
                await send_stream(send, answer, _headers(call), self._until_over(call))
            else:
                await send_answer(send, answer, _headers(call))
        except Exception as error:
            self._state.log.defect("an answer was cut off", error, call.request_id)
            raise
        finally:
            if isinstance(answer, Stream):
                self._state.metrics.open_streams -= 1
            self._log_request(call, path, status, time.perf_counter() - began)

    async def _until_over(self, call: Call) -> None:
        """Return when the client has closed the connection, or the server stops."""
        tasks = [
            asyncio.ensure_future(waiting)
            for waiting in (call.disconnected(), self._state.stopping.wait())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _handle(self, call: Call, path: str) -> Answer | Stream:
        if self._oci.serves(path):
            return await self._oci.answer(call, path)
        if not path.startswith(f"{PREFIX}/"):
            call.route, handler, call.path = self._open_routes.find(call.verb, path)
            return await handler(call)
        call.caller = await self._authenticated(call)
        call.route, handler, call.path = self._routes.find(call.verb, path.removeprefix(PREFIX))
        if call.verb != "GET":
            self._state.check_home()
        return await handler(call)

    async def _authenticated(self, call: Call) -> Caller:
        """Who asks. Raises NotAuthenticated, OutsideProject, TooManyRequests."""
        token = _token_of(call)
        self._limits.check_guesses(call.address, token)
        try:
            caller = self._state.authenticate(token, call.header("muster-project") or None)
        except NotAuthenticated:
            self._limits.count_wrong_token(call.address)
            raise
        except OutsideProject as error:
            self._limits.count_request(token)
            await self._state.in_thread(self._note_refusal, call, error)
            raise
        self._limits.count_request(token)
        return caller

    def _note_refusal(self, call: Call, error: OutsideProject) -> None:
        project, now = error.caller.project, time.time()
        what = ("projects.use", project)
        entry = entry_of(error.caller, call.origin, now, *what, project=project)
        self._state.backend.store.audit.append(refused(entry, error))

    def _error(self, call: Call, error: Exception) -> Answer:
        if isinstance(error, OSError):
            error = shortage_from(error) or error
        if not isinstance(error, (MusterError, TimeoutError)):
            self._state.log.defect("internal error", error, call.request_id)
        details, headers = details_of(error, call.request_id), {}
        if isinstance(error, WrongVerb):
            details, headers = replace(details, status=405), {"allow": ", ".join(error.allowed)}
        elif isinstance(error, BodyTooLarge):
            details = replace(details, status=413)
        elif isinstance(error, Changed):
            details = replace(details, status=412)
        elif isinstance(error, IssuerError):
            details = replace(details, status=502)
        elif isinstance(error, NotAuthenticated):
            headers = {"www-authenticate": 'Bearer realm="muster"'}
        elif isinstance(error, TooManyRequests):
            headers = {"retry-after": "1"}
        return error_answer(details, headers)

    def _log_request(self, call: Call, path: str, status: int, seconds: float) -> None:
        call.span.end(call.route, status, call.user)
        self._state.log.info(
            "request",
            request=call.request_id,
            verb=call.verb,
            path=oci.shown_path(path)[:500],
            status=status,
            seconds=round(seconds, 6),
            user=call.user,
            address=call.address,
        )


def _headers(call: Call) -> list[Header]:
    return [*_HEADERS, (b"x-request-id", call.request_id.encode()), *oci.headers(call)]


def _token_of(call: Call) -> str:
    """The token of a request (RFC 6750). Raises NotAuthenticated."""
    scheme, _, token = call.header("authorization").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated(_NO_TOKEN)
    return token.strip()


def error_answer(details: ProblemDetails, headers: Mapping[str, str]) -> Answer:
    """An error as it is sent."""
    return Answer(msgspec.json.encode(details), details.status, MEDIA_TYPE, headers)
