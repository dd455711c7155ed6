"""Signatures of requests to webhooks."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import NotAuthenticated
from muster.iam.webhook_signatures import TOLERANCE, Delivery, new_secret, sign, verify

#: An example of the specification of Standard Webhooks.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, TIME, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": ID, "webhook-timestamp": str(TIME), "webhook-signature": SIGNATURE}
#: An example of GitHub's documentation.
GITHUB_SECRET, GITHUB_BODY = "It's a Secret to Everybody", b"Hello, World!"
GITHUB = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def check(headers: dict[str, str], body: bytes = BODY, now: float = TIME) -> Delivery:
    return verify(SECRET, lambda name: headers.get(name, ""), body, now)


def test_a_request_of_standard_webhooks() -> None:
    assert sign(SECRET, ID, TIME, BODY) == SIGNATURE
    assert check(HEADERS) == Delivery(ID, "webhook")
    # the sender has two secrets for a while
    both = {**HEADERS, "webhook-signature": f"v1,AAAA v2,x {SIGNATURE}"}
    assert check(both) == Delivery(ID, "webhook")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"webhook-signature": ""}, "has no signature"),
        ({"webhook-signature": "v1,AAAA"}, "the signature is wrong"),
        ({"webhook-signature": SIGNATURE.removeprefix("v1,")}, "the signature is wrong"),
        ({"webhook-signature": "\xff"}, "the signature is wrong"),
        ({"webhook-id": "msg_other"}, "the signature is wrong"),
        ({"webhook-id": ""}, "webhook-id must have 1 to 256"),
        ({"webhook-id": "a\x00b"}, "webhook-id must have 1 to 256"),
        ({"webhook-id": "x" * 257}, "webhook-id must have 1 to 256"),
        ({"webhook-timestamp": "now"}, "webhook-timestamp must be in seconds"),
        ({"webhook-timestamp": str(TIME + 1)}, "the signature is wrong"),
    ],
)
def test_what_is_refused(changed: dict[str, str], expected: str) -> None:
    with pytest.raises(NotAuthenticated, match=expected):
        check({**HEADERS, **changed})


def test_another_body_or_secret_is_refused() -> None:
    with pytest.raises(NotAuthenticated):
        check(HEADERS, BODY + b" ")
    with pytest.raises(NotAuthenticated):
        verify(new_secret(), lambda name: HEADERS.get(name, ""), BODY, TIME)


@pytest.mark.parametrize("late", [TOLERANCE + 1, -TOLERANCE - 1])
def test_old_and_future_requests_are_refused(late: float) -> None:
    assert check(HEADERS, now=TIME + late * 0.99).id == ID
    with pytest.raises(NotAuthenticated, match="from this machine's clock"):
        check(HEADERS, now=TIME + late)


def test_requests_of_github() -> None:
    def verified(headers: dict[str, str]) -> Delivery:
        return verify(GITHUB_SECRET, lambda name: headers.get(name, ""), GITHUB_BODY, 0.0)

    signed = {"x-hub-signature-256": GITHUB}
    push = verified({**signed, "x-github-event": "push", "x-github-delivery": "1"})
    assert (push.type, push.is_test) == ("github.push", False)
    # the id is not signed: whoever replays the request may change it
    assert verified({**signed, "x-github-delivery": "2"}).id == push.id
    assert verified({**signed, "x-github-event": "ping"}).is_test
    assert verified({**signed, "x-github-event": "../\n"}).type == "github.event"
    with pytest.raises(NotAuthenticated):
        verified({"x-hub-signature-256": GITHUB[:-1] + "8"})


def test_secrets_differ_and_are_long() -> None:
    made = {new_secret() for _ in range(10)}
    assert len(made) == 10
    assert all(len(one) == len("whsec_") + 44 for one in made)


@given(st.dictionaries(st.sampled_from([*HEADERS, "x-hub-signature-256"]), st.text(max_size=50)))
def test_no_header_is_a_defect(headers: dict[str, str]) -> None:
    # as ASGI gives them: each byte a character
    sent = {name: text.encode(errors="replace").decode("latin-1") for name, text in headers.items()}
    with pytest.raises(NotAuthenticated):
        check(sent)


@given(st.binary(max_size=200), st.integers(0, 10**10))
def test_what_is_signed_is_accepted(body: bytes, now: int) -> None:
    secret = new_secret()
    digest = hmac.digest(b64decode(secret[6:]), f"m.{now}.".encode() + body, "sha256")
    headers = {"webhook-id": "m", "webhook-timestamp": str(now)}
    headers["webhook-signature"] = f"v1,{b64encode(digest).decode()}"
    assert verify(secret, lambda name: headers.get(name, ""), body, now).id == "m"
