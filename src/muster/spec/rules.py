"""Rules between fields: what single values cannot tell. Pure; every problem at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.errors import Problem
from muster.spec.models import MAX_ENV_CHARACTERS, JobSpec, Mount, NodeGroup, StartupProbe


def check(spec: JobSpec) -> list[Problem]:
    """What is wrong with a spec as it was written."""
    return [*_job(spec), *_duplicates(spec), *_groups(spec)]


def _job(spec: JobSpec) -> Iterator[Problem]:
    if spec.node_groups:
        for name in ("nodes", "startup_probe", "min_success"):
            if getattr(spec, name) is not None:
                hint = "say it for the groups it is meant for"
                yield Problem(name, "cannot stand beside node_groups", hint)
    if spec.resources is not None and spec.shape is not None:
        yield _both("", spec.shape)
    if spec.entrypoint is not None and spec.artifact is None:
        yield Problem("entrypoint", "there is no artifact to look for it in", "give an artifact")
    if spec.command is not None and spec.entrypoint is not None:
        yield Problem("command", "stands beside entrypoint", "keep the one you mean")
    if spec.artifact is None:
        nothing = [g.name for g in spec.node_groups if g.command is None]
        if spec.command is None and (nothing or not spec.node_groups):
            where = f" in group {', '.join(nothing)}" if nothing else ""
            yield Problem("", f"nothing to run{where}", "give an artifact or a command")
    if spec.startup_probe is not None:
        yield from _probe("startup_probe", spec.startup_probe)
    if spec.min_success is not None and spec.min_success > 1 and not spec.node_groups:
        text = f"{spec.min_success} replicas cannot succeed where there is 1"
        yield Problem("min_success", text, "write a group with replicas instead of nodes")
    yield from _empty("command", spec.command)


def _duplicates(spec: JobSpec) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for number, group in enumerate(spec.node_groups):
        if group.name in seen:
            text = f"{group.name!r} is the name of node_groups[{seen[group.name]}] already"
            yield Problem(f"node_groups[{number}].name", text, "group names are unique")
        seen.setdefault(group.name, number)


def _groups(spec: JobSpec) -> Iterator[Problem]:
    yield from _env("env", spec.env)
    yield from _mounts("mounts", spec.mounts)
    for number, group in enumerate(spec.node_groups):
        yield from _group(f"node_groups[{number}]", group, spec)


def _group(path: str, group: NodeGroup, spec: JobSpec) -> Iterator[Problem]:
    if group.min_success is not None and group.min_success > group.replicas:
        text = f"{group.min_success} replicas cannot succeed where there are {group.replicas}"
        yield Problem(f"{path}.min_success", text, f"at most {group.replicas}")
    if group.resources is not None and group.shape is not None:
        yield _both(f"{path}.", group.shape)
    if group.startup_probe is not None:
        yield from _probe(f"{path}.startup_probe", group.startup_probe)
    yield from _empty(f"{path}.command", group.command)
    yield from _env(f"{path}.env", {**spec.env, **group.env})
    yield from _mounts(f"{path}.mounts", (*spec.mounts, *group.mounts))


def _both(prefix: str, shape: str) -> Problem:
    text = f"stands beside shape {shape!r}, which says the same"
    return Problem(f"{prefix}resources", text, "keep the one you mean")


def _probe(path: str, probe: StartupProbe) -> Iterator[Problem]:
    given = [n for n, v in (("exec", probe.exec_), ("tcp", probe.tcp), ("file", probe.file)) if v]
    if len(given) != 1:
        text = f"has {' and '.join(given) or 'neither exec, tcp nor file'}"
        yield Problem(path, text, "give exactly one of exec, tcp and file")


def _empty(path: str, command: Sequence[str] | None) -> Iterator[Problem]:
    if command is not None and not command:
        yield Problem(path, "is empty", "give a program to run")


def _env(path: str, env: Mapping[str, str]) -> Iterator[Problem]:
    characters = sum(len(name) + len(value) for name, value in env.items())
    if characters > MAX_ENV_CHARACTERS:
        text = f"{characters:,} characters in names and values, {MAX_ENV_CHARACTERS:,} are allowed"
        yield Problem(path, text, "put large values into a file")


def _mounts(path: str, mounts: Sequence[Mount]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for mount in mounts:
        where = mount.destination
        if where == "/":
            yield Problem(path, f"{mount.source} cannot be mounted over /", "give it a path")
        elif where in seen:
            text = f"{seen[where]} and {mount.source} are both mounted at {where}"
            yield Problem(path, text, "give one of them another path")
        seen.setdefault(where, mount.source)
