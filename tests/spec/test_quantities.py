from __future__ import annotations

from datetime import date

import pytest
from hypothesis import example, given
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
        ("1h 30m", 5400),
        (".5h", 1800),
        ("7", 7),
        (7, 7),
        (0.5, 0.5),
    ],
)
def test_durations_in_seconds(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "10x", "10 m s", "m10", "1h-5m", "ten", "-5s", "-5", "inf", "nan"]
)
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**9) | st.floats(0, 1e9))
@example(1e-7)
@example(86399.999)
def test_duration_survives_being_written(seconds: float) -> None:
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
def test_sizes_in_bytes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4QB", "4GiBs", "-1", "1e3", "4iB", "inf"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1536, "1.5KiB"),
        ((1 << 20) - 1, "1MiB"),
        (4 << 30, "4GiB"),
        (1 << 60, "1024PiB"),
    ],
)
def test_sizes_are_formatted_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 1 << 62))
def test_a_number_of_bytes_is_unchanged(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == parse_size(f"{size}B") == size


@pytest.mark.parametrize("value", [True, None, [1], {"s": 1}, date(2024, 1, 1)])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"must be a duration, not .*; write 90s"):
        parse_duration(value)
    with pytest.raises(ValueError, match=r"must be a size, not .*; write 4GiB"):
        parse_size(value)


def test_fractions_of_a_byte_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a whole number of bytes"):
        parse_size("1.5")
    assert parse_size("1.5K") == 1500


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_size):
        try:
            assert 0 <= parse(text) < float("inf")
        except ValueError as error:
            assert "is not" in str(error)
