"""The command line of this process, as `ps` shows it to every user of the machine."""

from __future__ import annotations

import ctypes

#: In /proc/PID/stat, after the name: where the arguments start and end in memory (proc(5): 48, 49).
_START, _END = 45, 46


def hide_command_line(shown: str) -> None:
    """Replace the command line of this process and of those that it forks later.

    They are forked from `muster run`, whose options may contain secrets, and outlive it. Does
    nothing where there is no /proc.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return
    start, end = int(fields[_START]), int(fields[_END])
    if start < end:  # the kernel says 0 to those who may not know
        size = end - start
        ctypes.memmove(start, shown.encode()[: size - 1].ljust(size, b"\0"), size)
