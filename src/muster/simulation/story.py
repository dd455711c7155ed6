"""Everything that happened in a simulated run, in order: what invariants are about."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.engines.simulated.life import End
from muster.lifecycle.effects import Effect, Entry
from muster.lifecycle.events import NodeEvent
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.simulation.faults import Plan
from muster.store.records import Asked, EventRecord


class Fact(Struct):
    """In the world, something happened to an incarnation: it was handed over, runs, is ready,
    ended; or was refused, since an older one is alive. at: virtual time, as everywhere here."""

    at: float
    what: str
    rank: int
    incarnation: int
    end: End | None = None


class Told(Struct):
    """The controller was told of something."""

    at: float
    event: NodeEvent


class Step(Struct):
    """A step was recorded. by: a controller, or who acts where there is none. now: its clock."""

    at: float
    now: float
    number: int
    by: str
    before: RunStatus
    after: RunStatus
    entries: Sequence[Entry]


class Act(Struct):
    """The controller had something done. step: the one recorded last. again: it was taken from
    what a predecessor had left to do."""

    at: float
    now: float
    step: int
    effect: Effect
    again: bool


class Loaded(Struct):
    """A controller, or who acts where there is none, read what was recorded last."""

    at: float
    by: str
    status: RunStatus


class Note(Struct):
    """Something else, such as a fault. kind: for counting."""

    at: float
    kind: str
    text: str = ""


Line = Fact | Told | Step | Act | Loaded | Note


class Story(Struct):
    """A simulated run. lines: in order. log: as recorded. asked: what people wanted, at the
    end. verdict: why nothing more happened: "ended", "suspended", or what is wrong. settled: when
    the last fault is over and programs mean well."""

    seed: int
    policy: Policy
    plan: Plan
    settled: float
    lines: list[Line]
    verdict: str = ""
    final: RunStatus | None = None
    recorded: RunState = RunState.ACCEPTED
    asked: Asked = Asked()
    log: Sequence[EventRecord] = ()

    def steps(self) -> list[Step]:
        return [line for line in self.lines if isinstance(line, Step)]

    def facts(self) -> list[Fact]:
        return [line for line in self.lines if isinstance(line, Fact)]

    def acts(self) -> list[Act]:
        return [line for line in self.lines if isinstance(line, Act)]

    @property
    def jumps(self) -> bool:
        """Whether clocks showed anything but the virtual time."""
        return any(getattr(fault, "jump", 0.0) for fault in self.plan)
