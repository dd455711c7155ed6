"""What answers of the server lack, or have in addition, by the models of OCI's SDK."""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def missing(module: ModuleType, model: str, data: Any, where: str = "") -> Iterator[str]:
    """The fields of a model that an answer lacks, with those of the models in it."""
    for key, inner in _fields(module, model, data):
        if key not in data:
            yield where + key
        elif inner:
            for value in _values(data[key]):
                yield from missing(module, inner, value, f"{where}{key}.")


def unknown(module: ModuleType, model: str, data: Any, where: str = "") -> Iterator[str]:
    """The fields of an answer that a model does not have."""
    known = dict(_fields(module, model, data))
    for key, value in data.items():
        if key not in known:
            yield where + key
        elif inner := known[key]:
            for one in _values(value):
                yield from unknown(module, inner, one, f"{where}{key}.")


def answer_model(operation: str, clients: tuple[str, ...]) -> tuple[ModuleType, str, bool] | None:
    """What the SDK's documentation says that an operation returns: the module of its model, the
    model's name, and whether it is a list of them; None if it has no model. clients: those with
    the operations of its service, such as `data_science.DataScienceClient`. Raises LookupError if
    none of them has it."""
    for client in clients:
        name, _, kind = client.rpartition(".")
        method = getattr(getattr(importlib.import_module(f"oci.{name}"), kind), operation, None)
        if method is not None:
            found = re.search(
                r"data of type (list of )?:class:`~oci\.(\w+)\.models\.(\w+)`", method.__doc__
            )
            if found is None:
                return None
            return importlib.import_module(f"oci.{found[2]}.models"), found[3], bool(found[1])
    raise LookupError(f"no client of the SDK has {operation}")


def _fields(module: ModuleType, model: str, data: Any) -> Iterator[tuple[str, str | None]]:
    """The fields of a model, each with the model of its values; None if they are texts, numbers,
    or whatever a mapping may have."""
    made = _kind(module, model, data)()
    for name, key in made.attribute_map.items():
        found = re.fullmatch(r"(?:list\[)?([A-Z]\w+)\]?", made.swagger_types[name])
        yield key, found[1] if found and hasattr(module, found[1]) else None


def unknown_values(module: ModuleType, model: str, data: Any, where: str = "") -> Iterator[str]:
    """The fields of an answer with a value that clients do not know, which the SDK replaces."""
    made = _kind(module, model, data)()
    names = {key: name for name, key in made.attribute_map.items()}
    for key, inner in _fields(module, model, data):
        if inner:
            for value in _values(data.get(key)):
                yield from unknown_values(module, inner, value, f"{where}{key}.")
        else:
            setattr(made, names[key], copy.copy(data.get(key)))
            if "UNKNOWN_ENUM_VALUE" in _values(getattr(made, names[key])):
                yield f"{where}{key} is {data[key]}"


def is_required(module: ModuleType, model: str, where: str) -> bool:
    """Whether the SDK's documentation says that a field of a model has a value. where: the field,
    after those that it is in."""
    key, _, rest = where.partition(".")
    kind = getattr(module, model)
    made = kind()
    name = next(name for name, one in made.attribute_map.items() if one == key)
    if rest:
        inner = re.sub(r"list\[|\]", "", made.swagger_types[name])
        return is_required(module, inner, rest)
    return "**[Required]**" in (getattr(kind, name).__doc__ or "")


def _kind(module: ModuleType, model: str, data: Any) -> Any:
    """The class of a model, which data may tell."""
    kind = getattr(module, model)
    return getattr(module, kind.get_subtype(data)) if hasattr(kind, "get_subtype") else kind


def _values(value: Any) -> list[Any]:
    """The models in a field."""
    return [one for one in (value if isinstance(value, list) else [value]) if one is not None]
