"""A program on a terminal of its own, to type to and to read from."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from typing import Any, Self

#: Seconds to wait for an output; only a failing test waits so long.
_TIMEOUT = 60.0


class Terminal:
    """Starts a program whose standard streams are a new terminal, which is its controlling one."""

    def __init__(
        self, argv: Sequence[str], *, rows: int = 24, columns: int = 80, **options: Any
    ) -> None:
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
        #: All that was read.
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._descriptor)

    def type(self, keys: str) -> None:
        """Press keys; `\\x03` is Ctrl-C."""
        os.write(self._descriptor, keys.encode())

    def wait_for(self, text: str) -> str:
        """Read until the text appears. Returns what was read in this call, up to the text."""
        start, deadline = len(self.output), time.monotonic() + _TIMEOUT
        while (at := self.output.find(text, start)) < 0:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"no {text!r} in {self.output[start:]!r}")
        return self.output[start : at + len(text)]

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
        self.output += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
