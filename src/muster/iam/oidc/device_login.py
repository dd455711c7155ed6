"""Log in from the command line: a code is typed in on any device with a browser (RFC 8628).

Standard library only: the command line runs this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from muster.errors import NotAuthenticated
from muster.iam.oidc.issuer import Issuer, IssuerError, TokenRefused
from muster.iam.oidc.settings import OidcSettings

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
#: Seconds between two questions, if the issuer does not say, and what is added when it is too fast
#: for it: both are in the standard.
_INTERVAL, _SLOWER = 5.0, 5.0
#: Seconds to wait for the user, if the issuer does not say.
_LASTS = 600.0
#: Seconds between two questions at most, when the issuer cannot be reached.
_LONGEST = 60.0


class IssuedTokens(Struct, frozen=True):
    """What an issuer gives for a login."""

    id_token: str
    #: Shows at the issuer who has logged in; "" if it gives none.
    access_token: str


class DeviceLogin(Struct, frozen=True):
    """A login that was started."""

    device_code: str
    #: What the user types in.
    user_code: str
    #: Where.
    verification_uri: str
    #: The same with the code in it; "" if the issuer has none.
    verification_uri_complete: str
    #: Seconds until it is too late.
    expires_in: float
    #: Seconds between two questions.
    interval: float


def start_device_login(issuer: Issuer, settings: OidcSettings) -> DeviceLogin:
    """Start a login. Raises IssuerError."""
    url = issuer.endpoints().device_authorization_endpoint
    if not url:
        raise IssuerError(
            f"{issuer.url} has no device flow: log in at the console, or use a token of "
            "`muster tokens create`"
        )
    form = {"scope": " ".join(settings.scopes)}
    answer = issuer.post(url, settings.client_id, settings.client_secret, form)
    try:
        return DeviceLogin(
            device_code=_text(answer["device_code"]),
            user_code=_text(answer["user_code"]),
            # some issuers use the name of an early draft
            verification_uri=_text(answer.get("verification_uri") or answer["verification_url"]),
            verification_uri_complete=str(answer.get("verification_uri_complete") or ""),
            expires_in=float(answer.get("expires_in", _LASTS)),
            interval=float(answer.get("interval", _INTERVAL)),
        )
    except (KeyError, TypeError, ValueError):
        raise IssuerError(f"{url} does not answer with a code for the user") from None


def wait_for_device_login(
    issuer: Issuer,
    settings: OidcSettings,
    login: DeviceLogin,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> IssuedTokens:
    """Wait until the user has logged in. Raises NotAuthenticated if the user declines or is too
    late, IssuerError."""
    form = {"grant_type": _GRANT, "device_code": login.device_code}
    end = clock() + login.expires_in
    interval = login.interval
    while True:
        sleep(interval)
        if clock() >= end:
            raise NotAuthenticated("the code expired before it was typed in: start again")
        try:
            answer = issuer.tokens(settings.client_id, settings.client_secret, form)
        except TokenRefused as error:
            interval = _next_interval(error, interval)
        except IssuerError:  # RFC 8628, 3.5: at longer and longer intervals
            interval = min(interval * 2, _LONGEST)
        else:
            return tokens_of(answer)


def _next_interval(error: TokenRefused, interval: float) -> float:
    match error.code:
        case "authorization_pending":
            return interval
        case "slow_down":
            return interval + _SLOWER
        case "access_denied":
            raise NotAuthenticated("the login was declined")
        case "expired_token":
            raise NotAuthenticated("the code expired before it was typed in: start again")
        case _:
            raise error


def tokens_of(answer: dict[str, Any]) -> IssuedTokens:
    """The tokens in an answer of the token endpoint. Raises IssuerError."""
    token = answer.get("id_token")
    if not (isinstance(token, str) and token):
        raise IssuerError("the issuer gives no ID token: allow the scope openid for this client")
    access = answer.get("access_token")
    return IssuedTokens(token, access if isinstance(access, str) else "")


def _text(value: Any) -> str:
    if not (isinstance(value, str) and value):
        raise ValueError(value)
    return value
