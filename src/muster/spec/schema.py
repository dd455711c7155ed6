"""The spec's reference and its JSON Schema, both from the models: `python -m muster.spec.schema`.

The text of a field is its line in the docstring of its class.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from inspect import cleandoc
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from muster.spec import models, override_models, policies, sources, values
from muster.spec.decode import unwrap
from muster.spec.quantities import format_duration

_MODELS = (
    models.JobSpec,
    models.NodeGroup,
    models.Resources,
    models.Mount,
    models.StartupProbe,
    sources.Git,
    sources.Notebook,
    policies.DependsOn,
    policies.SuccessPolicy,
    policies.FailurePolicy,
    policies.FailureRule,
    policies.Backoff,
    policies.Checkpoint,
    models.Logging,
    override_models.RunOverrides,
    override_models.GroupOverrides,
)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a spec file."""
    schema = msgspec.json.schema(models.JobSpec)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster",
        **schema,
    }
    for model in _MODELS:
        definition = schema["$defs"].get(model.__name__)
        if definition is None:
            continue
        summary, texts = field_texts(model)
        definition["description"] = summary
        definition["additionalProperties"] = False
        for info in fields(model):
            property_ = _accepted(info.type) or definition["properties"][info.encode_name]
            property_["description"] = texts[info.encode_name]
            definition["properties"][info.encode_name] = property_
    return schema


def _accepted(kind: Any) -> dict[str, Any] | None:
    """What may be written where more is accepted than the type; None for all others."""
    plain, optional, metas = unwrap(kind)
    for meta in metas:
        if meta.extra_json_schema is not None:
            kinds = meta.extra_json_schema["type"]
            listed = kinds if isinstance(kinds, list) else [kinds]
            return {**meta.extra_json_schema, "type": [*listed, "null"] if optional else kinds}
    if get_origin(plain) is tuple and (items := _accepted(get_args(plain)[0])) is not None:
        return {"type": "array", "items": items}
    return None


def field_texts(model: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """A class's own text, and the text of each of its fields."""
    summary, _, rest = cleandoc(model.__doc__ or "").partition("\n\n")
    texts: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if match := re.match(r"(\w+): (.*)", line):
            name = match[1]
            texts[name] = match[2]
        elif line.startswith(" ") and name:
            texts[name] += " " + line.strip()
    return summary, texts


def reference_markdown() -> str:
    """docs/spec.md."""
    parts = [
        "# The spec\n",
        "A job as YAML (or JSON). This page is made from the models by "
        "`python -m muster.spec.schema`; `muster schema` prints the same as a JSON Schema for "
        "editors.\n",
        "Durations are written `90s`, `10m`, `1h30m`, `30d`; sizes `4GiB`, `500MB`. A relative "
        "path is relative to the spec's file. A field that is left empty is as one that is not "
        "there. What programs get as text (env, args, command, tags) is taken as it is written: "
        "`010` stays `010`, `1.10` stays `1.10`, `yes` stays `yes`.\n",
        "A shape is a name from the catalogue that ships, or from your own `shapes.yaml` under "
        "`MUSTER_HOME`; `local` is all of this machine. A flexible shape may be given its OCPUs "
        "and memory: `VM.Standard.E5.Flex:4:64GiB`.\n",
    ]
    for model in _MODELS:
        parts += _section(model)
    return "\n".join(parts)


def _section(model: type[msgspec.Struct]) -> Iterator[str]:
    summary, texts = field_texts(model)
    yield f"## {model.__name__}\n"
    yield f"{summary}\n"
    yield "| field | type | default | |"
    yield "| --- | --- | --- | --- |"
    levels = [field_texts(level)[1] for level in (models.NodeGroup, models.JobSpec)]
    if model is override_models.GroupOverrides:
        levels.reverse()
    fallback = levels[0] | levels[1]
    for info in fields(model):
        name = info.encode_name
        text = texts.get(name) or fallback.get(name, "")
        yield f"| `{name}` | {_type(info.type)} | {_default(info)} | {text} |"
    yield ""


def _default(info: FieldInfo) -> str:
    if info.required:
        return "required"
    if info.default is msgspec.NODEFAULT or info.default in (None, (), ""):
        return ""
    if isinstance(info.default, msgspec.Struct):
        return ""
    if _is_duration(info.type):
        return f"`{format_duration(info.default)}`"
    value = info.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _is_duration(kind: Any) -> bool:
    return kind in (values.Duration, values.Runtime) or (
        get_origin(kind) is Annotated and get_args(kind)[0] is float and "parse" in str(kind)
    )


def _type(kind: Any) -> str:
    for known, text in (
        (values.Words, "text or list of text"),
        (values.Size, "size"),
        (values.Env, "mapping of names to text"),
        (values.Options, "mapping"),
        (policies.ExitCodes, "list of exit codes"),
        (policies.SignalName, "signal"),
        (tuple[policies.SignalName, ...], "list of signals"),
        (tuple[policies.Pattern, ...], "list of regular expressions"),
    ):
        if kind == known:
            return text
    if _is_duration(kind):
        return "duration"
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(inner[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_type(arm) for arm in inner if arm is not type(None))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"mapping of names to {_type(inner[1])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}[kind]


if __name__ == "__main__":
    print(reference_markdown(), end="")  # noqa: T201
