"""Write a `JobSpec` as a spec file: the fields that differ from the defaults, in short form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.secrets import without_credentials
from muster.spec.decode import fields_of, unwrap
from muster.spec.formats.quantity import format_bytes
from muster.spec.models import JobSpec
from muster.spec.quantities import format_duration

_FEW = 8


def write_spec(spec: JobSpec) -> dict[str, Any]:
    """Plain data from which `reader.spec_from_mapping` makes the same spec."""
    return _struct(spec)


def _struct(value: msgspec.Struct) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for info in fields_of(type(value)):
        given = getattr(value, info.name)
        if given != _default(info):
            made[info.encode_name] = _plain(info.name, info.type, given)
    return made


def _default(info: msgspec.structs.FieldInfo) -> Any:
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory()
    return info.default


def _plain(name: str, kind: Any, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    if name == "exit_codes":
        return _ranges(value)
    if isinstance(value, tuple):
        return [_struct(v) if isinstance(v, msgspec.Struct) else v for v in value]
    if isinstance(value, Mapping):
        return {key: _entry(entry) for key, entry in value.items()}
    if name == "url":
        return without_credentials(value)  # the file may be readable by others
    if name == "memory":
        return format_bytes(value)
    if isinstance(value, float):
        _, _, metas = unwrap(kind)
        if any("parse" in (meta.extra or {}) for meta in metas):
            return format_duration(value)
        return int(value) if value == int(value) else value
    return value


def _entry(value: Any) -> Any:
    """An entry of a mapping. A file that has only a text is written as this text."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, msgspec.Struct):
        return value
    made = _struct(value)
    return made["text"] if made.keys() == {"text"} else made


def _ranges(codes: tuple[int, ...]) -> Any:
    """A list of few codes, or text with the ranges of many."""
    if len(codes) <= _FEW:
        return list(codes)
    spans: list[list[int]] = []
    for code in codes:
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
