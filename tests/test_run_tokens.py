"""Tokens of runs."""

from __future__ import annotations

import pytest

from muster.lifecycle.status import NodeRef
from muster.run_tokens import (
    LIFETIME,
    Place,
    RunIdentity,
    is_of_run,
    issue,
    place_of,
    run_token,
)
from muster.signed_tokens import InvalidToken, SignedTokens
from support.keys import private_key

NOW = 1_800_000_000.0
TOKENS = SignedTokens(b"s" * 32)
RUN = RunIdentity("abc", "ocid1.datasciencejobrun.muster.local..abc", "tenancy", "compartment")


def test_a_token_says_what_clients_of_oci_look_for() -> None:
    claims = TOKENS.read(issue(TOKENS, RUN, private_key().public_key(), NOW))
    shown = ("sub", "res_id", "res_type", "res_tenant", "res_compartment", "ptype")
    assert [claims[name] for name in shown] == [
        *(RUN.ocid, RUN.ocid, "datasciencejobrun", "tenancy", "compartment", "resource"),
    ]
    token = run_token(claims, NOW)
    assert (token.run_id, token.expires_at) == ("abc", NOW + LIFETIME)
    assert token.keys == (private_key().public_key(),)


def test_a_token_of_a_node() -> None:
    place = Place(("10.0.0.7", "::1"), "boot")
    key = private_key().public_key()
    claims = TOKENS.read(issue(TOKENS, RUN, key, NOW, node=NodeRef(3, 5), place=place))
    token = run_token(claims, NOW)
    assert (token.node, token.place, token.credential) == (NodeRef(3, 5), place, "run abc node 3")
    assert run_token(TOKENS.read(issue(TOKENS, RUN, key, NOW)), NOW).credential == "run abc"


@pytest.mark.parametrize("missing", ["incarnation", "boot"])
def test_a_token_of_a_node_that_lacks_something(missing: str) -> None:
    key, place = private_key().public_key(), Place(("10.0.0.7",), "boot")
    claims = TOKENS.read(issue(TOKENS, RUN, key, NOW, node=NodeRef(3, 5), place=place))
    del claims[missing]
    with pytest.raises(InvalidToken, match=f"lacks something: '{missing}'"):
        run_token(claims, NOW)


def test_the_place_of_a_host() -> None:
    assert place_of(["::1", "10.0.0.7", "fe80::1", "10.0.0.7"], "b") == Place(
        ("10.0.0.7", "::1"), "b"
    )
    assert place_of([], "b") is None
    many = [f"10.0.{number}.1" for number in range(200)]
    assert place_of([*many, "127.0.0.1"], "b", "10.0.9.1") == Place(("10.0.9.1", "127.0.0.1"), "b")


def test_an_expired_token() -> None:
    claims = TOKENS.read(issue(TOKENS, RUN, private_key().public_key(), NOW, 60))
    assert run_token(claims, NOW + 59).run_id == "abc"
    with pytest.raises(InvalidToken, match="of run abc has expired"):
        run_token(claims, NOW + 60)


def test_a_token_that_is_not_of_a_run() -> None:
    assert not is_of_run({"ptype": "user"})
    with pytest.raises(InvalidToken, match="not of a run"):
        run_token({"ptype": "user"}, NOW)
    with pytest.raises(InvalidToken, match="lacks something: 'jti'"):
        run_token({"ptype": "resource"}, NOW)


def test_a_token_accepts_the_key_of_the_one_before() -> None:
    old, new = private_key(1).public_key(), private_key(2).public_key()
    claims = TOKENS.read(issue(TOKENS, RUN, new, NOW, previous=old))
    assert run_token(claims, NOW).keys == (new, old)
