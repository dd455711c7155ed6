"""What the heart wants done. Each may be carried out twice with the effect of once."""

from __future__ import annotations

from msgspec import Struct


class StartNodes(Struct, frozen=True):
    """Bring these nodes up for this attempt."""

    attempt: int
    ranks: tuple[int, ...]


class StopNodes(Struct, frozen=True):
    """Ask these nodes to end (SIGTERM)."""

    ranks: tuple[int, ...]


class KillNodes(Struct, frozen=True):
    """End these nodes now, every process of them (SIGKILL)."""

    ranks: tuple[int, ...]


Effect = StartNodes | StopNodes | KillNodes
