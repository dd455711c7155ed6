"""Signatures are those of Standard Webhooks, as its own library verifies them."""

from __future__ import annotations

import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from muster.notify.signatures import PREFIX, new_key, signature_headers


def test_a_receiver_verifies_what_was_sent() -> None:
    key, now = new_key(), int(time.time())
    assert key.startswith(PREFIX)
    assert new_key() != key
    body = '{"a": "ü"}'.encode()
    headers = dict(signature_headers(key, "event-1", now, body))
    assert Webhook(key).verify(body.decode(), headers) == {"a": "ü"}
    for changed in (
        headers | {"webhook-id": "event-2"},
        headers | {"webhook-timestamp": str(now - 1)},
        headers | dict(signature_headers(key, "event-1", now - 3600, body)),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(key).verify(body.decode(), changed)
    with pytest.raises(WebhookVerificationError):
        Webhook(key).verify('{"a": "u"}', headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_key()).verify(body.decode(), headers)
