"""Numbers of replicas as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spec.replica_numbers import format_ranges, numbers_text, parse_numbers
from muster.spec.wording import Refused


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("3,17,40-42", "3,17,40-42"),
        ([42, 40, 41, 40], "40-42"),
        (range(3), "0-2"),
        (" 5 , 1-3,2-4", "1-5"),
    ],
)
def test_the_shortest_form(value: Any, text: str) -> None:
    assert numbers_text(value) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a replica number; write 3 or 3,17,40-42"),
        ("3,x", "'x' is not a replica number"),
        ("-1", "'-1' is not a replica number"),
        ("9-3", "9-3 is an empty range; write 3-9"),
    ],
)
def test_bad_numbers(text: str, message: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_numbers(text)
    assert str(refused.value).startswith(message)


@given(st.sets(st.integers(0, 10**6), min_size=1))
def test_any_numbers_can_be_written_and_read(numbers: set[int]) -> None:
    text = format_ranges(range(n, n + 1) for n in numbers)
    found = parse_numbers(text)
    assert [n for span in found for n in span] == sorted(numbers)
    assert format_ranges(found) == text
