"""The ledger of a run: its recorded status and its pending requests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from muster.control.controller import Record
from muster.control.persist import node_changes, run_changes, status_of
from muster.control.service_log import ServiceLog
from muster.errors import StoreBusy
from muster.lifecycle.events import CancelRequested, Request, ScaleRequested, SuspendRequested
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.node.files import open_or_replace
from muster.plan.model import RunPlan
from muster.storage.home import RunDir
from muster.store.records import Lease, PendingRequests, RunStep
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.store.base import Store


class Ledger(Protocol):
    """The record of one run."""

    def load(self) -> RunStatus:
        """The status as it was last recorded."""
        ...

    def record(self, record: Record) -> None:
        """Record a step, completely or not at all. Raises StoreBusy if another process is
        writing, LeaseLost if another one drives the run now."""
        ...

    def requests(self) -> list[Request]:
        """The pending requests. Raises StoreBusy."""
        ...


class StoreLedger:
    """A ledger in the database.

    lease: of the process that drives the run. folder: of the run. Each recorded step notifies the
    followers of the run's events, and is added to the service log there.
    """

    def __init__(
        self, store: Store, plan: RunPlan, lease: Lease, folder: RunDir | None = None
    ) -> None:
        self._store = store
        self._plan = plan
        self._lease = lease
        self.folder = folder
        self._log: ServiceLog | None = None
        if folder and plan.log_output:
            # most runs have none, and `ranks` makes an object for each group
            arrays = [g.ranks for g in plan.policy.groups if g.is_array] if plan.has_arrays else ()
            self._log = ServiceLog(store, plan.run_id, folder, arrays, plan.parameters)

    def load(self) -> RunStatus:
        """See `Ledger.load`. Raises NotFound."""
        run_id = self._plan.run_id
        record, nodes = self._store.runs.get(run_id), self._store.runs.nodes(run_id)
        return status_of(record, nodes, self._plan.policy)

    def record(self, record: Record) -> None:
        """See `Ledger.record`."""
        record_together(self._store, [(self, record)])

    def requests(self) -> list[Request]:
        """See `Ledger.requests`."""
        return request_events(self._store.runs.pending_requests(self._plan.run_id))

    # --- for `record_together`

    def step(self, record: Record) -> RunStep:
        """What the store is to record."""
        before, after = record.before, record.after
        changes = run_changes(before, after)
        if RunState.SUSPENDED in (before.state, after.state):  # the request is served, or was
            changes |= {"suspend_requested_at": None, "suspend_reason": None}
        if after.state.terminal and self._plan.ttl_after_finished is not None:
            changes["expires_at"] = record.now + self._plan.ttl_after_finished
        logged = [(entry.kind, entry.data) for entry in record.entries]
        nodes, changed = node_changes(self._plan, before, after, record.metrics)
        return RunStep(self._lease, changes, nodes, logged, record.now, changed)

    def notify(self) -> None:
        """Something was recorded: add it to the service log, and notify the followers."""
        if self._log is not None:
            with contextlib.suppress(StoreBusy):  # the step is recorded: the next one catches up
                self._log.catch_up()
        if self.folder is not None:
            notify_followers(self.folder.event_notification)


def record_together(store: Store, records: Sequence[tuple[StoreLedger, Record]]) -> None:
    """Record steps of several runs in one transaction: all or none. Raises what `Ledger.record`
    raises."""
    store.runs.save(*(ledger.step(record) for ledger, record in records))
    for ledger, _ in records:
        ledger.notify()


def request_events(pending: PendingRequests) -> list[Request]:
    """Pending requests as events, in an order in which each takes effect."""
    events: list[Request] = [
        ScaleRequested(group, scale["replicas"], scale["why"])
        for group, scale in pending.scale.items()
    ]
    if pending.suspend:
        events.append(SuspendRequested(pending.suspend))
    if pending.cancel:
        events.append(CancelRequested(pending.cancel))
    return events


@as_root()
def notify_followers(path: Path) -> None:
    """Wake the processes that follow a run's events, by appending a byte to a file."""
    with contextlib.suppress(OSError):  # a full disk or a deleted folder must not end the run
        descriptor = open_or_replace(path, os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)
