"""One node on another machine, as its run's supervisor knows it: what to tell the node's server,
and what to report. Does no I/O.

The server knows best what has happened: it says so at the start of each conversation, and what it
says again is reported once. What the supervisor wants is told again where it may have been lost.
"""

from __future__ import annotations

from enum import IntEnum

from muster.engines.node_ends import canceled_start, node_ended
from muster.lifecycle.events import (
    DiskExceeded,
    EngineEvent,
    NodeEnded,
    NodeReachable,
    NodeReady,
    NodeStarted,
    NodeUnreachable,
)
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason
from muster.node import messages
from muster.node.messages import ExitReport, HostFacts, Message


class Stage(IntEnum):
    """How far the newest incarnation of a node is, as far as this session knows."""

    UNKNOWN = 0  # an earlier session had it started; its server has not been heard
    WANTED = 1  # it is to be launched
    LAUNCHING = 2  # the server was told to
    LAUNCHED = 3  # the server does
    JOINED = 4
    STARTING = 5  # it was told to start its programs
    STARTED = 6
    READY = 7
    ENDED = 8


class RemoteNode:
    """A rank's node. Each call adds to `events` and `messages`, which the session takes.

    found: its incarnation that an earlier session was asked for, as recorded; None if there was
    none. slot: where it runs; a node of an array gets one with `take_over` or `found_in`.
    """

    def __init__(
        self,
        rank: int,
        found: tuple[NodeRef, NodeStatus] | None = None,
        *,
        slot: int | None = None,
    ) -> None:
        self.rank, self.slot = rank, slot
        self.incarnation = -1 if found is None else found[0].incarnation
        #: What its server calls the incarnation: in a slot of an array, a number of the slot.
        self.number = self.incarnation
        #: Whether nodes of an array take turns in its slot.
        self.takes_turns = False
        #: The rank of the node that has left its files and perhaps its agent in the slot, which may
        #: be this one; None if there is none.
        self.former: int | None = None
        self.stage = Stage.ENDED if found is None else Stage.UNKNOWN
        #: Whether the programs of an incarnation that an earlier session started may have run.
        self._has_run = found is not None and found[1].state not in _NOT_RUN
        #: Whether to launch it if its server does not know it: `start` was called for it in this
        #: session, too, or it was queued, and `start` is not called again.
        self._asked_for = found is not None and found[1].state is NodeState.QUEUED
        #: What the server has said of its host; None before it has in this conversation. It is told
        #: to launch nothing until then.
        self.facts: HostFacts | None = None
        #: Whether its end is known and not reported yet: for the controller, it runs.
        self.collecting = False
        #: Whether the node that has ended was kept for a restart in place.
        self.kept = False
        self.events: list[EngineEvent] = []
        self.messages: list[Message] = []
        self._reachable = True
        self._why = ""  # why it is not
        self._is_ending = False  # whether its infrastructure is ending it, which was reported
        self._stop: messages.Stop | messages.Kill | None = None
        self._disk_exceeded = False
        #: Whether its program has succeeded, and its services are about to stop.
        self.program_done = False
        #: Whether packages are being installed for it.
        self.installing = False
        #: Whether something runs beside its program (`hosts.Companions`), without which it neither
        #: starts nor ends.
        self.has_companions = False
        self.companions_started = False
        #: The end of its program, which is reported when that of its companions is known.
        self.program_end: messages.Ended | None = None
        self._failure: ExitReport | None = None  # of a companion

    @property
    def has_output(self) -> bool:
        """Whether its output files are on its host."""
        return self.installing or self.stage >= Stage.JOINED

    @property
    def ref(self) -> NodeRef:
        """Its newest incarnation."""
        return NodeRef(self.rank, self.incarnation)

    @property
    def running(self) -> bool:
        """Whether its newest incarnation has not ended."""
        return self.stage is not Stage.ENDED

    @property
    def to_end(self) -> bool:
        """Whether its newest incarnation was to end."""
        return self._stop is not None

    # --- what the controller wants

    def start(self, incarnation: int) -> bool:
        """Have an incarnation launched; `launch` follows. Returns False if that is ignored."""
        if self.stage is Stage.UNKNOWN and incarnation == self.incarnation:
            self._asked_for = True
            if self.facts is not None and not self._is_known():
                self.stage = Stage.WANTED
            return not self._is_known()
        if self.running or incarnation <= self.incarnation:
            return False
        self.incarnation, self.stage = incarnation, Stage.WANTED
        if not self.takes_turns:
            self.number = incarnation
        self._has_run = self._disk_exceeded = self.program_done = self.kept = False
        self.installing = self.companions_started = self._is_ending = False
        self._stop = self.program_end = self._failure = None
        if not self._reachable:
            self._reachable = True
            self.lost(self._why)
        return True

    def _is_known(self) -> bool:
        """Whether its server knows the newest incarnation."""
        return self.facts is not None and self.facts.incarnation >= self.number

    # --- slots of arrays

    def take_over(self, last: RemoteNode) -> None:
        """Get the slot of a node that has ended, which may be an earlier incarnation of the same
        one."""
        assert last.facts is not None, "its host is known"
        self.slot, self.takes_turns, self.former = last.slot, True, last.former
        self.number = max(last.number, last.facts.incarnation) + 1
        self.has_companions = last.has_companions
        self._get_contact(last)

    def found_in(self, last: RemoteNode, number: int) -> None:
        """The server of a slot knows this node, which an earlier session has launched. last: what
        is known of the slot. number: what the server calls the incarnation."""
        assert last.facts is not None, "it has been heard"
        self.slot, self.takes_turns, self.former = last.slot, True, self.rank
        self.number, self.stage = number, Stage.LAUNCHING
        self.has_companions = last.has_companions
        self._get_contact(last)
        if self._stop is not None:
            self._stop = self._stop._replace(incarnation=number)
            self.messages.append(self._stop)

    def _get_contact(self, last: RemoteNode) -> None:
        self.facts = last.facts
        if last._reachable:
            self.reached(begins=False)
        else:
            self.lost(last._why)

    def not_found(self, facts: HostFacts | None) -> None:
        """The server of no slot knows this node, which an earlier session was asked for. facts:
        those of any; None: all hosts are gone."""
        if facts is None:
            self.gone("no host knows it any more")
        else:
            self._learn(facts._replace(incarnation=-1))

    def leave_slot(self) -> None:
        """A node that is wanted needs another slot: the host of this one is gone."""
        self.slot = self.former = self.facts = None

    def launch(self, launch: messages.Launch) -> None:
        """The launch of a node that is wanted: all that it needs is known now."""
        if self.stage is Stage.WANTED:
            self.stage, self.former = Stage.LAUNCHING, self.rank
            self.messages.append(launch)

    def begin(self) -> None:
        """Have it start its programs: it is on the roster."""
        if self.stage is Stage.JOINED and (self.companions_started or not self.has_companions):
            self.stage = Stage.STARTING
            self.messages.append(messages.Start(self.number))

    def signal(self, number: int) -> None:
        """Signal its programs; nothing if they have not started."""
        if Stage.STARTED <= self.stage < Stage.ENDED or (self._has_run and self.running):
            self.messages.append(messages.Signal(self.number, number))

    def stop(self) -> None:
        """Have it end."""
        self._end(messages.Stop(self.number))

    def kill(self) -> None:
        """Have it end at once."""
        self._end(messages.Kill(self.number))

    def _end(self, request: messages.Stop | messages.Kill) -> None:
        if self.stage is Stage.WANTED:
            self.end(canceled_start(self.ref))
        elif self.running:
            self._stop = request
            self.messages.append(request)
            self._end_if_never_launched()

    def _end_if_never_launched(self) -> None:
        """A node that is to end, and that no session has launched, has ended."""
        if self.stage is Stage.UNKNOWN and self.facts is not None and not self._is_known():
            self.end(canceled_start(self.ref))

    def release(self) -> None:
        """Give up the node that was kept."""
        if self.kept or not self.running:
            self.kept = False
            self.messages.append(messages.Release())

    def collect(self) -> None:
        """Its end is not reported before what it has left is collected."""
        self.collecting = True
        if not self._reachable:
            self._reachable = True
            self.lost("contact was lost when it ended")

    # --- what its server and its infrastructure say

    def reached(self, *, begins: bool) -> None:
        """There is contact. begins: whether a conversation begins, in which the server first says
        what it knows."""
        if begins:
            self.facts = None
        if not self._reachable:
            self._reachable, self._is_ending = True, False
            if self.running or self.collecting:
                self.events.append(NodeReachable(self.rank, self.incarnation))

    def lost(self, why: str) -> None:
        """There is no contact. why: for people."""
        if self._reachable or why != self._why:
            self._reachable, self._why = False, why
            if self._is_ending:
                return  # it is known why
            if self.collecting:
                why = f"it has ended, and its outputs cannot be copied now: {why}"
            if self.running or self.collecting:
                self.events.append(NodeUnreachable(self.rank, self.incarnation, why))

    def ending(self, why: str) -> None:
        """Its infrastructure is ending it: `gone` follows. Whether there is contact is another
        question. why: for people."""
        if self._reachable and self.running and not self._is_ending:
            self._is_ending = True
            self.events.append(NodeUnreachable(self.rank, self.incarnation, why))

    def gone(self, why: str, reason: Reason = Reason.NODE_LOST) -> None:
        """Its infrastructure says that no process of it is left on its host. why: for people. An
        incarnation that is wanted still is: it needs another host."""
        self.facts, self.kept, self.former = None, False, None
        if self.running and self.stage is not Stage.WANTED:
            report = ExitReport(None, 0, reason, why)
            self.end(node_ended(self.ref, report))

    def restarted(self, incarnation: int, *, starts: bool) -> None:
        """Its infrastructure has restarted the run by itself: older incarnations have ended, of
        which nothing more is reported. starts: whether this one is to be launched; if not, the
        controller starts it, or a later one."""
        self.facts, self.kept, self.former = None, False, None
        self.events.clear()
        self.messages.clear()
        self.collecting, self._reachable, self._why = False, True, ""
        self._is_ending = False
        self.stage = Stage.ENDED
        self.incarnation = self.number = incarnation - 1
        if starts:
            self.start(incarnation)

    def receive(self, message: Message) -> None:
        """A message of its server."""
        if isinstance(message, HostFacts):
            self._learn(message)
        elif getattr(message, "incarnation", None) != self.number or not self.running:
            return  # of an earlier one, or said again
        elif isinstance(message, (messages.Launched, messages.Joined)):
            is_first = isinstance(message, messages.Launched)
            self._advance(Stage.LAUNCHED if is_first else Stage.JOINED)
        elif isinstance(message, messages.Installing):
            self.installing = True
        elif isinstance(message, messages.Started):
            if self._advance(Stage.STARTED):
                self.events.append(NodeStarted(self.rank, self.incarnation))
        elif isinstance(message, messages.Ready):
            if self._advance(Stage.READY):
                self.events.append(NodeReady(self.rank, self.incarnation))
        elif isinstance(message, messages.ProgramDone):
            self.program_done = True
        elif isinstance(message, messages.DiskExceeded):
            if not self._disk_exceeded:
                used, allowed = message.used, message.allowed
                self.events.append(DiskExceeded(self.rank, used, allowed, self.incarnation))
            self._disk_exceeded = True
        elif isinstance(message, messages.Ended):
            self.kept = message.kept
            self._program_ended(message)

    # --- what runs beside its program

    def _program_ended(self, message: messages.Ended) -> None:
        if self.has_companions:
            self.program_end = message
        else:
            self.end(node_ended(self.ref, _with_known_reason(message.report)))

    def fail(self, report: ExitReport) -> None:
        """What runs beside its program has failed, so it is to end. Once the program has ended by
        itself, that counts only if it has succeeded."""
        if self.program_end is None or self.program_end.report.exit_code == 0:
            self._failure = self._failure or report
        if self.program_end is None:
            self.stop()

    def end_with_companions(self) -> None:
        """What runs beside its program has ended, after the program."""
        if self.program_end is not None:
            report = self._failure or _with_known_reason(self.program_end.report)
            self.end(node_ended(self.ref, report))

    def _learn(self, facts: HostFacts) -> None:
        """A conversation begins: what was told before may be lost."""
        self.facts = facts
        if not self.running:
            return
        if self._is_known():
            if self.stage < Stage.STARTED:  # what it says next shows how far it is
                self.stage = Stage.LAUNCHING
            if self._stop is not None:
                self.messages.append(self._stop)
        elif self._has_run or self.stage >= Stage.LAUNCHED:
            why = "its host does not know it any more"
            self.end(node_ended(self.ref, ExitReport(None, 0, Reason.NODE_LOST, why)))
        elif self._stop is not None:
            self.end(canceled_start(self.ref))
        elif self.stage is Stage.LAUNCHING or self._asked_for:
            self.stage = Stage.WANTED
        if self.takes_turns and self.stage is Stage.WANTED:
            self.number = facts.incarnation + 1

    def _advance(self, stage: Stage) -> bool:
        """Returns whether it was not as far as that."""
        if self.stage >= stage:
            return False
        self.stage = stage
        return True

    def end(self, event: NodeEnded) -> None:
        """Its newest incarnation has ended."""
        self.stage = Stage.ENDED
        self.events.append(event)


def _with_known_reason(report: ExitReport) -> ExitReport:
    """A report whose reason this version knows."""
    known = report.reason in Reason.__members__.values()
    return report if known else report._replace(reason=Reason.EXIT)


#: States of nodes whose programs have not run.
_NOT_RUN = (NodeState.PENDING, NodeState.QUEUED, NodeState.STARTING)
