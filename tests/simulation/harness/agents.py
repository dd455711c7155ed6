"""Sessions with nodes that outlive them. Each node has an agent, with which contact may be lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from muster.engines.base import Report
from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import (
    NodeEnded,
    NodeEvent,
    NodeQueued,
    NodeReachable,
    NodeScheduled,
    NodeUnreachable,
    SessionClosed,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.status import NodeRef, Reason, RunStatus, alive_nodes
from simulation.harness.faults import ContactBreaksWithCommand, ContactIsLost, FaultPlan
from simulation.harness.wire import Wire
from simulation.harness.world import World

if TYPE_CHECKING:
    from simulation.harness.infrastructure import Infrastructure

#: Seconds that a new session takes to reach an agent.
_REACHING = (0.0, 0.0, 0.0, 0.2, 3.0, 20.0)
_NOT_YET = "the new supervisor has no contact yet"
_LOST = "its agent does not answer"

_Command = Callable[[Sequence[NodeRef]], None]


class Contacts:
    """Which agents can be reached. note: records faults that take effect."""

    def __init__(
        self, queue: EventQueue, plan: FaultPlan, size: int, note: Callable[[str, str], None]
    ) -> None:
        self._queue = queue
        self._note = note
        self._size = size
        #: The losses of contact that are not over, by rank; None = with all.
        self._losses: defaultdict[int | None, set[int]] = defaultdict(set)
        self._number = 0
        self._commands_sent: defaultdict[int, int] = defaultdict(int)
        self._breaks = {(f.rank, f.nth): f for f in plan if isinstance(f, ContactBreaksWithCommand)}
        #: The session that has the contacts.
        self.session: AgentSession | None = None
        #: What restarts the run by itself, if anything does.
        self.infrastructure: Infrastructure | None = None
        for fault in plan:
            if isinstance(fault, ContactIsLost):
                queue.at(fault.at, self._lose, fault.rank, fault.seconds, fault.noticed_after)

    @property
    def all_lost(self) -> bool:
        """Whether nothing can be reached, neither agents nor what has started them."""
        return bool(self._losses[None])

    def reachable(self, rank: int) -> bool:
        """Whether the agent of a node can be reached."""
        return not (self.all_lost or self._losses[rank])

    def has(self, rank: int) -> bool:
        """Whether a session has contact with the agent of a node."""
        return self.session is not None and self.session.hears(rank) and self.reachable(rank)

    def end_session(self) -> None:
        """The process of the session has ended."""
        if self.session is not None and self.infrastructure is not None:
            self.infrastructure.lost(self._among(None))
        self.session = None

    def renew(self, rank: int) -> None:
        """The node was replaced by another one, with its own agent."""
        self._losses[rank].clear()

    def break_with_command(self, rank: int) -> ContactBreaksWithCommand | None:
        """Count a command that is sent to a node. Returns the fault by which contact is lost with
        it."""
        self._commands_sent[rank] += 1
        fault = self._breaks.get((rank, self._commands_sent[rank]))
        if fault is not None:
            self._note("contact breaks with a command", str(fault))
            self._lose(rank, fault.seconds, 0.0)
        return fault

    def _lose(self, rank: int | None, seconds: float, noticed_after: float) -> None:
        self._note("contact lost" if rank is not None else "all contacts lost", f"{seconds:g} s")
        self._number += 1
        self._losses[rank].add(self._number)
        self._queue.after(seconds, self._restore, rank, self._number)
        if self.session is not None:
            self.session.lost(self._among(rank), noticed_after)
        if self.infrastructure is not None:
            self.infrastructure.lost(self._among(rank))

    def _restore(self, rank: int | None, number: int) -> None:
        self._losses[rank].discard(number)
        if self.session is not None:
            self.session.run_restarted()
            self.session.found([one for one in self._among(rank) if self.reachable(one)])

    def _among(self, rank: int | None) -> Iterable[int]:
        return range(self._size) if rank is None else (rank,)


class AgentSession:
    """See `engines.base.DetachedSession`. status: as recorded, with the nodes it attaches to. rng:
    for how long it takes to reach them. closing: seconds that it takes to close."""

    def __init__(
        self,
        world: World,
        wire: Wire,
        contacts: Contacts,
        report: Report,
        status: RunStatus,
        rng: Random,
        closing: float = 0.0,
    ) -> None:
        self._queue = wire.queue
        self._world, self._wire, self._contacts = world, wire, contacts
        self._report = report
        self._closing = closing
        self._over = False
        #: The newest incarnation of each rank that it was given, and that has not ended.
        self._given = {ref.rank: ref.incarnation for ref in alive_nodes(status)}
        #: The same, whether it has ended or not.
        self._newest = dict(self._given)
        #: What it has reported: agents tell everything again when there is contact.
        self._reported: set[NodeEvent] = set()
        #: Ranks that it attaches to, or has reported as waiting.
        self._may_wait = set(self._given)
        #: Ranks with whose agents it has had no contact yet.
        self._unreached: set[int] = set()
        #: Ranks whose present incarnation it has reported as unreachable.
        self._told: set[int] = set()
        #: How often the infrastructure has restarted the run by itself, as recorded or reported.
        self._restarts = status.native_restarts
        self._commands: defaultdict[int, list[tuple[_Command, NodeRef]]] = defaultdict(list)
        contacts.session = self
        world.deliver = self._receive
        wire.cut()  # agents no longer listen to the session before
        wire.connect(report)
        self.run_restarted()
        self._unreached = set(self._given)
        self._attach(rng)

    def _attach(self, rng: Random) -> None:
        later: list[tuple[float, int]] = []
        for rank in self._given:
            wait = rng.choice(_REACHING)
            self._forget_lost_agent(rank)
            if wait or not self._contacts.reachable(rank):
                later.append((wait, rank))
        self._told |= {rank for _, rank in later}
        self._report([NodeUnreachable(rank, self._given[rank], _NOT_YET) for _, rank in later])
        for rank in self._unreached - self._told:
            self._unreached.discard(rank)
            events = self._news([self._contact(rank), *self._present(rank)])
            self._forget_ended(events)
            self._report(events)
        for wait, rank in later:
            self._queue.after(wait, self._reach, rank)

    def _forget_lost_agent(self, rank: int) -> None:
        """What has started the node says that it is gone."""
        node = self._world.incarnations.get(rank)
        end = None if node is None else node.end
        if end is not None and end.reason is Reason.NODE_LOST and not self._contacts.all_lost:
            self._contacts.renew(rank)

    def _present(self, rank: int) -> list[NodeEvent]:
        """What the agent of a node tells at the start of a contact."""
        incarnation = self._given.get(rank)
        if incarnation is None:
            return []
        return self._world.current_events([NodeRef(rank, incarnation)])

    def _contact(self, rank: int) -> NodeReachable:
        return NodeReachable(rank, self._given[rank])

    def run_restarted(self) -> None:
        """The infrastructure may have restarted the run. If so, it is known where it is."""
        infrastructure = self._contacts.infrastructure
        if infrastructure is None or self._over or self._contacts.all_lost:
            return
        event = infrastructure.restarted
        if event.restarts <= self._restarts:
            return
        self._restarts = event.restarts
        self._wire.cut()  # nobody obeys commands to older incarnations any more
        self._commands.clear()
        self._given = dict.fromkeys(event.ranks or (), of_native_restart(event.restarts))
        self._unreached.clear()
        self._told.clear()
        for rank in self._given:
            self._contacts.renew(rank)
        self._report([event])

    # --- contact

    def hears(self, rank: int) -> bool:
        """Whether the session is ready to hear the agent of a node."""
        return not self._over and rank not in self._unreached

    def lost(self, ranks: Iterable[int], noticed_after: float) -> None:
        """Contact with these agents is lost."""
        affected = [rank for rank in ranks if rank not in self._unreached]
        if noticed_after:
            self._queue.after(noticed_after, self._notice, affected)
        else:
            self._notice(affected)

    def _notice(self, ranks: Iterable[int]) -> None:
        gone = [
            rank
            for rank in ranks
            if rank in self._given and rank not in self._told and not self._contacts.reachable(rank)
        ]
        if gone and not self._over:
            self._told |= set(gone)
            self._send([NodeUnreachable(rank, self._given[rank], _LOST) for rank in gone])

    def found(self, ranks: Iterable[int]) -> None:
        """These agents can be reached again."""
        for rank in ranks:
            if rank not in self._unreached:
                self._resume(rank)

    def _reach(self, rank: int) -> None:
        """The session is ready to reach this agent, to which it attaches."""
        if rank in self._unreached and not self._over:
            self._unreached.discard(rank)
            self._forget_lost_agent(rank)
            if self._contacts.reachable(rank):
                self._resume(rank)

    def _resume(self, rank: int) -> None:
        if self._over:
            return
        was_lost = rank in self._told and rank in self._given
        self._told.discard(rank)
        self._send([*([self._contact(rank)] if was_lost else []), *self._present(rank)])
        for command, ref in self._commands.pop(rank, []):
            self._command(command, [ref])

    # --- events

    def _receive(self, events: Sequence[NodeEvent]) -> None:
        """Nodes report something. What an agent cannot deliver, it tells at the next contact."""
        heard: list[NodeEvent] = []
        for event in events:
            confirmed = isinstance(event, NodeEnded) and event.reason is Reason.NODE_LOST
            if confirmed and not self._contacts.all_lost:
                self._contacts.renew(event.rank)
                self._unreached.discard(event.rank)
                heard.append(event)
            elif event.rank not in self._unreached and self._contacts.reachable(event.rank):
                heard.append(event)
        self._send(heard)
        for event in heard:
            if isinstance(event, NodeEnded):  # a new agent, if the node was lost
                self._resume(event.rank)

    def _news(self, events: Sequence[NodeEvent]) -> list[NodeEvent]:
        """Those that were not reported yet, of incarnations that the session was given."""
        found = []
        for event in events:
            if self._given.get(event.rank) != event.incarnation:
                continue
            if isinstance(event, NodeQueued):
                self._may_wait.add(event.rank)
            elif isinstance(event, NodeScheduled) and event.rank not in self._may_wait:
                continue
            if event not in self._reported:
                found.append(event)
            if not isinstance(event, NodeUnreachable | NodeReachable):
                self._reported.add(event)
        return found

    def _send(self, events: Sequence[NodeEvent]) -> None:
        events = self._news(events)
        self._forget_ended(events)
        if events:
            self._wire.send_events(events)

    def _forget_ended(self, events: Sequence[NodeEvent]) -> None:
        for event in events:
            if isinstance(event, NodeEnded) and self._given.get(event.rank) == event.incarnation:
                del self._given[event.rank]
                self._told.discard(event.rank)

    # --- commands

    def _command(self, command: _Command, refs: Sequence[NodeRef]) -> None:
        now: list[NodeRef] = []
        first = of_native_restart(self._restarts)
        for ref in refs:
            if ref.incarnation < first:
                continue  # the infrastructure has ended it
            if ref.rank in self._unreached or not self._contacts.reachable(ref.rank):
                self._commands[ref.rank].append((command, ref))
                continue
            fault = self._contacts.break_with_command(ref.rank)
            if fault is not None:  # whether it has arrived is not known
                self._commands[ref.rank].append((command, ref))
            if fault is None or fault.arrives:
                now.append(ref)
        if now:
            self._wire.send_command(command, now)

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        new = [
            ref
            for ref in nodes
            if self._newest.get(ref.rank, -1) < ref.incarnation and ref.rank not in self._given
        ]
        self._given |= dict(new)
        self._newest |= dict(new)
        self._may_wait -= {ref.rank for ref in new}
        self._told -= {ref.rank for ref in new}
        self._notice([ref.rank for ref in new])
        self._command(lambda refs: self._start(attempt, refs), nodes)

    def _start(self, attempt: int, refs: Sequence[NodeRef]) -> None:
        if self._contacts.infrastructure is not None:
            self._contacts.infrastructure.ask(refs)
        self._world.start(attempt, refs)

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        self._command(self._world.signal, nodes)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        self._command(self._stop, nodes)

    def _stop(self, refs: Sequence[NodeRef]) -> None:
        self._end_unstarted(refs)
        self._world.stop(refs)

    def _end_unstarted(self, refs: Sequence[NodeRef]) -> None:
        """End those that it was given, and that were never launched."""
        given = [ref for ref in refs if self._given.get(ref.rank) == ref.incarnation]
        self._world.end_unstarted(given)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        self._command(self._kill, nodes)

    def _kill(self, refs: Sequence[NodeRef]) -> None:
        self._end_unstarted(refs)
        self._world.kill(refs)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        self._command(self._release, nodes)

    def _release(self, refs: Sequence[NodeRef]) -> None:
        if self._contacts.infrastructure is not None:
            self._contacts.infrastructure.release(refs)
        self._world.release(refs)

    def notified(self) -> None:
        """See `Session.notified`."""

    # --- the end

    def end(self) -> None:
        """The process of the session ends. What it has not sent is lost."""
        self._over = True
        self._contacts.end_session()
        self._world.deliver = None
        self._wire.drop_events()
        self._wire.connect(None)

    def leave(self) -> None:
        """See `DetachedSession.leave`."""
        if not self._over:
            self.end()
            self._queue.after(self._closing, self._report, [SessionClosed()])

    def close(self) -> None:
        """See `Session.close`."""
        if not self._over:
            self._over = True
            if self._contacts.infrastructure is not None:
                self._contacts.infrastructure.release_all()
            self._wire.cut()  # nobody is there to obey commands that arrive later
            if self._contacts.infrastructure is not None:
                self._world.lose_all()
            else:
                self._world.clear()  # nor to tell the next session what has happened
            self._queue.after(self._closing, self._report, [SessionClosed()])

    def finish_logs(self) -> None:
        """See `Session.finish_logs`. There are no logs."""
