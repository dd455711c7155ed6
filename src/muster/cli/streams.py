"""Standard output and error that may be full, or closed by whoever reads them.

What is written to standard output is what was asked for: if it cannot be written, the command
stops. Standard error is for people: if it cannot be written, the command goes on without it, and
its exit code still says how it went.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from muster.errors import MusterError


class ReaderGone(Exception):  # noqa: N818
    """Whoever reads our standard output has closed it (`muster runs list | head -1`)."""


class OutputLost(MusterError):  # noqa: N818
    """Standard output cannot be written."""


def write(descriptor: int, data: memoryview) -> int:
    """As `os.write` to standard output or error. Raises, for standard output, ReaderGone and
    OutputLost."""
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:  # whoever shares our terminal has made it so
            select.select([], [descriptor], [])
        except OSError as error:
            if descriptor == 2:
                return len(data)
            if isinstance(error, BrokenPipeError):
                raise ReaderGone from None
            raise OutputLost(f"cannot write to standard output: {error.strerror}") from None


class _Stream(io.FileIO):
    def write(self, data: Any, /) -> int:
        return write(self.fileno(), data)


def guard() -> None:
    """Have `sys.stdout` and `sys.stderr` write as above, and write what their encoding lacks as
    an escape sequence."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = _Stream(stream.fileno(), "w", closefd=False)
        text = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.isatty() or name == "stderr",
        )
        setattr(sys, name, text)


@contextmanager
def optional_output() -> Iterator[None]:
    """Nobody has to read what is printed here: the exit code of the command says more."""
    try:
        yield
    except ReaderGone:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def end_by_sigpipe() -> NoReturn:
    """End as other programs do whose reader has gone, where an exit code of 0 would say more than
    is known."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise AssertionError("SIGPIPE ends a process")
