"""Locations of problems in the file that a spec is from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from muster.errors import Problem

#: Path -> line, from `spec.yaml.load`.
Lines = Mapping[str, int]


class Origin(NamedTuple):
    """Where a spec's field is from, in a file of another format."""

    path: str
    """Path in that file."""
    label: str = ""
    """Name of the field there, if the path does not tell."""
    spec_only: str = ""
    """Appended to hints that name a field of a spec."""


#: Path in the spec -> its origin in the file.
Origins = Mapping[str, Origin]


def at_origin(problem: Problem, origins: Origins) -> Problem:
    """The problem with its path and hint in terms of the file. A field that a group does not have
    is the job's."""
    path = problem.path
    of_job = re.sub(r"^node_groups\[[^]]*\]\.?", "", path)
    origin = _nearest(path, origins) or (_nearest(of_job, origins) if of_job else None)
    if origin is None:
        return problem
    message = f"{origin.label}: {problem.message}" if origin.label else problem.message
    hint = problem.hint
    if hint.startswith("write "):
        hint += origin.spec_only
    return problem._replace(path=origin.path, message=message, hint=hint)


def _nearest(path: str, origins: Origins) -> Origin | None:
    """The origin of a path or of its nearest parent."""
    while path not in origins:
        path = _around(path)
        if not path:
            return None
    return origins[path]


def in_order(problems: Iterable[Problem], lines: Lines) -> list[Problem]:
    """The problems by line; those of one line in the order found."""
    return sorted(problems, key=lambda problem: _line(problem.path, lines) or 0)


def placed(problem: Problem, source: str, lines: Lines) -> Problem:
    """The problem with its file and line, if there is a file and it is not in another one."""
    if problem.path not in lines:
        problem = problem._replace(path=short_path(problem.path))
    if not source or problem.source:
        return problem
    line = _line(problem.path, lines)
    return problem._replace(source=source if line is None else f"{source}:{line}")


def short_path(path: str) -> str:
    """The path in the short form of an array, which most users write."""
    return path.replace("array.parameters.", "array.").replace("array.rows", "array")


def follows(path: str, broken: Iterable[str]) -> bool:
    """Whether a path is broken or inside a broken one: problems there may be consequences only."""
    return any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in broken)


def touched(fields: Iterable[str], broken: Iterable[str]) -> bool:
    """Whether any of the fields, or a part of one, could not be read. fields: without list indices;
    `node_groups.command` is the command of any group."""
    bare = [re.sub(r"\[[^]]*\]", "", path) for path in broken]
    return any(
        follows(field, [other]) or follows(other, [field]) for field in fields for other in bare
    )


def _line(path: str, lines: Lines) -> int | None:
    """The line of a path or of its nearest parent."""
    while path and path not in lines:
        path = _around(path)
    return lines.get(path)


def _around(path: str) -> str:
    """The parent of a path."""
    return path.rpartition("[")[0] if path.endswith("]") else path.rpartition(".")[0]
