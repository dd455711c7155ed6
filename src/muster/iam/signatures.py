"""Request signatures (OCI: "Request Signatures", version 1). Pure, but for the key.

    Authorization: Signature version="1",keyId="TENANCY/USER/FINGERPRINT",algorithm="rsa-sha256",
                   headers="date (request-target) host",signature="BASE64"

The text that is signed has a line `name: value` for each header that is listed, in that order. A
body is signed through its SHA-256 in a header.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.errors import NotAuthenticated

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

TARGET = "(request-target)"
#: Seconds by which the clock of a client may differ (OCI).
MOST_SKEW = 300.0
#: Headers that are always signed; a date is one of `_DATES`.
_ALWAYS = frozenset((TARGET, "host"))
_DATES = ("date", "x-date")
#: Headers that are signed with a body.
_OF_BODY = frozenset(("content-length", "content-type", "x-content-sha256"))
_PARAMETER = re.compile(r'\s*([A-Za-z]+)="([^"]*)"\s*(,|\Z)')
_LONGEST = 16_384

#: The headers of a request as they arrived: names in small letters, and values.
Headers = Sequence[tuple[bytes, bytes]]


class SignatureRefused(NotAuthenticated):
    """A request is not signed as it should be. The message is for the server's log: clients are not
    told what is wrong."""


class SkewedClock(SignatureRefused):
    """The client's clock is wrong. Clients are told, as in OCI: it says nothing of keys."""


class Signature(Struct, frozen=True):
    """What the header `Authorization` says."""

    key_id: str
    #: The names of the headers that are signed, in their order.
    headers: tuple[str, ...]
    value: bytes


def parse_authorization(text: str) -> Signature:
    """Read the header. Raises SignatureRefused."""
    scheme, _, rest = text.partition(" ")
    if scheme.lower() != "signature":
        raise SignatureRefused("the request has no signature")
    given = _parameters(rest)
    version, algorithm = given.get("version", "1"), given.get("algorithm", "").lower()
    if version != "1":
        raise SignatureRefused(f"the signature has version {version!r}, not 1")
    if algorithm != "rsa-sha256":
        raise SignatureRefused(f"the signature's algorithm is {algorithm!r}, not rsa-sha256")
    for name in ("keyId", "signature", "headers"):
        if not given.get(name):
            raise SignatureRefused(f"the signature has no {name}")
    headers = tuple(given["headers"].lower().split())
    if len(set(headers)) < len(headers):
        raise SignatureRefused("the signature lists a header twice")
    try:
        value = base64.b64decode(given["signature"], validate=True)
    except (binascii.Error, ValueError):
        raise SignatureRefused("the signature is not base64") from None
    return Signature(given["keyId"], headers, value)


def _parameters(text: str) -> dict[str, str]:
    if len(text) > _LONGEST:
        raise SignatureRefused(f"the header Authorization has {len(text):,} characters")
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _PARAMETER.match(text, at)
        if match is None:
            raise SignatureRefused(f"the header Authorization cannot be read at character {at}")
        name, value, _ = match.groups()
        if name in found:
            raise SignatureRefused(f"the header Authorization has {name} twice")
        found[name] = value
        at = match.end()
    return found


def signed_text(signature: Signature, verb: str, target: str, headers: Headers) -> bytes:
    """The text that was signed. target: path and query exactly as they arrived. Raises
    SignatureRefused if a header is missing, or was sent twice."""
    lines = []
    for name in signature.headers:
        if name == TARGET:
            lines.append(f"{name}: {verb.lower()} {target}".encode("latin-1"))
            continue
        encoded = name.encode("latin-1", "replace")
        values = [value for key, value in headers if key == encoded]
        if len(values) != 1:
            what = "is missing" if not values else "was sent twice"
            raise SignatureRefused(f"the header {name}, which is signed, {what}")
        lines.append(encoded + b": " + values[0])
    return b"\n".join(lines)


def check_signed(names: Collection[str], *, with_body: bool) -> None:
    """Raises SignatureRefused unless all headers that must be are signed. with_body: the request's
    body has to be signed, too."""
    missing = set(_ALWAYS - set(names))
    if not set(_DATES) & set(names):
        missing.add("date")
    if with_body:
        missing |= _OF_BODY - set(names)
    if missing:
        raise SignatureRefused(f"not signed: {', '.join(sorted(missing))}")


def check_date(text: str, now: float) -> None:
    """Raises SignatureRefused unless a date of a request is near; SkewedClock if it can be read.
    now: epoch seconds."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        raise SignatureRefused(f"{text[:100]!r} is not a date of HTTP") from None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    skew = now - date.timestamp()
    if abs(skew) > MOST_SKEW:
        direction = "behind" if skew > 0 else "ahead of"
        raise SkewedClock(
            f"the client's clock is {abs(skew):.0f} s {direction} this server's; "
            f"{MOST_SKEW:.0f} s are allowed"
        )


def check_body(digest: str, body: bytes) -> None:
    """Raises SignatureRefused unless a body has the digest of its header x-content-sha256."""
    found = base64.b64encode(hashlib.sha256(body).digest()).decode()
    if found != digest:
        raise SignatureRefused("the body has another digest than the header x-content-sha256 says")


def check_value(keys: Sequence[RSAPublicKey], signature: Signature, text: bytes) -> None:
    """Raises SignatureRefused unless the text was signed with the private key of one of these."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    for key in keys:
        with suppress(InvalidSignature):
            key.verify(signature.value, text, PKCS1v15(), SHA256())
            return
    raise SignatureRefused("the signature does not fit the request and the key")
