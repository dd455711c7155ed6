"""Rows of queries: values by number and by name, as those of sqlite3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

from psycopg import Cursor


class Row(tuple[Any, ...]):
    """See `sql.database.Row`."""

    __slots__ = ()
    names: ClassVar[Sequence[str]] = ()
    numbers: ClassVar[Mapping[str, int]] = {}

    def __getitem__(self, key: Any) -> Any:
        if key.__class__ is str:
            key = self.numbers[key]
        return tuple.__getitem__(self, key)

    def keys(self) -> Sequence[str]:
        """The names of the columns."""
        return self.names


def row_factory(cursor: Cursor[Any]) -> Callable[[Sequence[Any]], Row]:
    """Makes the rows of a query."""
    described = cursor.description
    return _type_of(tuple(column.name for column in described)) if described else Row


@lru_cache(256)
def _type_of(names: tuple[str, ...]) -> type[Row]:
    numbers = {name: number for number, name in enumerate(names)}
    attributes = {"__slots__": (), "names": names, "numbers": numbers}
    return cast("type[Row]", type("Row", (Row,), attributes))
