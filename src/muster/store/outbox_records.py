"""Records of what has happened, for who wants to hear of it: notifications and triggers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from muster.lifecycle.states import RunState
from muster.store.records import Moment

#: Every type of event: runs by their new state, jobs, and objects of the object storage.
EVENT_TYPES = (
    *(f"run.{state.lower()}" for state in RunState),
    *("job.created", "job.updated", "job.deleted"),
    *("object.created", "object.replaced", "object.deleted"),
)


def matching_types(patterns: Iterable[str]) -> set[str]:
    """The types that these are: a type, or a pattern such as `run.*` or `*`."""
    from fnmatch import fnmatchcase

    given = list(patterns)
    return {one for one in EVENT_TYPES if any(fnmatchcase(one, pattern) for pattern in given)}


class ListenerKind(StrEnum):
    """Who listens to events."""

    NOTIFICATION = "notification"
    TRIGGER = "trigger"


class NewEvent(Struct, frozen=True):
    """Something that is recorded in the same transaction as what it reports."""

    project: str
    type: str
    """Of `EVENT_TYPES`."""
    subject: str
    """What it is about: `runs/ID`, `jobs/ID`, `objects/BUCKET/NAME`. Events of one subject are
    delivered in their order."""
    time: float
    """Epoch seconds."""
    data: Mapping[str, Any]
    """What a reader may know: no environment, no secrets. Times are epoch seconds."""


class OutboxEntry(Struct, frozen=True):
    """An event that somebody listens to."""

    seq: int
    """Grows from entry to entry; of one subject, in the order of what happened."""
    id: str
    """Unique, and the same in each delivery."""
    time: Moment
    project: str
    type: str
    subject: str
    data: Mapping[str, Any]


class Pending(Struct, frozen=True):
    """An event that a listener has not handled yet."""

    listener: str
    """The id of the rule or the trigger."""
    entry: OutboxEntry
    attempts: int = 0
    """Those that have failed."""
    first_at: Moment | None = None
    """When the first one has failed."""
