"""What the API server refuses of a JobSet before anybody reads it: wrong types, values that are not
among those allowed, entries of a list that have to differ and do not.

Kubernetes looks at every field, also at those that mean nothing to Muster. The rules are in
`jobset_api.json`, made from JobSet's CustomResourceDefinition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from muster.errors import Problem
from muster.spec.wording import say, short, suggestion, unsaid

TABLE = Path(__file__).with_name("jobset_api.json")
_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "int-or-string": "a whole number or text",
    "array": "a list",
    "object": "a mapping",
}
_BITS = {"int32": 31, "int64": 63}
#: What JobSet fills in before anybody looks.
_FILLED_IN = ("spec.replicatedJobs[].name", "spec.failurePolicy.rules[].name")
#: Kubernetes: the default of what tells entries of a list apart.
_KEY_DEFAULTS = {"protocol": "TCP"}
_INDEX = re.compile(r"\[\d+\]")

Schema = Mapping[str, Any]


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = msgspec.json.decode(TABLE.read_bytes())
    return table


def api_problems(data: Any) -> Iterator[Problem]:
    """Everything that the API server would refuse of a manifest. Fields it does not know are not
    its affair."""
    yield from _check(_table()["root"], data, "")


def _check(said: Any, value: Any, path: str) -> Iterator[Problem]:
    schema: Schema = _table()["shared"][said] if isinstance(said, int) else said
    kind = schema.get("type")
    if kind is not None and not _is(kind, value):
        yield Problem(path, f"must be {_WORDS[kind]}, not {say(value)}", _way_out(kind, value))
    elif isinstance(value, Mapping):
        yield from _mapping(schema, value, path)
    elif isinstance(value, list):
        yield from _list(schema, value, path)
    else:
        yield from _leaf(schema, value, path)


def _is(kind: str, value: Any) -> bool:
    if kind == "object":
        return isinstance(value, Mapping)
    if kind == "array":
        return isinstance(value, list)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool):
        return False
    if kind == "int-or-string":
        return whole or isinstance(value, str)
    return whole or (kind == "number" and isinstance(value, float))


def _way_out(kind: str, value: Any) -> str:
    """The way out when only quotes, dashes or the like are wrong."""
    plain = isinstance(value, (bool, int, float))
    if kind in ("string", "int-or-string") and plain:
        return f'put it in quotes: "{say(value)}"'
    if kind == "integer" and isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return f"without the quotes: {value}"
    if kind == "boolean" and str(value).lower() in ("true", "false", "yes", "no"):
        return f"without the quotes: {str(value).lower()}"
    if kind == "array" and isinstance(value, str):
        return f"write [{say(value)}]"
    if kind == "array" and isinstance(value, Mapping):
        return "put a dash before each: - ..."
    if kind == "object" and isinstance(value, list):
        return "write NAME: VALUE, without dashes"
    return ""


def _mapping(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[Problem]:
    fields, values = schema.get("fields", {}), schema.get("values")
    for name in schema.get("required", ()):
        inner = f"{path}.{name}" if path else name
        if value.get(name) is None and _INDEX.sub("[]", inner) not in _FILLED_IN:
            yield Problem(inner, "is missing")
    for name, given in value.items():
        said = fields.get(name, values)
        if said is not None and given is not None:  # null is as good as nothing
            for problem in _check(said, given, f"{path}.{name}" if path else name):
                yield unsaid(problem, value, name)


def _list(schema: Schema, value: list[Any], path: str) -> Iterator[Problem]:
    most, least = schema.get("maxItems"), schema.get("minItems", 0)
    if most is not None and len(value) > most:
        yield Problem(path, f"there are {len(value)}", f"{most} are allowed")
    if len(value) < least:
        yield Problem(path, f"there are {len(value)}", f"there have to be {least}")
    if "items" in schema:
        for number, item in enumerate(value):
            yield from _check(schema["items"], item, f"{path}[{number}]")
    if "keys" in schema:
        yield from _twice(schema["keys"], value, path)


def _twice(keys: list[str], value: list[Any], path: str) -> Iterator[Problem]:
    """Kubernetes: lists that are mappings or sets."""
    first: dict[str, int] = {}
    for number, item in enumerate(value):
        if keys and not isinstance(item, Mapping):
            continue
        named = {k: item.get(k, _KEY_DEFAULTS.get(k)) for k in keys} if keys else {"": item}
        told = repr(named)
        if told in first:
            where = f"{path}[{number}].{keys[0]}" if keys else f"{path}[{number}]"
            text = " and ".join(short(v) for v in named.values() if v is not None) or "the same"
            hint = f"it is there already, as {path.rpartition('.')[2]}[{first[told]}]: remove one"
            yield Problem(where, f"{text} is given twice", hint)
        first.setdefault(told, number)


def _leaf(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    if "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"cannot be {say(value)}", suggestion(str(value), schema["enum"]))
    if isinstance(value, str):
        length, least, most = len(value), schema.get("minLength", 0), schema.get("maxLength")
        if length < least:
            yield Problem(path, "must not be empty")
        if most is not None and length > most:
            yield Problem(path, f"has {length} characters", f"{most} are allowed")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield Problem(path, f"{short(value)} is not a quantity", "write 500m, 2 or 4Gi")
        if schema.get("format") == "date-time" and not _is_time(value):
            yield Problem(path, f"{short(value)} is no time", "write 2026-01-31T12:00:00Z")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        bits = _BITS.get(schema.get("format", ""))
        low = schema.get("minimum", -(2**bits) if bits else value)
        high = schema.get("maximum", 2**bits - 1 if bits else value)
        if value < low:
            yield Problem(path, f"must be at least {low}, not {say(value)}")
        elif value > high:
            yield Problem(path, f"must be at most {high}, not {say(value)}")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
