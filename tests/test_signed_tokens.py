"""Signed tokens."""

from __future__ import annotations

import pytest

from muster.signed_tokens import InvalidToken, SignedTokens, is_signed_token, key_of
from support.keys import private_key

TOKENS = SignedTokens(b"s" * 32)


def test_a_token_has_its_claims_and_its_key() -> None:
    key = private_key().public_key()
    claims = TOKENS.read(TOKENS.sign({"sub": "ana", "exp": 5}, key))
    assert (claims["sub"], claims["exp"], claims["iss"]) == ("ana", 5, "muster")
    assert key_of(claims).public_numbers() == key.public_numbers()


def test_other_libraries_read_it() -> None:
    from joserfc import jwt
    from joserfc.jwk import OctKey, RSAKey

    text = TOKENS.sign({"sub": "ana"}, private_key().public_key())
    found = jwt.decode(text, OctKey.import_key(TOKENS.seed), algorithms=["HS256"])
    assert (found.header, found.claims["sub"]) == ({"alg": "HS256", "typ": "JWT"}, "ana")
    import json

    read = RSAKey.import_key(json.loads(found.claims["jwk"])).public_key
    assert read.public_numbers() == private_key().public_key().public_numbers()


def test_ids_of_keys_that_are_tokens() -> None:
    assert is_signed_token("ST$a.b.c")
    assert not is_signed_token("tenancy/user/fingerprint")


@pytest.mark.parametrize("jwk", [None, 5, "x", "[]", '{"n": "AQ"}', '{"n": "é", "e": "AQAB"}'])
def test_a_key_that_cannot_be_read(jwk: object) -> None:
    with pytest.raises(InvalidToken, match="its key cannot be read"):
        key_of({"jwk": jwk})
