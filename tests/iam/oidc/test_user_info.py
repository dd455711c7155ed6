"""What an ID token leaves out, from a real issuer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.errors import NotAuthenticated
from muster.iam.oidc.issuer import Issuer, TokenRefused
from muster.iam.oidc.settings import OidcSettings
from muster.iam.oidc.user_info import with_user_info
from support.oidc_issuer import ANA, RealIssuer

THIN = {"sub": "user-7", "iss": "as in the ID token"}


@pytest.fixture(autouse=True)
def login(real: RealIssuer) -> None:
    real.access_tokens["of-ana"] = dict(ANA)
    real.access_tokens["of-ben"] = {"sub": "user-8", "preferred_username": "ben"}


def test_what_is_missing_is_asked_for(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer
) -> None:
    assert with_user_info(THIN, issuer, settings, "of-ana") == {**ANA, **THIN}
    named = {**THIN, "preferred_username": "ana", "name": "A."}
    found = with_user_info(named, issuer, settings, "of-ana")
    assert (found["groups"], found["name"]) == (["vision"], "A."), "the ID token comes first"


@pytest.mark.parametrize(
    ("claims", "access_token", "roles"),
    [(ANA, "of-ana", True), (THIN, "", True), ({**THIN, "preferred_username": "a"}, "x", False)],
)
def test_when_nothing_is_asked(
    real: RealIssuer,
    settings: OidcSettings,
    issuer: Issuer,
    claims: dict[str, Any],
    access_token: str,
    roles: bool,
) -> None:
    settings = settings if roles else replace(settings, roles=())
    assert with_user_info(claims, issuer, settings, access_token) is claims
    assert real.requests == []


def test_an_issuer_that_tells_no_more(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer
) -> None:
    real.configuration = {"userinfo_endpoint": None}
    assert with_user_info(THIN, issuer, settings, "of-ana") == THIN


def test_a_token_of_somebody_else(settings: OidcSettings, issuer: Issuer) -> None:
    with pytest.raises(NotAuthenticated, match="of another person"):
        with_user_info(THIN, issuer, settings, "of-ben")
    with pytest.raises(TokenRefused, match="invalid_token"):
        with_user_info(THIN, issuer, settings, "of-nobody")
