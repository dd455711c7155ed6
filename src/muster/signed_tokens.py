"""Signed tokens: what a client shows in place of a key's fingerprint (OCI: security tokens).

    keyId="ST$JWT"

A server has signed the JWT (HS256: only servers verify it; clients read its claims). Its claim
`jwk` is the public key of a pair that the client has: that one signs requests, so that a token by
itself is of no use. Pure.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_PREFIX = "ST$"
_ISSUER = "muster"
#: The claims with the public keys.
_KEY, _PREVIOUS = "jwk", "previous_jwk"
#: Characters of a token: those that are issued have about 1,500.
_LONGEST = 8192


class PublicKey(Struct, frozen=True):
    """The numbers of an RSA key, for whoever only names it: the library for RSA takes 30 ms to
    import."""

    n: int
    e: int

    @classmethod
    def of(cls, key: RSAPublicKey) -> PublicKey:
        """The numbers of a key."""
        numbers = key.public_numbers()
        return cls(numbers.n, numbers.e)


class InvalidToken(ValueError):  # noqa: N818
    """A token is not of this server, or lacks something."""


def is_signed_token(key_id: str) -> bool:
    """Whether the id of a key is a signed token."""
    return key_id.startswith(_PREFIX)


class SignedTokens(Struct, frozen=True):
    """Signs tokens, and verifies them."""

    seed: bytes
    """32 secret bytes, the same for all servers of a MUSTER_HOME."""

    def sign(
        self,
        claims: Mapping[str, Any],
        key: RSAPublicKey | PublicKey,
        previous: RSAPublicKey | PublicKey | None = None,
    ) -> str:
        """A token with these claims, for whoever has the private part of a key. previous: another
        key, whose private part may be used with this token as well."""
        given = {"iss": _ISSUER, **claims, _KEY: json.dumps(_jwk(key))}
        if previous is not None:
            given[_PREVIOUS] = json.dumps(_jwk(previous))
        text = f"{_HEADER}.{_encoded(json.dumps(given).encode())}"
        return f"{text}.{_encoded(self._digest(text))}"

    def read(self, key_id: str) -> dict[str, Any]:
        """The claims of a token, which may have expired. Raises InvalidToken for one that was not
        signed here."""
        text, _, signature = key_id[:_LONGEST].removeprefix(_PREFIX).rpartition(".")
        header, _, payload = text.partition(".")
        # others have another algorithm, or none
        if header != _HEADER or not hmac.compare_digest(
            signature.encode(), _encoded(self._digest(text)).encode()
        ):
            raise InvalidToken("it is not of this server")
        claims: dict[str, Any] = json.loads(_decoded(payload))
        return claims

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self.seed, text.encode(), hashlib.sha256)


def key_of(claims: Mapping[str, Any]) -> RSAPublicKey:
    """The key that signs the requests of a token with these claims. Raises InvalidToken."""
    return _read_key(claims, _KEY)


def previous_key_of(claims: Mapping[str, Any]) -> RSAPublicKey | None:
    """The other key that may sign them; None if there is none. Raises InvalidToken."""
    return _read_key(claims, _PREVIOUS) if _PREVIOUS in claims else None


def _read_key(claims: Mapping[str, Any], claim: str) -> RSAPublicKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    try:
        jwk = json.loads(claims[claim])
        n, e = (int.from_bytes(_decoded(jwk[name])) for name in ("n", "e"))
        return RSAPublicNumbers(e, n).public_key()
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidToken(f"its key cannot be read: {error}") from None


def _jwk(key: RSAPublicKey | PublicKey) -> dict[str, str]:
    key = key if isinstance(key, PublicKey) else PublicKey.of(key)
    return {"kty": "RSA", "n": _encoded(_bytes(key.n)), "e": _encoded(_bytes(key.e))}


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise InvalidToken("it is not in base64") from None


_HEADER = _encoded(b'{"alg":"HS256","typ":"JWT"}')
