"""Log in at a server by a real issuer."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.caller import Role
from muster.client.contexts import Address
from muster.client.http.connection import Connection
from muster.client.http.logins import log_in_by_device
from muster.errors import Forbidden, InvalidInput, NotAuthenticated, NotFound
from muster.iam.authenticate import Authenticator
from muster.iam.oidc.device_login import DeviceLogin
from muster.service.backend import Backend
from muster.storage.home import Home
from muster.store.account_records import AuditFilter, MemberRecord, ProjectRecord
from support.oidc_issuer import RealIssuer, running_issuer
from support.server_thread import running_server, users_of

SETTINGS = """
issuer = "{url}"
client_id = "muster"
create_users = {create}
[[roles]]
group = "vision"
project = "vision"
role = "submitter"
"""


@contextmanager
def served(backend: Backend) -> Iterator[Address]:
    """A server of this process, before anybody has logged in."""
    with running_server(backend, users_of(backend)) as server:
        yield server.address(token="")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    made = Backend(Home(tmp_path / "home"))
    made.store.accounts.create_project(ProjectRecord("vision", 1.0))
    yield made
    made.close()


@pytest.fixture
def real() -> Iterator[RealIssuer]:
    with running_issuer() as issuer:
        issuer.interval = 0.0
        yield issuer


def configure(backend: Backend, real: RealIssuer, *, create: bool = True) -> None:
    text = SETTINGS.format(url=real.url, create=str(create).lower())
    backend.home.oidc.write_text(text)


def test_a_person_logs_in_from_the_command_line(backend: Backend, real: RealIssuer) -> None:
    configure(backend, real)
    shown: list[DeviceLogin] = []

    def show(login: DeviceLogin) -> None:
        shown.append(login)
        real.decide(True)

    with served(backend) as address:
        made = log_in_by_device(address, "laptop", show)
    assert made is not None
    assert shown[0].verification_uri == f"{real.url}/activate"
    accounts = backend.store.accounts
    caller = Authenticator(accounts, backend.policies).authenticate(made.text, time.time())
    assert (caller.user, caller.project, made.record.name) == ("ana", "vision", "laptop")
    (member,) = accounts.members(user="ana")
    assert member == MemberRecord("vision", "ana", Role.SUBMITTER, from_groups=True)
    (entry,) = backend.store.audit.listing(AuditFilter(action="users.login"))
    assert (entry.user, entry.address, entry.allowed) == ("ana", "127.0.0.1", True)


def test_an_issuer_whose_id_tokens_have_the_subject_only(
    backend: Backend, real: RealIssuer
) -> None:
    real.thin = True
    configure(backend, real)
    with served(backend) as address:
        made = log_in_by_device(address, "laptop", lambda _: real.decide(True))
    assert made is not None
    assert made.record.user == "ana"
    assert [one.role for one in backend.store.accounts.members(user="ana")] == [Role.SUBMITTER]


def test_an_issuer_that_the_server_cannot_reach(backend: Backend, real: RealIssuer) -> None:
    configure(backend, real)
    real.configuration = {"jwks_uri": f"{real.url}/broken"}
    with served(backend) as address:
        host, port = address.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port))
        body = json.dumps({"id_token": real.id_token()})
        connection.request("POST", "/login", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
    assert (answer.status, told["status"], told["type"]) == (502, 502, "muster:IssuerError")


def test_who_is_no_user(backend: Backend, real: RealIssuer) -> None:
    configure(backend, real, create=False)
    with served(backend) as address:
        with pytest.raises(Forbidden, match="ana is no user of this server"):
            log_in_by_device(address, "laptop", lambda _: real.decide(True))
        with pytest.raises(NotAuthenticated, match="the login was declined"):
            log_in_by_device(address, "laptop", lambda _: real.decide(False))


def test_a_server_without_an_issuer(backend: Backend) -> None:
    with served(backend) as address:
        assert log_in_by_device(address, "laptop", lambda _: None) is None
        connection = Connection(address)
        body = json.dumps({"id_token": "x"}).encode()
        with pytest.raises(NotFound, match="knows no issuer"):
            connection.request("POST", "/login", body)
        connection.close()


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"id_token": 5}', b'{"id_token": "x", "user": "root"}', b"\xff"]
)
def test_what_is_no_login(backend: Backend, real: RealIssuer, body: bytes) -> None:
    configure(backend, real)
    with served(backend) as address:
        connection = Connection(address)
        with pytest.raises(InvalidInput, match="not a login"):
            connection.request("POST", "/login", body)
        connection.close()


def test_a_token_of_nobody(backend: Backend, real: RealIssuer) -> None:
    configure(backend, real)
    with served(backend) as address:
        connection = Connection(address)
        for text in ("x", real.id_token(aud="other"), real.id_token(exp=5)):
            with pytest.raises(NotAuthenticated):
                connection.request("POST", "/login", json.dumps({"id_token": text}).encode())
        connection.close()
    assert backend.store.accounts.users() == []
