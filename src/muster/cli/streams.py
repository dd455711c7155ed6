"""Standard output and error that may be full, or closed by their reader.

Standard output holds the command's result: if it cannot be written, the command stops. Standard
error is for people: if it cannot be written, the command continues and its exit code says how it
went.
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
    """The reader of standard output has closed it (`muster ps | head -1`)."""


class OutputLost(MusterError):  # noqa: N818
    """Standard output cannot be written."""


def write(descriptor: int, data: memoryview) -> int:
    """`os.write` to standard output or error.

    Raises ReaderGone and OutputLost, for standard output only.
    """
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:  # another process has made the shared terminal non-blocking
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
    """Make `sys.stdout` and `sys.stderr` use `write`, and escape what their encoding lacks."""
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
    """Ignore a closed reader: the command's exit code matters more than this output."""
    try:
        yield
    except ReaderGone:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def end_by_sigpipe() -> NoReturn:
    """End by SIGPIPE, where exit code 0 would wrongly claim that the run succeeded."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise AssertionError("SIGPIPE ends a process")
