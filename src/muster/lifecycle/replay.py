"""The state of a run, rebuilt from its event log.

Every change of state is an entry, so the log alone shows the state of the run after any entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from muster.lifecycle.ranks import parse_ranks
from muster.lifecycle.states import NodeState, RunState


class ReplayedRun(Struct, frozen=True):
    """State of a run after an entry of its log."""

    state: RunState
    details: str
    attempt: int
    nodes: Mapping[int, tuple[NodeState, int]]
    """(state, incarnation) by rank; a missing rank is (PENDING, 0)."""


def replay(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> ReplayedRun:
    """Read entries, (kind, data), in order from the first on."""
    state, details, attempt = RunState.ACCEPTED, "", 0
    nodes: dict[int, tuple[NodeState, int]] = {}
    for kind, data in entries:
        if kind == "run":
            state, details = RunState(data["state"]), data.get("details", "")
        elif kind in ("attempt", "resumed"):
            attempt = data["attempt"]
        elif kind == "nodes":
            for rank in parse_ranks(data["ranks"]):
                nodes[rank] = (NodeState(data["state"]), data.get("restart", 0))
    return ReplayedRun(state, details, attempt, nodes)
