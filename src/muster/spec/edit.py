"""Edit an existing Job.

OCI: UpdateJobDetails allows infrastructure, storage mounts, display name, description and tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from muster.errors import InvalidInput, Problem
from muster.spec.models import JobSpec
from muster.spec.reader import spec_from_mapping

EDITABLE = ("resources", "shape", "mounts", "display_name", "description", "tags")


def edit(spec: JobSpec, changes: Sequence[str], folder: Path) -> JobSpec:
    """Apply `PATH=VALUE` changes, with values in YAML, to a spec. Raises InvalidInput.

    folder: the base of relative paths.
    """
    from muster.spec.yaml import load

    data: dict[str, Any] = msgspec.to_builtins(spec)
    problems = []
    for change in changes:
        path, given, text = change.partition("=")
        steps = re.findall(r"[^\s.\[\]]+", path)
        if not given or not steps:
            problems.append(Problem("--set", f"{change!r} is not PATH=VALUE", "resources.cpus=2"))
            continue
        try:
            if _set_mount(data, steps, path, text):
                continue
        except InvalidInput as error:
            problems += [Problem(f"--set {change}", p.message, p.hint) for p in error.problems]
            continue
        where = _editable(data, steps)
        if where is None:
            known = ", ".join(EDITABLE)
            hint = f"{known} of a job can change, job-wide or as node_groups.NAME.resources; "
            hint += "for anything else, change the file and run it, which makes a new version"
            problems.append(Problem("--set", f"{path} cannot change", hint))
            continue
        try:
            where[steps[-1]] = load(text, "--set", path)[0] if text else None
        except InvalidInput as error:
            problems += [Problem(f"--set {change}", p.message, p.hint) for p in error.problems]
        _drop_rival(where, steps[-1])
    if problems:
        raise InvalidInput(*problems)
    return spec_from_mapping(data, folder=folder)


def _editable(data: dict[str, Any], steps: list[str]) -> dict[str, Any] | None:
    """The mapping with the field that the path names; None if the field cannot be edited."""
    where: Any
    where, steps = _level(data, steps)
    if where is None or steps[0] not in EDITABLE:
        return None
    for step in steps[:-1]:
        if not isinstance(where, dict):
            return None
        if where.get(step) is None:
            where[step] = {}
        where = where[step]
    return where if isinstance(where, dict) else None


def _set_mount(data: dict[str, Any], steps: list[str], path: str, text: str) -> bool:
    """Set one mount of a list if the path names one. Raises InvalidInput."""
    from muster.spec.partial_overrides import set_item
    from muster.spec.yaml import load

    whose, inner = _level(data, steps)
    if whose is None or len(inner) < 2 or inner[0] != "mounts":
        return False
    value = load(text, "--set", path)[0] if text else None
    mounts = whose["mounts"] = list(whose["mounts"])
    set_item(mounts, path[: path.rfind("mounts") + len("mounts")], inner[1], inner[2:], value)
    return True


def _level(data: dict[str, Any], steps: list[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """The job, or the group that a path starts with (by name or number), and the rest of it."""
    if steps[0] != "node_groups" or len(steps) < 3:
        return data, steps
    groups = {str(number): group for number, group in enumerate(data["node_groups"])}
    groups |= {group["name"]: group for group in data["node_groups"]}
    return groups.get(steps[1]), steps[2:]


def _drop_rival(where: dict[str, Any], name: str) -> None:
    """Remove `resources` when `shape` is set, and the reverse. Single resources may be set along
    with a shape."""
    rival = {"shape": "resources", "resources": "shape"}.get(name)
    if rival in where:
        where[rival] = None


def differences(before: JobSpec, after: JobSpec) -> dict[str, dict[str, Any]]:
    """The changes of an edit: path -> {"from": value, "to": value}, with None for no value."""
    old, new = dict(_settings(before)), dict(_settings(after))
    return {
        path: {"from": old.get(path), "to": new.get(path)}
        for path in dict.fromkeys((*old, *new))
        if old.get(path) != new.get(path)
    }


def _settings(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    """Path and value of each editable setting, with single entries of mappings."""
    data = msgspec.to_builtins(spec)
    levels = [("", data)]
    levels += [(f"node_groups[{group['name']}].", group) for group in data["node_groups"]]
    for place, level in levels:
        for name in EDITABLE:
            value = level.get(name)
            if isinstance(value, dict):
                yield from (
                    (f"{place}{name}.{key}", inner) for key, inner in value.items() if inner
                )
            elif value:
                yield f"{place}{name}", value
