"""Entries of a run's event log as sentences, and which of them the run's log shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from muster.describe.failure import one_line
from muster.describe.times import span
from muster.lifecycle.failure_details import name_of, reason_of
from muster.lifecycle.incarnations import BLOCK
from muster.lifecycle.states import NodeState, RunState

#: For each state of the run.
_RUN: Mapping[str, str] = {
    RunState.ACCEPTED: "the run was accepted",
    RunState.QUEUED: "the run is queued",
    RunState.IN_PROGRESS: "the run is in progress",
    RunState.SUCCEEDED: "the run succeeded",
    RunState.FAILED: "the run failed",
    RunState.CANCELING: "the run is being canceled",
    RunState.CANCELED: "the run was canceled",
    RunState.SUSPENDED: "the run was suspended",
}
#: For each state of nodes: of one node, of several nodes.
_NODES: Mapping[str, tuple[str, str]] = {
    NodeState.SCALED_DOWN: ("is scaled down", "are scaled down"),
    NodeState.PENDING: ("is waiting to start", "are waiting to start"),
    NodeState.QUEUED: ("is waiting", "are waiting"),
    NodeState.STARTING: ("is starting", "are starting"),
    NodeState.RUNNING: ("is running", "are running"),
    NodeState.READY: ("is ready", "are ready"),
    NodeState.SUCCEEDED: ("succeeded", "succeeded"),
    NodeState.FAILED: ("failed", "failed"),
    NodeState.STOPPED: ("was stopped", "were stopped"),
}
#: States of nodes that the run's log shows; failures have entries of another kind.
_SHOWN_OF_NODES = (NodeState.QUEUED, NodeState.STARTING, NodeState.READY)


#: The reason of a loss, at the end of an entry of what follows from it.
_LOSS = re.compile(r": (?:the run's supervisor (?:was killed|received)|a user adopted the run)\b.*")


class _Fields(dict[str, str]):
    """The fields of an entry; "?" for a missing one, as in a damaged store."""

    def __missing__(self, name: str) -> str:
        return "?"


def in_log(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether the run's log shows an entry."""
    if kind == "nodes":
        return data.get("state") in _SHOWN_OF_NODES
    if kind == "run" and data.get("state") == RunState.ACCEPTED:
        return not data.get("details")  # of a run that is resumed, an entry "resumed" follows
    # the cause of stopping is an entry before, and the outcome one after; whoever continues a run
    # that was handed over records why
    return kind not in ("stopping", "handed_over")


def sentence(kind: str, data: Mapping[str, Any]) -> str:
    """An entry as one line for people."""
    fields = _Fields({k: str(v).partition("\n")[0] for k, v in data.items() if v not in ("", None)})
    for name in fields.keys() & {"details", "why"}:
        fields[name] = one_line(str(data[name]))
    why = f": {fields['why']}" if "why" in fields else ""
    match kind:
        case "nodes":
            return _nodes(fields) + why
        case "run":
            return _run(fields)
        case "failure":
            return _failure(fields, reason_of(str(data.get("message", ""))))
        case "restart":
            return _restart(fields, data) + why
        case "attempt" | "resumed":
            begins = f", begun by the {fields['by']}" if "by" in fields else " starts"
            return f"attempt {fields['attempt']}{begins}{why}"
        case "cancel_requested" | "suspend_requested":
            return _because(f"{kind.partition('_')[0]} requested", fields.get("why", ""))
        case "scale_requested":
            return f"scaling of {fields['group']} to {fields['replicas']} requested{_by(fields)}"
        case "scaled":
            return f"{fields['group']} scaled from {fields['from']} to {fields['to']}{_by(fields)}"
        case "disk" | "unreachable" | "reachable" | "scheduled":
            return _surroundings(kind, fields, data) + why
        case "stopping":
            return _because(f"the run is ending as {fields['towards']}", fields.get("why", ""))
        case _:
            return fields.get("why") or " ".join(f"{k}={v}" for k, v in fields.items())


def _restart(fields: Mapping[str, str], data: Mapping[str, Any]) -> str:
    if "by" in fields:
        return f"the {fields['by']} restarts {fields['what']} by itself"
    wait = f" in {fields['wait']} s" if data.get("wait") else ""
    return f"restart {_restart_name(fields['restart'])} of {fields['what']}{wait}"


def _restart_name(number: str) -> str:
    """The number of a restart, as people count them: an engine that restarts runs by itself begins
    a new block of numbers each time."""
    if not number.isdecimal() or int(number) < BLOCK:
        return number
    by_engine, later = divmod(int(number), BLOCK)
    return f"{later} after {by_engine} by the engine" if later else f"{by_engine} by the engine"


def brief_sentence(kind: str, data: Mapping[str, Any]) -> str:
    """The same for a list of all entries, in which the entry `supervisor_lost` says once why the
    nodes were lost."""
    text = sentence(kind, data)
    if kind == "handed_over" and (signal := re.search(r" received (\S+), ", text)):
        return f"the supervisor received {signal[1]} and leaves the run to the next command"
    return text if kind in ("supervisor_lost", "handed_over", "run") else _LOSS.sub("", text)


def _run(fields: Mapping[str, str]) -> str:
    state = fields["state"]
    text = _RUN.get(state, f"the run is {state}")
    if "admitted" in fields:
        return "the run no longer waits, and can start"
    if "details" not in fields:
        return text
    again = " again" if state == RunState.ACCEPTED else ""
    return _because(f"{text}{again}", fields["details"])


def _because(text: str, why: str) -> str:
    """A sentence and its reason, which may repeat the verb: "canceled by user"."""
    verb, _, rest = why.partition(" ")
    if verb in ("canceled", "suspended") and rest.startswith("by "):
        return f"{text} {rest}"
    return f"{text}: {why}" if why else text


def _disk(fields: Mapping[str, str], used: Any, allowed: Any) -> str:
    """Entries of earlier versions have no sizes."""
    from muster.spec.quantities import format_size  # few runs need it

    usage, limit = (
        (f" ({format_size(used)} or more)", f" of {format_size(allowed)}")
        if isinstance(used, int) and isinstance(allowed, int)
        else ("", "")
    )
    where = f"node-{fields['rank']} (group {fields['group']})"
    return (
        f"{where} uses more disk{usage} than its resources.disk{limit}, which is not enforced here"
    )


def _nodes(fields: Mapping[str, str]) -> str:
    ranks = fields["ranks"]
    several = not ranks.isdecimal()
    state = fields["state"]
    one, many = _NODES.get(state, (f"is {state}", f"are {state}"))
    exit_code = fields.get("exit_code")
    ending = f" with exit code {exit_code}" if exit_code not in (None, "0") else ""
    if state == NodeState.PENDING and "restart" in fields:
        number = _restart_name(fields["restart"])
        return f"node{'s' * several} {ranks} wait{'s' * (not several)} for restart {number}"
    never_ran = state == NodeState.STOPPED and exit_code is None
    restart = (
        f", restart {_restart_name(fields['restart'])}"
        if "restart" in fields and not never_ran
        else ""
    )
    return f"node{'s' * several} {ranks} {many if several else one}{ending}{restart}"


def _surroundings(kind: str, fields: Mapping[str, str], data: Mapping[str, Any]) -> str:
    """What happened to the disk of a node, to the contact with nodes, or to their place in a
    queue."""
    if kind == "disk":
        return _disk(fields, data.get("used"), data.get("allowed"))
    seconds = data.get("seconds")
    several = not fields["ranks"].isdecimal()
    after = f" after {span(seconds)}" if isinstance(seconds, int | float) else ""
    match kind:
        case "unreachable":
            text = "cannot be reached"
        case "reachable":
            text = f"can be reached again{after}"
        case _:
            where = f" on {fields['where']}" if "where" in fields else ""
            text = f"{'were' if several else 'was'} scheduled{where}{after}"
    return f"node{'s' * several} {fields['ranks']} (group {fields['group']}) {text}"


def _failure(fields: Mapping[str, str], reason: str) -> str:
    code = f" with exit code {fields['exit_code']}" if "exit_code" in fields else ""
    restart = f", restart {_restart_name(fields['restart'])}" if "restart" in fields else ""
    given = f", {fields['parameters']}" if "parameters" in fields else ""
    name = name_of(fields["rank"], fields)
    text = f"{name} (group {fields['group']}{given}{restart}) failed{code}"
    return f"{text}, reason {fields['reason']}" + (f": {reason}" if reason else "")


def _by(fields: Mapping[str, str]) -> str:
    why = fields.get("why", "")
    return f" {why}" if why.startswith("by ") else f": {why}"
