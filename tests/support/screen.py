"""A terminal: what a command draws on a pseudo-terminal, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from unicodedata import east_asian_width

_TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(.)", re.DOTALL)


class Screen:
    """Lines of cells, with the cursor movements that Muster uses. Scrolled lines are kept."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lines = [""]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        """Draw text. Raises AssertionError for control sequences that are not expected."""
        for arguments, command, char in _TOKEN.findall(text):
            if command:
                self._command(command, int(arguments or 0) if arguments.isdecimal() else 0)
            elif char == "\r":
                self._column = 0
            elif char == "\n":
                self._next_line()
            else:
                assert char.isprintable(), f"not for a terminal: {char!r}"
                self._put(char)

    @property
    def lines(self) -> list[str]:
        """The lines without spaces at their ends, and without empty lines at the bottom."""
        return "\n".join(line.rstrip() for line in self._lines).rstrip().split("\n")

    def _command(self, command: str, number: int) -> None:
        match command:
            case "m":
                pass
            case "A":
                assert self._row >= number, "the cursor leaves the screen"
                self._row -= number
            case "J":
                self._lines[self._row] = self._lines[self._row][: self._column]
                del self._lines[self._row + 1 :]
            case _:
                raise AssertionError(f"unexpected control sequence {command}")

    def _next_line(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append("")

    def _put(self, char: str) -> None:
        width = 2 if east_asian_width(char) in "WF" else 1
        if self._column + width > self._columns:
            self._column = 0
            self._next_line()
        line = self._lines[self._row].ljust(self._column)
        self._lines[self._row] = line[: self._column] + char + line[self._column + 1 :]
        self._column += 1 if width == 1 else 2


class Terminal:
    """A command on a pseudo-terminal of a given width."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], *, columns: int = 80, cwd: str = "."
    ) -> None:
        self.screen = Screen(columns)
        self.raw = b""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], [*argv], {**env})
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read_until(self, done: Callable[[Screen], bool], timeout: float = 60) -> None:
        """Read what the command draws until the screen is as expected."""
        end = time.monotonic() + timeout
        while not done(self.screen):
            assert time.monotonic() < end, "\n".join(self.screen.lines)
            assert self._read(end - time.monotonic()), "\n".join(self.screen.lines)

    def send(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._fd, keys)

    def finish(self, timeout: float = 60) -> int:
        """Read until the command has ended. Returns its exit code."""
        end = time.monotonic() + timeout
        while self._read(end - time.monotonic()):
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(timeout, 0))
        assert ready, "\n".join(self.screen.lines)
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # Linux: the other side was closed
            return False
        self.raw += data
        self.screen.feed(data.decode(errors="replace"))
        return bool(data)
