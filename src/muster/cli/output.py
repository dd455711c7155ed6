"""How things are shown: tables, states, times, JSON. The same everywhere."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from muster.cli.terminal import echo, plain, style
from muster.errors import EXIT_CANCELED, EXIT_OK, EXIT_PLATFORM, EXIT_RUN_FAILED
from muster.escapes import visible_line
from muster.lifecycle.states import RunState
from muster.secrets import hidden

_COLORS = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELED": "yellow",
    "CANCELING": "yellow",
    "SUSPENDED": "yellow",
    "STOPPED": "yellow",
    "IN_PROGRESS": "cyan",
    "RUNNING": "cyan",
    "READY": "cyan",
}
_UNITS = (
    ((86400, "d"), (3600, "h")),
    ((3600, "h"), (60, "m")),
    ((60, "m"), (1, "s")),
)
#: One for each node group, in order, for the prefix of its lines.
GROUP_COLORS = ("cyan", "magenta", "green", "blue", "yellow", "bright_black")


def state(name: str) -> str:
    """A state in its colour."""
    return style(name, _COLORS.get(name))


def print_json(data: Any) -> None:
    """Data alone on stdout."""
    echo(_json(data, indent=2), secrets=True)


def print_json_line(data: Any) -> None:
    """One record of many, on a line of its own."""
    echo(_json(data), secrets=True)


def _json(data: Any, indent: int | None = None) -> str:
    # of all that `echo` would escape, JSON leaves but this one alone
    return json.dumps(hidden(data), indent=indent).replace("\x7f", "\\u007f")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need; the last one is cut to the terminal. A cell is one line."""
    if not rows:
        return
    columns = [_padded(column) for column in zip(header, *rows, strict=True)]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    first, *others = [_fitted(row, limit) for row in zip(*columns, strict=True)]
    echo("\n".join([style(first, "bold"), *others]))


def _padded(column: Sequence[str]) -> list[str]:
    cells = [visible_line(cell) for cell in column]
    lengths = [len(plain(cell)) for cell in cells]
    width = max(lengths)
    return [cell + " " * (width - length) for cell, length in zip(cells, lengths, strict=True)]


def _fitted(row: Sequence[str], limit: int) -> str:
    line = "  ".join(row).rstrip()
    if not limit or len(plain(line)) <= limit:
        return line
    before = "  ".join([*row[:-1], ""])
    return before + _cut(plain(row[-1]).rstrip(), max(limit - len(plain(before)), 8))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def ago(seconds: float | None) -> str:
    """A moment (epoch seconds) as its distance from now."""
    return "-" if seconds is None else f"{span(time.time() - seconds)} ago"


def span(seconds: float) -> str:
    """A length of time, as short as a table wants it."""
    if seconds < 60:
        return f"{max(seconds, 0):.1f}s" if seconds < 10 else f"{int(seconds)}s"
    for (large, unit), (small, rest) in _UNITS:
        if seconds >= large:
            whole, left = int(seconds // large), int(seconds % large // small)
            return f"{whole}{unit}{left}{rest}" if left else f"{whole}{unit}"
    raise ValueError(seconds)


def exit_code_of(run_state: str) -> int:
    """The documented exit code for a run that ended like this."""
    match RunState(run_state):
        case RunState.SUCCEEDED:
            return EXIT_OK
        case RunState.FAILED:
            return EXIT_RUN_FAILED
        case RunState.CANCELED | RunState.CANCELING | RunState.SUSPENDED:
            return EXIT_CANCELED
        case _:
            return EXIT_PLATFORM
