"""What a run may change of its Job, said of a Job that is yet to be made."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from muster.errors import Problem
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes

_DEFAULTS = RunOverrides()


def job_fields(changes: Changes) -> tuple[dict[str, Any], list[Problem]]:
    """The fields of a spec that say the same, and what no Job can say."""
    data = to_builtins(changes.overrides)
    given = {name: data[name] for name in data if data[name] != getattr(_DEFAULTS, name)}
    restarts = given.pop("max_restarts", None)
    if restarts is not None:
        given["failure"] = {**given.get("failure", {}), "max_restarts": restarts}
    problems = []
    for name in [name for name in given if name not in JobSpec.__struct_fields__]:
        problems.append(
            Problem(
                _flag(changes, name),
                "belongs to a run, not to a job",
                "give it to `muster run` instead",
            )
        )
        del given[name]
    if given.pop("node_groups", None):
        hint = "say it without the group, or write a spec file"
        text = "a job that is made from code or a command has one group"
        problems.append(Problem(_flag(changes, "node_groups"), text, hint))
    problems += [
        Problem(item.flag, "there is no list yet", f"set {item.list_path}")
        for item in changes.items
    ]
    return given, problems


def _flag(changes: Changes, name: str) -> str:
    flags = (flag for path, flag in changes.said.items() if path.startswith(name))
    return next(flags, name)
