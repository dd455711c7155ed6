"""The trace of a simulated run: everything that happened, in order. Invariants are checked on it.

Times named `at` are virtual seconds since the run was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.lifecycle.effects import Effect, Entry
from muster.lifecycle.events import NodeEvent, RunRestarted
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.store.records import EventRecord, PendingRequests
from simulation.harness.behavior import Exit
from simulation.harness.faults import FaultPlan


class Fact(Struct):
    """What really happened to an incarnation, whether or not the controller knows."""

    at: float
    #: launched, queued, scheduled, runs, ready, told to end (SIGTERM), killed (SIGKILL), ended; or
    #: refused, because an older incarnation is alive.
    what: str
    rank: int
    incarnation: int
    end: Exit | None = None


class Received(Struct):
    """The controller received an event."""

    at: float
    event: NodeEvent


class Restarted(Struct):
    """The controller heard that the engine has restarted the run by itself."""

    at: float
    event: RunRestarted


class Step(Struct):
    """A decision was recorded."""

    at: float
    #: The clock of the process that decided.
    now: float
    number: int
    #: A controller; or recovery or the user, where no controller runs.
    by: str
    before: RunStatus
    after: RunStatus
    entries: Sequence[Entry]

    @property
    def hands_over(self) -> bool:
        """The controller has stopped the nodes, of which nothing is recorded, and leaves."""
        return any(entry.kind == "handed_over" for entry in self.entries)

    @property
    def decides(self) -> bool:
        """Whether the rules were applied."""
        undecided = ("handed_over", "supervisor_replaced")
        return not any(entry.kind in undecided for entry in self.entries)


class Command(Struct):
    """The controller carried out an effect."""

    at: float
    now: float
    #: The number of the last recorded step.
    step: int
    effect: Effect
    #: Whether it repeats what the previous controller may not have done.
    again: bool
    #: Whether the controller was asked to leave: what it does then is not recorded.
    leaving: bool


class Loaded(Struct):
    """The status was read from the ledger."""

    at: float
    by: str
    status: RunStatus


class Note(Struct):
    """Anything else, such as a fault."""

    at: float
    #: For counting.
    kind: str
    text: str = ""


Line = Fact | Received | Restarted | Step | Command | Loaded | Note


class Trace(Struct):
    """A simulated run."""

    seed: int
    policy: Policy
    plan: FaultPlan
    #: When the last fault is over and programs behave well.
    settled: float
    lines: list[Line]
    #: Whether nodes outlive their controller.
    detached: bool = False
    #: Why the simulation ended: "ended", "suspended", or a description of what is wrong.
    result: str = ""
    #: What sessions have reported and may not (`support.session_rules`).
    wrong_reports: list[str] = []
    final: RunStatus | None = None
    recorded: RunState = RunState.ACCEPTED
    #: The requests that are pending at the end.
    pending: PendingRequests = PendingRequests()
    #: The event log as recorded.
    log: Sequence[EventRecord] = ()

    @property
    def jumps(self) -> bool:
        """Whether a clock was set during the run."""
        return any(getattr(fault, "jump", 0.0) for fault in self.plan)
