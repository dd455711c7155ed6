"""What the heart wants done. Each may be carried out twice with the effect of once: it names the
incarnations it means, and does nothing to any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.lifecycle.status import NodeRef


class StartNodes(Struct, frozen=True):
    """Bring these incarnations up, for this attempt of the run. Where the engine has kept a node
    in place, only its processes start."""

    attempt: int
    nodes: tuple[NodeRef, ...]


class SignalNodes(Struct, frozen=True):
    """Send the programs of these nodes a signal they can catch."""

    nodes: tuple[NodeRef, ...]
    signal: int


class StopNodes(Struct, frozen=True):
    """Ask these nodes to end (SIGTERM)."""

    nodes: tuple[NodeRef, ...]


class KillNodes(Struct, frozen=True):
    """End these nodes now, every process of them (SIGKILL)."""

    nodes: tuple[NodeRef, ...]


class ReleaseNodes(Struct, frozen=True):
    """These nodes are not part of the run for now: let go of what was kept for these incarnations
    to begin with, and of their place in the roster; nobody waits for them."""

    nodes: tuple[NodeRef, ...]


class Entry(Struct, frozen=True):
    """A line of the run's event log: what changed, and why. Recorded with the status it tells of,
    before anything else is carried out."""

    kind: str
    data: Mapping[str, Any]


Effect = StartNodes | SignalNodes | StopNodes | KillNodes | ReleaseNodes
