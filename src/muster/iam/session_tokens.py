"""Session tokens: what a client of a user shows instead of a key's fingerprint (OCI: security
tokens, UPST). See `signed_tokens`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.iam.signatures import SignatureRefused
from muster.identity import new_id
from muster.signed_tokens import InvalidToken, SignedTokens, key_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

#: Seconds that a token can be used (OCI: an hour).
LIFETIME = 3600.0
#: Seconds for which a session can be refreshed (OCI: a day).
LONGEST_SESSION = 86400.0
#: The claim `ptype` of a token that is a user's, not a resource's.
_USER = "user"


class Session(Struct, frozen=True):
    """What a session token says."""

    id: str
    user: str
    key: RSAPublicKey
    """Verifies the requests of the session."""
    expires_at: float
    until: float
    """When the session ends: it can be refreshed until then (epoch seconds)."""
    token_id: str = ""
    """The id of the token of Muster that the session was made with; "" if there was none."""


class SessionTokens:
    """Issues and verifies them with the server's key."""

    def __init__(self, tokens: SignedTokens) -> None:
        self._tokens = tokens

    def issue(
        self, user: str, key: RSAPublicKey, now: float, until: float, token_id: str = ""
    ) -> str:
        """A token for a user and a session's key. now: epoch seconds. until, token_id: see
        `Session`."""
        claims = {
            "sub": user,
            "jti": new_id(),
            "iat": int(now),
            "exp": int(min(now + LIFETIME, until)),
            "until": int(until),
            "token": token_id,
            "ptype": _USER,
        }
        return self._tokens.sign(claims, key)

    def verify(self, key_id: str, now: float) -> Session:
        """What a token says. Raises SignatureRefused for one that this server did not issue, or
        that has expired."""
        try:
            return session_of(self._tokens.read(key_id), now)
        except InvalidToken as error:
            raise SignatureRefused(f"the session token is refused: {error}") from None


def session_of(claims: Mapping[str, Any], now: float) -> Session:
    """The session with these claims. Raises InvalidToken if it has expired, or is none."""
    if claims.get("ptype") != _USER:
        raise InvalidToken("it is not of a user")
    try:
        expires_at, user, name = float(claims["exp"]), str(claims["sub"]), str(claims["jti"])
        until, token_id = float(claims["until"]), str(claims["token"])
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidToken(f"it lacks something: {error}") from None
    if expires_at <= now:
        raise InvalidToken(f"{name} has expired")
    return Session(f"session {name}", user, key_of(claims), expires_at, until, token_id)
