"""Which events start the runs of a schedule. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from muster.errors import Problem


class End(StrEnum):
    """How a run has to end for another one to start."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ENDED = "ended"
    """However; also if it was canceled."""


class AfterRun(Struct, frozen=True, tag="run"):
    """A run starts after each run of another Job."""

    job: str
    """The name of that Job, whatever its version."""
    on: End = End.SUCCEEDED


class ObjectCreated(Struct, frozen=True, tag="object"):
    """A run starts when an object is created, or replaced, in the server's object storage."""

    bucket: str
    prefix: str = ""
    """What the names of the objects begin with."""


class Webhook(Struct, frozen=True, tag="webhook"):
    """A run starts with each signed request to the schedule's address."""


Trigger = AfterRun | ObjectCreated | Webhook


class Event(Struct, frozen=True):
    """What has happened, as the run that it starts is told."""

    id: str
    """Unique for a schedule; the same one starts one run."""
    type: str
    """`run.succeeded`, `object.created`, `webhook`, ..."""
    subject: str = ""
    """What it is about: the name of a run, or that of an object."""
    data: Mapping[str, Any] = {}
    """What else is known of it; of a webhook, `body` is what was sent, in base64."""


_OF_ENDS: Mapping[End, tuple[str, ...]] = {
    End.SUCCEEDED: ("run.succeeded",),
    End.FAILED: ("run.failed",),
    End.ENDED: ("run.succeeded", "run.failed", "run.canceled"),
}


def event_types(trigger: Trigger | None) -> tuple[str, ...]:
    """The types of recorded events that may start a run; requests to a webhook are not recorded."""
    match trigger:
        case AfterRun():
            return _OF_ENDS[trigger.on]
        case ObjectCreated():
            return ("object.created", "object.replaced")
        case _:
            return ()


def matches(trigger: Trigger | None, type: str, data: Mapping[str, Any]) -> bool:
    """Whether an event starts a run. data: what was recorded of it."""
    if type not in event_types(trigger):
        return False
    match trigger:
        case AfterRun():
            return bool(data.get("job_name") == trigger.job)
        case ObjectCreated():
            name = str(data.get("name", ""))
            return data.get("bucket") == trigger.bucket and name.startswith(trigger.prefix)
        case _:
            return False


def cycle_problem(edges: Iterable[tuple[str, str]], first: str, then: str) -> Problem | None:
    """What is wrong if runs of Job `then` start after those of Job `first`: they would start each
    other without end. edges: the Jobs of the schedules that there are, in the same order."""
    following: dict[str, list[str]] = {}
    for before, after in edges:
        following.setdefault(before, []).append(after)
    way = _way(following, then, first)
    if way is None:
        return None
    text = f"runs would start each other without end: {' -> '.join([first, *way])}"
    return Problem("after", text, "leave out one of them")


def _way(following: Mapping[str, Sequence[str]], begin: str, goal: str) -> list[str] | None:
    """The Jobs from one to another; None if none leads there."""
    ways, seen = [[begin]], {begin}
    while ways:
        way = ways.pop(0)
        if way[-1] == goal:
            return way
        for name in following.get(way[-1], ()):
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return None
