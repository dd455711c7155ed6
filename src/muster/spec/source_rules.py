"""Rules between the fields that say where the code is. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from muster.errors import Problem
from muster.secrets import redacted
from muster.spec.models import JobSpec
from muster.spec.oci_variables import entrypoint_in
from muster.spec.sources import is_notebook

#: What a path begins with that says itself where it is, and a word that is none.
_ELSEWHERE = ("/", "~", "$", "-")


def source_gaps(spec: JobSpec) -> Iterator[Problem]:
    """What is missing."""
    if spec.entrypoint is not None and spec.artifact is None and spec.git is None:
        hint = "give an artifact, or git"
        yield Problem("entrypoint", "there is no artifact to look for it in", hint)
    said = spec.entrypoint is not None or entrypoint_in(spec) is not None
    if spec.git is None or said or not needs_entrypoint(spec):
        return
    url = redacted(spec.git.url)
    yield Problem("entrypoint", f"{url} needs one", "say which file of the repository to run")


def lost_programs(spec: JobSpec) -> Iterator[Problem]:
    """Commands that name a file by its place in a folder that will be empty."""
    if spec.artifact is not None or spec.git is not None:
        return
    commands = [("command", spec.command, spec.image)]
    for number, group in enumerate(spec.node_groups):
        elsewhere = group.working_dir or group.image or spec.image
        commands.append((f"node_groups[{number}].command", group.command, elsewhere))
    for path, command, elsewhere in commands:
        lost = None if command is None or elsewhere else _relative_program(command)
        if command is not None and lost is not None:
            text = f"without an artifact, nodes start in an empty folder: {lost} is not there"
            typed = f"`muster run . -- {shlex.join(command)}`"
            hint = f"add `artifact: .` ({typed}), or give its whole path"
            yield Problem(path, text, hint)


def _relative_program(command: Sequence[str]) -> str | None:
    """The program's file, or that of an interpreter's script, if its path is relative."""
    if not command:
        return None
    first, *rest = command
    if "/" in first:
        return None if first.startswith(_ELSEWHERE) else first
    interpreter = first in ("bash", "sh") or first.rstrip("0123456789.") == "python"
    if not interpreter or not rest or not rest[0].endswith((".py", ".sh")):
        return None
    return None if rest[0].startswith(_ELSEWHERE) else rest[0]


def needs_entrypoint(spec: JobSpec) -> bool:
    """Whether any node runs the code itself, and not a command beside it."""
    groups = spec.node_groups
    told = bool(groups) and all(group.command is not None for group in groups)
    return spec.command is None and not told


def entrypoint_of(spec: JobSpec) -> str | None:
    """The file of the code that is run: None = it is not said, and "" = none is needed."""
    return spec.entrypoint if needs_entrypoint(spec) else spec.entrypoint or ""


def source_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """What excludes each other."""
    if spec.git is not None and spec.artifact is not None:
        yield Problem("git", "stands beside artifact", "keep the one you mean")
    if spec.notebook is not None and not is_notebook(spec.entrypoint or spec.artifact):
        hint = "it is for an artifact or entrypoint that ends in .ipynb"
        yield Problem("notebook", "there is no notebook to execute", hint)
