"""The one way to standard output and standard error: everything a command prints goes through
`echo`, except the output of programs (cli/follow.py).

Whatever comes from a program, a file or a user may hold control characters, so all text is
escaped. Our own colours must survive that. They are marked with a number that no program can know,
and become colours after everything else has been escaped.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import click

from muster.escapes import visible
from muster.secrets import redacted

_KEY = os.urandom(8).hex()
_MARK = re.compile(rf"<{_KEY}:([a-z_]*)>")


def use_color(descriptor: int = 1) -> bool:
    """Whether what goes to this descriptor may be coloured (see no-color.org)."""
    return os.isatty(descriptor) and "NO_COLOR" not in os.environ


def style(text: str, how: str | None) -> str:
    """The text in a colour, or `bold`, where `echo` finds that its terminal takes it."""
    return f"<{_KEY}:{how}>{text}<{_KEY}:>" if how else text


def plain(text: str) -> str:
    """A styled text without its style."""
    return _MARK.sub("", text) if _KEY in text else text


def echo(text: str = "", *, err: bool = False, end: str = "\n", secrets: bool = False) -> None:
    """Print a text. Control characters in it are shown as escapes, and secrets hidden.

    secrets: those that are in it are meant, or were hidden already.
    """
    stream = sys.stderr if err else sys.stdout
    shown = visible(text if secrets else redacted(text))
    if _KEY in shown:
        colored = stream.isatty() and "NO_COLOR" not in os.environ
        shown = _MARK.sub(_sgr, shown) if colored else plain(shown)
    click.echo(shown + end, file=stream, nl=False, color=True)


def echo_notes(notes: Iterable[str]) -> None:
    """Print what somebody should know, to stderr."""
    for note in notes:
        echo(f"{style('note:', 'yellow')} {note}", err=True)


def warn(text: str) -> None:
    """Print what somebody should act on, to stderr."""
    echo(f"{style('warning:', 'yellow')} {text}", err=True)


def _sgr(match: re.Match[str]) -> str:
    how = match[1]
    styles: dict[str, Any] = {"bold": True} if how == "bold" else {"fg": how}
    return click.style("", **styles, reset=False) if how else "\x1b[0m"
