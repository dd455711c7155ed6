"""Who signs a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from muster.caller import Right, Role
from muster.iam.authenticate import REMEMBERED
from muster.iam.principals import Principal, Principals, SignedRequest
from muster.iam.session_tokens import SessionTokens
from muster.iam.signatures import SignatureRefused, parse_authorization
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.storage.home import Home
from muster.store.account_records import MemberRecord, ProjectRecord, UserKind, UserRecord
from support.keys import public_pem
from support.oci_config import config_of

oci = pytest.importorskip("oci")

NOW = 1_800_000_000.0
BODY = b'{"a": 1}'


class World(Struct):
    """A user with a key, who submits to `vision`."""

    backend: Backend
    principals: Principals
    config: dict[str, str]
    clock: list[float]

    def request(self, verb: str = "GET", body: bytes | None = None) -> SignedRequest:
        """A request as the SDK signs it."""
        import requests

        headers = {"date": formatdate(NOW, usegmt=True), "content-type": "application/json"}
        url = "http://127.0.0.1/20190101/jobs?limit=1"
        prepared = requests.Request(verb, url, headers, data=body).prepare()
        names = ("tenancy", "user", "fingerprint")
        key = {"private_key_content": self.config["key_content"]}
        signer = oci.signer.Signer(*(self.config[name] for name in names), None, **key)
        signer.do_request_sign(prepared)
        sent = [
            (name.lower().encode(), value if isinstance(value, bytes) else value.encode())
            for name, value in prepared.headers.items()
        ]
        return SignedRequest(verb, "/20190101/jobs?limit=1", sent, body)

    def authenticate(self, request: SignedRequest, now: float = NOW) -> Principal:
        signature = parse_authorization(request.header("authorization"))
        return self.principals.authenticate(signature, request, now)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(Backend(Home(tmp_path / "home"))) as backend:
        accounts = backend.store.accounts
        accounts.create_user(UserRecord("ana", UserKind.PERSON, 0.0))
        accounts.create_project(ProjectRecord("vision", 0.0))
        accounts.set_member(MemberRecord("vision", "ana", Role.SUBMITTER))
        EmbeddedAccounts(backend).add_key("ana", public_pem())
        config, clock = config_of("ana"), [0.0]
        sessions = SessionTokens(b"s" * 32)
        principals = Principals(lambda: backend.store, sessions, lambda: clock[0])
        yield World(backend, principals, config, clock)


def test_who_signs_has_the_rights_of_the_user(world: World) -> None:
    found = world.authenticate(world.request("POST", BODY))
    assert (found.user, found.admin) == ("ana", False)
    assert found.credential == world.config["fingerprint"]
    assert Right.SUBMIT in found.caller("vision").rights
    assert found.caller("sound").rights == frozenset()
    assert (found.sees("vision"), found.sees("default")) == (True, False)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verb": "DELETE"}, "does not fit"),
        ({"target": "/20190101/jobs?limit=2"}, "does not fit"),
        ({"body": b'{"a": 2}'}, "digest"),
        ({"headers": ()}, "date"),
    ],
)
def test_a_changed_request_is_refused(world: World, change: dict[str, Any], why: str) -> None:
    request = world.request("POST", BODY)
    signature = parse_authorization(request.header("authorization"))
    with pytest.raises(SignatureRefused, match=why):
        world.principals.authenticate(signature, replace(request, **change), NOW)


def test_a_body_has_to_be_signed(world: World) -> None:
    request = world.request("DELETE")
    signature = parse_authorization(request.header("authorization"))
    with pytest.raises(SignatureRefused, match="not signed: content-length"):
        world.principals.authenticate(signature, replace(request, verb="PUT", body=b""), NOW)


def test_an_old_request_is_refused(world: World) -> None:
    with pytest.raises(SignatureRefused, match="clock"):
        world.authenticate(world.request(), NOW + 301)


def test_a_key_is_remembered_for_a_few_seconds(world: World) -> None:
    request = world.request()
    signature = parse_authorization(request.header("authorization"))
    assert not world.principals.remembers(signature)
    world.authenticate(request)
    assert world.principals.remembers(signature)
    world.backend.store.keys.delete(world.config["fingerprint"])
    assert world.authenticate(request).user == "ana"
    world.clock[0] = REMEMBERED
    assert not world.principals.remembers(signature)
    with pytest.raises(SignatureRefused, match="is not known"):
        world.authenticate(request)


def test_a_remembered_key_checks_each_signature(world: World) -> None:
    request = world.request()
    world.authenticate(request)
    with pytest.raises(SignatureRefused, match="does not fit"):
        world.authenticate(replace(request, target="/20190101/jobs"))


def test_a_disabled_user_is_refused(world: World) -> None:
    world.backend.store.accounts.change_user("ana", {"disabled": True})
    with pytest.raises(SignatureRefused, match="is disabled"):
        world.authenticate(world.request())
