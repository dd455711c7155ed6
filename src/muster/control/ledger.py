"""Where a run's status is kept between two steps, and where people's requests are found."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from muster.control.persist import changed_nodes, run_changes, status_of
from muster.control.service_log import ServiceLog
from muster.lifecycle.effects import Entry
from muster.lifecycle.events import CancelRequested, Request, ScaleRequested, SuspendRequested
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.node.files import open_own
from muster.plan.model import RunPlan
from muster.storage.home import RunDir
from muster.store import runs
from muster.store.database import Database
from muster.store.records import Asked


class Ledger(Protocol):
    """The one truth about one run."""

    def load(self) -> RunStatus:
        """The status as it was last recorded."""
        ...

    def record(
        self, before: RunStatus, after: RunStatus, entries: Sequence[Entry], now: float
    ) -> None:
        """Record a step, all of it or nothing. Raises StoreBusy if that cannot be done now."""
        ...

    def requests(self) -> list[Request]:
        """What people want of the run."""
        ...


class StoreLedger:
    """See `Ledger`; in the database.

    folder: the run's, where its pulse grows with every step, for those who follow the events, and
    where its log tells of them.
    """

    def __init__(self, db: Database, plan: RunPlan, folder: RunDir | None = None) -> None:
        self._db = db
        self._plan = plan
        self._folder = folder
        self._log = ServiceLog(db, plan.run_id, folder) if folder and plan.log_output else None

    def load(self) -> RunStatus:
        """See `Ledger.load`. Raises NotFound."""
        run_id = self._plan.run_id
        record, nodes = runs.get(self._db, run_id), runs.nodes(self._db, run_id)
        return status_of(record, nodes, self._plan.policy)

    def record(
        self, before: RunStatus, after: RunStatus, entries: Sequence[Entry], now: float
    ) -> None:
        """See `Ledger.record`."""
        changes = run_changes(after)
        if RunState.SUSPENDED in (before.state, after.state):  # the wish is, or was, fulfilled
            changes |= {"suspend_requested_at": None, "suspend_reason": None}
        if after.state.terminal and self._plan.ttl_after_finished is not None:
            changes["expires_at"] = now + self._plan.ttl_after_finished
        told = [(entry.kind, entry.data) for entry in entries]
        nodes = changed_nodes(self._plan, before, after)
        runs.save(self._db, self._plan.run_id, changes, nodes, told, now)
        if self._log is not None:
            self._log.catch_up()
        if self._folder is not None:
            beat(self._folder.pulse)

    def requests(self) -> list[Request]:
        """See `Ledger.requests`."""
        return requested(runs.requests(self._db, self._plan.run_id))


def requested(asked: Asked) -> list[Request]:
    """What is asked, in an order in which all of it has its effect."""
    wishes: list[Request] = [
        ScaleRequested(group, scale["replicas"], scale["why"])
        for group, scale in asked.scale.items()
    ]
    if asked.suspend:
        wishes.append(SuspendRequested(asked.suspend))
    if asked.cancel:
        wishes.append(CancelRequested(asked.cancel))
    return wishes


def beat(pulse: Path) -> None:
    """Wake those who follow a run's events."""
    with contextlib.suppress(OSError):  # a full disk, or a folder that is gone, is no reason to
        descriptor = open_own(pulse, os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)
