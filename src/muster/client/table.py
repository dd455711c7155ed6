"""Lists of runs, jobs, nodes and events: tables in a notebook, and columns for pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, SupportsIndex, TypeVar, overload

from muster.describe.layout import cells
from muster.escapes import visible_line


class Listed(Protocol):
    """What a `Table` lists."""

    def _facts(self) -> Mapping[str, Any]:
        """Its facts by name: flat, times as aware datetimes."""

    def _cells(self) -> Mapping[str, str]:
        """What a table shows of it: header -> text."""


T = TypeVar("T", bound=Listed)


class Table(list[T]):
    """A list that a notebook shows as a table, and `print` as well."""

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns: `pandas.DataFrame(muster.runs().to_dict())`.

        Flat, times as aware datetimes in UTC; None where an item lacks a value. Each tag is a
        column, `tags.NAME`.
        """
        rows = [flat(item._facts()) for item in self]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Table[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | Table[T]:
        if isinstance(index, slice):
            return Table(super().__getitem__(index))
        return super().__getitem__(index)

    def __str__(self) -> str:
        rows = [item._cells() for item in self]
        if not rows:
            return "[]"
        columns = [[name, *(visible_line(row[name]) for row in rows)] for name in rows[0]]
        lines = zip(*map(aligned, columns), strict=True)
        return "\n".join("  ".join(line).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        from muster.client.html import table

        return table([item._cells() for item in self])


def aligned(column: Sequence[str], *, right: bool = False) -> list[str]:
    """The texts with spaces after or before them, so that all are equally wide."""
    width = max(map(cells, column))
    spaces = (" " * (width - cells(text)) for text in column)
    pairs = zip(column, spaces, strict=True)
    return [space + text if right else text + space for text, space in pairs]


def flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts with `tags.NAME` instead of a mapping `tags`."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            found[name] = value
    return found
