"""Tables, states, times and JSON, the same in every command."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from muster.cli.formats import output_format
from muster.cli.terminal import echo, plain, style
from muster.describe.times import span
from muster.escapes import visible, visible_line
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
}
#: Colours of the prefixes of output lines, one per node group, in order.
GROUP_COLORS = ("cyan", "magenta", "green", "blue", "yellow", "bright_black")


def state(name: str) -> str:
    """A state in its colour."""
    return style(name, _COLORS.get(name))


def node_state(name: str) -> tuple[str, str]:
    """The STATE and READY cells of a node. A stored state of READY means that the node runs."""
    if name in ("RUNNING", "READY"):
        return state("RUNNING"), "yes" if name == "READY" else "no"
    return state(name), "-"


def print_json(data: Any) -> None:
    """Print data on stdout, as JSON or in the format chosen with `-o`."""
    if output_format() == "yaml":
        echo(_yaml(data), secrets=True, end="")
    else:
        echo(_json(data, indent=2), secrets=True)


def print_json_line(data: Any) -> None:
    """Print one record of a stream: a line of JSON, or a document of YAML."""
    if output_format() == "yaml":
        echo(f"---\n{_yaml(data)}", secrets=True, end="")
    else:
        echo(_json(data), secrets=True)


def _json(data: Any, indent: int | None = None) -> str:
    # json.dumps escapes every control character but this one
    return json.dumps(hidden(data), indent=indent).replace("\x7f", "\\u007f")


def _yaml(data: Any) -> str:
    from muster.spec.formats.yaml_write import dump

    plain_data = json.loads(json.dumps(hidden(data)))
    text = dump(plain_data)
    # `echo` would escape characters that act on a terminal in a way that YAML does not read
    return text if visible(text) == text else dump(plain_data, ascii_only=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns, one line per row; the last column is cut to the terminal's width
    unless the format is `wide`."""
    if not rows:
        return
    columns = [_pad_column(column) for column in zip(header, *rows, strict=True)]
    narrow = sys.stdout.isatty() and output_format() != "wide"
    limit = shutil.get_terminal_size().columns if narrow else 0
    first, *others = [_fit_row(row, limit) for row in zip(*columns, strict=True)]
    echo("\n".join([style(first, "bold"), *others]))


def _pad_column(column: Sequence[str]) -> list[str]:
    cells = [visible_line(cell) for cell in column]
    lengths = [len(plain(cell)) for cell in cells]
    width = max(lengths)
    return [cell + " " * (width - length) for cell, length in zip(cells, lengths, strict=True)]


def _fit_row(row: Sequence[str], limit: int) -> str:
    line = "  ".join(row).rstrip()
    if not limit or len(plain(line)) <= limit:
        return line
    before = "  ".join([*row[:-1], ""])
    return before + _cut(plain(row[-1]).rstrip(), max(limit - len(plain(before)), 8))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def ago(seconds: float | None) -> str:
    """The time since a moment (epoch seconds), as text."""
    return "-" if seconds is None else f"{span(time.time() - seconds)} ago"


def elapsed(started: float, finished: float | None) -> str:
    """The time between two moments (epoch seconds), or until now, as text."""
    return span((finished or time.time()) - started)
