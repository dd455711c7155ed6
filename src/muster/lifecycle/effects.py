"""Actions that `decide` requests from the controller.

Each effect is idempotent: it names the incarnations it applies to and leaves all others alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.lifecycle.status import NodeRef


class StartNodes(Struct, frozen=True):
    """Start these incarnations for this attempt of the run. On a node that the engine has kept in
    place, only the processes are started."""

    attempt: int
    nodes: tuple[NodeRef, ...]


class SignalNodes(Struct, frozen=True):
    """Send the programs of these nodes a signal they can catch."""

    nodes: tuple[NodeRef, ...]
    signal: int


class StopNodes(Struct, frozen=True):
    """Send SIGTERM to these nodes."""

    nodes: tuple[NodeRef, ...]


class KillNodes(Struct, frozen=True):
    """Send SIGKILL to every process of these nodes."""

    nodes: tuple[NodeRef, ...]


class ReleaseNodes(Struct, frozen=True):
    """Release what the engine keeps for these nodes, which were removed by scaling, and take them
    off the roster."""

    nodes: tuple[NodeRef, ...]


class CloseSession(Struct, frozen=True):
    """Close the engine's session, as the run comes to rest. Not decided by `decide`: the controller
    records what it has decided only once the engine has reported SessionClosed."""


class LeaveSession(Struct, frozen=True):
    """Leave the nodes of an engine with `Capabilities.detached` to the next controller. Not decided
    by `decide`: the controller records that it has left once the engine has reported
    SessionClosed."""


class Entry(Struct, frozen=True):
    """An entry of the run's event log: what changed, and why. It is recorded with the new status,
    before any effect is carried out."""

    kind: str
    data: Mapping[str, Any]


Effect = StartNodes | SignalNodes | StopNodes | KillNodes | ReleaseNodes
