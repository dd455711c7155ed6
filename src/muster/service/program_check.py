"""Check before the start that the programs of a run exist."""

from __future__ import annotations

import os
from collections.abc import Iterator

from muster.errors import Problem
from muster.node.processes import CannotStart, find_program
from muster.plan.model import GroupPlan, RunPlan
from muster.spec.placeholders import parameters_in
from muster.spec.wording import close_to
from muster.submission import Submission

#: Commands that only a shell has.
_OF_THE_SHELL = frozenset(
    (".", "alias", "cd", "eval", "exec", "exit", "export", "set", "source", "trap", "ulimit")
)


def check_programs(plan: RunPlan, submission: Submission) -> Iterator[Problem]:
    """The programs that nodes on this machine would not find.

    Only programs that are looked up on PATH, or in a directory of this machine, are known before
    the start; an image or a requirement may bring others.
    """
    if plan.environment is not None:
        return
    found = dict.fromkeys(
        problem
        for group in plan.groups
        if group.role.program and group.command and group.image is None
        if not parameters_in(group.command[0])  # a program for each replica
        for problem in _check(group, group.command[0], submission)
    )
    yield from found


def _check(group: GroupPlan, program: str, submission: Submission) -> Iterator[Problem]:
    if "/" in program:
        if not program.startswith("/") and group.in_place is not None:
            yield from _check_file(os.path.join(group.in_place, program), program)
        return
    own, theirs = os.path.dirname(submission.python), submission.environ.get("PATH", os.defpath)
    path = group.env.get("PATH") or os.pathsep.join([own, theirs])
    try:
        find_program(program, {"PATH": path})
    except CannotStart:
        text = f"there is no program {program} on PATH"
        if program in _OF_THE_SHELL:
            text = f"{program} is a command of the shell, not a program"
            yield Problem("command", text, f"run it in a shell: sh -c '{program} ... && ...'")
        elif group.in_place and os.path.isfile(os.path.join(group.in_place, program)):
            yield Problem("command", text, f"for the file here, write ./{program}")
        else:
            close = close_to(program, _programs(path), cutoff=0.8)
            yield Problem("command", text, f"did you mean {close[0]}?" if close else "")


def _check_file(path: str, program: str) -> Iterator[Problem]:
    if not os.path.exists(path):
        yield Problem(
            "command", f"there is no program {program}", f"it would be {os.path.normpath(path)}"
        )
    elif os.path.isdir(path):
        yield Problem("command", f"{program} is a folder, not a program", "name a file in it")
    elif not os.access(path, os.X_OK):
        run = f"python {program}" if program.endswith(".py") else f"sh {program}"
        hint = f"make it executable with `chmod +x {program}`, or run `{run}`"
        yield Problem("command", f"{program} is not executable", hint)
    elif _has_windows_lines(path):
        text = f"the lines of {program} end as on Windows (CR LF), so it cannot be executed"
        yield Problem("command", text, f"convert it: sed -i 's/\\r$//' {program}")


def _has_windows_lines(path: str) -> bool:
    """Whether a script's first line names an interpreter with a carriage return."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!" and file.readline().endswith(b"\r\n")


def _programs(path: str) -> Iterator[str]:
    for folder in path.split(os.pathsep):
        if os.path.isdir(folder):
            yield from os.listdir(folder)
