"""Observes runs in progress, for the metrics: their failures, restarts and recoveries.

The file that grows with each step of a run (`RunDir.event_notification`) tells which event logs
have something new, so that a round costs little however many runs are in progress.
"""

from __future__ import annotations

import time

from msgspec import Struct

from muster.errors import MusterError
from muster.lifecycle.states import NodeState
from muster.server.metrics import Metrics
from muster.service.backend import Backend
from muster.store.records import EventRecord, RunFilter

#: Seconds of the round before that a round looks at again: clocks of hosts differ.
_OVERLAP = 10.0
#: The last: of a program that ends at once.
_RUNS_AGAIN = (NodeState.RUNNING, NodeState.READY, NodeState.SUCCEEDED)


class _Seen(Struct):
    """How far a run's event log was read."""

    size: int = -1
    entry: int = 0
    #: When the failure happened that nodes have not recovered from; None: none.
    failed_at: float | None = None


class RunObserver:
    """Tells metrics what happens to runs."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self._backend, self._metrics = backend, metrics
        self._seen: dict[str, _Seen] = {}
        self._since = time.time()

    def begin(self) -> None:
        """What has happened by now does not count. Raises StoreError."""
        events = self._backend.store.events
        for run in self._backend.store.runs.live():
            self._seen[run.id] = _Seen(entry=events.last(run.id))

    def look(self) -> None:
        """One round. Raises StoreError."""
        store, home = self._backend.store, self._backend.home
        began = time.time()
        live = {run.id for run in store.runs.live()}
        # some have started and ended since the last round
        recent = {run.id for run in store.runs.listing(None, RunFilter(since=self._since))}
        observed = live | recent
        for run_id in [*observed, *(self._seen.keys() - observed)]:
            seen = self._seen.setdefault(run_id, _Seen())
            try:
                size = home.run_dir(run_id).event_notification.stat().st_size
            except OSError:  # it has no steps yet, or was deleted
                size = 0
            if size == seen.size and run_id in observed:
                continue
            seen.size = size
            try:
                for entry in store.events.since(run_id, seen.entry):
                    seen.entry = entry.seq
                    self._note(entry, seen)
            except MusterError:  # a damaged entry, or the run was deleted
                continue
        self._since = began - _OVERLAP
        for run_id in self._seen.keys() - observed:
            del self._seen[run_id]

    def _note(self, entry: EventRecord, seen: _Seen) -> None:
        if entry.kind == "failure":
            self._metrics.failure(str(entry.data.get("reason", "exit")))
            seen.failed_at = seen.failed_at or entry.time
        elif entry.kind == "restart":
            self._metrics.restart()
        elif (
            entry.kind == "nodes"
            and seen.failed_at is not None
            and entry.data.get("state") in _RUNS_AGAIN
        ):
            self._metrics.recovery(entry.time - seen.failed_at)
            seen.failed_at = None
