"""Text that is safe to print, whatever a program, a file name or a description has put into it."""

from __future__ import annotations

#: What may stand in a text of several lines.
_LAYOUT = "\t"


def visible(text: str) -> str:
    """The text with every character that a terminal acts on, or that nobody sees, written as its
    escape: `\\x1b`, `\\u202e`. Line breaks and tabs stay.

    That is everything Unicode calls a control, a format character (directions, zero width), a
    separator of lines, a surrogate, private or unassigned.
    """
    if text.isprintable():
        return text
    # whole lines are quick to look at
    lines = text.split("\n")
    return "\n".join([s if s.isprintable() else "".join(map(_visible, s)) for s in lines])


def visible_line(text: str) -> str:
    """The same on one line: line breaks and tabs are written as escapes, too."""
    return text if text.isprintable() else visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _visible(char: str) -> str:
    from unicodedata import category  # rarely needed

    # other spaces than " " are not "printable", for they look like it
    if char.isprintable() or char in _LAYOUT or category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode()
