"""A child process that stands for a command inside a node."""

from __future__ import annotations

import contextlib
import os
from threading import Lock

from muster.node.processes import exit_of


class ChildProcess:
    """See `engines.base.NodeProcess`. pid: of a child of this process that passes signals on to the
    command and ends with its exit code."""

    in_process_group = True

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._exit_code: int | None = None
        self._reaping = Lock()

    def wait(self) -> int:
        """See `NodeProcess.wait`."""
        if self._exit_code is None:
            with contextlib.suppress(ChildProcessError):  # another thread has just reaped it
                # not reaped yet: until then no other process gets its pid, and a signal
                os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            if self._exit_code is None:
                self._exit_code, _ = exit_of(os.waitpid(self._pid, 0)[1])
            return self._exit_code

    def send_signal(self, number: int) -> None:
        """See `NodeProcess.send_signal`."""
        with self._reaping:
            if self._exit_code is None:
                os.kill(self._pid, number)

    def resize(self, rows: int, columns: int) -> None:
        """See `NodeProcess.resize`. The kernel has sent SIGWINCH to the terminal's processes."""
