"""The spec's reference and its JSON Schema, both from the models: `python -m muster.spec.schema`.

The text of a field is the string literal under it.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from types import ModuleType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from muster.spec import models, override_models, policies, sources, values
from muster.spec.decode import unwrap
from muster.spec.generate import is_duration
from muster.spec.quantities import format_duration

_MODELS = (
    models.JobSpec,
    models.NodeGroup,
    models.Array,
    models.Resources,
    models.Container,
    models.Slurm,
    models.Kubernetes,
    models.Kueue,
    models.Topology,
    models.Workload,
    models.ExtraContainer,
    models.Mount,
    models.MountFile,
    models.StartupProbe,
    models.LivenessProbe,
    models.Preflight,
    sources.Git,
    sources.Notebook,
    policies.DependsOn,
    policies.EarlySuccess,
    policies.SuccessPolicy,
    policies.FailurePolicy,
    policies.FailureRule,
    policies.Backoff,
    policies.Checkpoint,
    models.Logging,
    models.Metadata,
    override_models.RunOverrides,
    override_models.GroupOverrides,
)
#: What a run may change of them.
_OVERRIDES: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    models.JobSpec: override_models.RunOverrides,
    models.NodeGroup: override_models.GroupOverrides,
}


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
            property_ = _accepted_values(info.type) or definition["properties"][info.encode_name]
            property_["description"] = texts[info.encode_name]
            definition["properties"][info.encode_name] = property_
    return schema


def _accepted_values(kind: Any) -> dict[str, Any] | None:
    """What may be written where more is accepted than the type; None for all others."""
    plain, optional, metas = unwrap(kind)
    for meta in metas:
        if meta.extra_json_schema is not None:
            kinds = meta.extra_json_schema["type"]
            listed = kinds if isinstance(kinds, list) else [kinds]
            return {**meta.extra_json_schema, "type": [*listed, "null"] if optional else kinds}
    if get_origin(plain) is tuple and (items := _accepted_values(get_args(plain)[0])) is not None:
        return {"type": "array", "items": items}
    return None


def field_texts(model: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """A class's docstring, and the string literal under each of its fields, in one line each."""
    names = {info.name: info.encode_name for info in fields(model)}
    texts = {}
    bases = [base for base in model.__mro__ if base.__module__ == model.__module__]
    for base in reversed(bases):
        for field, after in pairwise(_classes(sys.modules[base.__module__])[base.__name__].body):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[names[name]] = " ".join(text.split())
    summary = cleandoc(model.__doc__ or "").partition("\n\n")[0]
    return " ".join(summary.split()), texts


@cache
def _classes(module: ModuleType) -> dict[str, ast.ClassDef]:
    tree = ast.parse(getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def reference_markdown() -> str:
    """docs/reference/spec.md."""
    parts = [
        "# The spec\n",
        "A job as YAML or JSON. This page is made from the models by "
        "`python -m muster.spec.schema`; `muster schema` prints them as a JSON Schema for "
        "editors.\n",
        "Durations are written `90s`, `10m`, `1h30m`, `30d`; sizes `4GiB`, `500MB`. Relative paths "
        "are relative to the spec's file. An empty field is the same as a missing one. Text for "
        "programs (env, args, command, tags) is used as written: `010` stays `010`, `1.10` stays "
        "`1.10`, `yes` stays `yes`.\n",
        "A shape is a name from the built-in catalogue or from your own `shapes.yaml` under "
        "`MUSTER_HOME`; `local` is the whole machine. OCPUs and memory of a flexible shape can be "
        "added: `VM.Standard.E5.Flex:4:64GiB`.\n",
        'A run can override the fields marked in the column "run" (`muster run --set`, or the '
        "options with the same names): *replaces* the job's value, or is *merged* with it key by "
        "key.\n",
    ]
    for model in _MODELS:
        parts += _section(model)
    return "\n".join(parts)


def _section(model: type[msgspec.Struct]) -> Iterator[str]:
    summary, texts = field_texts(model)
    overrides = _OVERRIDES.get(model)
    run = "run | " if overrides else ""
    yield f"## {model.__name__}\n"
    yield f"{summary}\n"
    # overrides repeat the fields of the model that they override
    rows = [info for info in fields(model) if texts.get(info.encode_name)]
    if not rows:
        return
    yield f"| field | type | default | {run}|"
    yield f"| --- | --- | --- | {'--- | ' if overrides else ''}--- |"
    for info in rows:
        name = info.encode_name
        how = f"{_override(overrides, info.name)} | " if overrides else ""
        yield f"| `{name}` | {_type(info.type)} | {_default(info)} | {how}{texts[name]} |"
    yield ""


def _override(overrides: type[msgspec.Struct], name: str) -> str:
    """How a run overrides a field."""
    found = next((info for info in fields(overrides) if info.name == name), None)
    if found is None:
        return ""
    return "merged" if found.default_factory is dict else "replaces"


def _default(info: FieldInfo) -> str:
    if info.required:
        return "required"
    if info.default is msgspec.NODEFAULT or info.default in (None, (), ""):
        return ""
    if isinstance(info.default, msgspec.Struct):
        return ""
    if is_duration(info.type):
        return f"`{format_duration(info.default)}`"
    value = info.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(kind: Any) -> str:
    kind = _without_kinds(kind)
    for known, text in (
        (values.Command, "text or list of text"),
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
    if is_duration(kind):
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
    if kind is Any:
        return "any value"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}[kind]


def _without_kinds(kind: Any) -> Any:
    """A field's type without the marks of `spec.setting_kinds`."""
    if get_origin(kind) is not Annotated:
        return kind
    plain, *notes = get_args(kind)
    kept = tuple(note for note in notes if not isinstance(note, str))
    return Annotated[(plain, *kept)] if kept else plain


if __name__ == "__main__":
    print(reference_markdown(), end="")  # noqa: T201
