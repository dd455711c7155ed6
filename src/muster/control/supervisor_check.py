"""Detect that a run's supervisor is stopped or hangs.

A working supervisor drains its wakeup FIFO at once. The kernel does not notify other processes when
a process is stopped, so commands that wait for a run check from time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from muster.control import run_lock
from muster.control.lease import abandoned
from muster.storage import wakeup
from muster.storage.home import RunDir
from muster.store.records import Lease

_ANSWER_TIMEOUT = 2.0  # seconds for the supervisor to drain its wakeup FIFO
_INTERVAL = 30.0  # seconds from an answer to the next check


class SupervisorCheck:
    """Checks the supervisor of one run.

    name: of the run, for messages. of_other_host: returns the run's lease if a process of another
    host has it.
    """

    def __init__(
        self,
        folder: RunDir,
        name: str,
        of_other_host: Callable[[], Lease | None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._of_other_host = of_other_host
        self._due = time.monotonic() + _ANSWER_TIMEOUT
        self._notified = False
        self._reported = False

    def due_in(self) -> float:
        """Seconds until the next `check`."""
        return max(0.0, self._due - time.monotonic())

    def check(self) -> str:
        """A warning for the user if the supervisor does not answer, once; else empty. Does nothing
        before the next check is due."""
        now = time.monotonic()
        if now < self._due:
            return ""
        self._due = now + _ANSWER_TIMEOUT
        if (lease := self._of_other_host()) is not None:
            return self._check_other(lease)
        if not wakeup.pending(self._folder.wakeup):
            if self._notified:
                self._notified = self._reported = False
                self._due = now + _INTERVAL
            else:
                wakeup.notify(self._folder.wakeup)
                self._notified = True
            return ""
        # the pending notification may have been sent by another process just now
        notified, self._notified = self._notified, True
        if not notified or self._reported:
            return ""
        self._reported = True
        return self._text()

    def _check_other(self, lease: Lease) -> str:
        held = run_lock.is_held(self._folder.lock)
        if held or self._reported:
            self._reported = self._reported and not held
            return ""
        self._reported = True
        return abandoned(self._name, lease)

    def _text(self) -> str:
        from muster.node.processes import state_of

        pid = run_lock.holder_pid(self._folder.lock)
        if pid is None:
            return ""  # it has exited, or another process is recovering the run
        state = state_of(pid)
        force = f"`muster cancel --force {self._name}` ends the run without it"
        if state in ("T", "t"):
            how = "is stopped" if state == "T" else "is held by a debugger"
            resume = f"`kill -CONT {pid}` resumes it, " if state == "T" else ""
            return f"the supervisor of {self._name} (process {pid}) {how}; {resume}{force}"
        return f"the supervisor of {self._name} (process {pid}) does not answer; {force}"
