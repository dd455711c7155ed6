"""Where a problem is in the file it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from muster.errors import Problem

#: Path -> line, as `spec.yaml.load` notes them.
Lines = Mapping[str, int]


class Origin(NamedTuple):
    """Where something of a spec was written, in a file that is no spec itself.

    path: there. label: what it is called there, if the path does not say so. spec_only: how to
    follow a hint that names a field of a spec.
    """

    path: str
    label: str = ""
    spec_only: str = ""


#: Path in the spec -> where it was written.
Origins = Mapping[str, Origin]


def at_origin(problem: Problem, origins: Origins) -> Problem:
    """The problem with its path, and its hint, as the author of the file knows them. A field that
    no group was given is the job's."""
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
    """Of the path, or of what it is in, but for the whole."""
    while path not in origins:
        path = _around(path)
        if not path:
            return None
    return origins[path]


def in_order(problems: Iterable[Problem], lines: Lines) -> list[Problem]:
    """As one reads the file, from its top; as they were found within a line."""
    return sorted(problems, key=lambda problem: _line(problem.path, lines) or 0)


def placed(problem: Problem, source: str, lines: Lines) -> Problem:
    """The problem with its file and line; as it is if there is no file."""
    if not source:
        return problem
    line = _line(problem.path, lines)
    return problem._replace(source=source if line is None else f"{source}:{line}")


def follows(path: str, broken: Iterable[str]) -> bool:
    """Whether something is wrong there already: what else seems to be may only follow."""
    return any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in broken)


def touched(fields: Iterable[str], broken: Iterable[str]) -> bool:
    """Whether any of the fields could not be read, or something in one. Written without the
    numbers of lists: `node_groups.command` is the command of any group."""
    bare = [re.sub(r"\[[^]]*\]", "", path) for path in broken]
    return any(
        follows(field, [other]) or follows(other, [field]) for field in fields for other in bare
    )


def _line(path: str, lines: Lines) -> int | None:
    """Of the path, or else of the nearest thing around it."""
    while path and path not in lines:
        path = _around(path)
    return lines.get(path)


def _around(path: str) -> str:
    """What the last part of a path is in."""
    return path.rpartition("[")[0] if path.endswith("]") else path.rpartition(".")[0]
