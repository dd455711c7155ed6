"""Session tokens: what a client shows instead of a key's fingerprint (OCI: security tokens, UPST).

    keyId="ST$JWT"

The server has signed the JWT. It names the user, and has the public key of the session: requests
are signed with the private one, which only the client has.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.iam.signatures import SignatureRefused
from muster.identity import new_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from joserfc.jwk import OctKey

_PREFIX = "ST$"
_ISSUER = "muster"
#: Only the server verifies tokens: clients look at their claims.
_ALGORITHM = "HS256"
#: Seconds that a token can be used (OCI: an hour).
LIFETIME = 3600.0
#: Seconds for which a session can be refreshed (OCI: a day).
LONGEST_SESSION = 86400.0


def is_session_token(key_id: str) -> bool:
    """Whether a key id is a session token."""
    return key_id.startswith(_PREFIX)


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

    def __init__(self, seed: bytes) -> None:
        """seed: 32 secret bytes, the same for all servers of a MUSTER_HOME."""
        self._seed = seed

    def issue(
        self, user: str, key: RSAPublicKey, now: float, until: float, token_id: str = ""
    ) -> str:
        """A token for a user and a session's key. now: epoch seconds. until, token_id: see
        `Session`."""
        from joserfc import jwt

        claims = {
            "iss": _ISSUER,
            "sub": user,
            "jti": new_id(),
            "iat": int(now),
            "exp": int(min(now + LIFETIME, until)),
            "until": int(until),
            "token": token_id,
            "ptype": "user",
            "jwk": json.dumps(_public_jwk(key)),
        }
        return jwt.encode({"alg": _ALGORITHM}, claims, self._key(), algorithms=[_ALGORITHM])

    def verify(self, key_id: str, now: float) -> Session:
        """What a token says. Raises SignatureRefused for one that this server did not issue, or
        that has expired."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        text = key_id.removeprefix(_PREFIX)
        try:
            claims: dict[str, Any] = jwt.decode(text, self._key(), algorithms=[_ALGORITHM]).claims
        except (JoseError, ValueError):
            raise SignatureRefused("the session token is not of this server") from None
        try:
            expires_at, user, name = float(claims["exp"]), str(claims["sub"]), str(claims["jti"])
            until, token_id = float(claims["until"]), str(claims["token"])
            key = _key_of(json.loads(claims["jwk"]))
        except (KeyError, ValueError, TypeError) as error:
            raise SignatureRefused(f"the session token lacks something: {error}") from None
        if expires_at <= now:
            raise SignatureRefused(f"the session token {name} has expired")
        return Session(f"session {name}", user, key, expires_at, until, token_id)

    def _key(self) -> OctKey:
        from joserfc.jwk import OctKey

        return OctKey.import_key(self._seed)


def _public_jwk(key: RSAPublicKey) -> dict[str, Any]:
    from joserfc.jwk import RSAKey

    from muster.iam.public_keys import normal_pem

    return dict(RSAKey.import_key(normal_pem(key)).as_dict(private=False))


def _key_of(jwk: dict[str, Any]) -> RSAPublicKey:
    from joserfc.jwk import RSAKey

    from muster.iam.public_keys import read_public_key

    return read_public_key(RSAKey.import_key(jwk).as_pem(private=False).decode())
