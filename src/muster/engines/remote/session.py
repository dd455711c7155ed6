"""The session of a run whose nodes are on other machines, whatever the infrastructure.

Each node has a host, and there a server (`node.server`) with which the session keeps contact. Nodes
are launched when the addresses of all are known, and start when they are on the roster.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from muster.engines.base import Report, RunContext
from muster.engines.loop import RunLoop
from muster.engines.node_ends import canceled_start, not_started
from muster.engines.remote import companions
from muster.engines.remote.cancel_orders import is_forced
from muster.engines.remote.code import LOGS, CodeSource
from muster.engines.remote.collection import OUTPUT_TIMEOUT, Unpacker
from muster.engines.remote.companions import NodeCompanions
from muster.engines.remote.contact import SupervisorId
from muster.engines.remote.hosts import Host, Hosts, HostsOwner
from muster.engines.remote.launching import Launcher
from muster.engines.remote.left import servers_left
from muster.engines.remote.mounts import RemoteMounts
from muster.engines.remote.node import RemoteNode, Stage
from muster.engines.remote.node_contact import NodeContact
from muster.engines.remote.outputs import SentOutputs
from muster.engines.remote.proxy import Proxy
from muster.engines.remote.run_output import UNREACHABLE, RunOutput
from muster.engines.remote.slots import ArraySlots
from muster.engines.remote.usage import RemoteUsage
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    NodeQueued,
    NodeScheduled,
    ResourcesLeft,
    RunRestarted,
    SessionClosed,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason
from muster.node import messages
from muster.node.messages import Message
from muster.spec.quantities import format_duration

#: Makes the hosts of a run.
MakeHosts = Callable[[HostsOwner], Hosts]
#: Stages of a node that has no process on its host.
_NOT_HERE = (Stage.ENDED, Stage.WANTED)
#: Seconds until a host is asked for again that was refused, while other slots have hosts.
_REFUSED_PAUSE = 60.0
#: Seconds without contact before the end of a node for which its end says that output is missing.
_MISSING_AFTER = 5.0
#: Seconds for which nodes that cannot be reached are waited for when a user ends a run by force.
_FORCE_TIMEOUT = 10.0


class RemoteSession:
    """See `engines.base.DetachedSession`. supervisor: of this process.

    A `RemoteNode` has what the controller wants of a node and how far it is, a `NodeContact` the
    contact with its server. A `Launcher` makes launches, and `RunOutput` copies what nodes write.
    Nodes of which something is new are noted, and the next step is about these.

    What is on a host belongs to a slot, a position in `RunPlan.nodes`: its server, its files, the
    copies of its output. It is the rank of its node, except in runs with arrays, whose nodes take
    turns (`ArraySlots`). A node of an array that has no slot waits for one; or an earlier session
    has started it, and the servers of all slots have to be heard to know in which one it is.
    """

    def __init__(
        self,
        context: RunContext,
        supervisor: SupervisorId,
        loop: RunLoop,
        report: Report,
        make_hosts: MakeHosts,
    ) -> None:
        self._policy = context.plan.policy
        self._supervisor = supervisor
        self._loop = loop
        self._report = report
        found = {ref.rank: (ref, status) for ref, status in context.alive.items()}
        self._plan = context.plan
        self._slots = ArraySlots(context.plan)
        #: The newest node in each slot.
        self._nodes = {
            slot: _vacant(slot)
            if slot in self._slots
            else RemoteNode(n.rank, found.get(n.rank), slot=slot)
            for slot, n in enumerate(context.plan.nodes)
        }
        #: The newest incarnation of each rank; of arrays, those that are in a slot, or have none.
        self._by_rank = {node.rank: node for node in self._nodes.values() if not node.takes_turns}
        #: By rank, the first incarnation that may start. Four bytes each: an array has any number.
        self._next = array("I", bytes(4 * self._policy.size if context.plan.has_arrays else 0))
        #: Ranks of arrays that an earlier session has started, in a slot that is not known.
        self._unfound = {rank for rank in found if self._in_array(rank)}
        self._unheard: set[int] = set()  # slots of arrays in which they may be
        self._contacts: dict[int, NodeContact] = {}  # by slot
        self._changed: set[int] = set()  # slots of which something is new since the last step
        self._loose: dict[int, RemoteNode] = {}  # so are these nodes without a slot, by rank
        self._allocated: set[int] = set()  # slots that have hosts, or were asked for
        self._queued: set[int] = set()  # ranks that wait for hosts
        self._why_queued: dict[int, str] = {}  # rank of an array -> what it was said to wait for
        self._refused_at: dict[int, float] = {}  # slots of arrays that have got no host
        self._proxy: Proxy | None = None  # from the first host on
        self._run_dir = context.home.run_dir(context.plan.run_id)
        self._due: float | None = None  # when to look at what depends on time
        self._has_new_deadlines = False
        self._events: list[EngineEvent] = []
        self._unpacker = Unpacker(loop)
        self._usage = RemoteUsage(self._run_dir, loop.now, self._in_array)
        self._mounts = RemoteMounts(context, loop, self._unpacker, self._packed)
        self._sent = SentOutputs(context, loop, self._packed)
        self._code = CodeSource(context, loop, self._packed, self._archive)
        self._output = RunOutput(
            *(context, found, self._mounts, self._sent, self._unpacker),
            *(self._add_events, self._note_slot, self._is_newest),
        )
        self._launcher = Launcher(
            context,
            self._nodes,
            self._contacts,
            self._output,
            self._code,
            self._mounts,
            self._sent,
            self._add_events,
        )
        self._companions = NodeCompanions(self._contacts, self._launcher.companion_start)
        #: The newest attempt that is known, and how often the infrastructure has restarted the run.
        self._attempt, self._native_restarts = context.attempt, context.native_restarts
        self._closing = self._closed = False
        self._expiring: set[int] = set()  # slots, see `HostsOwner.expiring`
        self._unfit: set[int] = set()  # slots whose servers are to leave, see `Host.unfit`
        #: Slots of nodes that were ended by the infrastructure, whose output is on the way.
        self._terminated: set[int] = set()
        self._frees, self._left = False, ""  # see `HostsOwner.freeing`
        self._servers_left: list[tuple[int, str]] = []  # see `left.servers_left`
        self._left_reported = ""  # what of both was reported
        self._force_at: float | None = None  # when nodes that cannot be reached are given up
        self._watched: set[int] = set()
        self._participant = loop.add(self._step)
        self._hosts = make_hosts(self)
        if found:
            self._attach(found, context.attempt)

    def _attach(self, found: Mapping[int, tuple[NodeRef, NodeStatus]], attempt: int) -> None:
        """Attach to the nodes of an earlier session."""
        for rank, (ref, status) in found.items():
            if rank in self._unfound:
                self._by_rank[rank] = RemoteNode(rank, (ref, status))
                self._next[rank] = ref.incarnation + 1
            self._by_rank[rank].lost("the new supervisor has no contact yet")
            if status.state is NodeState.QUEUED:  # `start` is not called again
                self._output.continue_logs(rank, attempt)
                if rank in self._unfound:
                    self._why_queued[rank] = ""
                else:
                    self._queued.add(rank)
            self._note(self._by_rank[rank])
        self._take(self._nodes)
        self._report_events()
        groups = {self._plan.group_of(rank).name for rank in self._unfound}
        arrays = [self._plan.slots(self._plan.group(name)) for name in groups]
        self._unheard.update(*arrays)
        alone = [self._by_rank[rank].slot for rank in found if rank not in self._unfound]
        self._allocate({*self._unheard, *(slot for slot in alone if slot is not None)})

    def _in_array(self, rank: int) -> bool:
        return self._plan.has_arrays and self._plan.group_of(rank).is_array

    def _is_newest(self, node: RemoteNode) -> bool:
        """Whether no later incarnation of a node was asked for that may have another slot. Of one
        in which this session had no node, that is not known."""
        return not node.takes_turns or self._by_rank.get(node.rank) is node

    # --- what the controller wants

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._attempt = max(self._attempt, attempt)
        self._output.open(attempt)
        self._mounts.starting()
        self._sent.starting()
        accepted = [node for ref in nodes if (node := self._accept(ref)) is not None]
        for node in accepted:
            self._output.add(node.rank, attempt)
        self._note(*(node for ref in nodes if (node := self._by_rank.get(ref.rank))))
        alone = {node.slot for node in accepted if node.slot is not None}
        if accepted and not self._allocated:  # all together: each needs the addresses of all
            first = self._policy.first_nodes()
            for slot, node in self._nodes.items():
                if node.takes_turns or not first[node.rank].scaled_down:
                    alone.add(slot)
        self._allocate(alone)

    def _accept(self, ref: NodeRef) -> RemoteNode | None:
        """The node of an incarnation that is to start; None if that is ignored."""
        node = self._by_rank.get(ref.rank)
        if not self._in_array(ref.rank):
            return node if node is not None and node.start(ref.incarnation) else None
        if node is None or not node.running:
            if ref.incarnation < self._next[ref.rank]:
                return None
            self._next[ref.rank] = ref.incarnation + 1
            node = self._by_rank[ref.rank] = RemoteNode(ref.rank)
        if not node.start(ref.incarnation):
            return None
        if node.stage is Stage.WANTED:
            self._slots.wait(ref.rank)
        return node

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        self._call(nodes, lambda node: node.signal(number))

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        self._end_queued(nodes)
        self._wants_end(nodes)
        self._end_companions(nodes, kill=False)
        self._call(nodes, RemoteNode.stop)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        self._end_queued(nodes)
        self._wants_end(nodes)
        current = [node for ref in nodes if (node := self._current(ref)) is not None]
        self._mounts.canceled([node.slot for node in current if node.slot is not None])
        self._end_companions(nodes, kill=True)
        self._call(nodes, RemoteNode.kill)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        for ref in nodes:
            node = self._by_rank.get(ref.rank)
            if node is not None and node.slot is not None:
                node.release()
                self._mounts.released(node.slot)
                self._usage.forget(node.slot)
                self._note(node)
                if not node.running and node.slot not in self._contacts:
                    self._stop_to_wait(node.slot)
        self._launcher.released(ref.rank for ref in nodes)

    def _stop_to_wait(self, slot: int) -> None:
        """A slot needs no host any more, and may wait for one."""
        if slot in self._allocated:
            self._hosts.give_up(slot)
            self._has_no_host(slot)

    def notified(self) -> None:
        """See `Session.notified`."""

    def close(self) -> None:
        """See `Session.close`."""
        if not self._closing and not self._closed:
            self._closing = self._has_new_deadlines = True
            self.kill([node.ref for node in self._by_rank.values()])
            self._hosts.place_ended()
            self._participant.notify()  # also if there is no node of which something is new

    def leave(self) -> None:
        """See `DetachedSession.leave`."""
        if not self._closing and not self._closed:
            self._close()

    def finish_logs(self) -> None:
        """See `Session.finish_logs`."""
        self._output.finish()

    def _call(self, nodes: Sequence[NodeRef], call: Callable[[RemoteNode], None]) -> None:
        for ref in nodes:
            if (node := self._current(ref)) is not None:
                call(node)
                self._note(node)

    def _end_companions(self, nodes: Sequence[NodeRef], *, kill: bool) -> None:
        current = [node for ref in nodes if (node := self._current(ref)) is not None]
        self._companions.stop((node.slot for node in current if node.running), kill=kill)

    def _end_queued(self, nodes: Sequence[NodeRef]) -> None:
        """End those that an earlier session was asked for and that wait for hosts: none of their
        programs has run, and nobody knows whether they ever get a host."""
        for ref in nodes:
            node = self._current(ref)
            if node is None or node.stage is not Stage.UNKNOWN or node.rank not in self._queued:
                continue
            if node.slot is not None and node.slot not in self._contacts:
                node.end(canceled_start(node.ref))
                self._note(node)

    def _current(self, ref: NodeRef) -> RemoteNode | None:
        """The node of an incarnation; None if it has a newer one, or its slot has another node."""
        node = self._by_rank.get(ref.rank)
        return node if node is not None and node.ref == ref else None

    def _wants_end(self, nodes: Iterable[NodeRef]) -> None:
        """These are to end."""
        if self._force_at is None and is_forced(self._run_dir.path):
            self._force_at = self._loop.now() + _FORCE_TIMEOUT
            self._has_new_deadlines = True
        for ref in nodes:
            node = self._current(ref)
            if node is not None and self._output.wants_end(node.slot):
                self._has_new_deadlines = True

    # --- slots of arrays

    def _give_out_slots(self) -> None:
        """Give nodes of arrays slots, as far as there are any, and get hosts for others."""
        for rank, slot in self._slots.give_out(self._is_usable):
            node, owner = self._by_rank[rank], self._contacts[slot]
            node.take_over(owner.node)
            self._move_in(owner, node)
            self._take([slot])  # that it can be reached comes first
            if rank in self._why_queued:
                del self._why_queued[rank]
                self._events.append(NodeScheduled(rank, node.incarnation, owner.host.name))
        if self._slots.waiting and not self._closing:
            since = self._loop.now() - _REFUSED_PAUSE
            every = (slot for block in self._slots.blocks() for slot in block)
            self._allocate(slot for slot in every if self._refused_at.get(slot, since) <= since)

    def _is_usable(self, slot: int) -> bool:
        """Whether a node can start in a slot now."""
        owner = self._contacts.get(slot)
        if owner is None or not owner.contact.up or slot in self._unheard or self._closing:
            return False
        last = owner.node
        free = not last.running and not last.collecting and not self._output.is_collecting(slot)
        return free and last.facts is not None

    def _move_in(self, owner: NodeContact, node: RemoteNode) -> None:
        """A node gets a slot."""
        last, owner.node = owner.node, node
        self._nodes[owner.slot] = node
        if self._by_rank.get(last.rank) is last:
            del self._by_rank[last.rank]
        if self._proxy is not None:
            self._proxy.remove(last.rank)
            self._proxy.add(node.rank, owner.contact)
        self._note(node)

    def _meet(self, owner: NodeContact, launched: messages.Launched, known: NodeRef) -> None:
        """The server of a slot of an array says which node it knows: perhaps one that an earlier
        session has launched."""
        if owner.node.former is None:
            owner.node.former = known.rank
        if known.rank in self._unfound and self._by_rank[known.rank].ref == known:
            node = self._by_rank[known.rank]
            self._unfound.discard(known.rank)
            self._slots.found(known.rank, owner.slot)
            node.found_in(owner.node, launched.incarnation)
            self._move_in(owner, node)
            self._take([owner.slot])  # that it can be reached comes first
            self._launcher.found(owner)
        self._heard_slot(owner.slot)

    def _heard_slot(self, slot: int) -> None:
        """It is known which node an earlier session has launched in a slot, if any."""
        self._unheard.discard(slot)
        self._give_up_search()

    def _give_up_search(self) -> None:
        """Once all slots are heard: those nodes that are in none of them do not run."""
        if self._unheard or not self._unfound:
            return
        facts = [node.facts for node in self._nodes.values() if node.takes_turns]
        known = next((one for one in facts if one is not None), None)
        for rank in sorted(self._unfound):
            node = self._by_rank[rank]
            node.not_found(known)
            if node.stage is Stage.WANTED:
                self._slots.wait(rank)
            self._note(node)
        self._unfound.clear()

    def _say_queued(self, ranks: Iterable[int], why: str) -> None:
        """Nodes of arrays wait for hosts."""
        for rank in ranks:
            if self._why_queued.get(rank) != why:
                self._why_queued[rank] = why
                self._events.append(NodeQueued(rank, self._by_rank[rank].incarnation, why))

    # --- hosts

    def _allocate(self, slots: Iterable[int]) -> None:
        wanted = set(slots) - self._allocated
        if not wanted:
            return
        self._allocated |= wanted
        self._launcher.wait_for(wanted)
        alone = sorted(slot for slot in wanted if slot not in self._slots)
        if alone:
            self._hosts.allocate(alone)
        blocks = ([slot for slot in block if slot in wanted] for block in self._slots.blocks())
        if parts := [part for part in blocks if part]:
            self._hosts.allocate_parts(parts)

    def queued(self, slots: Sequence[int], why: str) -> None:
        """See `HostsOwner`."""
        for node in (self._nodes[slot] for slot in slots if slot not in self._slots):
            self._queued.add(node.rank)
            if node.running:
                self._events.append(NodeQueued(node.rank, node.incarnation, why))
        if any(slot in self._slots for slot in slots):
            self._say_queued(self._slots.waiting, why)
        self._note(*(self._nodes[slot] for slot in slots))

    def placed(self, slot: int, host: Host) -> None:
        """See `HostsOwner`."""
        node = self._nodes[slot]
        if node.rank in self._queued and node.running:
            self._events.append(NodeScheduled(node.rank, node.incarnation, host.name))
        self._queued.discard(node.rank)
        owner = NodeContact(self, node, host, self._loop, self._supervisor)
        self._contacts[slot] = owner
        node.has_companions = host.companions is not None
        self._mounts.placed(slot, host)
        if self._proxy is None:
            self._proxy = Proxy(self._loop, str(self._run_dir.path))
        if not node.takes_turns:
            self._proxy.add(node.rank, owner.contact)
        self._has_new_deadlines = True
        self._note(node)

    def refused(self, slot: int, why: str, *, final: bool = False) -> None:
        """See `HostsOwner`."""
        node = self._nodes[slot]
        self._has_no_host(slot)
        if node.running:
            node.end(not_started(node.ref, why, final=final))
        self._note(node)
        if slot in self._slots:
            self._refused_at[slot] = self._loop.now()
            self._refuse_waiting(why, final=final)

    def _refuse_waiting(self, why: str, *, final: bool) -> None:
        """End the nodes of arrays that wait if no slot has a host, or may get one."""
        if any(slot in self._slots for slot in self._allocated):
            return
        self._refused_at.clear()
        for rank in self._slots.waiting:
            node = self._by_rank[rank]
            node.end(not_started(node.ref, why, final=final))
            self._note(node)

    def _has_no_host(self, slot: int) -> None:
        self._allocated.discard(slot)
        self._launcher.has_no_host(slot)
        self._heard_slot(slot)

    def gone(
        self,
        slot: int,
        why: str,
        reason: Reason = Reason.NODE_LOST,
        *,
        left: Path | None = None,
    ) -> None:
        """See `HostsOwner`."""
        owner = self._leave_host(slot)
        node = self._nodes[slot]
        if left is not None:
            self._output.take_rest(node, left / LOGS)
        elif owner is not None:
            why += self._missing_output(owner, why)
        self._output.give_up(node, why, reason)
        node.gone(why, reason)
        self._has_no_host(slot)
        self._usage.forget(slot)
        if node.running and node.takes_turns:
            self._nodes[slot] = _vacant(slot)
            node.leave_slot()
            self._slots.leave(node.rank)
            self._slots.wait(node.rank)
        elif node.running:
            self._allocate([slot])
        self._note(node)

    def unreachable(self, slots: Sequence[int], why: str) -> None:
        """See `HostsOwner`."""
        nodes = [self._nodes[slot] for slot in slots if slot not in self._slots]
        if len(nodes) < len(slots):
            nodes += [self._by_rank[rank] for rank in self._unfound]
        for node in nodes:
            node.lost(why)
        self._note(*nodes)

    def ending(self, slots: Sequence[int], why: str) -> None:
        """See `HostsOwner`."""
        nodes = [self._nodes[slot] for slot in slots]
        for node in nodes:
            node.ending(why)
        self._note(*nodes)

    def _missing_output(self, owner: NodeContact, why: str) -> str:
        """What the end of a node whose host is gone says of its output, after why that is so, below
        which lines that it has written may be."""
        if owner.lost_at is None or owner.node.facts is None or not owner.node.running:
            return ""
        silent = self._loop.now() - owner.lost_at
        if silent < _MISSING_AFTER:
            return ""
        text = f"what it has written in its last {format_duration(round(silent))} is not here"
        return f"\n(more of {text})" if "\n" in why else f"; {text}"

    def _leave_host(self, slot: int) -> NodeContact | None:
        """The host of a slot is gone. Returns the contact with it, if there was any."""
        owner = self._contacts.pop(slot, None)
        if owner is not None:
            self._end_contact(owner)
        self._expiring.discard(slot)
        self._unfit.discard(slot)
        self._terminated.discard(slot)
        self._companions.gone(slot)
        self._mounts.gone(slot)
        self._sent.gone(slot)
        return owner

    def restarted(self, restarts: int, slots: Sequence[int], why: str) -> None:
        """See `HostsOwner`."""
        self._take(self._nodes)  # what is known of the nodes before comes first
        ran = [node for node in self._nodes.values() if node.running]
        for slot, node in self._nodes.items():
            self._leave_host(slot)
            self._output.give_up(node, why)
            self._has_no_host(slot)
            self._usage.end(node.rank)
            self._usage.forget(slot)
        self._output.restarted(ran)
        self._launcher.released([node.rank for node in self._nodes.values()])
        self._queued.clear()
        self._attempt += restarts - self._native_restarts
        self._native_restarts = restarts
        started = [self._nodes[slot] for slot in slots]
        ranks = tuple(sorted(node.rank for node in started))
        self._events.append(RunRestarted(restarts, ranks, why=why))
        self._start_again(started)

    def _start_again(self, started: Sequence[RemoteNode]) -> None:
        """These nodes were restarted with the whole run, and get hosts."""
        number, starting = of_native_restart(self._native_restarts), {n.rank for n in started}
        for node in self._nodes.values():
            node.restarted(number, starts=node.rank in starting)
        self._output.open(self._attempt)
        self._mounts.starting()
        self._sent.starting()
        slots = [node.slot for node in started if node.slot is not None]
        for node in started:
            self._output.add(node.rank, self._attempt)
        self._allocated.update(slots)
        self._launcher.wait_for(slots)
        self._has_new_deadlines = True
        self._note(*self._nodes.values())

    def freeing(self, *, busy: bool, left: str = "") -> None:
        """See `HostsOwner`."""
        self._frees, self._left = busy, left
        self._participant.notify()

    def companions_started(self, slot: int, number: int) -> None:
        """See `HostsOwner`."""
        companions.started(self._nodes[slot], number)
        self._note_slot(slot)

    def companions_failed(self, slot: int, number: int, report: messages.ExitReport) -> None:
        """See `HostsOwner`."""
        owner = self._contacts.get(slot)
        if owner is not None and owner.host.spent is not None:
            owner.end_use(report.message, owner.host.spent)
            self._unfit.add(slot)
        companions.failed(self._nodes[slot], number, report)
        self._note_slot(slot)

    def companions_ended(self, slot: int, number: int) -> None:
        """See `HostsOwner`."""
        companions.ended(self._nodes[slot], number)
        self._note_slot(slot)

    def _replace_isolated(self) -> None:
        """Give up hosts that have been without contact for so long that they have ended their nodes
        by themselves."""
        for slot, owner in list(self._contacts.items()):
            if owner.isolated_at is not None and self._loop.now() >= owner.isolated_at:
                self._hosts.give_up(slot)
                text = format_duration(owner.host.isolation or 0.0)
                self.gone(slot, f"there was no contact for {text}, and its host has ended it")

    def _give_up_by_force(self) -> None:
        """Give up the hosts that cannot be reached, if that is due in a run that a user ends by
        force. What runs there ends when the infrastructure takes them back."""
        if self._force_at is None or self._loop.now() < self._force_at:
            return
        self._force_at = math.inf
        for slot in sorted(self._allocated):
            owner, node = self._contacts.get(slot), self._nodes[slot]
            may_run = node.running or slot in self._unheard
            if not may_run or (owner is not None and owner.lost_at is None):
                continue
            if owner is not None and not owner.host.ends_with_slot:
                self._servers_left.append((node.rank, owner.host.name))
            self._hosts.give_up(slot)
            self.gone(slot, "it cannot be reached, and was given up by force")

    # --- contact

    def began(self, owner: NodeContact) -> None:
        """See `NodeContactOwner`."""
        self._launcher.ask(owner)

    def heard(self, owner: NodeContact, received: Sequence[Message]) -> None:
        """See `NodeContactOwner`."""
        for message in received:
            if isinstance(message, messages.Launched) and message.node is not None:
                self._meet(owner, message, NodeRef(*message.node))
            node = owner.node
            if self._is_terminated(owner, message):
                continue
            was_done, before = node.program_done, (node.stage, node.program_end is None)
            node.receive(self._with_host(owner, message))
            if (node.stage, node.program_end is None) != before:
                self._note_usage(node, message)
            self._launcher.learn(owner, message)
            if isinstance(message, messages.HostFacts) and message.incarnation < 0:
                self._heard_slot(owner.slot)
            if isinstance(message, messages.Launched):
                self._output.attach(node, message)
            if node.program_done and not was_done:  # said again, it would hold failures back
                self._output.program_succeeded(node.ref)
        self._note(owner.node)

    def _with_host(self, owner: NodeContact, message: Message) -> Message:
        """A message; with the host in the report of a node whose preflight checks it has not
        passed. The node does not start there again, if the infrastructure can choose another."""
        if not isinstance(message, messages.Ended) or message.report.reason != Reason.PREFLIGHT:
            return message
        why = f"on {owner.host.name}: {message.report.message}"
        if owner.host.unfit is not None and message.incarnation == owner.node.number:
            owner.end_use(why, owner.host.unfit)
            self._unfit.add(owner.slot)
        return message._replace(report=message.report._replace(message=why))

    def _leave_unfit(self) -> None:
        """Have the servers leave whose hosts are unfit, once all that their nodes have left is
        here."""
        for slot in [*self._unfit]:
            owner = self._contacts.get(slot)
            if owner is None:
                self._unfit.discard(slot)
            elif not self._output.is_collecting(slot) and owner.node.stage in _NOT_HERE:
                if owner.give_up_host is not None:
                    owner.give_up_host()
                if owner.leave() or owner.lost_at is not None:
                    self.gone(slot, owner.unfit)

    def expiring(self, slots: Sequence[int], *, signaled: bool = False) -> list[int]:
        """See `HostsOwner`."""
        checkpoint = self._policy.checkpoint
        for slot in slots:
            self._expiring.add(slot)
            if checkpoint is not None and not signaled:
                self._nodes[slot].signal(checkpoint.signal)
        self._note(*(self._nodes[slot] for slot in slots))
        return [s for s in slots if self._nodes[s].running and not self._nodes[s].to_end]

    def _is_terminated(self, owner: NodeContact, message: Message) -> bool:
        """Whether the infrastructure has ended a node, and is asked why: its end follows."""
        if owner.host.terminated is None or not isinstance(message, messages.Ended):
            return False
        if not message.terminated and owner.slot not in self._expiring:
            return False
        node = owner.node
        if message.incarnation != node.number or node.to_end or not node.running:
            return False
        if message.terminated:
            node.ending("its host has ended it")  # others may fail before it is known why
        self._terminated.add(owner.slot)
        self._output.finish_output(owner.slot)
        return True

    def _note(self, *nodes: RemoteNode) -> None:
        """Something is new of these nodes: the next step is about them."""
        for node in nodes:
            if node.slot is None:
                self._loose[node.rank] = node
            else:
                self._changed.add(node.slot)
        self._participant.notify()

    def _note_slot(self, slot: int) -> None:
        """Something is new of the node in a slot."""
        self._note(self._nodes[slot])

    def _packed(self) -> None:
        """The code, what is mounted, or outputs are packed, or cannot be."""
        self._launcher.try_all()
        self._code.answer()
        self._participant.notify()

    def _archive(self, sha256: str) -> Path | None:
        """The archive that a host asks for, unless it is that of the code; None if there is
        none."""
        return self._mounts.archive(sha256) or self._sent.archive(sha256)

    def contact_changed(self, slot: int) -> None:
        """See `NodeContactOwner`."""
        if self._proxy is not None:
            self._proxy.changed(self._nodes[slot].rank)
        self._note_slot(slot)

    def deadlines_changed(self) -> None:
        """See `NodeContactOwner`."""
        self._has_new_deadlines = True

    def _end_contact(self, owner: NodeContact) -> None:
        owner.close()
        self._code.forget(owner.contact)
        if self._proxy is not None:
            self._proxy.remove(owner.node.rank)

    # --- steps

    def _step(self, _ready: Mapping[int, int]) -> None:
        if self._closed:
            return
        self._output.record_growth()
        is_due = self._due is not None and self._loop.now() >= self._due
        looks_at_all = is_due or self._has_new_deadlines
        self._has_new_deadlines = False
        if is_due:
            self._replace_isolated()
            self._give_up_by_force()
        if self._plan.has_arrays:  # what was reported in the last step is recorded by now
            self._give_out_slots()
        changed, self._changed = self._changed, set()
        for slot in changed:
            self._advance(slot)
        self._launcher.launch(changed)
        self._companions.step(changed)
        self._launcher.renew_credentials(changed)
        self._launcher.start_joined(changed)
        self._take(changed)
        self._record_usage(changed)
        for slot in changed:
            self._output.collect(self._nodes[slot], self._contacts.get(slot))
        if self._unfit and not self._closing:
            self._leave_unfit()
        if looks_at_all:
            self._output.report_due_ends(self._contacts, self._loop.now())
        if self._output.has_old_logs:
            self._unwatch_logs()
            self._output.finish_old_logs()
        if self._closing:
            self._advance_close([*self._contacts] if looks_at_all else changed)
        if self._events:
            self._report_events()
        if not self._closed:
            if looks_at_all or self._has_new_deadlines:
                self._due = min(self._deadlines(), default=None)
            self._wait()

    def _note_usage(self, node: RemoteNode, message: Message) -> None:
        """A message of a node has changed how far it is."""
        if isinstance(message, messages.Started):
            assert node.slot is not None, "it has a host"
            self._usage.start(node.rank, node.incarnation, node.slot)
        elif isinstance(message, messages.Ended):
            self._usage.end(node.rank, message.cpu, kept_in=node.slot if message.kept else None)

    def _record_usage(self, changed: Iterable[int]) -> None:
        self._usage.take(self._nodes[slot].rank for slot in changed)
        if self._usage.due is not None and self._loop.now() >= self._usage.due:
            self._usage.ask({one.node.rank: one.contact for one in self._contacts.values()})

    def _advance(self, slot: int) -> None:
        """Take what has arrived from the host of a node, and send it its code."""
        owner = self._contacts.get(slot)
        if owner is None:
            return
        self._code.step(owner.contact)
        if owner.node.has_output:
            self._output.step(slot, owner.contact)
        if slot in self._terminated and (self._output.has_all(slot) or not owner.contact.up):
            self._terminated.discard(slot)
            self._loop.post(partial(self._tell_terminated, owner))

    def _tell_terminated(self, owner: NodeContact) -> None:
        """The infrastructure has ended a node, whose output is here."""
        if self._contacts.get(owner.slot) is owner and owner.host.terminated is not None:
            owner.host.terminated()

    def _add_events(self, events: Iterable[EngineEvent]) -> None:
        self._events += events

    def _report_events(self) -> None:
        events, self._events = self._events, []
        self._report(events)
        if self._plan.has_arrays:
            self._leave_slots(event.rank for event in events if isinstance(event, NodeEnded))

    def _leave_slots(self, ranks: Iterable[int]) -> None:
        """The ends of these nodes were reported."""
        for rank in ranks:
            if self._in_array(rank):
                self._slots.leave(rank)
        if self._slots.waiting and not self._closed:
            self._participant.notify()

    def _take(self, slots: Iterable[int]) -> None:
        """Take what nodes have to report, and to tell their servers: those in these slots, and
        those without one."""
        loose, self._loose = self._loose, {}
        for node in [*loose.values(), *(self._nodes[slot] for slot in slots)]:
            sent, node.messages = node.messages, []
            owner = None if node.slot is None else self._contacts.get(node.slot)
            if owner is not None and owner.node is node:
                for message in sent:
                    owner.contact.send(message)
            events, node.events = node.events, []
            for event in events:
                if isinstance(event, NodeEnded):
                    self._usage.end(node.rank)
                    self._output.end(node, event)
                    if owner is not None and owner.node is node:
                        self._launcher.ended(owner.slot)
                    self._has_new_deadlines = True
                    if node.slot is None:
                        self._slots.wait_no_more(node.rank)
                        self._unfound.discard(node.rank)
                        self._why_queued.pop(node.rank, None)
                        del self._by_rank[node.rank]
                else:
                    self._events.append(event)

    def _wait(self) -> None:
        descriptors, timeout = self._output.waits()
        for descriptor in self._watched.difference(descriptors):
            self._participant.unwatch(descriptor)
        for descriptor in descriptors:
            self._participant.watch(descriptor)
        self._watched = set(descriptors)
        due = [one for one in (self._due, self._usage.due) if one is not None]
        later = (timeout, self._launcher.renews_in)
        due += [self._loop.now() + one for one in later if one is not None]
        self._participant.wake_at(min(due, default=None))

    def _unwatch_logs(self) -> None:
        """Some of their descriptors are about to be closed."""
        for descriptor in self._watched:
            self._participant.unwatch(descriptor)
        self._watched.clear()

    def _deadlines(self) -> Iterator[float]:
        """When nodes that cannot be reached are looked at."""
        for owner in self._contacts.values():
            if owner.isolated_at is not None:
                yield owner.isolated_at
            if self._closing and (at := self._given_up_at(owner)) is not None:
                yield at
        if self._force_at is not None and self._force_at < math.inf:
            yield self._force_at
        yield from self._output.deadlines(self._contacts)

    # --- the end

    def _advance_close(self, slots: Iterable[int]) -> None:
        """Copy what was written since the ends of the nodes, and have their servers leave; when all
        have left, or those of nodes that have ended cannot be reached, it is closed."""
        for slot in slots:
            owner = self._contacts.get(slot)
            if owner is None or self._may_run(owner):
                continue
            given_up_at = self._given_up_at(owner)
            if self._has_everything(owner) and owner.leave():
                self._end_contact(owner)
                if not owner.keeps_folder:  # a run that is resumed finds its files there
                    self._hosts.give_up(slot)
                del self._contacts[slot]
            elif given_up_at is not None and self._loop.now() >= given_up_at:
                self._leave_unreachable(owner)
        runs = any(node.running for node in self._by_rank.values())
        is_over = not self._contacts and not runs and not self._frees
        if is_over:
            self._take(self._nodes)
        self._report_left()
        if is_over:
            self._close()

    def _may_run(self, owner: NodeContact) -> bool:
        """Whether a node runs on a host, or may, as its server has not been heard."""
        return owner.node.running or (owner.slot in self._unheard and bool(self._unfound))

    def _given_up_at(self, owner: NodeContact) -> float | None:
        """When a session that closes gives up to have the server of a node leave which has ended;
        None: never, as there is contact, or its end is not known."""
        if owner.lost_at is None or self._may_run(owner):
            return None
        return owner.useless_at + OUTPUT_TIMEOUT

    def _leave_unreachable(self, owner: NodeContact) -> None:
        """Wait no more for the host of a node that has ended. One that has outputs which may not be
        here is not given up, nor one whose server nobody ends: it is left there."""
        node = owner.node
        is_kept = self._output.is_collecting(owner.slot) or not owner.host.ends_with_slot
        if is_kept:
            self._servers_left.append((node.rank, owner.host.name))
        self._output.give_up(node, UNREACHABLE)
        self._end_contact(owner)
        if not is_kept:
            self._hosts.give_up(owner.slot)
        del self._contacts[owner.slot]

    def _report_left(self) -> None:
        """Report what a session that closes cannot remove, if that is new."""
        lines = [self._left] if self._left else []
        if self._servers_left:
            lines.append(servers_left(self._servers_left))
        left = "\n".join(lines)
        if left != self._left_reported:
            self._left_reported = left
            self._events.append(ResourcesLeft(left))

    def _has_everything(self, owner: NodeContact) -> bool:
        """Whether nothing is left to copy from the host of a node that has ended."""
        return not self._output.is_collecting(owner.slot) and self._output.has_last(owner)

    def _close(self) -> None:
        self._closed = True
        if self._proxy is not None:
            self._proxy.close()
        for owner in self._contacts.values():
            owner.close()
        self._output.close()
        self._usage.close()
        self._unpacker.close()
        self._code.close(remove=self._closing)
        self._mounts.close(remove=self._closing)
        self._launcher.close(remove=self._closing)
        self._hosts.close()
        self._participant.close()
        self._events.append(SessionClosed())
        self._report_events()


def _vacant(slot: int) -> RemoteNode:
    """Stands for the node in a slot of an array in which none has been in this session."""
    node = RemoteNode(-1, slot=slot)
    node.takes_turns = True
    return node
