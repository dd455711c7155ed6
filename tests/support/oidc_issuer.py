"""A real issuer of OpenID Connect on the loopback interface: Authlib's, in a Flask application.

Its people log in as a test says, without a password: a browser that follows `/authorize` comes back
with a code, and `decide` answers for the user of a device.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint, DeviceCodeGrant
from authlib.oidc.core.grants import OpenIDCode, OpenIDToken
from flask import Flask, Response, jsonify, redirect, request
from joserfc import jwt
from joserfc.jwk import RSAKey
from msgspec import Struct, field
from werkzeug.serving import make_server

REDIRECT = "http://127.0.0.1:8431/console/login"
ANA = {"sub": "user-7", "preferred_username": "ana", "name": "Ana López", "groups": ["vision"]}


class Client(ClientMixin):
    """A client that may do everything. secret: None for a public one."""

    def __init__(self, client_id: str, secret: str | None) -> None:
        self.client_id, self.secret = client_id, secret

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return REDIRECT

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == REDIRECT

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == ("none" if self.secret is None else "client_secret_basic")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type != "refresh_token"


class Code(Struct):
    """A code of the code flow."""

    code: str
    client_id: str
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class DeviceCode(Struct):
    """A code of the device flow."""

    client_id: str
    scope: str
    user_code: str
    expires_at: float

    def get_client_id(self) -> str:
        return self.client_id

    def get_scope(self) -> str:
        return self.scope

    def get_user_code(self) -> str:
        return self.user_code

    def is_expired(self) -> bool:
        return time.time() >= self.expires_at


class RealIssuer(Struct):
    """What a test sees and changes of the issuer."""

    url: str = ""
    key: RSAKey = field(default_factory=lambda: new_key("key-1"))
    #: Other keys that it publishes.
    old_keys: list[RSAKey] = []
    #: Who logs in.
    person: dict[str, Any] = field(default_factory=lambda: dict(ANA))
    #: Whether ID tokens have the subject only; the rest is at `/userinfo`.
    thin: bool = False
    #: Who logged in, by access token.
    access_tokens: dict[str, dict[str, Any]] = {}
    #: Fields of the configuration that are replaced.
    configuration: dict[str, Any] = {}
    #: Answers for users of devices: the user's code -> whether they allow it.
    decisions: dict[str, bool] = {}
    device_codes: dict[str, DeviceCode] = {}
    codes: dict[str, Code] = {}
    #: Seconds for which device codes are valid, and how often the next question is too early.
    device_codes_last: float = 600.0
    too_early: int = 0
    #: Seconds between two questions of a device.
    interval: float = 5.0
    #: The requests, by path.
    requests: list[str] = []
    #: The secret of the client `muster`.
    secret: str | None = None

    def decide(self, allow: bool) -> None:
        """Answer for everybody who was asked to log in on another device."""
        for code in self.device_codes.values():
            self.decisions[code.user_code] = allow

    def rotate(self) -> None:
        """Sign with another key, and withdraw the former one."""
        self.key = new_key(f"key-{time.monotonic_ns()}")

    def id_token(self, key: RSAKey | None = None, alg: str = "RS256", **claims: Any) -> str:
        """An ID token with these claims besides the usual ones; None leaves one out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": "muster", "iat": now, "exp": now + 300, **self.person}
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        key = key or self.key
        return jwt.encode({"alg": alg, "kid": key.kid}, given, key, algorithms=[alg])


def new_key(key_id: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": key_id, "use": "sig", "alg": "RS256"})


@contextmanager
def running_issuer() -> Iterator[RealIssuer]:
    """An issuer that listens until the end of the block."""
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"  # http, on loopback
    issuer = RealIssuer()
    server = make_server("127.0.0.1", 0, _application(issuer), threaded=True)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _application(issuer: RealIssuer) -> Flask:
    app = Flask("issuer")
    server = _server(issuer)

    @app.before_request
    def note() -> None:
        issuer.requests.append(request.path)

    @app.get("/.well-known/openid-configuration")
    def configuration() -> Response:
        url = issuer.url
        return jsonify(
            {
                "issuer": url,
                "jwks_uri": f"{url}/keys",
                "token_endpoint": f"{url}/token",
                "authorization_endpoint": f"{url}/authorize",
                "device_authorization_endpoint": f"{url}/device",
                "userinfo_endpoint": f"{url}/userinfo",
                **issuer.configuration,
            }
        )

    @app.get("/keys")
    def keys() -> Response:
        shown = [key.as_dict(private=False) for key in (issuer.key, *issuer.old_keys)]
        return jsonify({"keys": [{"kty": "unknown", "kid": "x"}, *shown]})

    @app.get("/authorize")
    def authorize() -> Any:
        grant = server.get_consent_grant(end_user=issuer.person)
        return server.create_authorization_response(grant_user=issuer.person, grant=grant)

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.post("/device")
    def device() -> Any:
        return server.create_endpoint_response("device_authorization")

    @app.get("/userinfo")
    def user_info() -> Any:
        person = issuer.access_tokens.get(request.authorization.token or "")  # type: ignore[union-attr]
        return (jsonify(person), 200) if person else (jsonify({"error": "invalid_token"}), 401)

    @app.get("/moved")
    def moved() -> Any:
        return redirect("/keys")

    @app.get("/broken")
    def broken() -> Any:
        return Response("<html>", content_type="text/html")

    @app.get("/large")
    def large() -> Any:
        return Response(" " * (1 << 20) + "{}")

    return app


def _server(issuer: RealIssuer) -> AuthorizationServer:
    class Claims:
        """What both kinds of ID tokens have."""

        def resolve_client_private_key(self, client: Client) -> RSAKey:
            return issuer.key

        def get_encode_header(self, client: Client) -> dict[str, str]:
            return {"alg": "RS256", "kid": str(issuer.key.kid)}

        def get_client_claims(self, client: Client) -> dict[str, Any]:
            return {"iss": issuer.url, "aud": [client.client_id]}

        def generate_user_info(self, user: dict[str, Any], scope: str) -> dict[str, Any]:
            return {"sub": user["sub"]} if issuer.thin else user

    class ForCodes(Claims, OpenIDCode):
        def exists_nonce(self, nonce: str, request: Any) -> bool:
            return any(code.nonce == nonce for code in issuer.codes.values())

    class ForDevices(Claims, OpenIDToken):
        pass

    class Codes(AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ("none", "client_secret_basic")

        def save_authorization_code(self, code: str, request: Any) -> None:
            data = request.payload.data
            issuer.codes[code] = Code(
                code=code,
                client_id=request.client.client_id,
                redirect_uri=request.payload.redirect_uri,
                scope=request.payload.scope,
                nonce=data.get("nonce", ""),
                code_challenge=data.get("code_challenge", ""),
                code_challenge_method=data.get("code_challenge_method", ""),
            )

        def query_authorization_code(self, code: str, client: Client) -> Code | None:
            return issuer.codes.get(code)

        def delete_authorization_code(self, authorization_code: Code) -> None:
            issuer.codes.pop(authorization_code.code)

        def authenticate_user(self, authorization_code: Code) -> dict[str, Any]:
            return issuer.person

    class Devices(DeviceCodeGrant):
        def query_device_credential(self, device_code: str) -> DeviceCode | None:
            return issuer.device_codes.get(device_code)

        def query_user_grant(self, user_code: str) -> tuple[dict[str, Any], bool] | None:
            allowed = issuer.decisions.get(user_code)
            return None if allowed is None else (issuer.person, allowed)

        def should_slow_down(self, credential: DeviceCode) -> bool:
            issuer.too_early -= 1
            return issuer.too_early >= 0

    class DeviceEndpoint(DeviceAuthorizationEndpoint):
        @property
        def INTERVAL(self) -> float:
            return issuer.interval

        def get_verification_uri(self) -> str:
            return f"{issuer.url}/activate"

        def save_device_credential(self, client_id: str, scope: str, data: Any) -> None:
            expires_at = time.time() + issuer.device_codes_last
            made = DeviceCode(client_id, scope, data["user_code"], expires_at)
            issuer.device_codes[data["device_code"]] = made

    def client(client_id: str) -> Client | None:
        return Client(client_id, issuer.secret) if client_id == "muster" else None

    server = AuthorizationServer()

    def save(token: dict[str, Any], request: Any) -> None:
        issuer.access_tokens[token["access_token"]] = dict(issuer.person)

    server.init_app(Flask("unused"), client, save)
    server.register_grant(Codes, [ForCodes(require_nonce=True), CodeChallenge(required=True)])
    server.register_grant(Devices, [ForDevices()])
    server.register_endpoint(DeviceEndpoint)
    return server
