"""What the heart wants done. Each may be carried out twice with the effect of once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartNodes:
    """Bring these nodes up for this attempt."""

    attempt: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StopNodes:
    """Ask these nodes to end (SIGTERM)."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KillNodes:
    """End these nodes now, every process of them (SIGKILL)."""

    ranks: tuple[int, ...]


Effect = StartNodes | StopNodes | KillNodes
