"""Where a problem is in the file it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from muster.errors import Problem

#: Path -> line, as `spec.yaml.load` notes them.
Lines = Mapping[str, int]


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
        path = path.rpartition("[")[0] if path.endswith("]") else path.rpartition(".")[0]
    return lines.get(path)
