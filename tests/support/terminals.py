"""A command on a terminal of its own: what a person types to it and sees of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pyte

#: Seconds to wait for an output; only a failing test waits so long.
_TIMEOUT = 60.0
#: Lines that a screen keeps, so that nothing scrolls out of it.
_LINES = 500
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Screen:
    """What a terminal shows, with the lines that have scrolled out of it."""

    def __init__(self, columns: int) -> None:
        self._screen = pyte.Screen(columns, _LINES)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        """Draw text. Raises AssertionError if the cursor would leave the screen at the top."""
        at = 0
        for found in _CONTROL.finditer(text):
            self._stream.feed(text[at : found.start()])
            at = found.start()
            if found[2] == "A":
                assert self._screen.cursor.y >= int(found[1] or 1), "the cursor leaves the screen"
        self._stream.feed(text[at:])
        assert self._screen.cursor.y < _LINES - 1, "more lines than a screen keeps"

    @property
    def lines(self) -> list[str]:
        """The lines without spaces at their ends, and without empty lines at the bottom."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")


class Terminal:
    """Starts a program whose standard streams are a new terminal, which is its controlling one."""

    def __init__(
        self, argv: Sequence[str], *, rows: int = 24, columns: int = 80, **options: Any
    ) -> None:
        self.screen = Screen(columns or 80)
        #: All that was read.
        self.raw = b""
        self._descriptor, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            argv,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no threads
            **options,
        )
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._descriptor)

    @property
    def output(self) -> str:
        """All that was read, as text."""
        return self.raw.decode(errors="replace").replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        """Press keys; `\\x03` is Ctrl-C."""
        os.write(self._descriptor, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Change the size, which the program is notified of."""
        termios.tcsetwinsize(self._descriptor, (rows, columns))

    def wait_for(self, text: str) -> str:
        """Read until the text appears. Returns what was read in this call, up to the text."""
        start, deadline = len(self.output), time.monotonic() + _TIMEOUT
        while (at := self.output.find(text, start)) < 0:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"no {text!r} in {self.output[start:]!r}")
        return self.output[start : at + len(text)]

    def read_until(self, done: Callable[[Screen], bool]) -> None:
        """Read until the screen is as expected."""
        deadline = time.monotonic() + _TIMEOUT
        while not done(self.screen):
            if not self._read(deadline - time.monotonic()):
                raise AssertionError("\n".join(self.screen.lines))

    def end(self) -> int:
        """Read to the end. Returns the exit code."""
        while self._read(_TIMEOUT):
            pass
        return self.process.wait(_TIMEOUT)

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(timeout, 0))
        if not ready:
            return False
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:  # Linux: no process has the terminal open any more
            return False
        self.raw += data
        self.screen.feed(data.decode(errors="replace"))
        return bool(data)


def on_terminal(*words: str, cwd: Path, columns: int = 80, **env: str) -> Terminal:
    """Start a `muster` command on a terminal."""
    environ = {**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", **env}
    argv = [sys.executable, "-m", "muster", *words]
    return Terminal(argv, env=environ, columns=columns, cwd=str(cwd))
