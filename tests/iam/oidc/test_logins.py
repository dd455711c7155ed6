"""The flows, against a real issuer."""

from __future__ import annotations

import http.client
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from muster.errors import NotAuthenticated
from muster.iam.oidc.code_login import CodeLogin, finish_code_login, start_code_login
from muster.iam.oidc.device_login import start_device_login, wait_for_device_login
from muster.iam.oidc.id_tokens import verify
from muster.iam.oidc.issuer import Issuer, IssuerError, TokenRefused
from muster.iam.oidc.settings import OidcSettings
from support.oidc_issuer import REDIRECT, RealIssuer

SECRET = "a secret: with +%&"


class Clock:
    """Time that passes only by sleeping. It does what is planned for a moment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.plans: list[Any] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)
        if self.plans:
            self.plans.pop(0)()


def nothing() -> None:
    pass


@pytest.mark.parametrize("secret", [None, SECRET])
def test_the_device_flow(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer, secret: str | None
) -> None:
    real.secret = secret
    settings = replace(settings, client_secret=secret)
    login = start_device_login(issuer, settings)
    assert login.verification_uri == f"{real.url}/activate"
    assert login.user_code in login.verification_uri_complete
    assert login.interval == 5
    clock = Clock()
    real.too_early = 1
    clock.plans = [nothing, nothing, lambda: real.decide(True)]
    tokens = wait_for_device_login(issuer, settings, login, clock=clock, sleep=clock.sleep)
    assert clock.slept == [5, 10, 10], "it was told once to slow down"
    assert tokens.access_token in real.access_tokens
    claims = verify(tokens.id_token, issuer, settings, time.time())
    assert (claims["sub"], claims["preferred_username"]) == ("user-7", "ana")


def _expire(real: RealIssuer) -> None:
    for code in real.device_codes.values():
        code.expires_at = 0.0


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (lambda real: real.decide(False), "the login was declined"),
        (_expire, "the code expired before it was typed in"),
        (lambda real: real.device_codes.clear(), "the issuer refuses this: Invalid 'device_code'"),
    ],
)
def test_a_device_login_that_fails(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer, plan: Any, error: str
) -> None:
    login = start_device_login(issuer, settings)
    clock = Clock()
    clock.plans = [nothing, lambda: plan(real)]
    with pytest.raises((NotAuthenticated, TokenRefused), match=error):
        wait_for_device_login(issuer, settings, login, clock=clock, sleep=clock.sleep)


def test_a_device_login_waits_as_long_as_its_code_is_valid(
    settings: OidcSettings, issuer: Issuer
) -> None:
    login = replace(start_device_login(issuer, settings), expires_in=12.0)
    clock = Clock()
    with pytest.raises(NotAuthenticated, match="the code expired"):
        wait_for_device_login(issuer, settings, login, clock=clock, sleep=clock.sleep)
    assert clock.now == 15


def test_an_issuer_that_is_away_for_a_while_is_asked_at_longer_intervals(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer
) -> None:
    login = start_device_login(issuer, settings)
    endpoints = issuer.endpoints()
    away = replace(endpoints, token_endpoint="http://127.0.0.1:1/token")
    clock = Clock()

    def come_back() -> None:
        issuer._endpoints = endpoints
        real.decide(True)

    issuer._endpoints = away
    clock.plans = [nothing, nothing, come_back]
    assert wait_for_device_login(issuer, settings, login, clock=clock, sleep=clock.sleep)
    assert clock.slept == [5, 10, 20]


def test_an_issuer_without_the_flows(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer
) -> None:
    real.configuration = {"device_authorization_endpoint": None, "authorization_endpoint": None}
    with pytest.raises(IssuerError, match="has no device flow"):
        start_device_login(issuer, settings)
    with pytest.raises(IssuerError, match="has no code flow"):
        start_code_login(issuer, settings, REDIRECT)


def come_back(login: CodeLogin) -> dict[str, str]:
    """What a browser comes back with."""
    parts = urlsplit(login.url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    answer.read()
    location = answer.headers["Location"]
    connection.close()
    assert location.startswith(REDIRECT)
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


@pytest.mark.parametrize("secret", [None, SECRET])
def test_the_code_flow(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer, secret: str | None
) -> None:
    real.secret = secret
    settings = replace(settings, client_secret=secret)
    login = start_code_login(issuer, settings, REDIRECT)
    back = come_back(login)
    tokens = finish_code_login(issuer, settings, login, state=back["state"], code=back["code"])
    token = tokens.id_token
    claims = verify(token, issuer, settings, time.time(), login.nonce)
    assert claims["sub"] == "user-7"
    with pytest.raises(NotAuthenticated, match="the ID token is of another login"):
        verify(token, issuer, settings, time.time(), "another nonce")
    with pytest.raises(TokenRefused):  # a code is used once
        finish_code_login(issuer, settings, login, state=back["state"], code=back["code"])


def test_a_code_of_another_login_is_refused(settings: OidcSettings, issuer: Issuer) -> None:
    mine, other = (start_code_login(issuer, settings, REDIRECT) for _ in range(2))
    back = come_back(other)
    with pytest.raises(NotAuthenticated, match="this answer is of another login"):
        finish_code_login(issuer, settings, mine, state=back["state"], code=back["code"])
    with pytest.raises(TokenRefused):  # injected: PKCE finds it
        finish_code_login(issuer, settings, mine, state=mine.state, code=back["code"])


def test_a_wrong_secret_of_the_client(
    real: RealIssuer, settings: OidcSettings, issuer: Issuer
) -> None:
    real.secret = SECRET
    with pytest.raises(TokenRefused, match="the issuer refuses this") as caught:
        start_device_login(issuer, replace(settings, client_secret="wrong"))
    assert caught.value.code == "invalid_client"
