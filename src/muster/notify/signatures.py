"""Signatures of webhooks, as https://www.standardwebhooks.com describes them. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

PREFIX = "whsec_"
_BYTES = 24


def new_key() -> str:
    """A new key, as receivers are given it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def signature_headers(key: str, event_id: str, time: int, body: bytes) -> Mapping[str, str]:
    """The headers of a request. key: of `new_key`. time: of this attempt (epoch seconds), which
    receivers compare with their clock."""
    signed = f"{event_id}.{time}.".encode() + body
    digest = hmac.new(base64.b64decode(key.removeprefix(PREFIX)), signed, hashlib.sha256).digest()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(time),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
