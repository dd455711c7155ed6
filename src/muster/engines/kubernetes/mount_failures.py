"""Which volume of a pod cannot be mounted, from events. Pure.

The status of such a pod says only that it is being created.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

#: Reasons of events of the kubelet, and of what attaches volumes to machines.
_FAILED = frozenset({"FailedMount", "FailedAttachVolume"})
#: Such as `MountVolume.SetUp failed for volume "data" : TEXT`.
_OF_VOLUME = re.compile(r'(?:failed|error) for volume "([^"]+)" ?:? ?(.*)', re.DOTALL)
#: What the kubelet sums up, every two minutes.
_UNMOUNTED = re.compile(r"unmounted volumes=\[([^\]]+)\].*?: (.*)", re.DOTALL)
#: What a program for mounts has written follows its command line.
_OUTPUT = "Output: "
#: Characters of a text that are of use.
_MOST = 300


class MountFailure(NamedTuple):
    """A volume cannot be mounted."""

    volume: str
    #: The words of the cluster.
    why: str
    #: When that was reported last, as the API has it.
    time: str


def mount_failure(events: Iterable[Mapping[str, Any]]) -> MountFailure | None:
    """What was reported last; None if nothing was. events: about a pod."""
    found = [one for event in events if (one := _failure(event)) is not None]
    # a sum says less than what it sums up
    last = max(found, key=lambda one: (one[0], one[1].time), default=None)
    return None if last is None else last[1]


def _failure(event: Mapping[str, Any]) -> tuple[bool, MountFailure] | None:
    """Whether a failure is of one volume, and the failure; None if an event is about others."""
    if event.get("reason") not in _FAILED:
        return None
    text, time = str(event.get("message") or ""), event_time(event)
    if (one := _OF_VOLUME.search(text)) is not None:
        return True, MountFailure(one[1], _words(one[2]), time)
    if (one := _UNMOUNTED.search(text)) is not None:
        return False, MountFailure(one[1].replace(" ", ", "), _words(one[2]), time)
    return False, MountFailure("", _words(text), time)


def _words(text: str) -> str:
    flat = " ".join(text.split())
    return (flat.rpartition(_OUTPUT)[2] or flat).rstrip(".")[:_MOST]


def event_time(event: Mapping[str, Any]) -> str:
    """When an event has happened last."""
    series, about = event.get("series"), event.get("metadata")
    times = (
        series.get("lastObservedTime") if isinstance(series, Mapping) else None,
        event.get("lastTimestamp"),
        event.get("eventTime"),
        about.get("creationTimestamp") if isinstance(about, Mapping) else None,
    )
    return str(next((one for one in times if one), ""))
