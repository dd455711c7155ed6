"""Session tokens for clients of the OCI API: a user of this server gets one for a key of a session
(`iam.session_tokens`)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.errors import Forbidden
from muster.iam.public_keys import read_public_key
from muster.iam.session_tokens import LONGEST_SESSION, SessionTokens
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.service.audit import audited, entry_of
from muster.storage.home import Home
from muster.storage.sealing import keyed_digest
from muster.type_info import decode_json

if TYPE_CHECKING:
    from muster.store.account_records import TokenRecord

#: Bytes of a request.
_MOST = 1 << 16


class SessionRequest(Struct, frozen=True):
    """For which key a session token is."""

    public_key: str
    """In PEM, RSA. The private one stays with the client."""


class NewSession(Struct, frozen=True):
    """A session token."""

    token: str
    """A JWT."""
    expires_at: float
    """Epoch seconds."""


def session_tokens(home: Home) -> SessionTokens:
    """Those of a MUSTER_HOME: all its servers know them."""
    return SessionTokens(bytes.fromhex(keyed_digest(home, "session tokens")))


async def create(call: Call) -> Answer:
    """POST /session-tokens"""
    body = await call.body(_MOST)
    return Answer(encoded(await call.state.in_thread(_create, call, body)), status=201)


def _create(call: Call, body: bytes) -> NewSession:
    store, caller, now = call.state.backend.store, call.caller, time.time()
    key = read_public_key(decode_json(body, SessionRequest).public_key)
    shown = store.accounts.token(caller.token_id) if caller.token_id else None

    def issue() -> NewSession:
        sessions = session_tokens(call.state.backend.home)
        token = sessions.issue(caller.user, key, now, _until(shown, now), caller.token_id)
        return NewSession(token, sessions.verify(token, now).expires_at)

    entry = entry_of(caller, call.origin, now, "sessions.create", caller.user)
    with audited(store.audit, lambda: entry, lambda: _check(shown)):
        return issue()


def _check(shown: TokenRecord | None) -> None:
    """Raises Forbidden if the token that is shown may do less than its user: a session may do the
    same."""
    if shown is not None and (shown.project is not None or shown.scopes is not None):
        raise Forbidden(
            f"the token {shown.id} is limited, and a session is not: use a token without limits"
        )


def _until(shown: TokenRecord | None, now: float) -> float:
    """When a session ends: before the token that it was made with."""
    until = now + LONGEST_SESSION
    return until if shown is None or shown.expires_at is None else min(until, shown.expires_at)
