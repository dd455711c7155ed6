"""Which events a notification wants. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.notify.oci_events import OCI_TYPES, OciNames, oci_event
from muster.spec.wildcards import matcher
from muster.store.notification_records import NotificationRecord
from muster.store.outbox_records import EVENT_TYPES, OutboxEntry

#: Levels of a condition; deeper ones are refused.
_DEEPEST = 10


def wants(notification: NotificationRecord, entry: OutboxEntry, names: OciNames) -> bool:
    """Whether a notification is about this event; its type is checked where it is recorded."""
    job, data = notification.job, entry.data
    named = notification.name in (data.get("notify") or ())  # in the spec of the run
    if named and notification.condition is None:
        return True
    if job and job not in (data.get("job_name"), data.get("job_id"), *_of_job(entry)):
        return False
    tags = data.get("tags") or {}
    for key, value in notification.tags.items():
        if key not in tags or value not in (None, tags[key]):
            return False
    condition = notification.condition
    return condition is None or matches(condition, oci_event(entry, names))


def _of_job(entry: OutboxEntry) -> tuple[Any, ...]:
    """The name and id of a Job, if an event is about one."""
    if not entry.type.startswith("job."):
        return ()
    return entry.data.get("name"), entry.data.get("id")


def matches(condition: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether an event of OCI fits the condition of a rule: each attribute that it names has one of
    the values that it gives, which may have the wildcard `*`. Names of attributes are
    case-insensitive, as OCI writes some of them in several ways."""
    known = {name.lower(): value for name, value in event.items()}
    return all(
        name.lower() in known and _fits(wanted, known[name.lower()])
        for name, wanted in condition.items()
    )


def types_of(condition: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of Muster's events that may fit a condition."""
    wanted = [value for name, value in condition.items() if name.lower() == "eventtype"]
    return tuple(
        one for one in EVENT_TYPES if all(_fits(value, OCI_TYPES[one]) for value in wanted)
    )


def _fits(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and matches(wanted, found)
    if _is_list(wanted):
        return any(_fits(one, found) for one in wanted)
    if _is_list(found):
        return any(_fits(wanted, one) for one in found)
    if isinstance(wanted, str) and isinstance(found, str):
        return matcher(wanted)(found)
    return bool(wanted == found)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def condition_problem(condition: Any, depth: int = 0) -> str | None:
    """Why this is not a condition; None if it is one."""
    if not isinstance(condition, Mapping):
        return "the condition has to be a JSON object"
    if depth >= _DEEPEST:
        return f"the condition is nested more than {_DEEPEST} levels deep"
    for name, wanted in condition.items():
        values = wanted if _is_list(wanted) else [wanted]
        for value in values:
            if isinstance(value, Mapping):
                if problem := condition_problem(value, depth + 1):
                    return problem
            elif _is_list(value):
                return f"{name}: an array in an array"
    return None
