"""What programs print, made ready for a terminal: overwritten lines, control sequences."""

from __future__ import annotations

import re

# patterns are compiled when first used, which most runs never do
#: Control characters but tabs and line breaks.
_CHARACTERS = bytes([*range(9), *range(11, 32), 127])
#: A control character, with the control sequence (CSI), string (OSC, DCS, ...) or other escape that
#: it starts. A class of characters comes first because the search for one is fast.
_CONTROL = (
    rb"[\x00-\x08\x0b-\x1f\x7f](?:(?<=\x1b)(?:"
    rb"\[[0-?]*[ -/]*[@-~]"
    rb"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    rb"|[ -/]*[0-~]))?"
)
_COLOR = rb"\x1b\[[0-9;:]*m"
_COLORED = rb"(?m)^(.*\x1b.*)$"
_RESET = b"\x1b[0m"


def final_lines(data: bytes) -> bytes:
    """Of each line, what carriage returns leave of it: the last state of a progress bar."""
    if b"\r" not in data:
        return data
    return b"\n".join([final_text(line) for line in data.split(b"\n")])


def final_text(line: bytes) -> bytes:
    """A line after its last carriage return."""
    return line.rstrip(b"\r").rpartition(b"\r")[2] if b"\r" in line else line


def harmless(data: bytes) -> bytes:
    """The lines without control sequences but colours, which end with their line."""
    if len(data.translate(None, _CHARACTERS)) == len(data):  # the fastest way to find none
        return data
    kept = re.sub(_CONTROL, lambda found: found[0] if re.fullmatch(_COLOR, found[0]) else b"", data)
    return re.sub(_COLORED, rb"\1" + _RESET, kept) if b"\x1b" in kept else kept


def without_controls(data: bytes) -> bytes:
    """The lines without any control sequences."""
    return re.sub(_CONTROL, b"", data)
