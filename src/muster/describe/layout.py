"""Texts in the cells of a terminal: how wide they are, how to shorten them, which columns of a
table fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: The last column of a table is cut to no less than this.
_LEAST = 8


def cells(text: str) -> int:
    """How many cells of a terminal the text takes. It has no control characters."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    from unicodedata import category, east_asian_width  # most texts are ASCII

    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def cut(text: str, width: int, mark: str = "…") -> str:
    """The start of a text, no wider than `width` cells; `mark` says that something is missing."""
    if cells(text) <= width:
        return text
    return _start(text, width - cells(mark)) + mark


def shorten(text: str, width: int, mark: str = "…") -> str:
    """The start and the end of a text, no wider than `width` cells, with `mark` between them."""
    if cells(text) <= width:
        return text
    room = max(width - cells(mark), 0)
    end = _start(text[::-1], room // 3)[::-1]
    return _start(text, room - cells(end)) + mark + end


def _start(text: str, width: int) -> str:
    """The longest start of a text that is no wider than `width` cells."""
    if text.isascii():
        return text[: max(width, 0)]
    for at, char in enumerate(text):
        width -= _cells(char)
        if width < 0:
            return text[:at]
    return text


def fit(
    widths: Mapping[str, int],
    limit: int,
    *,
    gap: int,
    drop: Sequence[str],
    shorten: Mapping[str, int],
) -> dict[str, int]:
    """The columns of a table that fit, by title, and how wide each of them is.

    drop: columns that the table can do without, the least important first. shorten: columns whose
    texts may be shortened, and to what width at least; the most important first. If even the other
    columns do not fit, the last one is cut.
    """
    shown = dict(widths)
    dispensable = [title for title in drop if title in shown]
    while (left := _room(_least(shown, shorten), limit, gap)) < 0 and dispensable:
        del shown[dispensable.pop(0)]
    fitted = _least(shown, shorten)
    for title in (title for title in shorten if title in shown):
        more = min(max(left, 0), shown[title] - fitted[title])
        fitted[title] += more
        left -= more
    if left < 0:
        last = [*fitted][-1]
        fitted[last] = max(fitted[last] + left, min(fitted[last], _LEAST))
    return fitted


def _least(widths: Mapping[str, int], shorten: Mapping[str, int]) -> dict[str, int]:
    return {title: min(width, shorten.get(title, width)) for title, width in widths.items()}


def _room(widths: Mapping[str, int], limit: int, gap: int) -> int:
    """The cells that are left in a line; negative if the columns do not fit."""
    return limit - sum(widths.values()) - gap * (len(widths) - 1)
