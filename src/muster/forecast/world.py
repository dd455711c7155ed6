"""What is assumed of the machines and of the program when a run is forecast. Times in seconds."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class World(Struct, frozen=True):
    """mtbf: of one node: the mean time between its failures. lost: the share of failures after
    which the node itself is gone; after the others only its processes are.

    crash_noticed, loss_noticed: from such a failure until Muster is told. node_start: until a new
    node is there. load: from the start of a program until it makes progress (imports, the last
    checkpoint read, warm caches); stop: from SIGTERM until its processes are gone.
    checkpoint_every: seconds of work between checkpoints; checkpoint_cost: to write one.
    work: seconds of work after which a node's program is done; None = it goes on.
    horizon: what is looked at.
    """

    mtbf: float
    horizon: float
    lost: float = 0.2
    crash_noticed: float = 1.0
    loss_noticed: float = 30.0
    node_start: float = 120.0
    load: float = 60.0
    stop: float = 5.0
    checkpoint_every: float = 3600.0
    checkpoint_cost: float = 30.0
    work: float | None = None


class Use(StrEnum):
    """What a node's time went into."""

    USEFUL = "useful work"
    CHECKPOINTS = "writing checkpoints"
    AGAIN = "work done again"
    NOTICING = "noticing failures"
    STOPPING = "stopping what is left"
    WAITING = "waiting (backoff)"
    STARTING = "starting"
    IDLE = "waiting for other groups, or done"
    OVER = "after the run had failed"


class Outcome(Struct, frozen=True):
    """One simulated run. uses: node-seconds by use. productive: (time, share of the nodes that
    make progress from then on). ended_at: None if it still went on at the horizon."""

    state: str
    details: str
    ended_at: float | None
    failures: int
    restarts: int
    uses: dict[Use, float]
    productive: tuple[tuple[float, float], ...]

    @property
    def goodput(self) -> float:
        """Useful work, as a share of all node time until the run was done or the horizon."""
        total = sum(self.uses.values())
        return self.uses.get(Use.USEFUL, 0.0) / total if total else 0.0
