"""Overrides of a run from plain data, and as the fields of a new Job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode_partial
from muster.spec.models import JobSpec
from muster.spec.override_models import GroupOverrides, RunOverrides
from muster.spec.partial_overrides import Item, Part
from muster.spec.paths import absolute_paths, has_array
from muster.spec.problem_places import short_path

_Level = TypeVar("_Level", RunOverrides, GroupOverrides)


class Changes(Struct, frozen=True):
    """Overrides as they were read: those that are valid, and the problems of the others."""

    overrides: RunOverrides = RunOverrides()
    problems: tuple[Problem, ...] = ()
    broken: tuple[str, ...] = ()
    """Paths that could not be read. The overrides do not have them."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Path -> flag that gave it."""
    items: tuple[Item, ...] = ()
    """Changes of single items of the job's lists, for `partial_overrides.with_items`."""
    parts: tuple[Part, ...] = ()
    """Records of which only some fields are given, for `partial_overrides.with_items`."""

    def require_valid(self) -> RunOverrides:
        """The overrides. Raises InvalidInput with every problem."""
        without_list = (
            Problem(item.flag, "requires a job with this list", f"set {item.list_path}")
            for item in self.items
        )
        if problems := [*self.problems, *without_list]:
            raise InvalidInput(*problems)
        return self.overrides


def changes_from_mapping(data: Mapping[str, Any]) -> Changes:
    """Read plain data; problems are in the result."""
    problems: list[Problem] = []
    overrides = decode_overrides(data, problems) or RunOverrides()
    found = tuple(problem._replace(path=short_path(problem.path)) for problem in problems)
    return Changes(overrides, found, tuple(problem.path for problem in problems))


def received_overrides(data: Mapping[str, Any]) -> RunOverrides:
    """Read plain data that was sent from another machine: no file is read. Raises InvalidInput with
    every problem."""
    problems: list[Problem] = []
    overrides = decode_partial(RunOverrides, data, problems)
    if problems or overrides is None:
        raise InvalidInput(*problems)
    return overrides


def overrides_from_mapping(data: Mapping[str, Any]) -> RunOverrides:
    """Read plain data. Raises InvalidInput with every problem."""
    return changes_from_mapping(data).require_valid()


def decode_overrides(data: Mapping[str, Any], problems: list[Problem]) -> RunOverrides | None:
    """Overrides from plain data, without those that are invalid. Relative paths are resolved
    against the working directory. problems: extended."""
    made = with_absolute_paths(data)
    if has_array(made):
        from muster.spec.array_files import with_rows  # few runs have an array

        made = with_rows(made, Path.cwd(), problems)
    return decode_partial(RunOverrides, made, problems)


def combined(first: RunOverrides, second: RunOverrides) -> RunOverrides:
    """Both; where they give the same field, that of the second. Variables, tags and options are
    merged key by key, and groups field by field."""
    groups = dict(first.node_groups)
    for name, group in second.node_groups.items():
        groups[name] = _combined(groups.get(name, GroupOverrides()), group)
    return replace(_combined(first, second), node_groups=groups)


def _combined(first: _Level, second: _Level) -> _Level:
    given = {
        name: {**getattr(first, name), **value} if isinstance(value, dict) else value
        for name in second.__struct_fields__
        if (value := getattr(second, name)) is not None
    }
    return replace(first, **given)


def with_absolute_paths(data: Mapping[str, Any]) -> Any:
    """Overrides, as plain data, with relative paths resolved against the working directory."""
    made = absolute_paths(data, Path.cwd())
    groups = made.get("node_groups")
    if isinstance(groups, Mapping):
        made["node_groups"] = {
            name: absolute_paths(group, Path.cwd()) for name, group in groups.items()
        }
    return made


_DEFAULTS = RunOverrides()


def job_fields(changes: Changes) -> tuple[dict[str, Any], list[Problem]]:
    """The overrides as fields of a new Job's spec, and problems of those that no Job has."""
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
                "give it to `muster run`",
            )
        )
        del given[name]
    if given.pop("node_groups", None):
        hint = "leave out the group, or write a spec file"
        text = "a job made from code or a command has one group"
        problems.append(Problem(_flag(changes, "node_groups"), text, hint))
    problems += [
        Problem(item.flag, "the job has no such list yet", f"set {item.list_path}")
        for item in changes.items
    ]
    return given, problems


def _flag(changes: Changes, name: str) -> str:
    flags = (flag for path, flag in changes.flags.items() if path.startswith(name))
    return next(flags, name)
