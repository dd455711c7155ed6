"""Escaping of control characters in text from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.escapes import visible, visible_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve 日本 🙂", "naïve 日本 🙂"),
        ("no\u00a0break", "no\u00a0break"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J\x7f\r\x08", "\\x9b2J\\x7f\\r\\x08"),
        ("\u202egpj.exe\u2066\u200b\ufeff", "\\u202egpj.exe\\u2066\\u200b\\ufeff"),
        ("a\u2028b\x85c\x0b", "a\\u2028b\\x85c\\x0b"),
        ("\udcff\U000e0041", "\\udcff\\U000e0041"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_line_breaks_are_escaped_in_one_line_of_text() -> None:
    assert visible_line("a\nb\tc\x1b") == "a\\nb\\tc\\x1b"


@given(st.text(st.characters()))
def test_escaping_is_complete_and_idempotent(text: str) -> None:
    once = visible_line(text)
    assert not [c for c in once if not c.isprintable() and not c.isspace()]
    assert not set(once) & set("\n\r\t\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029")
    assert visible_line(once) == once
