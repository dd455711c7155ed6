"""Select the fields of a foreign format that Muster reads, and account for every other field.

A field is read (the model has it), ignored, noted (it has no meaning on this machine), or refused
(it would change how the program runs and Muster has no equivalent). A field in none of the tables
is refused too, so nothing is lost silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from msgspec import Struct

from muster.errors import Problem
from muster.spec.decode import fields_of, unwrap
from muster.spec.formats.notes import Notes
from muster.spec.wording import close_to

Model = type[Struct]
#: The field of a model that has its data whole, with fields that the model does not read.
RAW = "$raw"


class FieldTables(Struct, frozen=True):
    """The known fields that a format's models do not read, by model."""

    #: Fields that are dropped without a note.
    ignored: Mapping[Model, tuple[str, ...]]
    #: Field -> why it is not used.
    noted: Mapping[Model, Mapping[str, str]]
    #: Field -> (what is wrong, what to do instead).
    refused: Mapping[Model, Mapping[str, tuple[str, str]]]
    #: Models in which a misplaced field is looked for.
    neighbours: Mapping[Model, tuple[Model, ...]] = {}
    #: What messages call a model.
    labels: Mapping[Model, str] = {}
    #: The model whose `name` is a node group's, for notes on single groups.
    group: Model | None = None


class FieldFilter:
    """Reduces plain data to the fields that models read."""

    def __init__(self, tables: FieldTables, notes: Notes, problems: list[Problem]) -> None:
        self._tables = tables
        self._notes = notes
        self._problems = problems

    def apply(self, model: Model, data: Any, path: str = "", group: str = "") -> Any:
        """`data` with the fields of `model` only. Adds notes and problems about the others. Values
        of the wrong type are passed on for the decoder to report."""
        if not isinstance(data, Mapping):
            return data
        known = {info.encode_name: info.type for info in fields_of(model)}
        kept: dict[str, Any] = {RAW: dict(data)} if RAW in known else {}
        for key, value in data.items():
            name, where = str(key), f"{path}.{key}" if path else str(key)
            if name in known and name != RAW:
                kept[name] = self._value(known[name], value, where, group)
            elif value is not None:
                self._account_for(model, name, value, where, group)
        return kept

    def _value(self, kind: Any, value: Any, path: str, group: str) -> Any:
        plain, _, _ = unwrap(kind)
        if get_origin(plain) is tuple and isinstance(value, list):
            item = get_args(plain)[0]
            return [
                self._value(item, inner, f"{path}[{i}]", group or self._group_name(item, inner))
                for i, inner in enumerate(value)
            ]
        if isinstance(plain, type) and issubclass(plain, Struct):
            return self.apply(plain, value, path, group)
        if plain is int and isinstance(value, float) and value.is_integer():
            return int(value)  # as the API server does
        return value

    def _account_for(self, model: Model, name: str, value: Any, path: str, group: str) -> None:
        """Note or refuse a field that the model does not have."""
        tables = self._tables
        if name in tables.ignored.get(model, ()) or _is_empty(value):
            return
        if name in (noted := tables.noted.get(model, {})):
            self._notes.add(name, noted[name], group)
        elif name in (refused := tables.refused.get(model, {})):
            message, hint = refused[name]
            self._problems.append(Problem(path, message, hint))
        else:
            hint, intended = self._suggest(model, name)
            meant = f"{path.removesuffix(name)}{intended}" if intended else ""
            problem = Problem(path, "Muster does not read this field", hint, meant=meant)
            self._problems.append(problem)

    def _suggest(self, model: Model, name: str) -> tuple[str, str]:
        """A hint for an unknown field, and the field that was probably intended, if any."""
        tables = self._tables
        known = [info.encode_name for info in fields_of(model)]
        known += [*tables.noted.get(model, ()), *tables.refused.get(model, ())]
        close = close_to(name, known, 1, 0.75)
        if close:
            return f'did you mean "{close[0]}"?', close[0]
        for other in tables.neighbours.get(model, ()):
            if name in [info.encode_name for info in fields_of(other)]:
                return f"it belongs to {tables.labels[other]}: check the indentation", ""
        return "remove it if the program does not need it", ""

    def _group_name(self, item: Any, data: Any) -> str:
        named = item is self._tables.group and isinstance(data, Mapping)
        return str(data.get("name", "")) if named else ""


def _is_empty(value: Any) -> bool:
    """Whether a value means the same as leaving its field out."""
    return isinstance(value, (list, Mapping)) and not value
