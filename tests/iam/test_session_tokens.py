"""Session tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.iam.session_tokens import (
    LIFETIME,
    LONGEST_SESSION,
    SessionTokens,
)
from muster.iam.signatures import SignatureRefused
from muster.signed_tokens import SignedTokens
from support.keys import private_key

NOW = 1_800_000_000.0
SESSIONS = SessionTokens(SignedTokens(b"s" * 32))


def issue(sessions: SessionTokens = SESSIONS, until: float = NOW + LONGEST_SESSION) -> str:
    return sessions.issue("ana", private_key().public_key(), NOW, until, "0123456789")


def test_a_token_says_whose_session_it_is() -> None:
    session = SESSIONS.verify(f"ST${issue()}", NOW)
    assert (session.user, session.token_id) == ("ana", "0123456789")
    assert session.key.public_numbers() == private_key().public_key().public_numbers()
    assert (session.expires_at, session.until) == (NOW + LIFETIME, NOW + LONGEST_SESSION)
    assert SESSIONS.verify(issue(), NOW).id != session.id


def test_a_token_ends_with_its_session() -> None:
    token = issue(until=NOW + 10)
    assert SESSIONS.verify(token, NOW + 9).expires_at == NOW + 10
    with pytest.raises(SignatureRefused, match="has expired"):
        SESSIONS.verify(token, NOW + 10)


def test_a_token_of_another_server_is_refused() -> None:
    with pytest.raises(SignatureRefused, match="not of this server"):
        SESSIONS.verify(issue(SessionTokens(SignedTokens(b"t" * 32))), NOW)


def _decoded(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _encoded(data: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


@pytest.mark.parametrize("algorithm", ["none", "HS512", "RS256", "EdDSA"])
def test_another_algorithm_is_refused(algorithm: str) -> None:
    header, claims, signature = issue().split(".")
    changed = _encoded(_decoded(header) | {"alg": algorithm})
    for signed in (signature, ""):
        with pytest.raises(SignatureRefused, match="not of this server"):
            SESSIONS.verify(f"{changed}.{claims}.{signed}", NOW)


def test_changed_claims_are_refused() -> None:
    header, claims, signature = issue().split(".")
    changed = _encoded(_decoded(claims) | {"sub": "root"})
    with pytest.raises(SignatureRefused, match="not of this server"):
        SESSIONS.verify(f"{header}.{changed}.{signature}", NOW)


@given(text=st.text(), at=st.integers(0, 600), length=st.integers(0, 30))
def test_any_text_is_refused(text: str, at: int, length: int) -> None:
    token = issue()
    for changed in (text, f"{token[:at]}{text}{token[at + length :]}", f"{text}.{text}.{text}"):
        if changed != token:
            with pytest.raises(SignatureRefused):
                SESSIONS.verify(f"ST${changed}", NOW)
