"""Print to standard output and standard error.

Every command prints through `echo`, except the output of programs (cli/log_printer.py). Text from
programs, files and users may contain control characters, so `echo` escapes all of it. To survive
that, `style` marks colours with a random key, and `echo` replaces the marks after escaping.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from muster.escapes import visible
from muster.secrets import redacted

if TYPE_CHECKING:
    from muster.errors import MusterError

_KEY = os.urandom(8).hex()
_MARK = re.compile(rf"<{_KEY}:([a-z_]*)>")
#: What is not broken over lines: a word, and a command between backticks.
_UNBROKEN = re.compile(r"[^\s`]*`[^`]*`\S*|\S+")


def use_color(tty: bool) -> bool:
    """Whether output may be coloured. tty: it goes to a terminal.

    NO_COLOR takes precedence (no-color.org), then FORCE_COLOR and CLICOLOR_FORCE (bixense.com).
    """
    if os.environ.get("NO_COLOR"):
        return False
    forced = (os.environ.get(name) for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    if any(value not in (None, "", "0") for value in forced):
        return True
    return tty and os.environ.get("TERM") != "dumb"


def symbol(text: str, fallback: str, *, err: bool = False) -> str:
    """The text if the encoding of the output has all of it, else the fallback, which is ASCII."""
    stream = sys.stderr if err else sys.stdout
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return fallback
    return text


def style(text: str, how: str | None) -> str:
    """Text that `echo` prints in a colour, or `bold`, if the terminal supports it."""
    return f"<{_KEY}:{how}>{text}<{_KEY}:>" if how else text


def plain(text: str) -> str:
    """A styled text without its style."""
    return _MARK.sub("", text) if _KEY in text else text


#: What to do before anything is printed, innermost last.
_before: list[Callable[[], bool]] = []


@contextmanager
def before_output(action: Callable[[], bool]) -> Iterator[None]:
    """Do something before each output, such as to erase live lines. It returns whether there was
    anything to do."""
    _before.append(action)
    try:
        yield
    finally:
        _before.remove(action)


def make_room() -> bool:
    """Call this before writing to the terminal in another way than by `echo`. Returns whether
    something was erased."""
    erased = [action() for action in _before]
    return any(erased)


def echo(
    text: str = "",
    *,
    err: bool = False,
    end: str = "\n",
    secrets: bool = False,
    wrap: bool = False,
    hang: int | None = None,
) -> None:
    """Print a text. Control characters are shown as escapes, and secrets are hidden.

    err: to stderr. On a terminal, its lines that are too long are broken between words. wrap: those
    of stdout, too. hang: the indentation of their further lines, as for `folded`.
    secrets: do not hide secrets, because they are meant to be shown or are hidden already.
    """
    make_room()
    stream = sys.stderr if err else sys.stdout
    shown = visible(text if secrets else redacted(text))
    if (err or wrap) and stream.isatty():
        columns = os.get_terminal_size(stream.fileno()).columns
        shown = "\n".join(folded(line, columns, hang) for line in shown.split("\n"))
    if _KEY in shown:
        shown = _MARK.sub(_sgr, shown) if use_color(stream.isatty()) else plain(shown)
    click.echo(shown + end, file=stream, nl=False, color=True)


def folded(line: str, columns: int, hang: int | None = None) -> str:
    """A line as several if it has more columns: broken between words, never within a command in
    backticks. hang: the indentation of the further lines; default: two more than that of the first.
    """
    if len(line) <= columns or len(plain(line)) <= columns or columns <= 0:
        return line
    indent = len(line) - len(line.lstrip())
    hang = indent + 2 if hang is None else hang
    lines, used = [" " * indent], indent
    for word in _UNBROKEN.findall(line):
        size = len(plain(word))
        if used > indent and used + 1 + size > columns:
            lines.append(" " * hang)
            used = indent = hang
        elif used > indent:
            lines[-1] += " "
            used += 1
        lines[-1] += word
        used += size
    return "\n".join(lines)


def echo_notes(notes: Iterable[str]) -> None:
    """Print notes to stderr."""
    for note in notes:
        echo(f"{style('note:', 'yellow')} {note}", err=True)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    echo(f"{style('warning:', 'yellow')} {text}", err=True)


def print_error(error: MusterError) -> int:
    """Print an error to stderr. Returns its exit code."""
    for line in str(error).splitlines():
        echo(f"{style('error:', 'red')} {line}", err=True)
    return error.exit_code


def sgr(how: str) -> str:
    """The control sequence that starts a style: a colour, `bold` or `dim`."""
    styles: dict[str, Any] = {how: True} if how in ("bold", "dim") else {"fg": how}
    return click.style("", **styles, reset=False)


def _sgr(match: re.Match[str]) -> str:
    return sgr(match[1]) if match[1] else "\x1b[0m"
