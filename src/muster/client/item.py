"""What users see of one thing, such as a job or a node: as data, in a `Table`, in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from muster.describe.times import json_ready


class Item:
    """What a `Table` lists. A class says what its facts and its cells are; the rest follows."""

    __slots__ = ()

    def _facts(self) -> Mapping[str, Any]:
        """See `Listed`."""
        raise NotImplementedError

    def _cells(self) -> Mapping[str, str]:
        """See `Listed`."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data; times as RFC 3339 text."""
        return json_ready(self._facts())

    def _repr_html_(self) -> str:
        from muster.client.html import table

        return table([self._cells()])


class ItemRecord(Struct, Item, frozen=True):
    """An item whose facts are its fields. As text, it is its row."""

    def _facts(self) -> Mapping[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return " ".join(text for text in self._cells().values() if text != "-")
