"""Escape characters that are unsafe to print, of programs, file names or descriptions."""

from __future__ import annotations

#: Control characters that are kept within a line.
_LAYOUT = "\t"


def visible(text: str) -> str:
    """The text with invisible characters, and those that a terminal interprets, as escapes.

    These are Unicode's control and format characters (directions, zero width), separators of lines,
    surrogates, private and unassigned characters: `\\x1b`, `\\u202e`. Line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    # checking whole lines is fast
    lines = text.split("\n")
    return "\n".join([s if s.isprintable() else "".join(map(_visible, s)) for s in lines])


def visible_line(text: str) -> str:
    """The same on one line: line breaks and tabs become escapes, too."""
    return text if text.isprintable() else visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _visible(char: str) -> str:
    from unicodedata import category  # rarely needed

    # "printable" leaves out spaces other than " ", which are safe
    if char.isprintable() or char in _LAYOUT or category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode()
