"""Entries of a run's event log as sentences, for `muster events`; and which of them stand in the
run's log as messages of the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.lifecycle.describe import in_a_line, reason_of
from muster.lifecycle.states import NodeState, RunState

#: What the service says of a run in each state.
_RUN: Mapping[str, str] = {
    RunState.ACCEPTED: "the run was accepted",
    RunState.IN_PROGRESS: "the run is in progress",
    RunState.SUCCEEDED: "the run succeeded",
    RunState.FAILED: "the run failed",
    RunState.CANCELING: "the run is being canceled",
    RunState.CANCELED: "the run was canceled",
    RunState.SUSPENDED: "the run was suspended",
}
#: Of one node, of several.
_NODES: Mapping[str, tuple[str, str]] = {
    NodeState.PARKED: ("is parked", "are parked"),
    NodeState.PENDING: ("is waiting to start", "are waiting to start"),
    NodeState.STARTING: ("is starting", "are starting"),
    NodeState.RUNNING: ("is running", "are running"),
    NodeState.READY: ("is ready", "are ready"),
    NodeState.SUCCEEDED: ("succeeded", "succeeded"),
    NodeState.FAILED: ("failed", "failed"),
    NodeState.STOPPED: ("was stopped", "were stopped"),
}
#: Those of nodes that a log shows: of how they end, failures are entries of their own.
_SHOWN_OF_NODES = (NodeState.STARTING, NodeState.READY)


class _Known(dict[str, str]):
    """What is known of an entry: one in a damaged store may lack anything."""

    def __missing__(self, name: str) -> str:
        return "?"


def in_log(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether an entry is a message of the run's log."""
    if kind == "nodes":
        return data.get("state") in _SHOWN_OF_NODES
    return kind != "stopping"  # what ends the run was said before, and the outcome follows


def sentence(kind: str, data: Mapping[str, Any]) -> str:
    """An entry as a person reads it, in one line."""
    first = _Known({k: str(v).partition("\n")[0] for k, v in data.items() if v not in ("", None)})
    for name in first.keys() & {"details", "why"}:
        first[name] = in_a_line(str(data[name]))
    why = f": {first['why']}" if "why" in first else ""
    match kind:
        case "nodes":
            return _nodes(first) + why
        case "run":
            details = f": {first['details']}" if "details" in first else ""
            return _RUN.get(first["state"], f"the run is {first['state']}") + details
        case "failure":
            return _failure(first, reason_of(str(data.get("message", ""))))
        case "restart":
            wait = f" in {first['wait']} s" if data.get("wait") else ""
            return f"restart {first['restart']}: {first['what']} starts again{wait}{why}"
        case "attempt" | "resumed":
            return f"attempt {first['attempt']} begins{why}"
        case "cancel_requested" | "suspend_requested":
            return f"{kind.partition('_')[0]} requested{why}"
        case "scale_requested":
            return f"scaling of {first['group']} to {first['replicas']} requested{_by(first)}"
        case "scaled":
            return f"{first['group']} scaled from {first['from']} to {first['to']}{_by(first)}"
        case "disk":
            return _disk(first, data.get("used"), data.get("allowed"))
        case "stopping":
            return f"the run is ending as {first['towards']}{why}"
        case _:
            return first.get("why") or " ".join(f"{k}={v}" for k, v in first.items())


def _disk(first: Mapping[str, str], used: Any, allowed: Any) -> str:
    """Runs of earlier versions have no figures."""
    from muster.spec.quantities import format_size  # few runs need it

    much, size = (
        (f" ({format_size(used)} or more)", f" of {format_size(allowed)}")
        if isinstance(used, int) and isinstance(allowed, int)
        else ("", "")
    )
    where = f"node-{first['rank']} (group {first['group']})"
    return f"{where} uses more disk{much} than its resources.disk{size}, which is not enforced here"


def _nodes(first: Mapping[str, str]) -> str:
    ranks = first["ranks"]
    several = not ranks.isdecimal()
    state = first["state"]
    one, many = _NODES.get(state, (f"is {state}", f"are {state}"))
    exit_code = first.get("exit_code")
    how = f" with exit code {exit_code}" if exit_code not in (None, "0") else ""
    again = f", restart {first['restart']}" if "restart" in first else ""
    return f"node{'s' * several} {ranks} {many if several else one}{how}{again}"


def _failure(first: Mapping[str, str], reason: str) -> str:
    code = f" with exit code {first['exit_code']}" if "exit_code" in first else ""
    life = f", restart {first['restart']}" if "restart" in first else ""
    text = f"node-{first['rank']} (group {first['group']}{life}) failed{code}"
    return f"{text}, reason {first['reason']}" + (f": {reason}" if reason else "")


def _by(first: Mapping[str, str]) -> str:
    why = first.get("why", "")
    return f" {why}" if why.startswith("by ") else f": {why}"
