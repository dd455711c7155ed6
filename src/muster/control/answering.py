"""Noticing that a run's supervisor does not answer: it is stopped, or hangs.

A supervisor that is well takes in the ringing of its bell at once, whatever else it does. Nobody is
told by the kernel that another process was stopped, so whoever waits for a run looks now and then.
"""

from __future__ import annotations

import time

from muster.control import bell, lease
from muster.node.processes import state_of
from muster.storage.home import RunDir

_ANSWER = 2.0  # seconds that a supervisor has to take in the ringing
_PAUSE = 30.0  # seconds from an answer to the next question


class Answering:
    """Asks the supervisor of one run. name: what the run is called."""

    def __init__(self, folder: RunDir, name: str) -> None:
        self._folder = folder
        self._name = name
        self._due = time.monotonic() + _ANSWER
        self._asked = False
        self._told = False

    def patience(self) -> float:
        """Seconds after which to `look`."""
        return max(0.0, self._due - time.monotonic())

    def look(self) -> str:
        """What to tell people: that it does not answer, once, and what they can do; else empty.
        To be called when `patience` is over; before that it does nothing."""
        now = time.monotonic()
        if now < self._due:
            return ""
        self._due = now + _ANSWER
        if not bell.unheard(self._folder.bell):
            if self._asked:
                self._asked = self._told = False
                self._due = now + _PAUSE
            else:
                bell.ring(self._folder.bell)
                self._asked = True
            return ""
        # what rings now may have begun to just now
        asked, self._asked = self._asked, True
        if not asked or self._told:
            return ""
        self._told = True
        return self._text()

    def _text(self) -> str:
        pid = lease.supervisor(self._folder.lease)
        if pid is None:
            return ""  # it has gone, or somebody takes the run up
        state = state_of(pid)
        force = f"`muster runs cancel --force {self._name}` ends the run without it"
        if state in ("T", "t"):
            how = "is stopped" if state == "T" else "is held by a debugger"
            go_on = f"`kill -CONT {pid}` has it continue, " if state == "T" else ""
            return f"the supervisor of {self._name} (process {pid}) {how}; {go_on}{force}"
        return f"the supervisor of {self._name} (process {pid}) does not answer; {force}"
