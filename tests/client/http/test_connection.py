"""Connections to servers that cannot be used."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.client.contexts import Address
from muster.client.http.connection import Connection
from muster.errors import ServerUnavailable
from muster.service.backend import Backend
from muster.storage.certificates import make_supervisor_certificate
from muster.storage.home import Home
from support.server_thread import ONE_USER, TOKEN, running_server


@pytest.fixture
def why(own_home: Path, tmp_path: Path) -> Callable[..., str]:
    """What a client is told that asks a real server, with TLS or without."""

    def ask(scheme: str, *, tls: bool) -> str:
        settings = ONE_USER
        if tls:
            make_supervisor_certificate(tmp_path / "pair", "localhost")
            files = {
                f"tls_{name}": str(tmp_path / "pair" / f"{name}.pem") for name in ("cert", "key")
            }
            settings = replace(ONE_USER, **files)
        with running_server(Backend(Home(own_home)), settings=settings) as server:
            url = f"{scheme}://localhost:{server.port}"
            with pytest.raises(ServerUnavailable) as caught:
                Connection(Address(url, TOKEN)).request("GET", "/v1/caller")
        text = str(caught.value)
        assert text.startswith(f"cannot reach the server {url}: ")
        return text.replace(str(server.port), "PORT")

    return ask


def test_a_server_with_tls_is_asked_without(why: Callable[..., str]) -> None:
    text = why("http", tls=True)
    assert "it has closed the connection before its answer" in text
    assert "if it uses TLS, write https://localhost:PORT" in text


def test_a_server_without_tls_is_asked_with_it(why: Callable[..., str]) -> None:
    assert why("https", tls=False).endswith("it does not use TLS (write http://localhost:PORT)")


def test_an_authority_that_is_not_trusted(why: Callable[..., str]) -> None:
    assert "trust its authority: `muster login URL --ca FILE`" in why("https", tls=True)


def test_nothing_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ServerUnavailable, match="nothing listens there"):
        Connection(Address(f"http://127.0.0.1:{port}", TOKEN)).request("GET", "/v1/caller")
