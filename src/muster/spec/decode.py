"""Decode plain data into the classes of `spec.models`, reporting all problems with their paths.

msgspec checks single values. It stops at the first error, so fields, lists and mappings are
traversed here. A null field is the same as a missing one.
"""

from __future__ import annotations

import math
import re
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from muster.errors import Problem
from muster.spec.wording import Refused, SeveralRefused, say, suggestion, without_secret

T = TypeVar("T", bound=msgspec.Struct)
#: A value that may be repeated in a hint.
_NAME = re.compile(r"[\w.-]{1,63}")
#: Kubernetes: from where a variable may have its value.
_REFERENCES = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")


def decode(model: type[T], data: Any, problems: list[Problem], path: str = "") -> T | None:
    """Decode `data` as a `model`. Returns None and extends `problems` if it is invalid."""
    before = len(problems)
    value = decode_partial(model, data, problems, path)
    return value if len(problems) == before else None


def decode_partial(model: type[T], data: Any, problems: list[Problem], path: str = "") -> T | None:
    """Like `decode`, but leave out invalid fields. Returns None if a required field is invalid or
    missing.
    """
    given = _valid_fields(model, data, problems, path)
    if given is None or any(name not in given for name in _required_fields(model)):
        return None
    return model(**given)


def _valid_fields(
    model: type[msgspec.Struct], data: Any, problems: list[Problem], path: str
) -> dict[str, Any] | None:
    """The valid fields; None if `data` is not a mapping."""
    if not isinstance(data, Mapping):
        hint = _shorthand(model, data) if path else ""
        problems.append(Problem(path, f"must be a mapping, not {say(data)}", hint))
        return None
    known = names(model)
    for name in data:
        if name not in known:
            from muster.spec.unknown import unknown_field

            problems.append(unknown_field(model, _join(path, str(name)), str(name)))
    given = {}
    for name, field in zip(known, model.__struct_fields__, strict=True):
        if data.get(name) is not None:
            before = len(problems)
            value = _value(_type_of(model, field), data[name], _join(path, name), problems)
            problems[before:] = [
                without_secret(problem, data, name) for problem in problems[before:]
            ]
            if value is not None:
                given[field] = value
        elif field in _required_fields(model):
            problems.append(Problem(_join(path, name), "is missing"))
    return given


def names(model: type[msgspec.Struct]) -> list[str]:
    """The field names as written in a spec."""
    return [*model.__struct_encode_fields__]


@cache
def _required_fields(model: type[msgspec.Struct]) -> tuple[str, ...]:
    fields = model.__struct_fields__
    defaults = (*model.__struct_defaults__,)  # of the last ones
    first = fields[: len(fields) - len(defaults)]
    others = zip(fields[len(first) :], defaults, strict=True)
    return (*first, *(name for name, default in others if default is msgspec.NODEFAULT))


@cache
def _type_of(model: type[msgspec.Struct], field: str) -> Any:
    """The type of a field. A model has dozens of annotations, and most specs give few fields: that
    `fields_of` evaluates them all takes longer than reading such a spec."""
    written = model.__annotations__.get(field) if model.__bases__ == (msgspec.Struct,) else None
    if isinstance(written, str):
        return eval(written, vars(sys.modules[model.__module__]), dict(vars(model)))
    return next(info.type for info in fields_of(model) if info.name == field)


@cache
def fields_of(model: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """The fields of a model. `msgspec.structs.fields` evaluates all annotations at each call."""
    return fields(model)


def _shorthand(model: type[msgspec.Struct], data: Any) -> str:
    """A hint for a value that should be a mapping: a name is probably that of its first field."""
    known = fields_of(model)
    if not known:
        return "write {}"
    first = next((info for info in known if info.required), known[0])
    name = data if isinstance(data, str) and _NAME.fullmatch(data) else "..."
    return f"write {{{first.encode_name}: {name}}}"


def _value(kind: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    """The decoded value, or None if it is invalid. No valid value is None."""
    plain, _, metas = unwrap(kind)
    original = data
    for meta in metas:
        parse: Callable[[Any], Any] | None = (meta.extra or {}).get("parse")
        if parse is not None:
            try:
                data = parse(data)
            except SeveralRefused as several:
                listed, more = several.listed()
                problems += (Problem(f"{path}[{n}]", e.message, e.hint) for n, e in listed)
                if more:
                    problems.append(Problem(path, f"{more} in the list"))
                return None
            except Refused as error:
                problems.append(Problem(path, error.message, error.hint))
                return None
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return decode_partial(plain, data, problems, path)
    inner = get_args(plain)
    if get_origin(plain) is tuple:
        return _list(inner[0], data, path, problems)
    if get_origin(plain) is dict:
        return _mapping(inner[0], inner[1], data, path, problems)
    return _leaf(kind, plain, data, path, problems, original)


def _list(item: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, (list, tuple)):
        hint = f"write [{say(data)}]" if isinstance(data, str) else ""
        if isinstance(data, Mapping):
            hint = "put a dash before each: - ..., or write [{...}]"
        problems.append(Problem(path, f"must be a list, not {say(data)}", hint))
        return None
    values = [_item(item, value, f"{path}[{i}]", problems) for i, value in enumerate(data)]
    # leaving out an item would shift those after it
    return None if None in values else tuple(values)


def _item(kind: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    """The decoded item. An invalid mapping keeps its place with its valid fields, and with dummies
    for required ones; None if that is impossible."""
    model = unwrap(kind)[0]
    if not _is_struct(model):
        return _value(kind, data, path, problems)
    given = _valid_fields(model, data, problems, path) or {}
    for info in fields_of(model):
        if info.required and info.name not in given:
            plain = unwrap(info.type)[0]
            if plain is not str and get_origin(plain) is not Literal:
                return None
            given[info.name] = "" if plain is str else get_args(plain)[0]
    return model(**given)


def _mapping(name: Any, item: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, Mapping):
        hint = "write NAME: VALUE, without dashes" if isinstance(data, (list, tuple)) else ""
        problems.append(Problem(path, f"must be a mapping, not {say(data)}", hint))
        return None
    made = {}
    for key, value in data.items():
        inner = f"{path}[{key}]" if _is_struct(item) else _join(path, str(key))
        before = len(problems)
        right = _value(name, str(key), inner, problems), _value(item, value, inner, problems)
        problems[before:] = [without_secret(problem, data, key) for problem in problems[before:]]
        if None not in right:
            made[right[0]] = right[1]
    return made


def _leaf(
    kind: Any, plain: Any, data: Any, path: str, problems: list[Problem], original: Any
) -> Any:
    """Decode a single value. original: the value before parsing, for messages."""
    if get_origin(plain) is Literal:
        if data in (allowed := list(get_args(plain))):
            return data
        problems.append(Problem(path, f"cannot be {say(data)}", suggestion(str(data), allowed)))
        return None
    try:
        value = msgspec.convert(data, kind)
        check_storable(value)
    except msgspec.ValidationError as error:
        problems.append(Problem(path, friendly(str(error), original), _quoting(plain, data)))
    except Refused as error:
        problems.append(Problem(path, error.message, error.hint))
    else:
        return value
    return None


def check_storable(value: Any) -> None:
    """Raises Refused for values that programs, JSON or the database cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused(f"must be a finite number, not {value}")
    if not isinstance(value, str):
        return
    if "\0" in value:
        raise Refused("contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused("is not UTF-8 text") from None


def unwrap(kind: Any) -> tuple[Any, bool, list[msgspec.Meta]]:
    """(the type itself, whether None is allowed, its msgspec.Meta annotations)."""
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


_TYPES = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}


def friendly(text: str, data: Any) -> str:
    """msgspec's message about a value in plain words."""
    if match := re.match(r"Expected `([\w |]+)`, got", text):
        kinds = [kind for kind in match[1].split(" | ") if kind != "null"]
        return f"must be {' or '.join(_TYPES.get(k, k) for k in kinds)}, not {say(data)}"
    if "RFC3339" in text:
        return f"must be a time such as 2026-01-05T09:00:00Z, not {say(data)}"
    if match := re.match(r"Expected `\w+` (>=?|<=?) (-?[\d.]+)", text):
        words = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}
        number = int(float(match[2])) if float(match[2]).is_integer() else match[2]
        return f"must be {words[match[1]]} {number}, not {say(data)}"
    return "must not be empty" if "length >= 1" in text else f"{text}, not {say(data)}"


def _quoting(plain: Any, data: Any) -> str:
    """A hint if only quotes are missing or superfluous, or Kubernetes has a mapping there."""
    if plain is str and data is None:
        return 'write "" for an empty text'
    if plain is str and isinstance(data, Mapping):
        return _without_reference(data)
    if plain is str and isinstance(data, (bool, int, float)):
        return f'put it in quotes: "{say(data)}"'
    if plain in (int, float) and isinstance(data, str) and re.fullmatch(r"\d+(\.\d+)?", data):
        return f"without the quotes: {data}"
    if plain is bool and str(data).lower() in ("yes", "no", "true", "false", "on", "off"):
        return f"without the quotes: {data}"
    return ""


def _without_reference(data: Mapping[Any, Any]) -> str:
    """A hint for an object of Kubernetes in place of a text."""
    name = data.get("name")
    if len(data) == 1 and isinstance(name, str) and _NAME.fullmatch(name):
        return f"write {name}"
    source = data.get("valueFrom", data)
    kinds = source if isinstance(source, Mapping) else {}
    if found := next((kind for kind in _REFERENCES if kind in kinds), None):
        return (
            "with engine kubernetes, patch the pod: kubernetes: {pod: {spec: {containers: [{name: "
            f"node, env: [{{name: ..., valueFrom: {{{found}: ...}}}}]}}]}}}}}}"
        )
    return ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def given_settings(record: msgspec.Struct) -> dict[str, Any]:
    """The fields of a record that are not empty, as plain data, and so for the records in it."""
    data = {name: getattr(record, name) for name in record.__struct_fields__}
    found = {
        name: given_settings(value)
        if isinstance(value, msgspec.Struct)
        else msgspec.to_builtins(value)
        for name, value in data.items()
    }
    return {name: value for name, value in found.items() if value not in (None, (), [], {})}
