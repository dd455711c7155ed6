"""The last lines a program wrote, for whoever wants to know why it failed."""

from __future__ import annotations

import os

from muster.node.files import open_regular

_TAIL = 64 << 10  # bytes looked at


def size_of(path: str) -> int:
    """Of what is in a file now; 0 if it is not there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def last_words(path: str, since: int, killed: bool = False) -> str:
    """What says why a program failed, or else the last lines, of a file from byte `since` on.

    since: how long the file was before; a file that has become shorter was written anew.
    killed: by a signal.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - _TAIL))
            text = file.read(_TAIL).decode(errors="replace")
    except OSError:
        return ""  # a program may remove its own output
    if not text.strip():
        return ""
    from muster.node.failure_text import explain

    return "\n".join(explain(text, killed).lines)
