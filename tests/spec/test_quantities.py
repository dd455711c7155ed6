from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spec.quantities import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("30d", 2592000),
        ("2w", 1209600),
        ("250ms", 0.25),
        (" 5S ", 5),
        ("7", 7),
        (7, 7),
        (0.5, 0.5),
    ],
)
def test_duration(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "10x", "10 m s", "m10", "1h-5m", "ten", "-5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_duration_survives_being_written(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        (1024, 1024),
        ("4GiB", 4 << 30),
        ("4Gi", 4 << 30),
        ("4 gib", 4 << 30),
        ("500MB", 500_000_000),
        ("500M", 500_000_000),
        ("1.5KiB", 1536),
        ("0B", 0),
    ],
)
def test_size(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4QB", "4GiBs", "-1", "1e3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (4 << 30, "4GiB")]
)
def test_size_for_people(size: int, text: str) -> None:
    assert format_size(size) == text
