"""Sets of ranks as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.lifecycle.ranks import format_ranks, parse_ranks, shortened_ranks


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


def test_numbers_are_shortened_for_people() -> None:
    assert shortened_ranks([41, 4, 17, 40]) == "4, 17, 40-41"
    assert shortened_ranks(range(0, 40, 2), 3) == "0, 2, 4 and 17 more"
    assert shortened_ranks([], 3) == ""


def test_the_numbers_that_are_left_are_counted_and_not_their_ranges() -> None:
    ranks = [0, 20, 30, *range(40, 160)]
    assert shortened_ranks(ranks, 3) == "0, 20, 30 and 120 more"
    assert shortened_ranks(ranks[1:], 3) == "20, 30, 40-159", "a few ranges are shorter"
    assert shortened_ranks([0, 20, 40], 3, count=122) == "0, 20, 40 and 119 more"
