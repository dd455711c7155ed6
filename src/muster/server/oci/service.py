"""The OCI API of the server: verifies who has signed a request, calls the handler, and answers
errors as OCI does."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from muster.api.operations import PREFIX
from muster.errors import Forbidden, MusterError, NotAuthenticated, shortage_from
from muster.iam.principals import Principals, SignedRequest, key_name
from muster.iam.signatures import parse_authorization
from muster.server.answers import Answer, Header, Stream
from muster.server.call import Call, ClientGone
from muster.server.limits import RateLimits
from muster.server.oci.errors import OciError, answer_of, not_found, oci_error
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute, all_routes, routes_of
from muster.server.state import ServerState
from muster.signed_tokens import is_signed_token
from muster.storage.token_seed import signed_tokens

#: Bytes of a JSON body.
_MOST_BODY = 4 << 20
#: Bytes of a body that is verified in the event loop: handing it to a thread takes longer.
_SMALL_BODY = 1 << 16
#: Characters of a request id that is sent back (OCI: three parts of 32).
_LONGEST_ID = 98
#: How paths of pre-authenticated requests begin.
_LINK = re.compile(r"\A/+p/[^/]+")


class OciService:
    """See the module."""

    def __init__(self, state: ServerState, limits: RateLimits) -> None:
        self._state, self._limits = state, limits
        routes = all_routes()
        self._routes = routes_of(routes)
        paths = [route.path for route in routes]
        #: Paths of clients that are below those of Muster's own API.
        self._own_paths = frozenset(path for path in paths if path.startswith(PREFIX))
        self._prefixes = frozenset(path.split("/")[1] for path in paths) - {PREFIX.strip("/")}
        self._principals: Principals | None = None

    def serves(self, path: str) -> bool:
        """Whether a path is one of this API."""
        return path in self._own_paths or path.lstrip("/").partition("/")[0] in self._prefixes

    async def answer(self, call: Call, path: str) -> Answer | Stream:
        """Answer a request, also if that is an error. Raises ClientGone."""
        try:
            return await self._answer(call, path)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001  every error is answered
            return answer_of(self._told(call, error))

    async def _answer(self, call: Call, path: str) -> Answer | Stream:
        call.route, route, words = self._find(call.verb, path)
        request = OciRequest(call)
        request.path = words
        if route is None or not route.public:
            body = None
            if route is not None and route.stream is None:
                body = request.body = await call.body(_MOST_BODY)
            await self._authenticate(request, path, body)
        if route is None:
            raise not_found()
        request.route_permission, request.operation = route.permission, route.operation
        if not route.public:
            request.principal = request.principal.doing(route.operation)
        if call.verb not in ("GET", "HEAD"):
            self._state.check_home()
        if route.stream is not None:
            answer = await route.stream(request)
        else:
            assert route.handler is not None
            answer = await self._state.in_thread(route.handler, request)
        if route.permission is not None and not request.has_asked:
            raise AssertionError(
                f"{route.operation} needs {route.permission}, and nothing has asked for it"
            )
        return answer

    def _find(self, verb: str, path: str) -> tuple[str, OciRoute | None, dict[str, str]]:
        try:
            template, route, words = self._routes.find(verb, path)
        except MusterError:
            return "", None, {}  # who is not known is not told what there is
        return template, route, dict(words)

    async def _authenticate(self, request: OciRequest, path: str, body: bytes | None) -> None:
        call = request.call
        target = f"{path}?{call.query}" if call.query else path
        signed = SignedRequest(call.verb, target, call.raw_headers, body, call.address)
        try:
            signature = parse_authorization(signed.header("authorization"))
            name = key_name(signature.key_id)
            if not is_signed_token(name):  # they are not guessed, and verified without the records
                self._limits.check_guesses(call.address, name)
            if self._principals is None:
                self._principals = await self._state.in_thread(self._make_principals)
            authenticate = self._principals.authenticate
            if self._principals.remembers(signature) and len(body or b"") <= _SMALL_BODY:
                request.principal = authenticate(signature, signed, time.time())
            else:
                known = await self._state.in_thread(authenticate, signature, signed, time.time())
                request.principal = known
        except NotAuthenticated:
            self._limits.count_wrong_token(call.address)
            raise
        self._limits.count_request(name)
        call.signer = request.principal.user

    def _make_principals(self) -> Principals:
        backend = self._state.backend
        bound = self._state.settings.file.oci.bind_credentials
        tokens = signed_tokens(backend.home)
        return Principals(
            lambda: backend.store, backend.policies, tokens, bound=bound, home=backend.home
        )

    def _told(self, call: Call, error: Exception) -> OciError:
        if isinstance(error, OSError):
            error = shortage_from(error) or error
        if not isinstance(error, (MusterError, TimeoutError)):
            self._state.log.defect("internal error", error, call.request_id)
        told = oci_error(error)
        why = error.__cause__ if isinstance(error.__cause__, Forbidden) else error
        if isinstance(why, MusterError) and str(why) != str(told):
            self._state.log.write(
                "warning", f"refused: {why}", request=call.request_id, address=call.address
            )
        return told


def shown_path(path: str) -> str:
    """A path as the log has it: without the secret of a pre-authenticated request."""
    return _LINK.sub("/p/...", path)


def headers(call: Call) -> Sequence[Header]:
    """What every answer of this API has."""
    given = call.header("opc-request-id")[:_LONGEST_ID]
    known = f"{given}/{call.request_id}" if given.isprintable() and given else call.request_id
    found = [(b"opc-request-id", known.encode("ascii", "replace"))]
    if own := call.header("opc-client-request-id")[:_LONGEST_ID]:  # of object storage
        found.append((b"opc-client-request-id", own.encode("ascii", "replace")))
    return found
