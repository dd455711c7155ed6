"""Check a manifest's structure as the API server does, by JobSet's published schema.

`schema.json` is the OpenAPI schema of JobSet's CustomResourceDefinition without descriptions and
status. For most fields of Jobs and pods it has types only; `kubernetes_limits` adds the limits that
Kubernetes enforces when it creates them. Fields outside the schema are not checked here, but for
misspelled ones of patches, and of manifests that are run as they are.
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
from muster.spec.formats.jobset.kubernetes_limits import JOB_LIMITS, LIMITS, Limit, Limits
from muster.spec.wording import alternatives, close_to, say, short, suggestion, without_secret

SCHEMA = Path(__file__).with_name("schema.json")
_TYPE_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "boolean": "true or false",
    "int-or-string": "a whole number or text",
    "array": "a list",
    "object": "a mapping",
}
_BITS = {"int32": 31, "int64": 63}
#: Required fields that JobSet's webhook fills in before the API server checks them.
_FILLED_IN = ("spec.replicatedJobs[].name", "spec.failurePolicy.rules[].name")
#: Kubernetes: defaults of the fields that identify the entries of a list.
_KEY_DEFAULTS = {"protocol": "TCP"}
_INDEX = re.compile(r"\[\d+\]")
_INVALID: Any = object()
#: The similarity from which a name is probably a typing error of another one.
_MISSPELLED = 0.9

Schema = Mapping[str, Any]


@cache
def _document() -> Schema:
    document: Schema = msgspec.json.decode(SCHEMA.read_bytes())
    return document


def check_structure(data: Any, limits: Limits = LIMITS) -> tuple[Any, list[Problem]]:
    """The valid part of a manifest, and a problem for everything that the API server refuses.

    Invalid fields are left out. An invalid entry of a list of objects becomes an empty object, so
    that the other entries keep their places; a list with any other invalid entry is left out.
    """
    checker = _Checker()
    valid = checker.check(_document()["schema"], limits, data, "")
    return None if valid is _INVALID else valid, checker.problems


def check_job_structure(data: Any) -> tuple[Any, list[Problem]]:
    """As `check_structure`, for the manifest of a Job."""
    checker = _Checker()
    valid = checker.check(_job_schema(), JOB_LIMITS, data, "")
    return None if valid is _INVALID else valid, checker.problems


def template_problems(patch: Any, path: str) -> list[Problem]:
    """A problem for each value of the wrong type in a part of a pod template, such as a patch, and
    for each field whose name is probably misspelled. path: its place, for messages."""
    checker = _Checker(types_only=True)
    checker.check(_template_schema(), {}, patch, path)
    return checker.problems


def type_problems(manifest: Any) -> list[Problem]:
    """A problem for each value of the wrong type in the manifest of a JobSet, and for each field
    whose name is probably misspelled."""
    checker = _Checker(types_only=True)
    checker.check(_document()["schema"], {}, manifest, "")
    return checker.problems


@cache
def _template_schema() -> Schema:
    return _inside(_inside(_job_schema(), "spec"), "template")


@cache
def _job_schema() -> Schema:
    """The schema of a Job: JobSet's, with that of the Jobs in it as the spec."""
    jobset = _resolve(_document()["schema"])
    spec = _inside(_resolve(_inside(jobset, "spec", "replicatedJobs")["items"]), "template", "spec")
    return {**jobset, "properties": {**jobset["properties"], "spec": spec}, "required": ["spec"]}


def _inside(schema: Schema, *fields: str) -> Schema:
    for field in fields:
        schema = _resolve(schema["properties"][field])
    return schema


class _Checker:
    """types_only: check types and the spelling of fields, not what is required, or allowed."""

    def __init__(self, *, types_only: bool = False) -> None:
        self.problems: list[Problem] = []
        self._types_only = types_only

    def check(self, schema: Schema, limits: Limits | Limit | None, value: Any, path: str) -> Any:
        """The valid part of a value, or _INVALID."""
        schema = _resolve(schema)
        kind = "int-or-string" if "x-kubernetes-int-or-string" in schema else schema.get("type")
        nested = limits if isinstance(limits, Mapping) else {}
        limit = limits if isinstance(limits, Limit) else Limit()
        if kind is not None and not _is(kind, value):
            if kind == "string" and (allowed := schema.get("enum", limit.enum)):
                hint = suggestion(str(value), filter(None, allowed))
                return self._invalid(path, f"cannot be {say(value)}", hint)
            text = f"must be {_TYPE_NAMES[kind]}, not {say(value)}"
            return self._invalid(path, text, _type_hint(kind, schema, value))
        if isinstance(value, Mapping):
            return self._mapping(schema, nested, value, path)
        if isinstance(value, list):
            return self._list(schema, limits or {}, value, path)
        return self._leaf(schema, limit, value, path)

    def _mapping(self, schema: Schema, limits: Limits, value: Any, path: str) -> dict[str, Any]:
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, hint in () if self._types_only else _required(schema, limits):
            inner = f"{path}.{name}" if path else name
            if value.get(name) is None and _INDEX.sub("[]", inner) not in _FILLED_IN:
                self.problems.append(Problem(inner, "is missing", hint))
        valid = {}
        for name, given in value.items():
            kept, field = given, fields.get(name, others)
            if self._types_only and fields and field is None:
                self._spelled(name, [*fields], f"{path}.{name}".lstrip("."))
            if given is not None and isinstance(field, Mapping):  # null: as if left out
                before = len(self.problems)
                kept = self.check(field, limits.get(name), given, f"{path}.{name}".lstrip("."))
                self.problems[before:] = [
                    without_secret(p, value, name) for p in self.problems[before:]
                ]
            if kept is not None and kept is not _INVALID:
                valid[name] = kept
        return valid

    def _spelled(self, name: Any, known: list[str], path: str) -> None:
        """A newer Kubernetes may have further fields, but none that is nearly the name of one."""
        if isinstance(name, str) and (close := close_to(name, known, 1, _MISSPELLED)):
            self._invalid(path, "unknown field", f'did you mean "{close[0]}"?')

    def _list(self, schema: Schema, limits: Limits | Limit, value: list[Any], path: str) -> Any:
        most = None if self._types_only else schema.get("maxItems")
        if most is not None and len(value) > most:
            self._invalid(path, f"has {len(value)} entries", f"at most {most} are allowed")
        items = schema["items"]
        entries = [
            self.check(items, limits, item, f"{path}[{number}]")
            for number, item in enumerate(value)
        ]
        if _INVALID in entries and "properties" not in _resolve(items):
            return _INVALID
        if self._types_only:
            return entries
        if schema.get("x-kubernetes-list-type") in ("map", "set"):
            self._duplicates(schema.get("x-kubernetes-list-map-keys", []), value, path)
        return [{} if entry is _INVALID else entry for entry in entries]

    def _duplicates(self, keys: list[str], value: list[Any], path: str) -> None:
        """Kubernetes: entries of a list of type `map` differ in their keys, those of a `set` in
        their values."""
        first: dict[str, int] = {}
        for number, item in enumerate(value):
            if keys and not isinstance(item, Mapping):
                continue
            named = {k: item.get(k, _KEY_DEFAULTS.get(k)) for k in keys} if keys else {"": item}
            key = repr(named)
            if key in first:
                where = f"{path}[{number}].{keys[0]}" if keys else f"{path}[{number}]"
                text = " and ".join(short(v) for v in named.values() if v is not None) or "an entry"
                earlier = f"{path.rpartition('.')[2]}[{first[key]}]"
                self._invalid(where, f"{text} is given twice", f"also at {earlier}: remove one")
            first.setdefault(key, number)

    def _leaf(self, schema: Schema, limit: Limit, value: Any, path: str) -> Any:
        if self._types_only:
            return value
        before = len(self.problems)
        allowed = schema.get("enum", limit.enum)
        if allowed is not None and value not in allowed:
            self._invalid(
                path, f"cannot be {say(value)}", suggestion(str(value), filter(None, allowed))
            )
        if isinstance(value, str):
            self._text(schema, value, path)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            bits = _BITS.get(schema.get("format", ""))
            low, high = schema.get("minimum", limit.minimum), limit.maximum
            low = -(2**bits) if low is None and bits else low
            high = 2**bits - 1 if high is None and bits else high
            if low is not None and value < low:
                self._invalid(path, f"must be at least {low}, not {say(value)}")
            elif high is not None and value > high:
                self._invalid(path, f"must be at most {high}, not {say(value)}")
        return value if len(self.problems) == before else _INVALID

    def _text(self, schema: Schema, value: str, path: str) -> None:
        if "pattern" in schema and not re.search(schema["pattern"], value):
            self._invalid(path, f"{short(value)} is not a quantity", "write 500m, 2 or 4Gi")
        if schema.get("format") == "date-time" and not _is_time(value):
            self._invalid(path, f"{short(value)} is not a time", "write 2026-01-31T12:00:00Z")

    def _invalid(self, path: str, text: str, hint: str = "") -> Any:
        self.problems.append(Problem(path, text, hint))
        return _INVALID


def _required(schema: Schema, limits: Limits) -> Iterator[tuple[str, str]]:
    """The required fields of an object, with hints."""
    yield from ((name, "") for name in schema.get("required", ()))
    for name, limit in limits.items():
        if isinstance(limit, Limit) and limit.required:
            yield name, f"write {alternatives(limit.enum or ())}"


def _resolve(schema: Schema) -> Schema:
    """A schema, or the definition it refers to."""
    if "$ref" not in schema:
        return schema
    definition: Schema = _document()["definitions"][int(schema["$ref"].rpartition("/")[2])]
    return definition


def _is(kind: str, value: Any) -> bool:
    if kind == "object":
        return isinstance(value, Mapping)
    if kind == "array":
        return isinstance(value, list)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind == "int-or-string":
        return whole or isinstance(value, str)
    return whole


def _type_hint(kind: str, schema: Schema, value: Any) -> str:
    """What to write when only quotes, dashes or brackets are wrong."""
    scalar = isinstance(value, (bool, int, float))
    if kind == "string" and value is None:
        return 'write "" for an empty text'
    if kind in ("string", "int-or-string") and scalar:
        return f'put it in quotes: "{say(value)}"'
    if kind == "integer" and isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return f"without the quotes: {value}"
    if kind == "boolean" and str(value).lower() in ("true", "false", "yes", "no"):
        return f"without the quotes: {str(value).lower()}"
    if kind == "array" and isinstance(value, str):
        return f"write [{say(value)}]"
    if kind == "array" and isinstance(value, Mapping):
        return "put a dash before each: - ..., or write [{...}]"
    if kind == "object" and schema.get("required"):
        return f"write {{{schema['required'][0]}: ...}}"
    if kind == "object" and isinstance(value, list):
        return "write NAME: VALUE, without dashes"
    return ""


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
