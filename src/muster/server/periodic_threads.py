"""Threads of the server that call a function periodically."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread

from muster.errors import MusterError
from muster.server.log import ServerLog


class PeriodicThread:
    """A thread that calls a function until it is stopped. An error does not end it: the next call
    may succeed."""

    def __init__(
        self, name: str, act: Callable[[], float], log: ServerLog, failure: str, *, pause: float
    ) -> None:
        """act: returns the seconds until it is called again. failure: what an error of it means,
        for the log. pause: seconds until the next call after an error."""
        self._act, self._pause = act, pause
        self._log, self._failure = log, failure
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._stopped = False
        #: Set when the next call is not to wait.
        self._awake = Event()
        self._lock = Lock()
        #: The last error that was logged; "" after a call without one.
        self._failed = ""
        #: Whether there was an error since the present call began.
        self._fails = False

    def start(self) -> None:
        """Begin; the first call is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present call."""
        self._stopped = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Make the next call now, or right after the present one. From any thread."""
        self._awake.set()

    def report(self, error: Exception) -> None:
        """Log an error: what users can act on once for each reason, until a call succeeds; a defect
        of Muster each time. From any thread: the function may report errors that it survives."""
        with self._lock:
            self._fails = True
            if isinstance(error, (MusterError, OSError)):
                known, self._failed = self._failed, str(error)
                if known != self._failed:
                    self._log.write("warning", f"{self._failure}: {self._failed}")
                return
        self._log.defect(self._failure, error)

    def _run(self) -> None:
        while True:
            self._awake.clear()
            if self._stopped:
                return
            self._fails = False
            try:
                wait = self._act()
                with self._lock:
                    if not self._fails:
                        self._failed = ""
            except Exception as error:  # noqa: BLE001  the next call may succeed
                self.report(error)
                wait = self._pause
            self._awake.wait(wait)
