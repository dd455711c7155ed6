"""Plain data into the classes of `spec.models`, with every problem at once and its place.

msgspec checks single values; it stops at the first error, so the walk over fields, lists and
mappings is ours.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from muster.errors import Problem

T = TypeVar("T", bound=msgspec.Struct)

#: What people write who come from a neighbouring tool.
_NEIGHBOURS = {
    "num_nodes": "nodes",
    "nnodes": "nodes",
    "node_count": "nodes",
    "environment": "env",
    "envs": "env",
    "environment_variables": "env",
    "nproc_per_node": "processes_per_node",
    "volumes": "mounts",
    "file_mounts": "mounts",
    "timeout": "max_runtime",
    "entry_point": "entrypoint",
    "run": "command",
    "cmd": "command",
    "commands": "command",
    "groups": "node_groups",
    "replicated_jobs": "node_groups",
    "labels": "tags",
    "script": "artifact",
    "source": "artifact",
    "cpu": "cpus",
    "gpu": "gpus",
    "mem": "memory",
    "readonly": "read_only",
    "probe": "startup_probe",
}


def decode(model: type[T], data: Any, problems: list[Problem], path: str = "") -> T | None:
    """`data` as a `model`; None, and `problems` extended, if it is not one."""
    before = len(problems)
    value = _struct(model, data, path, problems)
    return value if len(problems) == before else None


def names(model: type[msgspec.Struct]) -> list[str]:
    """The field names people write."""
    return [info.encode_name for info in _fields(model)]


@cache
def _fields(model: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    return fields(model)


def _struct(model: type[T], data: Any, path: str, problems: list[Problem]) -> T | None:
    if not isinstance(data, Mapping):
        problems.append(Problem(path, f"must be a mapping, not {_say(data)}"))
        return None
    known = {info.encode_name: info for info in _fields(model)}
    problems += [unknown_field(path, name, list(known)) for name in data if name not in known]
    given = {}
    for name, info in known.items():
        if name in data:
            given[info.name] = _value(info.type, data[name], _join(path, name), problems)
        elif info.required:
            problems.append(Problem(_join(path, name), "is missing"))
            given[info.name] = None
    return model(**given)


def unknown_field(path: str, name: Any, known: Sequence[str]) -> Problem:
    """The problem of a field that is not there, with what was probably meant."""
    neighbour = _NEIGHBOURS.get(str(name))
    close = [neighbour] if neighbour in known else _close(str(name), known)
    hint = f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(known)}"
    return Problem(_join(path, str(name)), "unknown field", hint)


def _close(name: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, known, 1)


def _value(kind: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    plain, optional, metas = unwrap(kind)
    if data is None and optional:
        return None
    for meta in metas:
        parse = (meta.extra or {}).get("parse")
        if parse is not None:
            try:
                data = parse(data)
            except ValueError as error:
                problems.append(Problem(path, str(error)))
                return None
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return _struct(plain, data, path, problems)
    inner = get_args(plain)
    if get_origin(plain) is tuple and _is_struct(inner[0]):
        return _list(inner[0], data, path, problems)
    if get_origin(plain) is dict and _is_struct(inner[1]):
        return _mapping(inner[1], data, path, problems)
    return _leaf(kind, data, path, problems)


def _list(item: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, (list, tuple)):
        problems.append(Problem(path, f"must be a list, not {_say(data)}"))
        return None
    return tuple(_value(item, value, f"{path}[{i}]", problems) for i, value in enumerate(data))


def _mapping(item: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, Mapping):
        problems.append(Problem(path, f"must be a mapping, not {_say(data)}"))
        return None
    return {str(k): _value(item, v, f"{path}[{k}]", problems) for k, v in data.items()}


def _leaf(kind: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        text, _, inside = str(error).partition(" - at `$")
        where = re.sub(r"\[\.\.\.\]", "", inside.rstrip("`"))
        allowed = list(choices(kind)) if "enum" in text else []
        hint = f"there are: {', '.join(allowed)}" if allowed else ""
        problems.append(Problem(path + where, _friendly(text, data), hint))
        return None


def unwrap(kind: Any) -> tuple[Any, bool, list[msgspec.Meta]]:
    """A field's type: (the type itself, whether None is allowed, what is noted about it)."""
    metas: list[msgspec.Meta] = []
    optional = False
    while True:
        if get_origin(kind) is Annotated:
            kind, *notes = get_args(kind)
            metas = [note for note in notes if isinstance(note, msgspec.Meta)] + metas
        elif get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind):
            optional = True
            (kind,) = (arm for arm in get_args(kind) if arm is not type(None))
        else:
            return kind, optional, metas


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def _friendly(text: str, data: Any) -> str:
    """msgspec's message in the words of the rest of our messages."""
    if match := re.fullmatch(r"Expected `([a-z |]+)`, got `\w+`", text):
        kinds = [k for k in match[1].split(" | ") if k != "null"]
        return f"must be {' or '.join(_TYPES.get(k, k) for k in kinds)}, not {_say(data)}"
    if match := re.fullmatch(r"Expected `\w+` (>=?|<=?) ([\d.]+)", text):
        words = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}
        number = match[2].removesuffix(".0")
        return f"must be {words[match[1]]} {number}, not {_say(data)}"
    if "Invalid enum value" in text:
        return f"{data!r} is not one of the values allowed here"
    if "length >= 1" in text:
        return "must not be empty"
    return f"{text}, not {_say(data)}"


def _say(data: Any) -> str:
    if data is None:
        return "nothing"
    if isinstance(data, bool):
        return str(data).lower()
    if isinstance(data, Mapping):
        return "a mapping"
    if isinstance(data, (list, tuple)):
        return "a list"
    return repr(data)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def choices(kind: Any) -> Iterator[str]:
    """The values a Literal allows."""
    plain, _, _ = unwrap(kind)
    yield from (str(value) for value in get_args(plain))
