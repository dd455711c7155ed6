"""What a forecast assumes, and what it finds. Times in seconds."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Assumptions(Struct, frozen=True):
    """Assumptions about the machines and the program."""

    #: Mean time between failures of one node.
    mtbf: float
    #: How far the forecast looks.
    horizon: float
    #: The share of failures that take the node; after the others only its processes have ended.
    lost: float = 0.2
    #: Time from a crash of a node's processes until Muster notices.
    crash_noticed: float = 1.0
    #: The same for the loss of a node.
    loss_noticed: float = 30.0
    #: Time until a new node is up.
    node_start: float = 120.0
    #: Time from a program's start to its first progress: imports, reading the checkpoint, caches.
    load: float = 60.0
    #: Time from SIGTERM to the end of the processes.
    stop: float = 5.0
    #: Work between checkpoints.
    checkpoint_every: float = 3600.0
    #: Time to write a checkpoint.
    checkpoint_cost: float = 30.0
    #: Work after which a node's program ends; None = never.
    work: float | None = None


class Worth(StrEnum):
    """What a use of time is worth."""

    USEFUL = "useful"
    OVERHEAD = "overhead"  # needed to make progress, but none itself
    WASTED = "wasted"


class TimeUse(StrEnum):
    """What a node spent its time on."""

    USEFUL = "useful work"
    CHECKPOINTS = "writing checkpoints"
    AGAIN = "repeated work"
    NOTICING = "detecting failures"
    STOPPING = "stopping remaining nodes"
    WAITING = "waiting (backoff)"
    STARTING = "starting"
    IDLE = "waiting for other groups, or done"
    OVER = "after the run failed"

    @property
    def worth(self) -> Worth:
        """What it is worth."""
        return _WORTH.get(self, Worth.WASTED)


_WORTH = {
    TimeUse.USEFUL: Worth.USEFUL,
    TimeUse.CHECKPOINTS: Worth.OVERHEAD,
    TimeUse.STARTING: Worth.OVERHEAD,
    TimeUse.IDLE: Worth.OVERHEAD,
}


class Outcome(Struct, frozen=True):
    """One simulated run."""

    state: str
    details: str
    #: None if the run had not ended at the horizon.
    ended_at: float | None
    failures: int
    restarts: int
    #: Node-seconds.
    uses: dict[TimeUse, float]
    #: Changes over time: (time, share of the nodes that make progress from then on).
    productive: tuple[tuple[float, float], ...]

    @property
    def goodput(self) -> float:
        """The share of useful work in all node time until the end of the run or the horizon."""
        total = sum(self.uses.values())
        return self.uses.get(TimeUse.USEFUL, 0.0) / total if total else 0.0
