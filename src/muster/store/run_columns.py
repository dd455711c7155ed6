"""The part of a run's status that has no column of its own, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from muster.lifecycle.status import Failure, Spent, Stopping
from muster.store.records import CorruptRecord, RunRecord

#: Keys in the stored JSON where they differ from the names of the fields.
_LIFECYCLE_KEYS = {
    "last_incarnation": "restarts",
    "cause": "failure",
    "attempt_started_at": "attempt_at",
    "running_since": "going_since",
    "ran_before": "ran",
    "groups_started": "begun",
}


class Lifecycle(Struct, frozen=True, omit_defaults=True, rename=_LIFECYCLE_KEYS):
    """The fields of `RunStatus` without a column, stored as JSON in the run's `lifecycle`."""

    last_incarnation: int = 0
    resumes: int = 0
    attempt_started_at: float | None = None
    running_since: float | None = None
    ran_before: float = 0.0
    groups_started: Mapping[str, float] = field(default_factory=dict)
    spent: Spent = Spent()
    streak: int = 0
    restarted_at: float | None = None
    failures: tuple[Failure, ...] = ()
    cause: Failure | None = None
    stopping: Stopping | None = None


def lifecycle_of(run: RunRecord) -> Lifecycle:
    """The `lifecycle` of a run; empty for a run that was just accepted. Raises CorruptRecord."""
    kept: Mapping[str, Any] = run.lifecycle or {}
    try:
        return msgspec.convert({k: v for k, v in kept.items() if v is not None}, Lifecycle)
    except msgspec.ValidationError as error:
        raise corrupt(run, f"lifecycle: {error}") from None


def corrupt(run: RunRecord, why: str) -> CorruptRecord:
    """The error for a run whose columns can be read but are not valid."""
    return CorruptRecord(
        f"the record of run {run.name} (id {run.id}) in the store is corrupt, or of another "
        f"version of Muster: {why}; `muster rm {run.id}` removes it"
    )
