"""Log in people whom an issuer of OpenID Connect knows (`api.logins`)."""

from __future__ import annotations

import time
from functools import cache

import msgspec

from muster.api.accounts import NewToken
from muster.api.logins import LoginOffer, LoginRequest
from muster.errors import InvalidInput, NotFound, Problem
from muster.iam.names import check_text
from muster.iam.oidc.issuer import Issuer
from muster.iam.oidc.settings import OidcSettings, read_settings
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.service.logins import log_in
from muster.type_info import decode_json

#: Bytes of a request: an ID token may list many groups.
_MOST = 1 << 18


async def offer(call: Call) -> Answer:
    """GET /login: where people log in."""
    settings = await call.state.in_thread(_settings, call)
    return Answer(encoded(LoginOffer(settings.issuer, settings.client_id, settings.scopes)))


async def exchange(call: Call) -> Answer:
    """POST /login: a token of this server for an ID token."""
    body = await call.body(_MOST)
    try:
        request = decode_json(body, LoginRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(Problem("", f"not a login: {error}")) from None
    check_text("name", request.name)
    return Answer(encoded(await call.state.in_thread(_exchange, call, request)))


def _exchange(call: Call, request: LoginRequest) -> NewToken:
    from muster.iam.oidc.id_tokens import verify
    from muster.iam.oidc.user_info import with_user_info

    settings = _settings(call)
    issuer = _issuer(settings.issuer)
    claims = verify(request.id_token, issuer, settings, time.time())
    claims = with_user_info(claims, issuer, settings, request.access_token)
    store = call.state.backend.store
    return log_in(store, settings, claims, call.origin, token_name=request.name)


def _settings(call: Call) -> OidcSettings:
    """The settings as they are now. Raises NotFound if people do not log in here."""
    settings = read_settings(call.state.backend.home.oidc)
    if settings is None:
        hint = "use a token, which an administrator creates: `muster tokens create`"
        raise NotFound(Problem("", "this server knows no issuer where people log in", hint))
    return settings


@cache
def _issuer(url: str) -> Issuer:
    """The issuer, which remembers its keys."""
    return Issuer(url)
