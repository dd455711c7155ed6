"""Tables, states, times and JSON, the same in every command."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.formats import output_format
from muster.cli.terminal import echo, plain, style, symbol
from muster.describe.colors import STATE_COLORS
from muster.describe.layout import cells, fit
from muster.describe.layout import shorten as shortened
from muster.describe.times import span
from muster.escapes import visible, visible_line
from muster.secrets import hidden

if TYPE_CHECKING:
    from muster.client.node import Node

#: Between two columns of a table.
_GAP = "  "
#: The last column of a table is shortened to no less than this by default.
_LEAST = 24


def _terminal_width() -> int:
    from shutil import get_terminal_size  # not where output is read by programs

    return get_terminal_size().columns


def state(name: str) -> str:
    """A state in its colour."""
    return style(name, STATE_COLORS.get(name))


def node_cells(node: Node) -> dict[str, str]:
    """The row of a node in a table: title -> text."""
    cells_of_node = node._cells()
    return {
        **cells_of_node,
        "ADDRESS": node.address,
        "STATE": state(cells_of_node["STATE"]),
    }


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


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    shorten: Mapping[str, int] | None = None,
) -> None:
    """Print aligned columns, one line per row. On a terminal they are fitted to its width, unless
    the format is `wide`.

    drop: titles of columns that a narrow table leaves out, the least important first. shorten:
    titles of columns whose texts it shortens, the most important first, and to what width at least;
    default: the last column.
    """
    if not rows:
        return
    narrow = sys.stdout.isatty() and output_format() != "wide"
    limit = _terminal_width() if narrow else 0
    texts = [[visible_line(cell) for cell in column] for column in zip(*rows, strict=True)]
    columns = dict(zip(header, texts, strict=True))
    widths = {title: _width([title, *column]) for title, column in columns.items()}
    if limit:
        least = {header[-1]: _LEAST} if shorten is None else shorten
        widths = fit(widths, limit, gap=len(_GAP), drop=drop, shorten=least)
    lines = [_row([*widths], widths)]
    lines += [_row(row, widths) for row in zip(*(columns[t] for t in widths), strict=True)]
    echo("\n".join([style(lines[0], "bold"), *lines[1:]]))


def print_cells(
    header: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    *,
    drop: Sequence[str] = (),
    shorten: Mapping[str, int] | None = None,
) -> None:
    """As `print_table`. rows: title -> text; those that the header does not name are left out."""
    texts = [[row[title] for title in header] for row in rows]
    print_table(header, texts, drop=drop, shorten=shorten)


def _width(column: Sequence[str]) -> int:
    return max(cells(plain(cell)) for cell in column)


def _row(row: Sequence[str], widths: Mapping[str, int]) -> str:
    mark = symbol("…", "...")
    padded = []
    for cell, width in zip(row, widths.values(), strict=True):
        bare = plain(cell)
        text = cell if cells(bare) <= width else shortened(bare, width, mark)
        padded.append(text + " " * (width - cells(plain(text))))
    return _GAP.join(padded).rstrip()


def ago(seconds: float | None) -> str:
    """The time since a moment (epoch seconds), as text."""
    return "-" if seconds is None else f"{span(time.time() - seconds)} ago"
