"""Refresh session tokens (OCI: as `oci session refresh` does)."""

from __future__ import annotations

import time

from muster.errors import NotAuthenticated
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import invalid
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.service.sessions import session_tokens
from muster.spec.formats.oci.model import Wire


class RefreshToken(Wire, frozen=True, kw_only=True):
    """What a client sends."""

    current_token: str


def refresh_session(request: OciRequest) -> Answer:
    """POST /v1/authentication/refresh"""
    if not request.principal.is_user(request.principal.user):
        request.require(DEFAULT_PROJECT, Permission.USER_UPDATE)
    given, now = request.read(RefreshToken), time.time()
    sessions = session_tokens(request.state.backend.home)
    session = sessions.verify(given.current_token, now)
    if session.id != request.principal.credential:
        raise invalid("currentToken has to be the session token that signs the request")
    if session.until <= now + 1:
        raise NotAuthenticated(f"the {session.id} cannot be refreshed any more; begin another one")
    token = sessions.issue(session.user, session.key, now, session.until, session.token_id)
    return Answer(encoded({"token": token}))


ROUTES = (
    OciRoute(
        "refresh_session",
        *("POST", "/v1/authentication/refresh", refresh_session),
    ),
)
