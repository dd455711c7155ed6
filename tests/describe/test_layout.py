"""The width of texts and tables in a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.describe.layout import cells, cut, fit, shorten


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("日本", 4), ("a日", 3), ("🎉", 2)],
)
def test_the_cells_of_a_text(text: str, width: int) -> None:
    assert cells(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 7, "abcd…ij"),
        ("日本日本日本", 7, "日本…本"),
        ("abcdefghij", 1, "…"),
    ],
)
def test_a_text_is_shortened_in_the_middle(text: str, width: int, shown: str) -> None:
    assert shorten(text, width) == shown


@given(st.text("ab日é\u0301", max_size=30), st.integers(3, 20))
def test_no_text_is_wider_than_its_place(text: str, width: int) -> None:
    for mark in ("…", "..."):
        assert cells(shorten(text, width, mark)) <= width
        assert cells(cut(text, width, mark)) <= width


WIDTHS = {"RUN": 8, "ID": 10, "NODES": 5, "DETAILS": 60}
RULES = {"drop": ("ID", "NODES"), "shorten": {"DETAILS": 40}, "gap": 2}


@pytest.mark.parametrize(
    ("limit", "fitted"),
    [
        (200, WIDTHS),
        (80, {"RUN": 8, "ID": 10, "NODES": 5, "DETAILS": 51}),
        (65, {"RUN": 8, "NODES": 5, "DETAILS": 48}),
        (50, {"RUN": 8, "DETAILS": 40}),
        (30, {"RUN": 8, "DETAILS": 20}),
        (5, {"RUN": 8, "DETAILS": 8}),
    ],
)
def test_columns_are_shortened_then_dropped(limit: int, fitted: dict[str, int]) -> None:
    assert fit(WIDTHS, limit, **RULES) == fitted  # type: ignore[arg-type]


@given(
    st.dictionaries(st.sampled_from("ABCDEF"), st.integers(1, 50), min_size=1),
    st.integers(1, 200),
    st.lists(st.sampled_from("ABCDEF"), unique=True),
    st.dictionaries(st.sampled_from("ABCDEF"), st.integers(1, 30)),
)
def test_a_table_fills_the_width_before_it_loses_anything(
    widths: dict[str, int], limit: int, drop: list[str], least: dict[str, int]
) -> None:
    drop = drop[: len(widths) - 1]
    if set(widths) <= set(drop):
        return
    fitted = fit(widths, limit, gap=2, drop=drop, shorten=least)
    total = sum(fitted.values()) + 2 * (len(fitted) - 1)
    assert [*fitted] == [title for title in widths if title in fitted]
    assert all(0 < fitted[title] <= widths[title] for title in fitted)
    if total > limit:
        assert not set(fitted) & set(drop)
    elif any(fitted[title] < widths[title] for title in fitted):
        assert total == limit
