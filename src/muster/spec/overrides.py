"""What a run changes of its Job, from flags or from Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode, names
from muster.spec.models import GroupOverrides, JobSpec, NodeGroup, RunOverrides
from muster.spec.reader import absolute_source

_STEP = re.compile(r"([A-Za-z_][\w-]*)|\[([\w-]+)\]")


def overrides_from_mapping(data: Mapping[str, Any]) -> RunOverrides:
    """From plain data. Raises InvalidInput with every problem."""
    problems: list[Problem] = []
    overrides = decode(RunOverrides, _absolute(data), problems)
    if overrides is None:
        raise InvalidInput(*problems)
    return overrides


def overrides_from_flags(
    *,
    nodes: Sequence[str] = (),
    env: Sequence[str] = (),
    max_runtime: str | None = None,
    mounts: Sequence[str] = (),
    sets: Sequence[str] = (),
    args: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> RunOverrides:
    """From a command line.

    nodes: `4` or `workers=2`. env: `K=V`, `workers:K=V`, or `K` alone, taken from `environ`.
    mounts: `SRC`, `SRC:PATH`, `SRC:PATH:ro`. sets: `PATH=VALUE`, the value in YAML.
    Raises InvalidInput with every problem.
    """
    data: dict[str, Any] = {}
    problems: list[Problem] = []
    for text in sets:
        _set(data, text, problems)
    for text in nodes:
        group, _, count = text.rpartition("=")
        where = _group(data, group) if group else data
        where["nodes"] = _number(count, "--nodes", problems)
    for text in env:
        _env(data, text, environ or {}, problems)
    if mounts:
        data["mounts"] = [_mount(text) for text in mounts]
    if max_runtime is not None:
        data["max_runtime"] = max_runtime
    if args is not None:
        data["args"] = list(args)
    overrides = decode(RunOverrides, _absolute(data), problems)
    if overrides is None or problems:
        raise InvalidInput(*problems)
    return overrides


def _absolute(data: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(data)
    if isinstance(made.get("mounts"), (list, tuple)):
        made["mounts"] = [
            {**m, "source": absolute_source(m["source"], Path.cwd())}
            if isinstance(m, Mapping) and isinstance(m.get("source"), str)
            else m
            for m in made["mounts"]
        ]
    if isinstance(made.get("node_groups"), Mapping):
        made["node_groups"] = {
            name: _absolute(group) if isinstance(group, Mapping) else group
            for name, group in made["node_groups"].items()
        }
    return made


def _number(text: str, flag: str, problems: list[Problem]) -> int | None:
    if text.isdigit():
        return int(text)
    problems.append(Problem(flag, f"{text!r} is not a number of nodes", "write 4 or workers=4"))
    return None


def _group(data: dict[str, Any], name: str) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = data.setdefault("node_groups", {})
    return groups.setdefault(name, {})


def _env(
    data: dict[str, Any], text: str, environ: Mapping[str, str], problems: list[Problem]
) -> None:
    left, given, value = text.partition("=")
    group, _, name = left.rpartition(":")
    if not given:
        if name not in environ:
            hint = f"write {name}=VALUE, or set it before"
            problems.append(Problem("--env", f"{name} is not set in your environment", hint))
            return
        value = environ[name]
    where = _group(data, group) if group else data
    where.setdefault("env", {})[name] = value


def _mount(text: str) -> dict[str, Any]:
    mount: dict[str, Any] = {}
    if text.endswith((":ro", ":rw")):
        mount["read_only"] = text.endswith(":ro")
        text = text[:-3]
    # a colon belongs to a URL (s3://) or an export (host:/path) unless a path was before it
    cut = text.rfind(":/", 1)
    if cut > 0 and text[cut : cut + 3] != "://" and ("/" in text[:cut] or text[:1] == "."):
        mount["path"] = text[cut + 1 :]
        text = text[:cut]
    return {"source": text, **mount}


def _set(data: dict[str, Any], text: str, problems: list[Problem]) -> None:
    path, given, value = text.partition("=")
    steps = [a or b for a, b in _STEP.findall(path)]
    if not given or not steps:
        problems.append(Problem("--set", f"{text!r} is not PATH=VALUE", "as in resources.cpus=2"))
        return
    problem = _settable(path, steps)
    if problem is not None:
        problems.append(problem)
        return
    from muster.spec.yaml import load

    where = data
    for step in steps[:-1]:
        where = where.setdefault(step, {})
    where[steps[-1]] = load(value, "--set")[0] if value else ""


def _settable(path: str, steps: Sequence[str]) -> Problem | None:
    """Why a run cannot set this path; None if it can. What is below it, decoding will tell."""
    if steps[0] == "node_groups":
        if len(steps) < 3:
            return Problem("--set", f"{path} names no setting", "as in node_groups.NAME.nodes=2")
        name, mine, jobs = steps[2], names(GroupOverrides), names(NodeGroup)
    else:
        name, mine, jobs = steps[0], names(RunOverrides), names(JobSpec)
    if name in mine:
        return None
    if name in jobs:
        text = f"{path} belongs to the Job; a run cannot change it"
        return Problem("--set", text, f"change it in the spec; a run can change {', '.join(mine)}")
    from difflib import get_close_matches

    close = get_close_matches(name, mine, 1)
    hint = f'did you mean "{close[0]}"?' if close else f"a run can change {', '.join(mine)}"
    return Problem("--set", f"{path}: there is no such setting", hint)
