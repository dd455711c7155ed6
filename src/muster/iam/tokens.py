"""Tokens: `muster_ID_SECRET`.

The secret is 32 random bytes in base 62, followed by a checksum of all before it, so that a token
which was cut off or mistyped is refused without a look at the records, and so that scanners which
search code for secrets recognize it with no false alarm:

    muster_[0-9a-hjkmnp-tv-z]{10}_[0-9A-Za-z]{49}

Only a hash of the secret is stored. It needs no salt and no slow function: a secret with 256 random
bits cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import string
from binascii import crc32

from msgspec import Struct

from muster.errors import NotAuthenticated
from muster.identity import new_id

_PREFIX = "muster_"
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
#: Digits of base 62 that 32 bytes and a CRC-32 need.
_SECRET, _CHECKSUM = 43, 6


class TokenText(Struct, frozen=True):
    """A token that a caller shows."""

    id: str
    secret: str

    def __str__(self) -> str:
        checked = f"{_PREFIX}{self.id}_{self.secret}"
        return checked + _base62(crc32(checked.encode()), _CHECKSUM)

    def __repr__(self) -> str:  # it may be logged
        return f"TokenText({self.id!r}, ***)"

    def digest(self) -> bytes:
        """What is stored of the secret."""
        return hashlib.sha256(self.secret.encode()).digest()

    def matches(self, digest: bytes) -> bool:
        """Whether this is the token with the stored digest, in constant time."""
        return hmac.compare_digest(self.digest(), digest)


def new_token() -> TokenText:
    """A new token."""
    import secrets

    return TokenText(new_id(), _base62(int.from_bytes(secrets.token_bytes(32)), _SECRET))


def parse_token(text: str) -> TokenText:
    """The token with this text. Raises NotAuthenticated, with a message that does not repeat it."""
    if not text.startswith(_PREFIX):
        raise NotAuthenticated("this is no token of Muster: those start with muster_")
    found = re.fullmatch(
        rf"{_PREFIX}([0-9a-hjkmnp-tv-z]{{10}})_([0-9A-Za-z]{{{_SECRET}}})"
        rf"([0-9A-Za-z]{{{_CHECKSUM}}})",
        text,
    )
    token = None if found is None else TokenText(found[1], found[2])
    if token is None or str(token) != text:
        raise NotAuthenticated("the token is incomplete or mistyped: copy it again")
    return token


def _base62(number: int, digits: int) -> str:
    """A number in base 62, padded with zeros."""
    made = ""
    for _ in range(digits):
        number, digit = divmod(number, 62)
        made = _DIGITS[digit] + made
    return made
