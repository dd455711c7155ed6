"""Detect that a run's supervisor is stopped or hangs.

A working supervisor drains its wakeup FIFO at once. The kernel does not notify other processes when
a process is stopped, so commands that wait for a run check from time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from muster.control import run_lock
from muster.storage import wakeup
from muster.storage.home import RunDir

_ANSWER_TIMEOUT = 2.0  # seconds for the supervisor to drain its wakeup FIFO
_INTERVAL = 30.0  # seconds from an answer to the next check


class SupervisorCheck:
    """Checks the supervisor of one run.

    name: of the run, for messages. other_host: returns the host of the supervisor if it is another
    one; else empty.
    """

    def __init__(
        self, folder: RunDir, name: str, other_host: Callable[[], str] = lambda: ""
    ) -> None:
        self._folder = folder
        self._name = name
        self._other_host = other_host
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
        if host := self._other_host():
            return self._check_host(host)
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

    def _check_host(self, host: str) -> str:
        held = run_lock.is_held(self._folder.lock)
        if held or self._reported:
            self._reported = self._reported and not held
            return ""
        self._reported = True
        return abandoned(self._name, host)

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


def abandoned(name: str, host: str) -> str:
    """What to say of a run of another host whose lock no process holds."""
    return (
        f"{name} runs on the host {host}, but no process there holds its lock: the next muster "
        f"command on {host} continues it; if that host is gone, `muster runs adopt {name}` does"
    )
