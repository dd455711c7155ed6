"""Write `spec.override_models` from the models: `python -m muster.spec.generate`.

The fields' kinds (`spec.setting_kinds`) say what a run may change. Generated rather
than built at import: type checkers and readers see plain classes, and no command spends time
evaluating annotations.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import getsource
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields

from muster.spec import models, policies, values
from muster.spec.decode import unwrap

TARGET = Path(__file__).with_name("override_models.py")

_KINDS = ("RunWide", "Inherited", "GroupOnly", "OnlyGroup", "Merged", "Code", "AlwaysShown", "Flag")
_CHANGEABLE = {"RunWide", "Inherited", "GroupOnly", "OnlyGroup", "Merged"}
_DURATION_METAS = (*unwrap(values.Duration)[2], *unwrap(values.Runtime)[2])
_HEAD = '''"""What a run may change of its job, and the names of settings by kind.

Generated from `spec.models` by `python -m muster.spec.generate` (`make docs`); do not edit.

OCI: CreateJobRunDetails may override the job's configuration (environment, arguments, maximum
runtime, startup probe), its container (image, entrypoint, cmd), infrastructure (shape, storage,
subnet), logging, storage mounts and node configuration (startup order, network, maximum runtime,
and the same of each node group, with replicas and minimumSuccessReplicas).
"""
'''
_GROUP = '''class GroupOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of a group. Fields that are left out keep the group's values; env and
    node_env are merged key by key; mounts replace all mounts that the job has for the group."""
'''
_RUN = '''class RunOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of its job: how the job runs, but not its program. env, tags and
    framework_options are merged key by key; every other field replaces the job's value.

    Run-level overrides take precedence over the job and its groups; overrides of a group take
    precedence over both.
    """
'''
_RUN_ONLY = '''
    max_restarts: Natural | None = None
    """Replaces failure.max_restarts."""
    run_name: DisplayName | None = None
    """Display name of the run: one line of any text. Need not be unique."""
    after: Words | None = None
    """Runs that have to succeed before it starts, by name or id. Nodes find the outputs of a single
    one in MUSTER_AFTER_OUTPUTS. If one of them cannot succeed any more, the run is canceled."""
    node_groups: dict[str, GroupOverrides] = field(default_factory=dict)
    """Overrides of single groups, by name."""
'''


class Declared:
    """The settings that a model declares: the kinds and the type of each field, as written."""

    def __init__(self, model: type[Struct]) -> None:
        self.kinds: dict[str, set[str]] = {}
        self.types: dict[str, str] = {}
        for name, annotation in model.__annotations__.items():
            self.kinds[name], self.types[name] = _parse_annotation(annotation)

    def of(self, *kinds: str, without: str = "") -> list[str]:
        """The fields that have all these kinds, in the model's order."""
        return [
            name
            for name, found in self.kinds.items()
            if found.issuperset(kinds) and without not in found
        ]


def _parse_annotation(annotation: str) -> tuple[set[str], str]:
    """The kinds around a type, and the type."""
    match = re.fullmatch(rf"({'|'.join(_KINDS)})\[(.*)\]", annotation)
    if match is None:
        return set(), annotation
    kinds, kind = _parse_annotation(match[2])
    return {match[1], *kinds}, kind


def override_models(
    job_model: type[Struct] = models.JobSpec, group_model: type[Struct] = models.NodeGroup
) -> str:
    """The source of `spec.override_models`."""
    job, group = Declared(job_model), Declared(group_model)
    body = "\n\n".join(
        [
            "\n".join(_tables(job, group, job_model, group_model)) + "\n",
            _GROUP + "\n" + "\n".join(_fields(group)) + "\n",
            _RUN + "\n" + "\n".join(_fields(job)) + _RUN_ONLY,
        ]
    )
    return f"{_HEAD}\n{_imports(body)}\n{body}"


def _tables(
    job: Declared, group: Declared, job_model: type[Struct], group_model: type[Struct]
) -> Iterator[str]:
    records = [name for name in job.of("RunWide") if _is_record(job_model, name)]
    plain = [n for n in group.kinds if group.kinds[n] and not _is_record(group_model, n)]
    shown = job.of("AlwaysShown")
    changeable = [n for n, kinds in job.kinds.items() if kinds & _CHANGEABLE]
    for comment, name, names in (
        ("One value for the whole run.", "RUN_WIDE", job.of("RunWide")),
        ("The fields that are records.", "RUN_WIDE_RECORDS", records),
        ("Set for the job or a group; groups inherit them.", "INHERITED", job.of("Inherited")),
        ("Set for one group.", "GROUP_ONLY", group.of("GroupOnly", without="AlwaysShown")),
        ("All settings of a group except records.", "GROUP_SETTINGS", plain),
        ("Set without naming the group, if there is only one.", "ONLY_GROUP", job.of("OnlyGroup")),
        ("Where the code is and what it needs.", "CODE", job.of("Code")),
        ("Explained even if they are not set.", "ALWAYS_SHOWN", shown),
        (
            "What the job is: a run cannot change it.",
            "OF_THE_JOB",
            [name for name in job.kinds if name not in changeable and name != "node_groups"],
        ),
        (
            "Options of `muster run` with the same names.",
            "FLAGS",
            [*job.of("Flag"), "max_restarts", "run_name"],
        ),
        ("Durations in seconds.", "DURATIONS", _durations(job_model, group_model)),
    ):
        yield f"#: {comment}"
        yield f"{name} = ("
        yield from (f'    "{name}",' for name in names)
        yield ")"


def _fields(declared: Declared) -> Iterator[str]:
    for name, kinds in declared.kinds.items():
        if "Merged" in kinds:
            yield f"    {name}: {declared.types[name]} = field(default_factory=dict)"
        elif kinds & _CHANGEABLE:
            kind = declared.types[name].removesuffix(" | None")
            yield f"    {name}: {kind} | None = None"


def _is_record(model: type[Struct], name: str) -> bool:
    kind = next(unwrap(info.type)[0] for info in fields(model) if info.name == name)
    types = (kind, *get_args(kind))  # a record, or a list of records
    return any(isinstance(each, type) and issubclass(each, Struct) for each in types)


def _durations(*found: type[Struct]) -> list[str]:
    """Names of fields that hold seconds, in these models and the policies."""
    all_models: list[type[Struct]] = [
        *found,
        models.StartupProbe,
        models.LivenessProbe,
        policies.Backoff,
        policies.Checkpoint,
    ]
    names = (info.name for model in all_models for info in fields(model) if is_duration(info.type))
    return list(dict.fromkeys(names))


def is_duration(kind: Any) -> bool:
    """Whether a field's type is a duration."""
    parsers = [(meta.extra or {}).get("parse") for meta in unwrap(kind)[2]]
    return any(meta.extra["parse"] in parsers for meta in _DURATION_METAS if meta.extra)


def _imports(body: str) -> str:
    """The imports that the body needs."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    lines = ["from __future__ import annotations", ""]
    if "Annotated" in used:
        lines += ["from typing import Annotated", ""]
    msg = [name for name in ("Meta", "Struct", "field") if name in used]
    lines += [f"from msgspec import {', '.join(msg)}", ""]
    left = used
    for module in (models, policies, values):
        own = sorted(left & _defined_names(module), key=lambda name: (not name.isupper(), name))
        left = left - set(own)
        if own:
            names = "".join(f"    {name},\n" for name in own)
            lines.append(f"from {module.__name__} import (\n{names})")
    return "\n".join(lines) + "\n"


def _defined_names(module: ModuleType) -> set[str]:
    tree = ast.parse(getsource(module))
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


if __name__ == "__main__":
    TARGET.write_text(override_models())
