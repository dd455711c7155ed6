"""Log in at a server by its issuer of OpenID Connect."""

from __future__ import annotations

from collections.abc import Callable

from muster.api.accounts import NewToken
from muster.api.logins import LOGIN, LoginOffer, LoginRequest
from muster.client.contexts import Address
from muster.client.http.connection import Connection
from muster.errors import NotFound
from muster.iam.oidc.device_login import (
    DeviceLogin,
    start_device_login,
    wait_for_device_login,
)
from muster.iam.oidc.issuer import Issuer
from muster.iam.oidc.settings import OidcSettings
from muster.type_info import decode_json, encode_json


def log_in_by_device(
    address: Address, token_name: str, show: Callable[[DeviceLogin], object]
) -> NewToken | None:
    """A token of a server, for who logs in at its issuer. None if it has none.

    token_name: what the token is called. show: tells the user where to log in. Raises
    NotAuthenticated, Forbidden, IssuerError, ServerUnavailable.
    """
    connection = Connection(address)
    try:
        try:
            data = connection.request("GET", LOGIN)
        except NotFound:
            return None
        offer = decode_json(data, LoginOffer)
        settings = OidcSettings(offer.issuer, offer.client_id, scopes=offer.scopes)
        issuer = Issuer(offer.issuer)
        login = start_device_login(issuer, settings)
        show(login)
        tokens = wait_for_device_login(issuer, settings, login)
        body = encode_json(LoginRequest(tokens.id_token, tokens.access_token, token_name))
        return decode_json(connection.request("POST", LOGIN, body), NewToken)
    finally:
        connection.close()
