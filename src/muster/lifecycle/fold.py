"""The state of a run as its event log tells it: every change is in there, so the log alone is
enough to know where a run stands, at its end or at any entry before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from muster.lifecycle.census import expand
from muster.lifecycle.states import NodeState, RunState


class Told(Struct, frozen=True):
    """What a log tells. nodes: rank -> (state, incarnation); (PENDING, 0) where it says nothing."""

    state: RunState
    details: str
    attempt: int
    nodes: Mapping[int, tuple[NodeState, int]]


def fold(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> Told:
    """Read entries, (kind, data) in order, from the first on."""
    state, details, attempt = RunState.ACCEPTED, "", 0
    nodes: dict[int, tuple[NodeState, int]] = {}
    for kind, data in entries:
        if kind == "run":
            state, details = RunState(data["state"]), data.get("details", "")
        elif kind in ("attempt", "resumed"):
            attempt = data["attempt"]
        elif kind == "nodes":
            for rank in expand(data["ranks"]):
                nodes[rank] = (NodeState(data["state"]), data.get("restart", 0))
    return Told(state, details, attempt, nodes)
