"""What is behind the interface that a client has."""

from __future__ import annotations

import os

from muster.client.client import Client
from muster.client.contexts import Address
from muster.client.http.api import HttpAPI
from muster.service.embedded import EmbeddedAPI


def over_http() -> bool:
    """Whether clients reach Muster through a server."""
    return "MUSTER_URL" in os.environ


def variables_of(server: Address) -> dict[str, str]:
    """The variables with which clients and commands reach Muster through a server."""
    return {"MUSTER_URL": server.url, "MUSTER_TOKEN": server.token}


def embedded(client: Client) -> EmbeddedAPI:
    """The implementation of the client's API, to look at its store and its files; with --over-http,
    another one of the same MUSTER_HOME."""
    api = getattr(client.api, "behind", client.api)  # of `support.json_api.JsonAPI`
    if isinstance(api, HttpAPI):
        return EmbeddedAPI()
    assert isinstance(api, EmbeddedAPI)
    return api
