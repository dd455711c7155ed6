"""Sets of ranks as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.lifecycle.ranks import format_ranks, parse_ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([7, 0, 2, 1], "0-2,7"),
        ([0, 2, 4], "0,2,4"),
        ([9, 10, 11, 99, 100], "9-11,99-100"),
    ],
)
def test_ranks_are_formatted_as_ranges(ranks: list[int], text: str) -> None:
    assert format_ranks(ranks) == text
    assert parse_ranks(text) == sorted(ranks)


@given(st.sets(st.integers(0, 40)))
def test_parsing_is_the_inverse_of_formatting(ranks: set[int]) -> None:
    assert parse_ranks(format_ranks(ranks)) == sorted(ranks)
