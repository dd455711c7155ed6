"""How people log in at a server that knows an issuer of OpenID Connect: what the server tells its
clients, and what they send back. Outside of `/v1`, since nobody has a token yet."""

from __future__ import annotations

from msgspec import Struct

#: The path: GET for the issuer, POST with an ID token for a token of Muster.
LOGIN = "/login"


class LoginOffer(Struct, frozen=True):
    """Where people log in."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]


class LoginRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What is exchanged for a token; the answer is an `accounts.NewToken`."""

    id_token: str
    #: With it, the server asks the issuer for what the ID token does not say, such as groups.
    access_token: str = ""
    #: What the token is called: the name of the client's machine.
    name: str = "login"
