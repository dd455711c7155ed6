"""The last lines a program wrote, for whoever wants to know why it failed."""

from __future__ import annotations

import os
from typing import List

_TAIL = 16 << 10  # bytes looked at
_LINES = 5  # kept, if there is no traceback
_TRACEBACK_LINES = 20
TRACEBACK = "Traceback (most recent call last):"


def size_of(path: str) -> int:
    """Of what is in a file now; 0 if it is not there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def last_words(path: str, since: int) -> str:
    """The last traceback, or else the last lines, of what is in a file from byte `since` on.

    since: how long the file was before; a file that has become shorter was written anew.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - _TAIL))
            text = file.read(_TAIL).decode(errors="replace")
    except OSError:
        return ""  # a program may remove its own output
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(_traceback(lines) or lines[-_LINES:])


def _traceback(lines: List[str]) -> List[str]:
    """The last traceback among the lines, and what follows it as far as there is room; its first
    and its last lines if it is long."""
    starts = [number for number, line in enumerate(lines) if TRACEBACK in line]
    if not starts:
        return []
    found = lines[starts[-1] :]
    prefix = found[0].partition(TRACEBACK)[0]  # PyTorch's "[rank0]: ", say
    end = 1
    while end < len(found) and found[end].startswith(prefix + " "):
        end += 1
    # the line that names the exception is the first that is not indented
    if end < _TRACEBACK_LINES:
        return found[:_TRACEBACK_LINES]
    return [found[0], prefix + "  ...", *found[: end + 1][2 - _TRACEBACK_LINES :]]
