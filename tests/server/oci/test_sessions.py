"""Session tokens, with the SDK's signer."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import Any

import pytest
import requests
from oci.auth.signers import SecurityTokenSigner
from oci.exceptions import ServiceError
from oci.identity import IdentityClient
from oci.retry import NoneRetryStrategy

from muster.service.sessions import session_tokens
from muster.spec.ocids import user_ocid
from support.faults import until
from support.keys import private_key, public_pem
from support.oci_teams import OciTeams, oci_teams


def begin(oci: OciTeams, token: str, key: int = 50) -> Any:
    """A session for a key."""
    body = {"pem": public_pem(key)}
    return oci.teams.request("POST", "/v1/session-tokens", token, body)


def client(oci: OciTeams, session: str, key: int = 50) -> Any:
    signer = SecurityTokenSigner(session, private_key(key))
    options = {"service_endpoint": oci.url, "retry_strategy": NoneRetryStrategy()}
    return IdentityClient({"region": "us-ashburn-1"}, signer=signer, **options)


def name(oci: OciTeams, session: str, key: int = 50) -> str:
    found: str = client(oci, session, key).get_user(user_ocid("sam")).data.name
    return found


def status(oci: OciTeams, session: str, key: int = 50) -> int:
    try:
        name(oci, session, key)
    except ServiceError as error:
        return int(error.status)
    return 200


def test_a_session_signs_as_its_user(oci: OciTeams) -> None:
    reply = begin(oci, oci.teams.token("sam"))
    assert reply.status == 200, reply
    session = reply.json["token"]
    assert name(oci, session) == "sam"
    assert 3000 < reply.json["expires_at"] - time.time() <= 3600
    assert status(oci, session, key=51) == 401  # another key than the session's
    assert status(oci, session[:-3] + "abc") == 401
    refused = begin(oci, oci.teams.token("sam", project="vision"))
    assert (refused.status, refused.problem) == (403, "Forbidden")
    assert begin(oci, oci.teams.token("sam", scopes=frozenset())).status == 403
    wrong = oci.teams.request("POST", "/v1/session-tokens", oci.teams.token("sam"), {"pem": "x"})
    assert wrong.status == 422


def test_a_session_ends_with_the_token_that_it_was_made_with(oci: OciTeams) -> None:
    token = oci.teams.token("sam", expires_at=time.time() + 100)
    reply = begin(oci, token)
    assert reply.json["expires_at"] <= time.time() + 100
    session = reply.json["token"]
    assert status(oci, session) == 200
    oci.teams.accounts.revoke_token(token.split("_")[1])
    until(lambda: status(oci, session) == 401, "the revocation is noticed")
    assert "of the session was revoked" in oci.teams.log.getvalue()


def test_an_expired_session_is_refused(oci: OciTeams) -> None:
    sessions = session_tokens(oci.teams.backend.home)
    key, past = private_key(50).public_key(), time.time() - 4000
    assert status(oci, sessions.issue("sam", key, past, past + 86400)) == 401
    assert status(oci, sessions.issue("nobody", key, time.time(), time.time() + 60)) == 401
    assert status(oci, sessions.issue("sam", key, time.time(), time.time() + 60)) == 200


def refresh(oci: OciTeams, session: str, current: str) -> requests.Response:
    """What `oci session refresh` does."""
    return requests.post(
        f"{oci.url}/v1/authentication/refresh",
        headers={"content-type": "application/json"},
        data=json.dumps({"currentToken": current}),
        auth=SecurityTokenSigner(session, private_key(50)),
        timeout=30,
    )


def test_a_session_is_refreshed(oci: OciTeams) -> None:
    session = begin(oci, oci.teams.token("sam")).json["token"]
    reply = refresh(oci, session, session)
    assert reply.status_code == 200, reply.text
    assert name(oci, reply.json()["token"]) == "sam"
    other = begin(oci, oci.teams.token("anouk")).json["token"]
    assert refresh(oci, session, other).status_code == 400
    assert refresh(oci, session, "x").status_code == 401


def test_a_session_is_not_refreshed_for_ever(oci: OciTeams) -> None:
    sessions, now = session_tokens(oci.teams.backend.home), time.time()
    key = private_key(50).public_key()
    session = sessions.issue("sam", key, now, now + 30)
    token = refresh(oci, session, session).json()["token"]
    assert sessions.verify(token, now).expires_at <= now + 30


def test_who_has_a_session_or_a_known_key_is_not_kept_out_by_others_at_the_address() -> None:
    with oci_teams() as oci:
        session = begin(oci, oci.teams.token("sam")).json["token"]
        known, unknown = oci.client(IdentityClient), oci.client(IdentityClient, "vera")
        known.list_regions()
        wrong = {
            "authorization": 'Signature version="1",keyId="t/u/00:11",algorithm="rsa-sha256",'
            'headers="date (request-target) host",signature="YQ=="',
            "date": formatdate(usegmt=True),
        }
        url = f"{oci.url}/20160918/regions"
        statuses = [requests.get(url, headers=wrong, timeout=20).status_code for _ in range(25)]
        assert statuses[0] == 401 and statuses[-1] == 429
        assert known.list_regions().status == 200
        assert status(oci, session) == 200
        with pytest.raises(ServiceError, match="too many requests"):
            unknown.list_regions()
