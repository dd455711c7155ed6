"""How a pod has ended, as a reason and a sentence. Pure.

A pod that cannot be reached has not ended: its programs may run. That it is gone is certain when
the API server has deleted it, or when its phase says so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from signal import Signals
from typing import Any, NamedTuple

from muster.engines.kubernetes.mount_failures import event_time
from muster.engines.kubernetes.pods import NODE
from muster.lifecycle.status import Reason
from muster.node.failure_text import LAST_LOG_LINES, explain
from muster.node.hosts_file import NOTE


class End(NamedTuple):
    """How a pod has ended."""

    reason: Reason
    #: A sentence about it.
    why: str


class Crash(NamedTuple):
    """A container whose log is of use for its end: it has failed by itself, or was killed."""

    container: str
    #: A sentence about its end, without what it has written.
    text: str
    #: Whether it was killed, as when memory runs out: what it has written last is not why.
    killed: bool = False

    def with_log(self, log: str) -> str:
        """The sentence, and below it the lines of the container's log that explain the failure.
        log: the end of it, not empty."""
        if self.container == NODE and (own := _of_server(log)):
            return "\n".join((f"{self.text}:", *own))
        if self.killed:
            return "\n".join((self.text, LAST_LOG_LINES, *explain(log, killed=True).lines))
        return "\n".join((f"{self.text}:", *explain(log).lines))


class Failure(NamedTuple):
    """A container that has failed while its pod goes on."""

    container: str
    #: See `exit_of`.
    code: int
    signal: int
    reason: Reason
    #: A sentence about its end, without and with what it has written last.
    text: str
    why: str


#: Reason of the condition DisruptionTarget -> why, and what has happened to a pod.
_DISRUPTED: Mapping[str, tuple[Reason, str]] = {
    "PreemptionByScheduler": (Reason.PREEMPTED, "was preempted by a pod of higher priority"),
    "PreemptionByKubeScheduler": (Reason.PREEMPTED, "was preempted by a pod of higher priority"),
    "EvictionByEvictionAPI": (Reason.PREEMPTED, "was evicted, as when its node is drained"),
    "DeletionByTaintManager": (Reason.NODE_LOST, "was deleted for a taint of its node"),
    "DeletionByDeviceTaintManager": (Reason.NODE_LOST, "was deleted for a taint of its device"),
    "DeletionByPodGC": (Reason.NODE_LOST, "was deleted, as its node is gone"),
    "TerminationByKubelet": (Reason.NODE_LOST, "was ended by its node"),
}
#: Reason in the status of a pod -> the same. What is not here was refused by the kubelet.
_STATED: Mapping[str, tuple[Reason, str]] = {
    "Evicted": (Reason.NODE_LOST, "was evicted"),
    "DeadlineExceeded": (Reason.DEADLINE, "has reached its activeDeadlineSeconds"),
    "NodeLost": (Reason.NODE_LOST, "was on a node that does not answer"),
    "NodeShutdown": (Reason.NODE_LOST, "was ended, as its node shuts down"),
    "Shutdown": (Reason.NODE_LOST, "was ended, as its node shuts down"),
    "Terminated": (Reason.NODE_LOST, "was ended, as its node shuts down"),
    "Preempting": (Reason.PREEMPTED, "was preempted by a pod of higher priority"),
    "Preempted": (Reason.PREEMPTED, "was preempted by a pod of higher priority"),
}
#: Reason of an event about a pod -> the same. Those of the scheduler and of the kubelet.
_EVENTS = {one: _STATED[one] for one in ("Preempted", "Preempting", "Evicted")}
#: What the kubelet reports of pods that it does not start.
_REFUSED = re.compile(r"OutOf\S*|\S*Admission\S*|NodeAffinity|AppArmor|Sysctl\S*|\S*NotSupported")
#: Reasons of a container that was never started.
_NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
_OUT_OF_MEMORY = "OOMKilled"
#: How lines of the node program begin. It says last why it ends, if that is not for the end of its
#: program: what programs write is in the same log.
_SERVER = ("muster: ", "muster-node: ")
#: Exit codes of shells and runtimes above this name a signal.
_SIGNALED = 128


def end_of_pod(pod: Mapping[str, Any]) -> End | None:
    """How a pod has ended, or its container `node`; None if neither has."""
    status = pod.get("status") or {}
    over = status.get("phase") in ("Failed", "Succeeded")
    terminated = node_termination(pod)
    if not over and terminated is None:
        return None
    where = place(pod)
    if (found := disruption(pod)) is not None:
        return found
    if (found := _stated(where, status)) is not None:
        return found
    if terminated is not None and (terminated.get("exitCode") or terminated.get("signal")):
        return _of_container(pod, NODE, terminated)
    if status.get("phase") == "Failed" and (found := _of_others(pod)) is not None:
        return found
    if terminated is not None:
        return _of_container(pod, NODE, terminated)
    text = _words(status.get("message")) or _words(status.get("reason"))
    if over and status.get("phase") == "Failed":
        return End(Reason.NODE_LOST, _because(f"{where} has failed", text))
    return End(Reason.EXIT, f"{where} has ended")


def crash_of(pod: Mapping[str, Any]) -> Crash | None:
    """The container whose log is of use for the end of a pod; None if the cluster has ended it, or
    no container was started and has failed."""
    status, terminated = pod.get("status") or {}, node_termination(pod)
    if disruption(pod) is not None or _stated(place(pod), status) is not None:
        return None
    name, ended = NODE, terminated or {}
    if not exit_of(ended)[0] and status.get("phase") == "Failed":
        name, ended, _ = _failed_other(pod) or ("", {}, None)
    if not exit_of(ended)[0]:
        return None
    reason, text = _how_ended(pod, name, ended)
    if reason not in (Reason.EXIT, Reason.OUT_OF_MEMORY):
        return None
    killed = reason is Reason.OUT_OF_MEMORY or bool(exit_of(ended)[1])
    return Crash(name, text, killed)


def failed_beside(pod: Mapping[str, Any]) -> tuple[Failure, ...]:
    """The containers that run with `node` and have failed, the first one first; none if the cluster
    ends the pod."""
    if disruption(pod) is not None or (pod.get("metadata") or {}).get("deletionTimestamp"):
        return ()
    found = [(name, ended) for name, ended in _beside(pod) if ended and any(exit_of(ended))]
    found.sort(key=lambda one: str((one[1] or {}).get("finishedAt") or "~"))
    return tuple(_failure(pod, name, ended or {}) for name, ended in found)


def running_beside(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """The containers that run with `node` and have not ended."""
    return tuple(name for name, ended in _beside(pod) if ended is None)


def _beside(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """Names of containers besides `node`, and how they have ended."""
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one.get("name") != NODE:
            yield sys.intern(str(one.get("name"))), (one.get("state") or {}).get("terminated")


def _failure(pod: Mapping[str, Any], name: str, ended: Mapping[str, Any]) -> Failure:
    code, number = exit_of(ended)
    reason, text = _how_ended(pod, name, ended)
    return Failure(name, code, number, reason, text, _of_container(pod, name, ended).why)


def end_of_deleted(pod: Mapping[str, Any]) -> End:
    """How a pod has ended that the API server does not have any more; as it was last."""
    if (found := end_of_pod(pod) or disruption(pod)) is not None:
        return found
    where, status = place(pod), pod.get("status") or {}
    if (found := _stated(where, status)) is not None:
        return found
    return End(Reason.NODE_LOST, f"{where} was deleted")


def end_of_deleted_pod(name: str, events: Iterable[Mapping[str, Any]]) -> End | None:
    """How a pod has ended that the API server does not have any more, and that was not seen; None
    if no event says so. events: about it."""
    known = [one for one in events if str(one.get("reason")) in _EVENTS]
    last = max(known, key=event_time, default=None)
    if last is None:
        return None
    reason, text = _EVENTS[str(last["reason"])]
    return End(reason, _because(f"pod {name} {text}", _words(last.get("message"))))


def why_unreachable(pod: Mapping[str, Any]) -> str:
    """Why nobody knows how a pod is; "" if that is known."""
    status = pod.get("status") or {}
    if status.get("phase") == "Unknown" or status.get("reason") == "NodeLost":
        node = str((pod.get("spec") or {}).get("nodeName") or "its node")
        return _because(f"{node} does not answer the cluster", _words(status.get("message")))
    return ""


def disruption(pod: Mapping[str, Any]) -> End | None:
    """Why the cluster ends a pod, as its condition DisruptionTarget says; None if it does not."""
    status = pod.get("status") or {}
    one = _true_condition(status.get("conditions") or (), "DisruptionTarget")
    if one is None:
        return None
    where, reason = place(pod), str(one.get("reason") or "")
    if reason == "TerminationByKubelet" and (found := _stated(where, status)) is not None:
        return found
    why, text = _DISRUPTED.get(reason, (Reason.PREEMPTED, f"was ended by the cluster ({reason})"))
    return End(why, _because(f"{where} {text}", _words(one.get("message"))))


def node_termination(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the container `node` has ended; None if it has not."""
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one.get("name") == NODE:
            found: Mapping[str, Any] | None = (one.get("state") or {}).get("terminated")
            return found
    return None


def place(pod: Mapping[str, Any]) -> str:
    """A pod, with its node if it has one."""
    name = f"pod {(pod.get('metadata') or {}).get('name', '')}"
    node = (pod.get("spec") or {}).get("nodeName")
    return f"{name} on {node}" if node else name


def _stated(where: str, status: Mapping[str, Any]) -> End | None:
    reason, message = str(status.get("reason") or ""), _words(status.get("message"))
    if reason in _STATED:
        why, text = _STATED[reason]
        return End(why, _because(f"{where} {text}", message))
    if _REFUSED.fullmatch(reason):
        return End(Reason.NOT_STARTED, _because(f"{where} was refused there ({reason})", message))
    return None


def _of_others(pod: Mapping[str, Any]) -> End | None:
    """By a container besides `node`; those that run first may keep it from starting."""
    found = _failed_other(pod)
    if found is None:
        return None
    name, ended, why = found
    end = _of_container(pod, name, ended)
    return end if why is None else End(why, end.why)


def _failed_other(
    pod: Mapping[str, Any],
) -> tuple[str, Mapping[str, Any], Reason | None] | None:
    """The container besides `node` that has failed: its name, how it has ended, and the reason that
    this is for its pod; None: that of its own end."""
    status = pod.get("status") or {}
    for kind, why in (("initContainerStatuses", Reason.NOT_STARTED), ("containerStatuses", None)):
        for one in status.get(kind) or ():
            ended = (one.get("state") or {}).get("terminated") or {}
            if one.get("name") != NODE and (ended.get("exitCode") or ended.get("signal")):
                return str(one.get("name")), ended, why
    return None


def _of_container(pod: Mapping[str, Any], name: str, ended: Mapping[str, Any]) -> End:
    reason, text = _how_ended(pod, name, ended)
    message = str(ended.get("message") or "")
    if reason is Reason.OUT_OF_MEMORY or (exit_of(ended)[1] and not _of_server(message)):
        return End(reason, text)
    return End(reason, _because(text, _last_line(message)))


def _how_ended(pod: Mapping[str, Any], name: str, ended: Mapping[str, Any]) -> tuple[Reason, str]:
    """The reason of the end of a container, and a sentence about it without its message."""
    where, reason = place(pod), str(ended.get("reason") or "")
    what = where if name == NODE else f"container {name} of {where}"
    code, number = exit_of(ended)
    if reason == _OUT_OF_MEMORY:
        limit = _memory_limit(pod, name)
        text = f"{what} ran out of memory" + (f": its limit is {limit}" if limit else "")
        return Reason.OUT_OF_MEMORY, text
    if reason in _NEVER_STARTED:
        return Reason.NOT_STARTED, f"{what} could not be started"
    if reason == "DeadlineExceeded":
        return Reason.DEADLINE, f"{what} has reached its time limit"
    if number:
        return Reason.EXIT, f"{what} was ended by {_signal_name(number)}"
    if code:
        return Reason.EXIT, f"{what} has exited with code {code}"
    return Reason.EXIT, f"{what} has ended"


def exit_of(ended: Mapping[str, Any]) -> tuple[int, int]:
    """The exit code, and the number of the signal that has ended a container; 0 if none did."""
    code, number = int(ended.get("exitCode") or 0), int(ended.get("signal") or 0)
    if not number and _SIGNALED < code < _SIGNALED + 65:
        number = code - _SIGNALED
    return code or (_SIGNALED + number if number else 0), number


def _memory_limit(pod: Mapping[str, Any], name: str) -> str:
    containers: Sequence[Mapping[str, Any]] = (pod.get("spec") or {}).get("containers") or ()
    one = next((c for c in containers if c.get("name") == name), {})
    limits = (one.get("resources") or {}).get("limits") or {}
    return str(limits.get("memory") or "")


def _true_condition(conditions: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    return next(
        (one for one in conditions if one.get("type") == name and one.get("status") == "True"), None
    )


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _words(text: object) -> str:
    return " ".join(str(text or "").split()).rstrip(".")


def _last_line(text: object) -> str:
    """Of what a container has written: at most some of it is kept."""
    lines = [line for line in str(text or "").splitlines() if line.strip()]
    return _words(lines[-1])[:500] if lines else ""


def _of_server(log: str) -> list[str]:
    """What the node program has written at the end of a log; empty if that is of its programs."""
    lines = [line for line in log.splitlines() if line.strip()]
    own = [*takewhile(lambda line: line.startswith(_SERVER), reversed(lines))]
    return [line for line in own[::-1] if not line.startswith(NOTE)]


def _because(text: str, why: str) -> str:
    return f"{text}: {why}" if why else text
