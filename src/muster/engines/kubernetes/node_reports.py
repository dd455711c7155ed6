"""What was reported of a node of a JobSet that is observed, so that only what is new is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from muster.engines.kubernetes.observed_facts import ObservedPod
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
)
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus

_NOT_HEARD = "the new supervisor has not heard of its pod yet"


class _Stage(IntEnum):
    """What was reported of an incarnation."""

    NEW = 0
    QUEUED = 1
    STARTED = 2
    READY = 3


class NodeReports:
    """Those of a place in the JobSet. Without an incarnation that is alive, nothing is reported."""

    def __init__(self, report: Callable[[EngineEvent], None]) -> None:
        self._report = report
        #: The incarnation that is alive; None: none is, or its end was reported.
        self.ref: NodeRef | None = None
        #: The newest incarnation that there was; -1: none.
        self.newest = -1
        #: The uid of its pod; "": it has none yet.
        self.pod = ""
        #: The name of its pod if an earlier session has reported it; else "".
        self.located = ""
        #: Whether the run is ending, and it is to end with it.
        self.stopping = False
        #: Why it cannot be reached, as it was reported; "" if it can.
        self.unreachable = ""
        self._stage = _Stage.NEW
        self._why = ""  # why it waits, as it was reported

    @property
    def has_started(self) -> bool:
        """Whether its start was reported."""
        return self._stage >= _Stage.STARTED

    def attach(self, ref: NodeRef, status: NodeStatus) -> None:
        """An incarnation is alive since an earlier session."""
        self.ref, self.newest = ref, ref.incarnation
        stages = {NodeState.QUEUED: _Stage.QUEUED, NodeState.STARTING: _Stage.NEW}
        self._stage = stages.get(status.state, _Stage.STARTED)
        self.located = status.host_id if self.has_started else ""
        self.lose(_NOT_HEARD)

    def begin(self, ref: NodeRef) -> None:
        """An incarnation is new."""
        self.ref, self.newest = ref, ref.incarnation
        self._stage, self._why, self.pod, self.unreachable = _Stage.NEW, "", "", ""
        self.stopping, self.located = False, ""

    def queue(self, why: str) -> None:
        """It waits. why: as a phrase."""
        if self.ref is not None and not self.has_started and self._why != why:
            self._report(NodeQueued(*self.ref, why))
            self._stage, self._why = _Stage.QUEUED, why

    def run(self, pod: ObservedPod) -> None:
        """The main container of its pod runs, or has run."""
        if self.ref is None:
            return
        if not self.has_started:
            if self._stage is _Stage.QUEUED:
                self._report(NodeScheduled(*self.ref, pod.node))
            address = pod.addresses[0] if pod.addresses else ""
            self._report(NodeLocated(*self.ref, pod.node, address, pod.name))
            self._report(NodeStarted(*self.ref))
            self._stage = _Stage.STARTED
        if pod.is_ready and self._stage < _Stage.READY:
            self._report(NodeReady(*self.ref))
            self._stage = _Stage.READY

    def lose(self, why: str) -> None:
        """It cannot be reached. why: as a phrase."""
        if self.ref is not None and why != self.unreachable:
            self._report(NodeUnreachable(*self.ref, why))
            self.unreachable = why

    def reach(self) -> None:
        """It can be reached."""
        if self.ref is not None and self.unreachable:
            self._report(NodeReachable(*self.ref))
            self.unreachable = ""

    def end(self, event: NodeEnded) -> None:
        """It has ended."""
        self._report(event)
        self.ref = None
