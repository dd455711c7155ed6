"""Log in from a web page: the authorization code flow with PKCE (RFC 7636)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import urllib.parse
from base64 import urlsafe_b64encode

from msgspec import Struct

from muster.errors import NotAuthenticated
from muster.iam.oidc.device_login import IssuedTokens, tokens_of
from muster.iam.oidc.issuer import Issuer, IssuerError
from muster.iam.oidc.settings import OidcSettings


class CodeLogin(Struct, frozen=True):
    """A login that was started. Whoever started it keeps it, where nobody else reads it."""

    #: Where the browser is sent.
    url: str
    redirect_uri: str
    #: What comes back with the code.
    state: str
    #: What comes back in the ID token.
    nonce: str
    #: What shows that who sends the code has started the login.
    verifier: str


def start_code_login(issuer: Issuer, settings: OidcSettings, redirect_uri: str) -> CodeLogin:
    """Start a login. redirect_uri: where the browser comes back to. Raises IssuerError."""
    endpoint = issuer.endpoints().authorization_endpoint
    if not endpoint:
        raise IssuerError(f"{issuer.url} has no code flow")
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(settings.scopes),
        "state": state,
        "nonce": nonce,
        "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    separator = "&" if "?" in endpoint else "?"
    url = f"{endpoint}{separator}{urllib.parse.urlencode(query)}"
    return CodeLogin(url, redirect_uri, state, nonce, verifier)


def finish_code_login(
    issuer: Issuer, settings: OidcSettings, login: CodeLogin, *, state: str, code: str
) -> IssuedTokens:
    """The tokens for a code that came back; the ID token is to be verified with the login's nonce.
    Raises NotAuthenticated if it is of another login, IssuerError."""
    if not hmac.compare_digest(state.encode(), login.state.encode()):
        raise NotAuthenticated("this answer is of another login: start again")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": login.redirect_uri,
        "code_verifier": login.verifier,
    }
    return tokens_of(issuer.tokens(settings.client_id, settings.client_secret, form))
