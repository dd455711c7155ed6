"""An issuer of ID tokens: what it says of itself, its keys, and its token endpoint.

Everything here blocks: call it in a thread. Standard library only, as the command line uses it too.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from msgspec import Struct

from muster.errors import MusterError
from muster.iam.oidc.settings import is_safe

#: Seconds until an issuer must have answered.
_TIMEOUT = 10.0
#: Bytes of an answer at most.
_LARGEST = 1 << 20
#: Seconds for which the keys are used without a look at the issuer, which may withdraw one.
_KEYS_LAST = 3600.0
#: Seconds between two looks for a key that is not known: anybody can send a token that names one.
_KEYS_WAIT = 10.0


class IssuerError(MusterError):
    """The issuer cannot be reached, or does not answer as the standard says."""


class TokenRefused(IssuerError):  # noqa: N818
    """The issuer refuses a request. code: of the standard, such as `authorization_pending`."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class Endpoints(Struct, frozen=True):
    """What an issuer says of itself (OpenID Connect Discovery 1.0, section 3); "" for what it does
    not have."""

    issuer: str
    jwks_uri: str
    token_endpoint: str
    authorization_endpoint: str = ""
    device_authorization_endpoint: str = ""
    userinfo_endpoint: str = ""
    #: Whether clients send their secret in the form, not in a header.
    secret_in_form: bool = False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: an issuer's addresses are those that it publishes."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect())


class Issuer:
    """One issuer, whose answers are remembered. Threads may share it."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds on a clock that is never set."""
        self.url = url
        self._clock = clock
        self._lock = Lock()
        self._endpoints: Endpoints | None = None
        self._keys: dict[str, Mapping[str, Any]] = {}
        self._read_at: float | None = None

    def endpoints(self) -> Endpoints:
        """The addresses of the issuer. Raises IssuerError."""
        with self._lock:
            if self._endpoints is None:
                self._endpoints = self._discover()
            return self._endpoints

    def _discover(self) -> Endpoints:
        if not is_safe(self.url):
            raise IssuerError(f"not the https address of an issuer: {self.url!r}")
        url = f"{self.url.rstrip('/')}/.well-known/openid-configuration"
        published = _object(url, _request(url))
        if (issuer := published.get("issuer")) != self.url:
            raise IssuerError(
                f"{url} is the configuration of {issuer!r}; set issuer to exactly this"
            )
        methods = published.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        names = [name for name in Endpoints.__struct_fields__ if name != "secret_in_form"]
        found = {name: str(published.get(name) or "") for name in names}
        for name, address in found.items():
            wrong = not is_safe(address) or _is_weaker(address, self.url)
            if wrong if address else name in ("jwks_uri", "token_endpoint"):
                raise IssuerError(f"{url}: {name} is missing, or not an https address: {address!r}")
        return Endpoints(**found, secret_in_form="client_secret_basic" not in methods)

    def key(self, key_id: str | None) -> Mapping[str, Any] | None:
        """The public key with this id, as JSON; None if there is none. key_id: None for the only
        one. Raises IssuerError."""
        url = self.endpoints().jwks_uri
        with self._lock:
            age = _KEYS_LAST if self._read_at is None else self._clock() - self._read_at
            known = key_id in self._keys or (key_id is None and bool(self._keys))
            if age >= (_KEYS_LAST if known else _KEYS_WAIT):
                self._keys = _keys(url, _object(url, _request(url)))
                self._read_at = self._clock()
            if key_id is not None:
                return self._keys.get(key_id)
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def tokens(
        self, client_id: str, client_secret: str | None, form: Mapping[str, str]
    ) -> dict[str, Any]:
        """The answer of the token endpoint to a request of a client. Raises TokenRefused,
        IssuerError."""
        endpoints = self.endpoints()
        return self.post(endpoints.token_endpoint, client_id, client_secret, form)

    def user_info(self, access_token: str) -> dict[str, Any]:
        """What the issuer says of the person for whom it gave an access token (OpenID Connect Core
        1.0, section 5.3); {} if it has no such address. Raises TokenRefused, IssuerError."""
        url = self.endpoints().userinfo_endpoint
        if not url:
            return {}
        return _object(url, _request(url, headers={"Authorization": f"Bearer {access_token}"}))

    def post(
        self, url: str, client_id: str, client_secret: str | None, form: Mapping[str, str]
    ) -> dict[str, Any]:
        """The answer of an endpoint to a client. Raises TokenRefused, IssuerError."""
        headers: dict[str, str] = {}
        fields = {"client_id": client_id, **form}
        if client_secret is not None and self.endpoints().secret_in_form:
            fields["client_secret"] = client_secret
        elif client_secret is not None:
            # RFC 6749, 2.3.1: both are encoded as in a form first; some issuers do not read `+`
            pair = ":".join(urllib.parse.quote(one, safe="") for one in (client_id, client_secret))
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return _object(url, _request(url, urllib.parse.urlencode(fields).encode(), headers))


def _is_weaker(address: str, issuer: str) -> bool:
    """Whether an address is one of this machine that an issuer elsewhere names."""
    return address.startswith("http:") and not issuer.startswith("http:")


def _request(
    url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    request = urllib.request.Request(url, body, {"Accept": "application/json", **(headers or {})})
    try:
        with _opener.open(request, timeout=_TIMEOUT) as answer:
            content: bytes = answer.read(_LARGEST + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(url, error.code, error.read(_LARGEST)) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise IssuerError(f"cannot reach the issuer at {url}: {why}") from None
    if len(content) > _LARGEST:
        raise IssuerError(f"{url} answers with more than {_LARGEST:,} bytes")
    return content


def _refused(url: str, status: int, content: bytes) -> IssuerError:
    """The error of an answer that is none. RFC 6749, 5.2: `error` and `error_description`."""
    try:
        answer = json.loads(content)
        code, text = str(answer["error"]), str(answer.get("error_description") or "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return IssuerError(f"{url} answers with status {status}")
    return TokenRefused(f"the issuer refuses this: {text or code}", code)


def _object(url: str, content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise IssuerError(f"{url} does not answer with a JSON object")
    return answer


def _keys(url: str, key_set: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The keys for signatures, by their ids. Those of kinds that are not known are left out."""
    keys = key_set.get("keys")
    if not isinstance(keys, list):
        raise IssuerError(f"{url} has no keys")
    return {
        str(key.get("kid", number)): key
        for number, key in enumerate(keys)
        if isinstance(key, dict)
        and key.get("kty") in ("RSA", "EC", "OKP")
        and key.get("use", "sig") == "sig"
    }
