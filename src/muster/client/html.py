"""HTML for notebooks: escaped, without external assets, in the colors of the notebook's theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from muster.describe.colors import STATE_COLORS, Color
from muster.escapes import visible, visible_line

#: Readable on a light and on a dark background.
_SHADES: Mapping[Color, str] = {
    "green": "#2e9e5b",
    "red": "#e0483e",
    "yellow": "#b7791f",
    "cyan": "#1c8fd1",
}
#: Rows of a table; a notebook keeps them in its file.
_MAX_ROWS = 100
_CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top"
_LINES = "margin:4px 0;white-space:pre-wrap;max-height:20em;overflow:auto"


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same keys as a table; the keys are its header."""
    if not rows:
        return "<i>none</i>"
    rest = f"<i>and {len(rows) - _MAX_ROWS} more</i>" if len(rows) > _MAX_ROWS else ""
    head = "".join(f'<th style="{_CELL}">{_text(name)}</th>' for name in rows[0])
    body = "".join(f"<tr>{''.join(map(_cell, row, row.values()))}</tr>" for row in rows[:_MAX_ROWS])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def card(title: str, state: str, facts: Mapping[str, str], *parts: str) -> str:
    """A heading with a state, facts as lines, and more HTML."""
    lines = "".join(
        f'<div><span style="opacity:0.65">{_text(name)}</span> {_text(value)}</div>'
        for name, value in facts.items()
        if value
    )
    return f"<div><b>{_text(title)}</b> {_state(state)}{lines}{''.join(parts)}</div>"


def lines(text: str) -> str:
    """Output or a message of several lines, as written."""
    return f'<pre style="{_LINES}">{escape(visible(text))}</pre>'


def details(summary: str, body: str) -> str:
    """A part that is opened with a click."""
    return f"<details><summary>{_text(summary)}</summary>{body}</details>"


def _cell(header: str, value: str) -> str:
    shown = _state(value) if header == "STATE" else _text(value)
    return f'<td style="{_CELL}">{shown}</td>'


def _state(state: str) -> str:
    color = STATE_COLORS.get(state)
    dot = f'<span style="color:{_SHADES[color]}">&#9679;</span> ' if color else ""
    return f"{dot}{_text(state)}"


def _text(text: str) -> str:
    return escape(visible_line(text))
