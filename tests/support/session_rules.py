"""What a session may report: the list of `engines.base.Session` and `Engine.open`, as a checker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from muster.engines.base import Report
from muster.lifecycle.events import (
    DiskExceeded,
    EngineEvent,
    NodeEnded,
    NodeEvent,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
    ResourcesLeft,
    RunAdmitted,
    RunEnded,
    RunQueued,
    RunRestarted,
    SessionClosed,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.status import NodeRef, Reason


class _Incarnation:
    """What was reported of one incarnation in this session."""

    def __init__(self, *, attached: bool) -> None:
        #: Whether an earlier session was given it: what happened to it before is not known.
        self.attached = attached
        #: Whether its agent may report. That of an earlier session has to be reached first. None:
        #: the infrastructure has started it, and it may report as soon as it is reached.
        self.reachable: bool | None = not attached
        #: Why it cannot be reached; "" before NodeUnreachable.
        self.unreachable_why = ""
        #: What it waits for; None if it does not wait.
        self.waits_for: str | None = None
        self.located = self.started = self.ready = self.ended = False


class SessionRules:
    """Checks the events of one session, one after the other.

    alive: the incarnations to which it attaches (`RunContext.alive`). Calls of `start` have to be
    passed on, in the order in which they and the events happen.
    """

    def __init__(self, alive: Iterable[NodeRef] = ()) -> None:
        self._alive: Collection[NodeRef] = list(alive)
        self._known = {ref: _Incarnation(attached=True) for ref in self._alive}
        self._newest = dict(self._alive)
        self._run_waits: str | None = None
        self._native_restarts = 0  # as reported
        self._admitted = self._any_event = self._closed = False
        self._has_ended = False

    def start(self, nodes: Iterable[NodeRef]) -> None:
        """The session's `start` is about to be called."""
        for ref in nodes:
            newest = self._newest.get(ref.rank, -1)
            running = newest >= 0 and not self._known[NodeRef(ref.rank, newest)].ended
            if self._run_waits is None and ref.incarnation > newest and not running:
                self._newest[ref.rank] = ref.incarnation
                self._known[ref] = _Incarnation(attached=False)

    def opened(self) -> list[str]:
        """The session has been opened. Returns what is wrong."""
        return [
            f"{_name(ref)} was neither reached nor reported as unreachable when the session opened"
            for ref in self._alive
            if not (self._known[ref].reachable or self._known[ref].unreachable_why)
            and not self._known[ref].ended
            and self._known[ref].waits_for is None
        ]

    def report(self, events: Sequence[EngineEvent]) -> list[str]:
        """The session reports these. Returns what is wrong with them."""
        return [f"{event}: {why}" for event in events if (why := self._wrong(event))]

    def _wrong(self, event: EngineEvent) -> str:
        if self._closed:
            return "the session has closed"
        first, self._any_event = not self._any_event, True
        if isinstance(event, SessionClosed):
            self._closed = True
            return ""
        if isinstance(event, RunQueued):
            return self._run_queued(event, first=first)
        if isinstance(event, RunAdmitted):
            may_be = not self._admitted and (first or self._run_waits is not None)
            self._run_waits, self._admitted = None, True
            return "" if may_be else "the run does not wait"
        if isinstance(event, RunRestarted):
            return self._restarted(event)
        if isinstance(event, RunEnded):
            before, self._has_ended = self._has_ended, True
            return "that was reported" if before else ""
        if isinstance(event, ResourcesLeft):
            return ""
        return self._node(event)

    def _restarted(self, event: RunRestarted) -> str:
        before, self._native_restarts = self._native_restarts, event.restarts
        number = of_native_restart(event.restarts)
        for ref, known in self._known.items():
            known.ended = known.ended or ref.incarnation < number
        for rank in self._newest.copy() if event.ranks is None else event.ranks:
            if self._newest.get(rank, -1) < number:
                self._newest[rank] = number
                known = self._known[NodeRef(rank, number)] = _Incarnation(attached=True)
                known.reachable = None
        return "" if event.restarts > before else "that was reported"

    def _run_queued(self, event: RunQueued, *, first: bool) -> str:
        before, self._run_waits = self._run_waits, event.why
        if self._admitted:
            return "the run was admitted"
        if before is None and not first:
            return "it has to be the first event"
        return "it waits for that already" if before == event.why else ""

    def _node(self, event: NodeEvent) -> str:
        ref = NodeRef(event.rank, event.incarnation)
        known = self._known.get(ref)
        if known is None:
            return "the session did not accept its start"
        if known.ended:
            return "it has ended"
        return _RULES[type(event)](known, event)


# --- the rules for each kind of event: they return what is wrong, and note what has happened


def _queued(known: _Incarnation, event: NodeQueued) -> str:
    before, known.waits_for = known.waits_for, event.why
    if known.started:
        return "it has started"
    return "it waits for that already" if before == event.why else ""


def _scheduled(known: _Incarnation, event: NodeScheduled) -> str:
    waited, known.waits_for = known.waits_for is not None, None
    if known.started:
        return "it has started"
    return "" if waited or known.attached else "it does not wait"


def _located(known: _Incarnation, event: NodeLocated) -> str:
    repeated, known.located = known.located, True
    if known.started and not repeated:
        return "it has started, and was not located before"
    return _of_agent(known)


def _started(known: _Incarnation, event: NodeStarted) -> str:
    repeated, known.started = known.started, True
    return "it has started" if repeated else _of_agent(known)


def _ready(known: _Incarnation, event: NodeReady) -> str:
    repeated, known.ready = known.ready, True
    if not known.started:
        return "it has not started"
    return "it is ready" if repeated else _of_agent(known)


def _disk(known: _Incarnation, event: DiskExceeded) -> str:
    return _of_agent(known)


def _of_agent(known: _Incarnation) -> str:
    """What is wrong with an event that only the node's agent can know."""
    if known.reachable is False:
        return "its agent cannot be reached"
    return "it waits" if known.waits_for is not None else ""


def _unreachable(known: _Incarnation, event: NodeUnreachable) -> str:
    before, known.unreachable_why = known.unreachable_why, event.why
    was_reachable, known.reachable = known.reachable, False
    if not event.why:
        return "it does not say why"
    repeated = was_reachable is False and before == event.why
    return "it is unreachable for that reason already" if repeated else ""


def _reachable(known: _Incarnation, event: NodeReachable) -> str:
    was_reachable, known.reachable = known.reachable, True
    return "it is reachable" if was_reachable else ""


def _ended(known: _Incarnation, event: NodeEnded) -> str:
    known.ended = True
    if event.exit_code is not None and not 0 <= event.exit_code <= 255:
        return "that is not an exit code"
    if known.started and event.reason is Reason.NOT_STARTED:
        return "it has started"
    return ""


_RULES: dict[type, Callable[[_Incarnation, Any], str]] = {
    NodeQueued: _queued,
    NodeScheduled: _scheduled,
    NodeLocated: _located,
    NodeStarted: _started,
    NodeReady: _ready,
    DiskExceeded: _disk,
    NodeUnreachable: _unreachable,
    NodeReachable: _reachable,
    NodeEnded: _ended,
}


def _name(ref: NodeRef) -> str:
    return f"incarnation {ref.incarnation} of node {ref.rank}"


def checked(rules: SessionRules, report: Report, complain: Callable[[list[str]], None]) -> Report:
    """A report that checks events before it passes them on. complain: gets what is wrong."""

    def check(events: Sequence[EngineEvent]) -> None:
        wrong = rules.report(events)
        if wrong:
            complain(wrong)
        report(events)

    return check
