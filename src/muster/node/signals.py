"""Which processes get a signal that is meant for the program."""

from __future__ import annotations

import contextlib
import os
from typing import List

from muster.node import processes

#: Names of the processes of shells. One that waits for a program cannot pass a signal on.
_SHELLS = frozenset(("sh", "dash", "bash", "ash", "busybox", "ksh", "mksh", "zsh"))


def signal_program(pid: int, number: int) -> None:
    """Signal a process that was started as the program, and not its children: a data loader's
    worker without a handler for the signal would die, and the program with it.

    A shell without a trap for the signal would die, too, before the program that it runs has saved
    its work: the programs below it that have a handler get the signal in its place.
    """
    for one in _targets(pid, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, number)


def _targets(pid: int, number: int) -> List[int]:
    if _name(pid) not in _SHELLS or _catches(pid, number):
        return [pid]
    return _below(pid, number)


def _below(shell: int, number: int) -> List[int]:
    """The programs with a handler that a shell, or a shell below it, has started."""
    found: List[int] = []
    for pid in processes.children(shell):
        if _catches(pid, number):
            found.append(pid)
        elif _name(pid) in _SHELLS:
            found += _below(pid, number)
    return found


def _name(pid: int) -> str:
    """The name of a process; "" if it has ended, or without /proc."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)
