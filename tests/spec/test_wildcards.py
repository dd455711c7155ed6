"""Patterns in which `*` stands for any characters."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spec.wildcards import matcher

#: Few letters, so that texts often fit.
_TEXTS = st.text("ab*?[\n", max_size=8)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("a", "ab", False),
        ("*", "", True),
        ("a*a", "a", False),
        ("*OCID", "source.OCID", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*c*b", "a-b-c", False),
        ("[a]?", "a1", False),
    ],
)
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert matcher(pattern)(text) is fits


@given(pattern=_TEXTS, text=_TEXTS)
def test_a_pattern_is_a_regular_expression_with_one_sign(pattern: str, text: str) -> None:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    found = re.fullmatch(expression, text, re.DOTALL)
    assert matcher(pattern)(text) is (found is not None)


def test_a_pattern_of_many_signs_takes_linear_time() -> None:
    assert not matcher("*a" * 5_000 + "b")("a" * 200_000)
