"""Watches a run's containers: a thread reads the engine's stream of events."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from muster.engines.container.api import CannotReach, Daemon, Refused, Stream
from muster.engines.container.bodies import RUN

#: Seconds until the stream is opened again, when it has ended; it doubles until it was opened.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


class Watcher:
    """Calls `ended` with the id of a container that may have ended, and `resumed` whenever the
    stream was opened again: what has ended meanwhile has to be looked for. Both in the thread that
    calls `watch`."""

    def __init__(
        self,
        daemon: Daemon,
        run_id: str,
        ended: Callable[[str], None],
        resumed: Callable[[], None],
    ) -> None:
        self._daemon, self._ended, self._resumed = daemon, ended, resumed
        self._filters = {"type": ["container"], "label": [f"{RUN}={run_id}"]}
        self._stream: Stream | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._has_opened = False  # whether the newest try has opened the stream
        self._since = int(time.time())

    def close(self) -> None:
        """Watch no more. Returns at once."""
        self._closed.set()
        with self._lock:
            if self._stream is not None:
                self._stream.shut()

    def watch(self) -> None:
        """Watch until it is closed."""
        pause, is_first = 0.0, True
        while not self._closed.is_set():
            self._has_opened = False
            with contextlib.suppress(CannotReach, Refused):
                self._read(is_first)
            pause = (
                _FIRST_PAUSE if self._has_opened else min(2 * pause or _FIRST_PAUSE, _LONGEST_PAUSE)
            )
            self._closed.wait(pause)
            is_first = False

    def _read(self, is_first: bool) -> None:
        """Until the stream ends. Raises CannotReach, Refused."""
        # from the second in which it began: what happens before the stream is open is not missed
        query = {"filters": self._filters, "since": str(self._since)}
        stream = self._daemon.stream("GET", ("events",), query)
        try:
            self._has_opened = True
            with self._lock:
                self._stream = stream
            if self._closed.is_set():
                return
            if not is_first:
                self._resumed()
            for event in stream:
                if event.get("Action") in ("die", "destroy", "remove"):
                    self._ended(str(event.get("id") or (event.get("Actor") or {}).get("ID")))
        finally:
            with self._lock:
                self._stream = None
            stream.close()
