"""Sessions of the simulation, driven by a test like those with real nodes (`support.sessions`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec

from muster.engines.base import Capabilities, Report, Session
from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import EngineEvent, SessionClosed
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason, RunStatus
from simulation.harness.agents import AgentSession, Contacts
from simulation.harness.behavior import Exit
from simulation.harness.wire import Wire, WiredSession
from simulation.harness.world import World
from support.programs import Program
from support.session_rules import SessionRules, checked
from support.sessions import DrivenSession, Event

#: What the simulation's engines can do. The nodes of the second outlive a session.
CAPABILITIES = {
    "simulated": Capabilities(in_place=True, replace_node=True, suspend=True, resize=True),
    "simulated-agents": Capabilities(
        in_place=True, replace_node=True, suspend=True, resize=True, detached=True
    ),
}


class SimulatedNodes(DrivenSession):
    """A session with simulated nodes, which run a program."""

    def __init__(self, kind: str, program: Program, nodes: int, *, keep: bool) -> None:
        super().__init__()
        self._kind, self._nodes = kind, nodes
        self._queue = EventQueue()
        self._world = World(
            self._queue,
            lambda ref, attempt, kept: program.behavior(ref),
            keep=keep,
            elsewhere=kind == "simulated-agents",
        )
        self._wire = Wire(self._queue, (), lambda kind, text: None, ordered=True)
        self._contacts = Contacts(self._queue, (), nodes, lambda kind, text: None)
        self._events: deque[EngineEvent] = deque()
        self._open()

    def _open(self) -> None:
        self._rules = SessionRules(self.recorded)
        report = checked(self._rules, self._events.extend, self._complain)
        self._session = self._make(report)
        self._complain(self._rules.opened())

    def _make(self, report: Report) -> Session:
        if self._kind == "simulated":
            return WiredSession(self._world, self._wire, report, closing=1.0)
        found = {ref.rank: (ref.incarnation, state) for ref, state in self.recorded.items()}
        nodes = [
            NodeStatus(*reversed(found.get(rank, (-1, NodeState.PENDING))))
            for rank in range(self._nodes)
        ]
        status = RunStatus(tuple(nodes))
        return AgentSession(
            self._world, self._wire, self._contacts, report, status, Random(0), closing=1.0
        )

    def _complain(self, wrong: Sequence[str]) -> None:
        assert not wrong, wrong

    def _call(
        self, name: str, ranks: Iterable[int], incarnation: int, before: Any = (), after: Any = ()
    ) -> None:
        refs = [NodeRef(rank, incarnation) for rank in ranks]
        if name == "start":
            self._rules.start(refs)
        getattr(self._session, name)(*before, refs, *after)

    def _next(self) -> Event:
        while not self._events:
            assert self._queue.next() is not None, "nothing happens any more"
            self._queue.advance(float("inf"))
        event = self._events.popleft()
        return {"event": type(event).__name__, **msgspec.to_builtins(event)}

    def lose(self, rank: int) -> None:
        """See `DrivenSession.lose`."""
        self._world.fail([rank], Exit(None, 0, Reason.NODE_LOST, "its machine was lost"))

    def replaced(self) -> SimulatedNodes:
        """See `DrivenSession.replaced`."""
        assert isinstance(self._session, AgentSession)
        self._session.end()
        self._events.clear()
        self._open()
        return self

    def close(self) -> int:
        """See `DrivenSession.close`."""
        while self._queue.next() is not None:
            self._queue.advance(float("inf"))
        assert not self._events, "no event is left"
        self._session.close()
        self._session.close()
        while self._queue.next() is not None:
            self._queue.advance(float("inf"))
        assert [type(event) for event in self._events] == [SessionClosed]
        assert self._world.alive() == []
        return 0
