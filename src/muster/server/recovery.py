"""Recovers runs whose supervisor was killed, deletes expired ones, and cleans up."""

from __future__ import annotations

import time

from muster.errors import StoreError
from muster.server.log import ServerLog
from muster.server.oci.cleaning import REPEATED_WITHIN, forget_deleted, settle_cut_off
from muster.server.periodic_threads import PeriodicThread
from muster.server.run_observer import RunObserver
from muster.service.backend import Backend
from muster.service.recovery import recover_and_expire
from muster.storage import job_artifacts, metric_points, objects, request_keys, uploads

#: Seconds between looks for runs without a supervisor.
_INTERVAL = 2.0
#: Seconds between two removals of old uploads.
_CLEANING_INTERVAL = 3600.0


class Recovery:
    """A thread that recovers runs whose supervisor was killed, and deletes expired ones."""

    def __init__(self, backend: Backend, observer: RunObserver, log: ServerLog) -> None:
        self._backend, self._observer, self._log = backend, observer, log
        given = ("recovery", self._round, log, "runs cannot be recovered")
        self._thread = PeriodicThread(*given, pause=_INTERVAL)
        self._cleaned = -_CLEANING_INTERVAL
        #: When job runs were settled last: first some time after the start.
        self._settled = time.monotonic()
        #: When the last round ended, on the monotonic clock.
        self.last = time.monotonic()

    def start(self) -> None:
        """Begin; the first round is at once. Raises StoreError."""
        self._observer.begin()
        self._thread.start()

    def stop(self) -> None:
        """End after the present round."""
        self._thread.stop()

    def _round(self) -> float:
        try:
            recover_and_expire(self._backend)
            self._observer.look()
            self._settle()
        finally:
            self._clean_up()
            self.last = time.monotonic()
        return _INTERVAL

    def _settle(self) -> None:
        """Settle job runs that were cut off, from time to time."""
        if time.monotonic() >= self._settled + REPEATED_WITHIN:
            self._settled = time.monotonic()
            settle_cut_off(self._backend.home, self._backend.store, time.time())

    def _clean_up(self) -> None:
        """Forget old uploads, requests and points of metrics, from time to time."""
        if time.monotonic() < self._cleaned + _CLEANING_INTERVAL:
            return
        self._cleaned = time.monotonic()
        home, store = self._backend.home, self._backend.store
        try:
            for module in (uploads, request_keys, job_artifacts, metric_points):
                module.remove_old(home, time.time())
            objects.remove_unused(home, store.objects.used_files, time.time())
            forget_deleted(store, time.time())
        except (OSError, StoreError) as error:
            self._log.write("warning", f"old files and records cannot be removed: {error}")
