"""The text of tokens."""

from __future__ import annotations

import hashlib
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.errors import NotAuthenticated
from muster.iam.tokens import TokenText, new_token, parse_token
from muster.secrets import redacted

SHAPE = r"muster_[0-9a-hjkmnp-tv-z]{10}_[0-9A-Za-z]{49}"


def test_a_token_is_read_as_it_was_written() -> None:
    token = new_token()
    assert re.fullmatch(SHAPE, str(token))
    assert parse_token(str(token)) == token
    assert token.digest() == hashlib.sha256(token.secret.encode()).digest()
    assert token.matches(token.digest())
    assert not token.matches(new_token().digest())
    assert not token.matches(b"")


def test_tokens_differ_and_use_the_whole_range() -> None:
    tokens = [new_token() for _ in range(300)]
    assert len({token.secret for token in tokens}) == 300
    assert {len(token.secret) for token in tokens} == {43}
    # the first digit is of 2**256 in 43 digits of base 62
    assert {digit for token in tokens for digit in token.secret[1:]} == {
        *string.ascii_letters,
        *string.digits,
    }


def test_neither_its_representation_nor_a_message_shows_a_token() -> None:
    token = new_token()
    assert token.secret not in repr(token)
    assert redacted(f"got {token}, refused") == f"got muster_{token.id}_***, refused"
    with pytest.raises(NotAuthenticated) as caught:
        parse_token(str(token)[:-1])
    assert token.secret not in str(caught.value)
    assert token.secret not in str(NotAuthenticated(f"refused {token}"))


TOKEN = str(TokenText("0123456789", "0" * 43))


@given(st.integers(0, len(TOKEN) - 1), st.sampled_from(string.ascii_letters + string.digits + "_é"))
def test_every_typing_mistake_is_found(place: int, instead: str) -> None:
    wrong = TOKEN[:place] + instead + TOKEN[place + 1 :]
    if wrong != TOKEN:
        with pytest.raises(NotAuthenticated):
            parse_token(wrong)


@given(st.integers(0, len(TOKEN) - 1))
def test_a_token_that_was_cut_off_is_refused(length: int) -> None:
    for text in (TOKEN[:length], TOKEN[length + 1 :], TOKEN + TOKEN[:length]):
        if text != TOKEN:
            with pytest.raises(NotAuthenticated):
                parse_token(text)


@given(st.text())
@example("muster_")
@example(TOKEN + "\n")
@example(f" {TOKEN}")
def test_any_other_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(NotAuthenticated, match=r"no token of Muster|incomplete or mistyped"):
        parse_token(text)
