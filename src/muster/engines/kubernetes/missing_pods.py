"""Finds out why the pods of a run's Jobs are not created, or do not start on their machines.

Only events say that: those of the Job controller, as when a quota of the namespace is used up, or a
webhook refuses the pods; and those of the kubelet, as when a volume cannot be mounted. They are
read while pods are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.mount_failures import MountFailure, event_time, mount_failure
from muster.engines.kubernetes.refusals import Operation, refusal
from muster.engines.loop import RunLoop
from muster.engines.remote.pauses import Backoff, Pauses

#: Seconds until the events of a pod that is missing are read, and until they are read again.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
#: Pods whose events are read at the same time: what one waits for, others mostly wait for, too.
_MOST_PODS = 4
#: Kubernetes: the reason of events about pods that the Job controller could not create.
_FAILED = "FailedCreate"
_START = "Error creating: "


class Missing(NamedTuple):
    """What a JobSet lacks."""

    #: The name of a Job that lacks pods which the cluster ought to create now; "" if there is none.
    job: str = ""
    #: The names of pods that have a machine, and whose volumes are not known to be mounted there.
    mounting: Sequence[str] = ()


class Answers(NamedTuple):
    """What events say about those, as far as they could be read."""

    #: Why the pods of the Job are not created, as a phrase; "": nothing says so. None: that could
    #: not be read, or was not asked.
    why_not_created: str | None = None
    #: By pod, which volume cannot be mounted; None: nothing says that one cannot.
    not_mounted: Mapping[str, MountFailure | None] = {}


class MissingPods:
    """Finds out why the JobSets of a run lack pods, by the numbers of their allocations.

    missing: gets a number, and returns what is missing now. found: gets a number, what was missing,
    and what is known of it.
    """

    def __init__(
        self,
        loop: RunLoop,
        cluster: Cluster,
        missing: Callable[[int], Missing],
        found: Callable[[int, Missing, Answers], object],
    ) -> None:
        self._loop, self._cluster = loop, cluster
        self._missing, self._found = missing, found
        self._pauses = Pauses(loop)
        self._watched: set[int] = set()

    def watch(self, number: int) -> None:
        """Pods of a JobSet are waited for: find out why some stay missing."""
        if number not in self._watched:
            self._watched.add(number)
            backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
            self._pauses.after(backoff.next(), partial(self._look, number, backoff))

    def close(self) -> None:
        """Ask no more."""
        self._pauses.close()

    def _look(self, number: int, backoff: Backoff) -> None:
        missing = self._missing(number)
        if missing.job or missing.mounting:
            missing = missing._replace(mounting=missing.mounting[:_MOST_PODS])
            work = partial(self._ask, missing)
            self._loop.in_thread(work, partial(self._answered, number, missing, backoff))
        else:
            self._watched.discard(number)

    def _ask(self, missing: Missing) -> Answers:
        """In a thread."""
        why, failures = None, dict[str, MountFailure | None]()
        try:
            if missing.job:
                events = self._cluster.events("Job", missing.job, _FAILED)
                why = why_not_created(events, self._cluster.connection.namespace)
            for pod in missing.mounting:
                failures[pod] = mount_failure(self._cluster.events("Pod", pod))
        except CannotCall:  # without the right to see events, nothing is said
            pass
        return Answers(why, failures)

    def _answered(self, number: int, missing: Missing, backoff: Backoff, found: Answers) -> None:
        self._found(number, missing, found)
        self._pauses.after(backoff.next(), partial(self._look, number, backoff))


def why_not_created(events: Sequence[Mapping[str, Any]], namespace: str) -> str:
    """Why the last pod was not created, as a phrase; "" if nothing says so. events: about a Job."""
    last = max(events, key=event_time, default=None)
    if last is None:
        return ""
    text = " ".join(str(last.get("message") or "").split()).removeprefix(_START)
    operation = Operation("create", "", "pods", "Pod", namespace)
    why = refusal(operation, 403, {"kind": "Status", "message": text})
    return f"its pod cannot be created: {why}" if text else ""
