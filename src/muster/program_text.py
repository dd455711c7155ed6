"""What programs print, made ready for a terminal: overwritten lines, control sequences."""

from __future__ import annotations

import re

# patterns are compiled when first used, which most runs never do
#: Control characters but tabs and line breaks.
_CHARACTERS = bytes([*range(9), *range(11, 32), 127])
#: The rest of a control sequence after CSI, and of a string (OSC, DCS, ...) after its start.
_SEQUENCE = rb"[0-?]*[ -/]*[@-~]"
_STRING = rb"[^\x07\x1b\n\xc2]*(?:\xc2(?!\x9c)[^\x07\x1b\n\xc2]*)*(?:\x07|\x1b\\|\xc2\x9c)?"
#: A control character, with the control sequence, string or other escape that it starts: ASCII's,
#: those that are one character of Unicode (C1, U+0080 to U+009F), and those that change the
#: direction of the text around them (U+202A to U+202E, U+2066 to U+2069). A class of characters
#: comes first because the search for one is fast.
_CONTROL = (
    rb"[\x00-\x08\x0b-\x1f\x7f\xc2\xe2](?:"
    rb"(?<=\x1b)(?:\[" + _SEQUENCE + rb"|[\]PX^_]" + _STRING + rb"|[ -/]*[0-~])"
    rb"|(?<=\xc2)(?:\x9b(?:" + _SEQUENCE + rb")?|[\x90\x98\x9d-\x9f]" + _STRING + rb"|[\x80-\x9f])"
    rb"|(?<=\xe2)(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])"
    rb"|(?<![\xc2\xe2]))"
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
    plain = len(data.translate(None, _CHARACTERS)) == len(data)  # the fastest way to find none
    if plain and (data.isascii() or not re.search(_CONTROL, data)):
        return data
    kept = re.sub(_CONTROL, lambda found: found[0] if re.fullmatch(_COLOR, found[0]) else b"", data)
    return re.sub(_COLORED, rb"\1" + _RESET, kept) if b"\x1b" in kept else kept


def without_controls(data: bytes) -> bytes:
    """The lines without any control sequences."""
    return re.sub(_CONTROL, b"", data)
