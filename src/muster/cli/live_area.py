"""Lines at the bottom of a terminal that are redrawn in place, below the output of programs.

Every output erases them first (`terminal.make_room`), so they never mix with it.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from muster.cli.streams import write
from muster.cli.terminal import before_output, sgr, symbol, use_color
from muster.describe.layout import cells, cut
from muster.interrupt import Held

#: A text and its style ("" = none).
Piece = tuple[str, str]
_STDERR = 2
#: Signals that make a command end, or detach.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
#: Used where the terminal does not say how large it is.
_USUAL = os.terminal_size((80, 24))


def can_be_live(output: int) -> bool:
    """Whether stderr is a terminal that can show live lines while text goes to `output`.

    A pipe may lead to the same terminal (`muster run ... | tee log`), so that its text would end up
    between the lines.
    """
    if not os.isatty(_STDERR) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    kind = os.fstat(output).st_mode
    return stat.S_ISREG(kind) or stat.S_ISCHR(kind)  # a file, a terminal, /dev/null


class LiveArea:
    """The live lines on stderr."""

    def __init__(self, part: int = 3) -> None:
        """part: it takes at most 1/part of the terminal."""
        self._part = part
        self._drawn: list[int] = []  # the cells of each line on the screen
        self._color = use_color(True)
        self._mark = symbol("…", "...", err=True)

    @contextmanager
    def open(self) -> Iterator[LiveArea]:
        """Erase the lines before any output, and at the end."""
        before = signal.signal(signal.SIGCONT, lambda *_: self._drawn.clear())
        with before_output(self.erase):
            try:
                yield self
            finally:
                self.erase()
                signal.signal(signal.SIGCONT, before)

    @property
    def room(self) -> int:
        """How many lines may be drawn."""
        return max(_size().lines // self._part - (self._part == 1), 1)

    def draw(self, lines: Sequence[Sequence[Piece]]) -> None:
        """Show these lines instead of the present ones."""
        if not _in_foreground():
            return
        width = _size().columns - 1  # a terminal may wrap a line that fills it
        fitted = [list(_fit(line, width, self._mark)) for line in lines[-self.room :]]
        text = "\r\n".join("".join(map(self._styled, line)) for line in fitted)
        self._replace(text, [sum(cells(piece) for piece, _ in line) for line in fitted])

    def erase(self) -> bool:
        """Remove the lines from the screen. Returns whether there were any."""
        if not self._drawn:
            return False
        self._replace("", [])
        return True

    def _replace(self, text: str, drawn: list[int]) -> None:
        with Held(*_ENDING):  # an exception in between would leave the lines on the screen
            self._write(self._erasing() + text)
            self._drawn = drawn

    def _erasing(self) -> str:
        if not self._drawn:
            return ""
        columns = _size().columns
        # a terminal that became narrower has wrapped the lines
        rows = sum(max(-(-drawn // columns), 1) for drawn in self._drawn)
        return "\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J"

    def _styled(self, piece: Piece) -> str:
        text, style = piece
        return f"{sgr(style)}{text}\x1b[0m" if style and self._color else text

    def _write(self, text: str) -> None:
        data = memoryview(text.encode(errors="replace"))
        while data:
            data = data[write(_STDERR, data) :]


def _fit(line: Sequence[Piece], width: int, mark: str) -> Iterator[Piece]:
    for text, style in line:
        shown = cut(text, width, mark)
        yield shown, style
        width -= cells(shown)
        if shown != text or width <= 0:
            return


def _size() -> os.terminal_size:
    try:
        size = os.get_terminal_size(_STDERR)
    except OSError:
        return _USUAL
    return size if size.columns and size.lines else _USUAL


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(_STDERR) == os.getpgrp()
    except OSError:  # it is not the controlling terminal
        return True
