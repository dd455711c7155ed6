"""Verify ID tokens (OpenID Connect Core 1.0, section 3.1.3.7)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, GuestProtocol, OKPKey, RSAKey

from muster.describe.times import span, time_text
from muster.errors import NotAuthenticated
from muster.iam.oidc.issuer import Issuer
from muster.iam.oidc.settings import OidcSettings

#: Seconds by which the clocks of the issuer and of this machine may differ.
_LEEWAY = 60.0
#: Signatures with a public key: with a shared one, each client could make tokens.
_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
_KINDS: Mapping[str, Any] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_AGAIN = "log in again"


def verify(
    text: str, issuer: Issuer, settings: OidcSettings, now: float, nonce: str | None = None
) -> Mapping[str, Any]:
    """The claims of an ID token. nonce: the one that the login was started with; None if it had
    none. now: epoch seconds. Raises NotAuthenticated, and IssuerError if its keys cannot be
    read."""

    def key_of(token: GuestProtocol) -> Any:
        key_id = token.headers().get("kid")
        found = issuer.key(key_id if isinstance(key_id, str) else None)
        if found is None:
            raise NotAuthenticated(f"the issuer has no key {key_id!r}, which signed the ID token")
        return _KINDS[found["kty"]].import_key(found)

    try:
        claims = jwt.decode(text, key_of, algorithms=_ALGORITHMS).claims
    except (JoseError, ValueError, TypeError, KeyError) as error:
        why = str(error) or type(error).__name__
        raise NotAuthenticated(f"the ID token is not valid: {why}; {_AGAIN}") from None
    _check_parties(claims, settings)
    _check_times(claims, now, settings.issuer)
    if nonce is not None and not _same(claims.get("nonce"), nonce):
        raise NotAuthenticated(f"the ID token is of another login; {_AGAIN}")
    return claims


def _check_parties(claims: Mapping[str, Any], settings: OidcSettings) -> None:
    if claims.get("iss") != settings.issuer:
        raise NotAuthenticated(
            f"the ID token is of the issuer {claims.get('iss')!r}, not of {settings.issuer}"
        )
    expected = settings.audience or settings.client_id
    given = claims.get("aud")
    audience = given if isinstance(given, list) else [given]
    if expected not in audience:
        raise NotAuthenticated(f"the ID token is for {given!r}, not for {expected!r}")
    party = claims.get("azp")
    if party not in (None, settings.client_id) or (party is None and len(audience) > 1):
        raise NotAuthenticated(f"the ID token was issued to {party!r}, not {settings.client_id!r}")
    subject = claims.get("sub")
    if not (isinstance(subject, str) and 0 < len(subject) <= 255):  # its limit is in the standard
        raise NotAuthenticated("the ID token names no subject")


def _check_times(claims: Mapping[str, Any], now: float, issuer: str) -> None:
    expires = _time(claims, "exp")
    if expires is None:
        raise NotAuthenticated("the ID token does not say when it expires")
    if now >= expires + _LEEWAY:
        raise NotAuthenticated(
            f"the ID token expired {span(now - expires)} ago; {_AGAIN}. {_clocks(now, issuer)}"
        )
    for name in ("nbf", "iat"):
        since = _time(claims, name)
        if since is not None and now < since - _LEEWAY:
            raise NotAuthenticated(
                f"the ID token is of {span(since - now)} from now. {_clocks(now, issuer)}"
            )


def _clocks(now: float, issuer: str) -> str:
    return (
        f"If it is new, the clock of this server, which shows {time_text(now)}, differs from that "
        f"of {issuer}: set it, such as by NTP"
    )


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e11:
        raise NotAuthenticated(f"the ID token has no valid time {name}: {value!r}")
    return float(value)


def _same(given: Any, expected: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())
