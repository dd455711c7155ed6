"""ID tokens that are right, and all that can be wrong with one."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from msgspec.structs import replace

from muster.errors import MusterError, NotAuthenticated
from muster.iam.oidc.id_tokens import verify
from muster.iam.oidc.issuer import Issuer, IssuerError
from muster.iam.oidc.settings import OidcSettings
from support.oidc_issuer import RealIssuer, new_key


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_right_one(real: RealIssuer, settings: OidcSettings, issuer: Issuer) -> None:
    claims = verify(real.id_token(), issuer, settings, time.time())
    assert claims["preferred_username"] == "ana"
    several = real.id_token(aud=["other", "muster"], azp="muster", nonce="n")
    assert verify(several, issuer, settings, time.time(), "n")["aud"] == ["other", "muster"]
    api = real.id_token(aud="api", azp="muster")
    assert verify(api, issuer, replace(settings, audience="api"), time.time())


NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"iss": "https://other"}, "is of the issuer 'https://other', not of http://127"),
        ({"iss": None}, "is of the issuer None"),
        ({"aud": "other"}, "is for 'other', not for 'muster'"),
        ({"aud": ["other"]}, r"is for \['other'\], not for 'muster'"),
        ({"aud": None}, "is for None"),
        ({"aud": ["muster", "other"]}, "was issued to None, not 'muster'"),
        ({"azp": "other"}, "was issued to 'other', not 'muster'"),
        ({"sub": None}, "names no subject"),
        ({"sub": 5}, "names no subject"),
        ({"sub": "x" * 256}, "names no subject"),
        ({"exp": None}, "does not say when it expires"),
        ({"exp": "soon"}, "has no valid time exp: 'soon'"),
        ({"exp": True}, "has no valid time exp"),
        (
            {"exp": NOW - 60},
            r"expired 1m ago; log in again. If it is new, the clock of this server",
        ),
        ({"exp": NOW - 59}, ""),
        ({"nbf": NOW + 60}, ""),
        ({"nbf": NOW + 61}, "is of 1m1s from now. If it is new, the clock of this server, which s"),
        ({"iat": NOW + 300}, r"which shows 2027-01-15T08:00:00.000000Z, differs from that of http"),
        ({"nonce": None}, "is of another login"),
        ({"nonce": "other"}, "is of another login"),
        ({"nonce": 5}, "is of another login"),
    ],
)
def test_wrong_claims(
    real: RealIssuer,
    settings: OidcSettings,
    issuer: Issuer,
    claims: dict[str, Any],
    error: str,
) -> None:
    usual = {"iat": NOW, "exp": NOW + 300, "nonce": "mine"}
    text = real.id_token(**(usual | claims))
    if error:
        with pytest.raises(NotAuthenticated, match=error):
            verify(text, issuer, settings, NOW, "mine")
    else:
        assert verify(text, issuer, settings, NOW, "mine")


def test_wrong_signatures(real: RealIssuer, settings: OidcSettings, issuer: Issuer) -> None:
    forged = new_key(str(real.key.kid))
    payload = {"iss": real.url, "aud": "muster", "sub": "x", "exp": time.time() + 99}
    header = {"kid": real.key.kid}
    with_public = jwt.encode(
        {**header, "alg": "HS256"}, payload, OctKey.import_key(b"k" * 32), algorithms=["HS256"]
    )
    parts = (json.dumps(part).encode() for part in ({**header, "alg": "none"}, payload))
    unsigned = ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
    elliptic = ECKey.generate_key("P-256", {"kid": "e"})
    with_other = jwt.encode({**header, "alg": "ES256"}, payload, elliptic, algorithms=["ES256"])
    private = real.key.as_dict(private=True)
    any_way = RSAKey.import_key({name: private[name] for name in private if name != "alg"})
    right = real.id_token()
    cut = right[: right.rindex(".") + 1]
    for text in (
        real.id_token(forged),
        real.id_token(any_way, alg="RS512"),
        with_public,
        unsigned,
        with_other,
        cut,
        right[:-8],
        right.replace(".", ".e30."),
        "",
        "a.b.c",
        "é",
    ):
        with pytest.raises(NotAuthenticated) as caught:
            verify(text, issuer, settings, time.time())
        assert "\n" not in str(caught.value)


@given(st.text() | st.binary().map(bytes.hex))
def test_any_text_is_refused_in_words(text: str) -> None:
    issuer = Issuer("http://127.0.0.1:1")
    with pytest.raises(MusterError):
        verify(text, issuer, OidcSettings("http://127.0.0.1:1", "muster"), 1.0)


def test_keys_are_read_again_when_they_change(real: RealIssuer, settings: OidcSettings) -> None:
    clock = Clock()
    issuer = Issuer(real.url, clock)
    before = real.id_token()
    verify(before, issuer, settings, time.time())
    real.rotate()
    after = real.id_token()
    clock.now = 9.9
    with pytest.raises(NotAuthenticated, match="the issuer has no key"):
        verify(after, issuer, settings, time.time())
    clock.now = 10
    verify(after, issuer, settings, time.time())
    with pytest.raises(NotAuthenticated, match="the issuer has no key"):
        verify(before, issuer, settings, time.time())  # withdrawn
    assert real.requests.count("/keys") == 2
    assert real.requests.count("/.well-known/openid-configuration") == 1


def test_a_withdrawn_key_is_forgotten_in_an_hour(real: RealIssuer, settings: OidcSettings) -> None:
    clock = Clock()
    issuer = Issuer(real.url, clock)
    text = real.id_token()
    verify(text, issuer, settings, time.time())
    real.rotate()
    clock.now = 3599
    verify(text, issuer, settings, time.time())
    clock.now = 3600
    with pytest.raises(NotAuthenticated, match="the issuer has no key"):
        verify(text, issuer, settings, time.time())


@pytest.mark.parametrize(
    ("configuration", "error"),
    [
        ({"issuer": "https://other"}, "is the configuration of 'https://other'; set issuer to"),
        ({"jwks_uri": None}, "jwks_uri is missing"),
        ({"jwks_uri": "http://192.0.2.1/keys"}, "jwks_uri is missing, or not an https address"),
        ({"token_endpoint": "file:///etc/passwd"}, "token_endpoint is missing, or not an https"),
        ({"jwks_uri": "URL/moved"}, "answers with status 302"),
        ({"jwks_uri": "URL/broken"}, "does not answer with a JSON object"),
        ({"jwks_uri": "URL/large"}, "answers with more than 1,048,576 bytes"),
        ({"jwks_uri": "URL/missing"}, "answers with status 404"),
        ({"jwks_uri": "URL/.well-known/openid-configuration"}, "has no keys"),
        ({"jwks_uri": "http://127.0.0.1:1/"}, "cannot reach the issuer at http://127.0.0.1:1/"),
    ],
)
def test_an_issuer_that_does_not_keep_the_standard(
    real: RealIssuer,
    settings: OidcSettings,
    issuer: Issuer,
    configuration: dict[str, Any],
    error: str,
) -> None:
    text = real.id_token()
    real.configuration = {
        name: value and value.replace("URL", real.url) for name, value in configuration.items()
    }
    with pytest.raises(IssuerError, match=error):
        verify(text, issuer, settings, time.time())
