"""What programs print, made ready for a terminal: overwritten lines, control sequences."""

from __future__ import annotations

import re

_COLOR = rb"\x1b\[[0-9;:]*m"
#: Control sequences (CSI), strings (OSC, DCS, ...), other escapes, and control characters but tabs
#: and line breaks.
_CONTROL = re.compile(
    rb"(?P<color>" + _COLOR + rb")"
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"
    rb"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    rb"|\x1b[ -/]*[0-~]"
    rb"|[\x00-\x08\x0b-\x1f\x7f]"
)
_COLORED = re.compile(rb"(?m)^(.*\x1b.*)$")
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
    if _CONTROL.search(data) is None:
        return data
    kept = _CONTROL.sub(lambda found: found["color"] or b"", data)
    return _COLORED.sub(rb"\1" + _RESET, kept) if b"\x1b" in kept else kept


def without_controls(data: bytes) -> bytes:
    """The lines without any control sequences."""
    return _CONTROL.sub(b"", data)
