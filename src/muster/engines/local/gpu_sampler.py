"""Calls nvidia-smi for the record of what a run uses."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection

from muster.node.gpu_usage import QUERY, Gpu, parse

#: Seconds between two calls. A call costs some 50 ms of CPU time.
RECORD_INTERVAL = 20.0


class GpuSampler:
    """Calls nvidia-smi now and then, and never waits for it."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._next = 0.0
        self._latest: dict[int, Gpu] = {}
        self._pid: int | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`

    def read(self, now: float) -> dict[int, Gpu]:
        """What the last call said, and start another if it is due. now: seconds."""
        if self._program is not None and self._pid is None and now >= self._next:
            self._next = now + RECORD_INTERVAL
            self._output.seek(0)
            self._output.truncate()
            actions = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, self._output.fileno(), 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            with contextlib.suppress(OSError):  # it was removed
                self._pid = os.posix_spawn(
                    self._program, [self._program, *QUERY], os.environ, file_actions=actions
                )
        return self._latest

    def pids(self) -> Collection[int]:
        """The process that runs now, if any."""
        return () if self._pid is None else (self._pid,)

    def reaped(self, pid: int) -> bool:
        """Take the answer of a process that has ended; False if it is not of this object."""
        if pid != self._pid:
            return False
        self._pid = None
        self._output.seek(0)
        self._latest = parse(self._output.read().decode(errors="replace"))
        return True

    def close(self) -> None:
        """Close the file. The process is ended with all others of the session."""
        self._output.close()
