"""Signatures of requests to webhooks: Standard Webhooks, and GitHub's.

Standard Webhooks (version 1): HMAC-SHA256 with the decoded secret over `ID.TIMESTAMP.BODY`, in
base64. GitHub: HMAC-SHA256 with the secret's text over the body, in hexadecimal; it signs neither
an id nor a time.
"""

from __future__ import annotations

import binascii
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable

from msgspec import Struct

from muster.errors import NotAuthenticated

#: Precedes the secret, in base64 (Standard Webhooks).
_PREFIX = "whsec_"
#: Seconds by which the clock of the sender may differ from that of this machine.
TOLERANCE = 300.0
_LONGEST_ID = 256


class Delivery(Struct, frozen=True):
    """A request whose signature is right."""

    id: str
    """The same if it is sent again. GitHub's ids are not signed: its requests are known by their
    signatures, so that one with the same body is the same one."""
    type: str
    """`webhook`, or `github.push` and so on."""

    @property
    def is_test(self) -> bool:
        """Whether the sender only tries the address."""
        return self.type == "github.ping"


def new_secret() -> str:
    """A secret, as both sides are to know it."""
    return f"{_PREFIX}{b64encode(secrets.token_bytes(32)).decode()}"


def verify(secret: str, header: Callable[[str], str], body: bytes, now: float) -> Delivery:
    """Verify the signature of a request. header: a header by its name in small letters, "" if it is
    missing. Raises NotAuthenticated."""
    if signatures := header("webhook-signature"):
        return _standard(secret, signatures, header, body, now)
    if signature := header("x-hub-signature-256"):
        return _github(secret, signature, header, body)
    raise NotAuthenticated("the request has no signature (webhook-signature, X-Hub-Signature-256)")


def _standard(
    secret: str, signatures: str, header: Callable[[str], str], body: bytes, now: float
) -> Delivery:
    name, sent = header("webhook-id"), header("webhook-timestamp")
    if not 1 <= len(name) <= _LONGEST_ID or not name.isascii() or not name.isprintable():
        raise NotAuthenticated(f"webhook-id must have 1 to {_LONGEST_ID} printable characters")
    if re.fullmatch(r"\d{1,12}", sent, re.ASCII) is None:
        raise NotAuthenticated("webhook-timestamp must be in seconds since 1970")
    if abs(now - int(sent)) > TOLERANCE:
        text = f"webhook-timestamp is {abs(now - int(sent)):.0f} s from this machine's clock"
        raise NotAuthenticated(f"{text}; at most {TOLERANCE:.0f} s are accepted")
    expected = sign(secret, name, int(sent), body).encode()
    given = [each.encode("latin-1") for each in signatures.split()]
    if not any(hmac.compare_digest(expected, each) for each in given):
        raise NotAuthenticated("the signature is wrong")
    return Delivery(name, "webhook")


def sign(secret: str, name: str, timestamp: int, body: bytes) -> str:
    """The webhook-signature of a request. name: its webhook-id."""
    try:
        key = b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = secret.encode()
    digest = hmac.digest(key, f"{name}.{timestamp}.".encode() + body, "sha256")
    return f"v1,{b64encode(digest).decode()}"


def _github(secret: str, signature: str, header: Callable[[str], str], body: bytes) -> Delivery:
    digest = hmac.digest(secret.encode(), body, "sha256").hex()
    if not hmac.compare_digest(f"sha256={digest}".encode(), signature.encode("latin-1")):
        raise NotAuthenticated("the signature is wrong")
    event = header("x-github-event")
    kind = event if re.fullmatch(r"[a-z_]{1,50}", event) else "event"
    return Delivery(f"github-{digest}", f"github.{kind}")
