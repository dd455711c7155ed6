"""Decides the steps of one run: what to record of it, and what to do once that is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.control.awaited_causes import AwaitedCauses
from muster.lifecycle import outstanding
from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import CloseSession, Effect, Entry, LeaveSession, ReleaseNodes
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    HandOverRequested,
    NodeEvent,
    ResourcesLeft,
    SessionClosed,
    SuspendRequested,
)
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus


class Record(Struct, frozen=True):
    """What to record of a step."""

    before: RunStatus
    after: RunStatus
    #: Added to the run's event log.
    entries: tuple[Entry, ...]
    #: When it was decided (epoch seconds).
    now: float
    #: See `Decision.metrics`.
    metrics: Mapping[int, str] = {}


class Step(Struct, frozen=True):
    """One step of a run."""

    #: None if there is nothing to record.
    record: Record | None = None
    #: Carried out in order, once the record is made.
    effects: tuple[Effect | CloseSession | LeaveSession, ...] = ()


class _Ending(Struct):
    """The end of a run, which is recorded when the session has closed."""

    #: What puts the run at rest.
    step: Step
    #: From which events it was decided.
    events: tuple[Event, ...]
    #: What the session has not removed yet: sentences. None: it has said nothing about that.
    left: str | None = None


class Controller:
    """Decides the steps of one run until it has ended, is suspended, or is handed over.

    It waits for nothing, and neither reads nor writes anything: `control.drive` does.

    It may be killed at any point. Its successor repeats effects that were recorded and not carried
    out, and learns what happened meanwhile from the engine (`Engine.open`).

    status: as recorded. detached: whether nodes outlive it (`Capabilities.detached`).
    """

    def __init__(self, policy: Policy, status: RunStatus, *, detached: bool = False) -> None:
        self._policy = policy
        self._detached = detached
        self._status = status
        self._unrecorded: list[Event] = []
        self._awaited = AwaitedCauses(policy, status)
        self._ending: _Ending | None = None
        self._closed = False
        self._hand_over: HandOverRequested | None = None
        #: While the run is handed over: what would become of it if it were suspended. Never
        #: recorded.
        self._shadow: RunStatus | None = None
        #: Whether the nodes are left to the next controller.
        self._left = False
        self._handed_over = False

    @property
    def status(self) -> RunStatus:
        """The status as last recorded."""
        return self._status

    @property
    def finished(self) -> bool:
        """Whether there are no further steps: the record says that the run is at rest, or that it
        is handed over."""
        return self._status.state.at_rest or self._handed_over

    @property
    def handed_over(self) -> bool:
        """Whether the record says that the run is handed over: it is in progress, and has no
        processes, unless they are detached."""
        return self._handed_over

    def outstanding(self) -> tuple[Effect, ...]:
        """The effects that an earlier controller may not have carried out. They come first."""
        return outstanding.effects(self._policy, self._status)

    def wake_at(self) -> float | None:
        """When to decide the next step even if nothing happens (epoch seconds); None = never."""
        if self._ending is not None or self._left:
            return None
        if self._shadow is not None:
            return wake_at(self._shadow)
        times = [wake_at(self._status), self._awaited.due]
        return min((at for at in times if at is not None), default=None)

    def step(self, events: Sequence[Event], now: float) -> Step:
        """The next step, after these events. now: epoch seconds.

        If it has a record, `recorded` has to follow. Otherwise the recording has failed, and the
        next call decides again, with these events and its own.

        The end of a run, or its suspension, is recorded after every process has ended. Such a step
        first closes the session; the record follows with the event SessionClosed. That step stays
        as it was decided: nothing that happens meanwhile can start nodes of a session that closes.
        Only what the session cannot remove is recorded meanwhile, and added to the details of the
        run if it is left in the end. A request is still in the ledger then, for whoever continues a
        suspended run.

        A run that is to be handed over is stopped like one that is suspended: nodes can save, and
        have their grace period. What they report from that step on is not recorded, since the next
        controller learns that they are lost. A run that is ending is not handed over.

        Ends of nodes may wait for what may have caused them (`AwaitedCauses`).

        Nodes that outlive the controller are left as they are, also when the run is ending. The
        next controller learns from them what is not recorded. When the session closes, what they
        knew of is forgotten on their hosts: so their ends are recorded before.
        """
        for event in events:
            if isinstance(event, SessionClosed):
                self._closed = True
            elif isinstance(event, HandOverRequested):
                self._hand_over = self._hand_over or event
        if self._ending is not None:
            return self._ending_step(self._ending, events, now)
        if self._hand_over is None:
            return self._decide(events, now)
        if self._detached and not self._status.state.at_rest:
            return self._leave_step(self._hand_over.why, now)
        if self._shadow is not None:
            return self._hand_over_step(_of_nodes(events), now)
        if self._is_ending(events):
            return self._decide(events, now)
        # at a shutdown, nodes get SIGTERM as well: what they report with it is an effect of it
        reported = _of_nodes([*self._unrecorded, *self._awaited.let_go(), *events])
        return self._hand_over_step([SuspendRequested(""), *reported], now)

    def _is_ending(self, events: Sequence[Event]) -> bool:
        canceled = any(isinstance(event, CancelRequested) for event in events)
        return canceled or self._status.stopping is not None

    def _hand_over_step(self, events: Sequence[Event], now: float) -> Step:
        """The next step of handing the run over."""
        assert self._hand_over is not None
        if self._closed:
            why = self._hand_over.why
            after = replace(self._status, handed_over=why)
            return Step(Record(self._status, after, (Entry("handed_over", {"why": why}),), now))
        decision = decide(self._policy, self._shadow or self._status, events, now)
        closing = self._shadow is not None and self._shadow.state is RunState.SUSPENDED
        self._shadow = decision.status
        # the session is about to close: it has nothing left to release
        effects = tuple(one for one in decision.effects if not isinstance(one, ReleaseNodes))
        if closing or decision.status.state is not RunState.SUSPENDED:
            return Step(effects=effects)
        return Step(effects=(*effects, CloseSession()))

    def _leave_step(self, why: str, now: float) -> Step:
        """The next step of leaving the nodes to another controller."""
        if self._closed:
            entries = (Entry("handed_over", {"why": why}),)
            return Step(Record(self._status, self._status, entries, now))
        leaving, self._left = not self._left, True
        return Step(effects=(LeaveSession(),) if leaving else ())

    def _decide(self, events: Sequence[Event], now: float) -> Step:
        self._unrecorded += self._awaited.take(self._status, events, now)
        apart = self._detached and not self._closed
        decision = decide(self._policy, self._status, self._unrecorded, now, outcome_apart=apart)
        after = decision.status
        if not decision.entries and after is self._status:
            self._unrecorded = []
            return Step(effects=decision.effects)
        record = Record(self._status, after, decision.entries, now, decision.metrics)
        step = Step(record, decision.effects)
        if not after.state.at_rest or self._closed:
            return step
        self._ending = _Ending(step, tuple(self._unrecorded))
        return Step(effects=(CloseSession(),))

    def _ending_step(self, ending: _Ending, events: Sequence[Event], now: float) -> Step:
        """The next step while the session closes, and when it has closed."""
        for event in events:
            if isinstance(event, ResourcesLeft):
                ending.left = event.why
        record = ending.step.record
        assert record is not None
        if not self._closed:
            return Step() if ending.left is None else self._left_step(ending.left, now)
        if not ending.left:
            return replace(ending.step, record=replace(record, before=self._status))
        given = (*ending.events, ResourcesLeft(ending.left))
        decision = decide(self._policy, record.before, given, record.now)
        after, entries = decision.status, decision.entries
        whole = Record(self._status, after, entries, record.now, decision.metrics)
        return Step(whole, decision.effects)

    def _left_step(self, left: str, now: float) -> Step:
        """Record what keeps the session from closing, unless that was done."""
        ending = self._status.stopping
        is_canceling = ending is not None and self._status.state is RunState.CANCELING
        why = ending.details if ending is not None and is_canceling else ""
        details = "\n".join(text for text in (why, left) if text)
        if details == self._status.details:
            return Step()
        entries = (Entry("left", {"why": left}),) if left else ()
        return Step(Record(self._status, replace(self._status, details=details), entries, now))

    def recorded(self, record: Record) -> None:
        """The record of a step was made."""
        self._status = record.after
        if self._ending is not None and not self._closed:
            return  # what the session has not removed was recorded, not the end of the run
        self._unrecorded = []
        self._ending = None
        self._handed_over = self._closed and (self._left or self._shadow is not None)


def _of_nodes(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, NodeEvent)]
