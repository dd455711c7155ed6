"""Rules for the fields that locate the code. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from muster.errors import Problem
from muster.secrets import redacted
from muster.spec.models import JobSpec
from muster.spec.oci_variables import has_entrypoint
from muster.spec.paths import is_url
from muster.spec.sources import is_notebook, needs_entrypoint

#: Prefixes of paths that are not relative, and of options.
_ELSEWHERE = ("/", "~", "$", "-")


def source_gaps(spec: JobSpec) -> Iterator[Problem]:
    """Missing fields."""
    if spec.entrypoint is not None and spec.artifact is None and spec.git is None:
        hint = "give an artifact, or git"
        yield Problem("entrypoint", "requires an artifact", hint)
    if spec.git is None or has_entrypoint(spec) or not needs_entrypoint(spec):
        return
    url = redacted(spec.git.url)
    yield Problem("entrypoint", f"is required for {url}", "name the file of the repository to run")


def lost_programs(spec: JobSpec) -> Iterator[Problem]:
    """Commands with a relative path of a file, in a folder that will be empty."""
    if spec.artifact is not None or spec.git is not None:
        return
    everywhere = bool(spec.working_dir or spec.image)
    places = [everywhere or bool(group.working_dir or group.image) for group in spec.node_groups]
    # in normal form, the job keeps its command while its directory and image are the groups'
    commands = [("command", spec.command, everywhere or (bool(places) and all(places)))]
    for number, group in enumerate(spec.node_groups):
        commands.append((f"node_groups[{number}].command", group.command, places[number]))
    for path, command, elsewhere in commands:
        lost = None if command is None or elsewhere else _relative_program(command)
        if command is not None and lost is not None:
            text = f"without an artifact, nodes start in an empty folder: {lost} is not there"
            hint = "add `artifact: .`, or give its whole path"
            if command[0] != "sh":
                hint += f"; on a command line, write `muster run . -- {shlex.join(command)}`"
            yield Problem(path, text, hint)


def ignored_arguments(spec: JobSpec) -> Iterator[Problem]:
    """Arguments of commands that a shell runs, and that neither use them nor end with a program."""
    if spec.command is not None and _ignores(spec.command, spec.args):
        yield _ignored("args")
    for number, group in enumerate(spec.node_groups):
        command = group.command or spec.command or ()
        for name in ("args", "node_args"):
            if _ignores(command, getattr(group, name)):
                yield _ignored(f"node_groups[{number}].{name}")


def _ignores(command: Sequence[str], arguments: Sequence[str] | None) -> bool:
    if not arguments or not command or command[0] != "sh":
        return False
    from muster.spec.shell import ignores_arguments  # few commands are run by a shell

    return ignores_arguments(command)


def _ignored(path: str) -> Problem:
    text = "a shell runs the command, which does not end with one program to pass them to"
    return Problem(path, text, 'put them into the command, or write "$@" where they belong')


def _relative_program(command: Sequence[str]) -> str | None:
    """The path of the program, or of the script of an interpreter, if it is relative."""
    if not command:
        return None
    if command[0] == "sh":
        from muster.spec.shell import program_of_script  # few commands are run by a shell

        command = program_of_script(command) or command
    first, *rest = command
    if "/" in first:
        return None if first.startswith(_ELSEWHERE) else first
    interpreter = first in ("bash", "sh") or first.rstrip("0123456789.") == "python"
    if not interpreter or not rest or not rest[0].endswith((".py", ".sh")):
        return None
    return None if rest[0].startswith(_ELSEWHERE) else rest[0]


#: How the addresses of git repositories begin.
_OF_GIT = ("https://", "http://", "ssh://", "git://", "file://", "git@")


def source_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Fields that exclude each other, and a URL that is not a folder."""
    if spec.artifact is not None and is_url(spec.artifact):
        url = redacted(spec.artifact.removeprefix("git+"))
        text = f"{redacted(spec.artifact)} is a URL, not a file or folder"
        hint = f"use git: {{url: {url}}}, or copy it to this machine"
        if not url.startswith(_OF_GIT):
            only = "only git repositories and local paths are read: mount it"
            hint = f"{only} (mounts: [{{source: {url}}}]), or copy it to this machine"
        yield Problem("artifact", text, hint)
    if spec.git is not None and spec.artifact is not None:
        yield Problem("git", "conflicts with artifact", "keep only one of them")
    if spec.notebook is not None and not is_notebook(spec.entrypoint or spec.artifact):
        hint = "it is for an artifact or entrypoint that ends in .ipynb"
        yield Problem("notebook", "there is no notebook to execute", hint)
