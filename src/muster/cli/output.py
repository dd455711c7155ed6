"""Tables, states, times and JSON, the same in every command."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from muster.cli.formats import output_format
from muster.cli.terminal import echo, make_room, plain, style, symbol
from muster.describe.colors import STATE_COLORS
from muster.describe.layout import cells, cut, fit
from muster.describe.layout import shorten as shorten_name
from muster.describe.times import span
from muster.escapes import visible, visible_line
from muster.secrets import hidden

if TYPE_CHECKING:
    from muster.client.node import Node

#: Between two columns of a table.
_GAP = "  "
#: The last column of a table is shortened to no less than this by default.
_LEAST = 24
#: Items of a list that are printed at once.
_ITEMS = 1000


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
        "HOST": node.host or "-",
        "HOST ID": node.host_id or "-",
        "STATE": state(cells_of_node["STATE"]),
    }


def print_json(data: Any) -> None:
    """Print data on stdout, as JSON or in the format chosen with `-o`."""
    if output_format() == "yaml":
        echo(_yaml(data), secrets=True, end="")
    else:
        echo(_json(data, indent=2), secrets=True)


def print_json_items(items: Iterable[Any]) -> None:
    """Print a list as by `print_json`, a few items at a time: there may be a hundred thousand.
    Secrets in them must be hidden already."""
    if output_format() == "yaml":
        print_json(list(items))
        return
    import msgspec  # indents much faster than `json`

    iterator, before = iter(items), "["
    while some := list(islice(iterator, _ITEMS)):
        text = msgspec.json.format(json.dumps(some), indent=2)  # ASCII, brackets around it
        make_room()
        sys.stdout.write(before + text[1:-2].replace("\x7f", "\\u007f"))
        before = ","
    echo("\n]" if before == "," else "[]", secrets=True)


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
    right: Collection[str] = (),
) -> None:
    """Print aligned columns, one line per row. On a terminal they are fitted to its width, unless
    the format is `wide`.

    drop: titles of columns that a narrow table leaves out, the least important first. shorten:
    titles of columns whose texts it shortens, the most important first, and to what width at least;
    default: the last column. right: titles of columns that are aligned at their right.
    """
    if not rows:
        return
    lines = table_lines(header, rows, drop=drop, shorten=shorten, right=right)
    echo("\n".join([style(lines[0], "bold"), *lines[1:]]))


def table_lines(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    shorten: Mapping[str, int] | None = None,
    right: Collection[str] = (),
) -> list[str]:
    """The lines of `print_table`, of which the first is the header."""
    columns, widths = _fitted(header, rows, drop, shorten)
    lines = [_row([*map(visible_line, widths)], widths, right)]
    lines += [_row(row, widths, right) for row in zip(*(columns[t] for t in widths), strict=True)]
    return lines


def hidden_columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    shorten: Mapping[str, int] | None = None,
) -> list[str]:
    """The titles of the columns that `print_table` leaves out."""
    _, widths = _fitted(header, rows, drop, shorten)
    return [title for title in header if title not in widths]


def _fitted(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    drop: Sequence[str],
    shorten: Mapping[str, int] | None,
) -> tuple[Mapping[str, Sequence[str]], Mapping[str, int]]:
    """The texts of each column, and the widths of those that are shown."""
    narrow = sys.stdout.isatty() and output_format() != "wide"
    limit = _terminal_width() if narrow else 0
    texts = [[visible_line(cell) for cell in column] for column in zip(*rows, strict=True)]
    columns = dict(zip(header, texts, strict=True))
    widths = {title: _width([visible_line(title), *column]) for title, column in columns.items()}
    if limit:
        least = {header[-1]: _LEAST} if shorten is None else shorten
        widths = fit(widths, limit, gap=len(_GAP), drop=drop, shorten=least)
    return columns, widths


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


def _row(row: Sequence[str], widths: Mapping[str, int], right: Collection[str]) -> str:
    mark = symbol("…", "...")
    padded = []
    for cell, (title, width) in zip(row, widths.items(), strict=True):
        bare = plain(cell)
        # names often differ at their end; a sentence says first what matters
        shortened = cut if " " in bare else shorten_name
        text = cell if cells(bare) <= width else shortened(bare, width, mark)
        space = " " * (width - cells(plain(text)))
        padded.append(space + text if title in right else text + space)
    return _GAP.join(padded).rstrip()


def ago(seconds: float | None) -> str:
    """The time since a moment (epoch seconds), as text."""
    return "-" if seconds is None else f"{span(time.time() - seconds)} ago"
