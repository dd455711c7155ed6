"""Plain data as the models of OCI, with everything that is wrong with it and where. Pure.

msgspec stops at the first error, so what it refuses is traversed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from muster.errors import Problem
from muster.spec.decode import friendly
from muster.spec.wording import say, without_secret
from muster.type_info import compile_type

T = TypeVar("T")
#: Errors that are listed: a body has room for a million.
_MOST = 20
#: The types of single values.
_SINGLE: Mapping[type[inspect.Type], Any] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.DateTimeType: datetime,
    inspect.AnyType: Any,
}


class _Left(Enum):
    """What is left of data that is invalid."""

    NOTHING = 0


_NOTHING = _Left.NOTHING


def decode(kind: type[T], data: Any) -> T:
    """A model from plain data. Raises ValueError with everything that is wrong with it."""
    value, found = decode_partial(kind, data)
    if found or value is None:
        raise ValueError("; ".join(found))
    return value


def decode_partial(kind: type[T], data: Any) -> tuple[T | None, list[str]]:
    """A model from plain data, and what is wrong with that. The model has what is valid, to be
    checked further; None if nothing can be."""
    compile_type(kind)
    try:
        return msgspec.convert(data, kind, strict=False), []
    except msgspec.ValidationError as error:
        first = str(error)
    model = inspect.type_info(kind)
    assert isinstance(model, inspect.StructType)
    problems: list[Problem] = []
    left = _members(model, data, "", problems)
    found = [str(one) for one in problems]
    if len(found) > _MOST:
        found[_MOST:] = ["there are more errors"]
    if left is None:
        return None, found
    dummies = {one.encode_name: "" for one in model.fields if one.required}
    try:
        return msgspec.convert({**dummies, **left}, kind, strict=False), found or [first]
    except msgspec.ValidationError:  # a required field is not a text
        return None, found or [first]


def _valid(kind: inspect.Type, data: Any, path: str, problems: list[Problem]) -> Any:
    """What is valid of data. An object with a wrong value is not, as others of its values may
    depend on it; but without a wrong object that it holds it is."""
    if len(problems) > _MOST:
        return _NOTHING
    if isinstance(kind, inspect.UnionType):
        if data is None and kind.includes_none:
            return None
        arms = [arm for arm in kind.types if not isinstance(arm, inspect.NoneType)]
        if len(arms) == 1:
            return _valid(arms[0], data, path, problems)
        structs = [arm for arm in arms if isinstance(arm, inspect.StructType)]
        if len(structs) == len(arms):
            return _one_of(structs, data, path, problems)
    if isinstance(kind, inspect.StructType):
        return _object(kind, data, path, problems)
    if isinstance(kind, inspect.ListType):
        return _list(kind.item_type, data, path, problems)
    if isinstance(kind, inspect.DictType):
        return _mapping(kind.value_type, data, path, problems)
    return _single(kind, data, path, problems)


def _one_of(arms: list[inspect.StructType], data: Any, path: str, problems: list[Problem]) -> Any:
    """Of several kinds of objects, the one that a field names."""
    if not isinstance(data, Mapping):
        return _refuse(Problem(path, f"must be a mapping, not {say(data)}"), problems)
    field = str(arms[0].tag_field)
    for arm in arms:
        if data.get(field) == arm.tag:
            return _object(arm, data, path, problems)
    known = ", ".join(sorted(str(arm.tag) for arm in arms))
    what = f"cannot be {say(data[field])}" if field in data else "is missing"
    return _refuse(Problem(_join(path, field), f"{what}; possible are {known}"), problems)


def _object(kind: inspect.StructType, data: Any, path: str, problems: list[Problem]) -> Any:
    left = _members(kind, data, path, problems)
    if left is None:
        return _NOTHING
    for field in kind.fields:
        lost = field.encode_name in data and not _is_object(field.type)
        if field.encode_name not in left and (field.required or lost):
            return _NOTHING
    return left


def _is_object(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(isinstance(arm, inspect.StructType) for arm in kind.types)
    return isinstance(kind, inspect.StructType)


def _members(
    kind: inspect.StructType, data: Any, path: str, problems: list[Problem]
) -> dict[str, Any] | None:
    """The valid members of an object; None if it is none."""
    if not isinstance(data, Mapping):
        _refuse(Problem(path, f"must be a mapping, not {say(data)}"), problems)
        return None
    left: dict[str, Any] = {}
    if kind.tag_field is not None:
        tag = data.get(kind.tag_field, kind.tag)
        if tag != kind.tag:
            text = f"cannot be {say(tag)}; possible is {kind.tag}"
            _refuse(Problem(_join(path, kind.tag_field), text), problems)
            return None
        left[kind.tag_field] = kind.tag
    for field in kind.fields:
        name = field.encode_name
        if name in data:
            before = len(problems)
            value = _valid(field.type, data[name], _join(path, name), problems)
            problems[before:] = [without_secret(one, data, name) for one in problems[before:]]
            if value is not _NOTHING:
                left[name] = value
        elif field.required:
            problems.append(Problem(_join(path, name), "is missing"))
    return left


def _list(item: inspect.Type, data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, (list, tuple)):
        return _refuse(Problem(path, f"must be a list, not {say(data)}"), problems)
    left = [*_items(item, data, path, problems)]
    return _NOTHING if data and not left else left


def _items(
    item: inspect.Type, data: list[Any] | tuple[Any, ...], path: str, problems: list[Problem]
) -> Iterator[Any]:
    for number, value in enumerate(data):
        if len(problems) > _MOST:
            return
        found = _valid(item, value, f"{path}[{number}]", problems)
        if found is not _NOTHING:
            yield found


def _mapping(value: inspect.Type, data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, Mapping):
        return _refuse(Problem(path, f"must be a mapping, not {say(data)}"), problems)
    left = {}
    for key, one in data.items():
        if len(problems) > _MOST:
            break
        before = len(problems)
        found = _valid(value, one, _join(path, key), problems)
        problems[before:] = [without_secret(one, data, key) for one in problems[before:]]
        if found is not _NOTHING:
            left[key] = found
    return left


def _single(kind: inspect.Type, data: Any, path: str, problems: list[Problem]) -> Any:
    try:
        msgspec.convert(data, _SINGLE[type(kind)], strict=False)
    except msgspec.ValidationError as error:
        return _refuse(Problem(path, friendly(str(error), data)), problems)
    return data


def _refuse(problem: Problem, problems: list[Problem]) -> _Left:
    problems.append(problem)
    return _NOTHING


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
