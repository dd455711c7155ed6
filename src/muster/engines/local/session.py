"""One run on this machine: starts its nodes, receives their messages, and records their output."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from muster.engines.base import Report, RunContext
from muster.engines.credentials import access_of_copies
from muster.engines.end_order import EndOrder
from muster.engines.local.children import AllChildren, Children, OwnChildren
from muster.engines.local.namespaces import Isolation
from muster.engines.local.nodes import (
    KillTimers,
    LocalNode,
    Nodes,
    ended,
    started_ranks,
)
from muster.engines.local.roster import Roster
from muster.engines.local.slots import Slots
from muster.engines.local.starting import Starter
from muster.engines.local.synced_mounts import SyncedMounts
from muster.engines.local.usage_recorder import UsageRecorder
from muster.engines.logs import RunLogs
from muster.engines.loop import RunLoop
from muster.engines.node_ends import canceled_start, ended_before_start, not_started
from muster.engines.reservations.gpus import NO_GPUS, RunGpus
from muster.errors import MusterError, shortage_from
from muster.lifecycle.events import (
    DiskExceeded,
    EngineEvent,
    NodeEnded,
    NodeReady,
    NodeStarted,
    SessionClosed,
)
from muster.lifecycle.status import NodeRef
from muster.node import messages
from muster.node.messages import Message
from muster.node.processes import kill_children

if TYPE_CHECKING:
    from muster.engines.local.agent_pool import AgentPool

#: Seconds for which nodes are started in one round of the loop: starting all nodes of a large run
#: takes longer, and a request, or another run, must not wait for that.
START_SLICE = 0.01


class LocalSession:
    """See `engines.base.Session`. Nodes are child processes of the run's supervisor, which other
    runs may share (`RunContext.alone`)."""

    def __init__(
        self,
        context: RunContext,
        isolation: Isolation,
        loop: RunLoop,
        report: Report,
        gpus: RunGpus = NO_GPUS,
        pool: AgentPool | None = None,
    ) -> None:
        """pool: of the agents of this process, if other runs may use them."""
        self._isolation = isolation
        self._loop = loop
        self._participant = loop.add(self._step)
        self._report = report
        self._keep = context.keep or context.plan.has_arrays
        self._plan = context.plan
        self._run_dir = context.home.run_dir(context.plan.run_id)
        self._nodes = Nodes(context.plan.policy.size)
        self._slots = Slots(context.plan)
        #: The running and kept nodes whose channel is open, by its descriptor.
        self._channels: dict[int, LocalNode] = {}
        #: The other descriptors that are watched.
        self._watched: set[int] = set()
        self._events: list[EngineEvent] = []
        #: Nodes that were just kept; their ends have not been reported.
        self._newly_kept: list[LocalNode] = []
        #: Nodes that their agent has left, with its message.
        self._left: list[tuple[LocalNode, messages.Idle]] = []
        #: Nodes whose agent was killed and that may have processes left, each with whether its
        #: incarnation was running.
        self._lost: list[tuple[LocalNode, bool]] = []
        self._kill_timers = KillTimers()
        self._closed = False
        self._has_old_logs = False  # whether logs of earlier attempts are not finished
        self._reported = False  # whether any event has been reported
        self._children: Children = (
            AllChildren(self._participant, contained=isolation.namespaces)
            if context.alone
            else OwnChildren(loop, self._participant)
        )
        self._roster = Roster(context.plan, self._run_dir)
        self._pool = pool
        self._starter = Starter(context, isolation, gpus, pool)
        self._credentials = self._starter.credentials
        self._synced = SyncedMounts(context.plan, self._starter.sources, access_of_copies(context))
        self._logs = RunLogs(context.plan, self._run_dir)
        self._end_order = EndOrder()
        self._usage = UsageRecorder(self._run_dir, self._in_array)

    def _in_array(self, rank: int) -> bool:
        return self._plan.group_of(rank).is_array

    # --- calls of the controller

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._starter.absent.discard(ref.rank for ref in nodes)
        self._has_old_logs = self._logs.open(attempt) or self._has_old_logs
        if not self._synced.hold_start(nodes):
            self._queue(nodes)
        self._participant.notify()

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        for node in self._nodes.running(nodes):
            if node.started:
                self._send(node, messages.Signal(node.incarnation, number))

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        for node in self._nodes.running(nodes):
            if node.started:
                node.stopping = True
                self._send(node, messages.Stop(node.incarnation))
            else:
                node.end_before_start()
        self._cancel_start(nodes)
        self._participant.notify()

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        for node in self._nodes.running(nodes):
            if not node.started:
                node.end_before_start()
            elif self._isolation.namespaces and not self._keep:
                node.kill_agent()  # the kernel ends the node's other processes
            else:
                node.stopping = True
                self._send(node, messages.Kill(node.incarnation))
                self._kill_timers.start(node.pid)
        self._cancel_start(nodes)
        if self._synced.holds_end_of(nodes):
            self._synced.abort()
        self._participant.notify()

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        ranks = {ref.rank for ref in nodes}
        for kept in self._nodes.kept_nodes_of(ranks):
            os.kill(kept.pid, signal.SIGKILL)
        if awaited := self._starter.absent.add(ranks):
            for node in self._nodes.all_running():
                if node.plan.group in awaited:
                    absent = awaited[node.plan.group]
                    self._send(node, messages.Absent(node.incarnation, absent))
        self._roster.leave(ranks)

    def notified(self) -> None:
        """See `Session.notified`. This session waits for no other process."""

    def close(self) -> None:
        """See `Session.close`."""
        if self._closed:
            return
        self._closed = True
        self._participant.close()  # before its descriptors are closed
        self._synced.abort()
        self._usage.close()
        self._children.end_all(self._release)

    def _release(self) -> None:
        """Free what the nodes had; no process of them is left."""
        for node in self._nodes.clear():
            self._free(node)
        self._starter.close()
        self._roster.close()
        self._report([SessionClosed()])

    def finish_logs(self) -> None:
        """See `Session.finish_logs`."""
        self._logs.finish()

    # --- starting nodes

    def _queue(self, nodes: Sequence[NodeRef]) -> None:
        attempt = self._logs.newest
        for ref in nodes:
            if self._nodes.queue(ref, attempt):
                self._logs.add_node(attempt)

    def _start_queued(self) -> bool:
        """Start queued nodes, one or more, for a while. Returns whether none is left."""
        until = self._loop.now() + START_SLICE
        while self._nodes.any_queued:
            queued = self._nodes.next_queued()
            self._start_node(queued.ref, queued.attempt)
            if self._nodes.any_queued and self._loop.now() >= until:
                return False
        if self._has_old_logs:
            self._has_old_logs = False
            for descriptor in self._watched:  # some of them are closed now
                self._participant.unwatch(descriptor)
            self._watched = set()
            self._logs.finish_old_attempts()
        return True

    def _start_node(self, ref: NodeRef, attempt: int) -> None:
        planned = self._slots.take(ref.rank)
        slot = self._plan.slot_of(planned)
        node = self._nodes.kept(slot)
        try:
            outputs = self._logs.assign_outputs(attempt, planned)
            if node is not None:
                self._starter.restart(node, ref, attempt, planned, outputs)
            else:
                self._synced.watch_checkpoints(self._run_dir.node(slot))
                node = self._starter.start(ref, attempt, planned, outputs)
                self._adopt(node)
        except (MusterError, OSError) as error:
            self._logs.remove_node(attempt, slot)
            self._slots.leave(ref.rank)
            shortage = shortage_from(error) if isinstance(error, OSError) else None
            self._events.append(not_started(ref, str(shortage or error)))
        else:
            self._nodes.add(node)
            self._watch_channel(node)
            used = None if node.agent is None else node.agent.used
            self._usage.start(ref.rank, node.pid, node.gpus, used)

    def _adopt(self, node: LocalNode) -> None:
        """Have the end of a new agent noticed. Raises OSError; the node does not exist then."""
        try:
            self._children.add(node.pid)
        except OSError:
            self._free(node)
            raise

    def _free(self, node: LocalNode) -> None:
        """Free what a node had; no process of it is left."""
        node.channel.close()
        node.drop_agent()
        self._starter.release_gpus(node)
        node.remove_limits()

    def _cancel_start(self, nodes: Sequence[NodeRef]) -> None:
        """Do not start these incarnations, if they have not been started."""
        for ref in nodes:
            queued = self._nodes.cancel(ref)
            if queued is not None:
                self._report_end(queued.attempt, None, canceled_start(ref))
        self._events += self._synced.cancel_start(nodes)

    # --- rounds of the loop

    def _step(self, ready: Mapping[int, int]) -> None:
        """Handle everything that has happened. Nodes are started first: they join together then,
        which is much less work than one after another."""
        if self._start_queued():
            self._handle(ready)
            self._watch()
        first = bool(self._events) and not self._reported
        if self._events:
            events, self._events = self._events, []
            self._reported = True
            self._report(events)
        if first or self._nodes.any_queued or self._has_old_logs:
            self._participant.notify()

    def _handle(self, ready: Mapping[int, int]) -> None:
        for descriptor, what in ready.items():
            node = self._channels.get(descriptor)
            if node is not None:
                node.channel.flush()
                if what & ~select.POLLOUT:
                    self._receive(node, node.channel.receive())
                    if node.channel.invalid is not None:
                        node.kill_agent()
                self._watch_channel(node)
        self._report_newly_kept()
        for node in self._roster.start_joined():
            self._watch_channel(node)
        if self._reported:
            self._logs.record_growth()
        self._synced.write_back_checkpoints()
        self._kill_timers.kill_expired()
        self._usage.step()
        if self._credentials is not None:
            self._credentials.renew()
        self._reap(ready)
        self._release_agents()

    def _watch(self) -> None:
        """Watch everything else that the next round may wait for."""
        # only after the first event: that the run is in progress is recorded before its output
        growing, grow_timeout = self._logs.waits() if self._reported else ([], None)
        watched = {*growing}
        for watching in (self._synced, self._roster):
            if (descriptor := watching.watched()) is not None:
                watched.add(descriptor)
        for descriptor in self._watched - watched:
            self._participant.unwatch(descriptor)
        for descriptor in watched - self._watched:
            self._participant.watch(descriptor)
        self._watched = watched
        parts = (
            *(self._synced, self._kill_timers, self._roster, self._usage, self._pool),
            self._credentials,
        )
        given = (grow_timeout, *(part.timeout() for part in parts if part is not None))
        left = min((one for one in given if one is not None), default=None)
        self._participant.wake_at(None if left is None else self._loop.now() + left)

    def _watch_channel(self, node: LocalNode) -> None:
        """Watch the channel of a node for what can be received, and sent."""
        channel = node.channel
        if channel.closed:  # it would be readable until its agent is reaped
            self._unwatch_channel(node)
        else:
            self._channels[channel.fileno()] = node
            self._participant.watch(channel.fileno(), write=channel.unsent)

    def _unwatch_channel(self, node: LocalNode) -> None:
        descriptor = node.channel.fileno()
        if self._channels.pop(descriptor, None) is not None:
            self._participant.unwatch(descriptor)

    def _send(self, node: LocalNode, message: Message) -> None:
        node.channel.send(message)
        self._watch_channel(node)

    def _receive(self, node: LocalNode, received: Sequence[Message]) -> None:
        """Handle messages of a node's agent."""
        for message in received:
            ref = node.ref
            if getattr(message, "incarnation", None) != ref.incarnation:
                continue  # about an earlier incarnation
            match message:
                case messages.Joined():
                    self._roster.join(node)
                case messages.Started():
                    self._events.append(NodeStarted(ref.rank, ref.incarnation))
                case messages.Ready():
                    self._events.append(NodeReady(ref.rank, ref.incarnation))
                case messages.DiskExceeded(used=used, allowed=allowed):
                    self._events.append(DiskExceeded(ref.rank, used, allowed, ref.incarnation))
                case messages.ProgramDone():
                    self._end_order.program_succeeded(ref)
                case messages.Ended(report=report, kept=kept):
                    node.report = report
                    if kept:
                        self._nodes.keep(node)
                        self._kill_timers.cancel(node.pid)
                        self._newly_kept.append(node)
                case messages.Idle():
                    self._left.append((node, message))

    def _report_newly_kept(self) -> None:
        """Report the ends of kept nodes, once the messages of all nodes have been received: only
        then is it known which failures to defer."""
        kept, self._newly_kept = self._newly_kept, []
        for node in kept:
            self._report_end(node.attempt, node.slot, ended(node))

    # --- ends of processes

    def _reap(self, ready: Mapping[int, int]) -> None:
        stray = False
        for pid, status, cpu in self._children.ended(ready):
            if pid in self._nodes.by_pid:
                self._usage.end(pid, cpu)
                self._agent_ended(self._nodes.by_pid[pid])
            elif self._roster.reaped(pid) or self._usage.reaped(pid):
                continue
            elif (released := self._synced.reaped(pid, status)) is not None:
                self._events += released.ends
                self._queue(released.nodes)
            else:
                stray = True
        if (stray or self._lost) and not self._kill_strays():
            while self._lost:
                self._node_ended(*self._lost.pop(0))

    def _release_agents(self) -> None:
        """Leave to other runs the agents that have left their nodes, which have ended then."""
        left, self._left = self._left, []
        for node, found in left:
            agent, node.agent = node.agent, None
            if agent is None or self._pool is None:
                continue  # it was killed
            self._children.release(agent.pid)
            self._usage.end(agent.pid, found.agent_cpu + found.programs_cpu)
            self._agent_ended(node)
            self._pool.keep(agent, found)
        if self._pool is not None:
            self._pool.step()

    def _kill_strays(self) -> bool:
        """Kill processes whose agent was killed: without namespaces they become our children.

        Returns whether there are any; their ends wake the session.
        """
        if self._isolation.namespaces:
            return False
        own = (self._synced.pids(), self._usage.pids())
        return bool(kill_children(self._nodes.by_pid.keys() | set().union(*own)))

    def _agent_ended(self, node: LocalNode) -> None:
        """Handle the end of an agent.

        If the agent has sent an exit report, or has a PID namespace, no process of its node is
        left. Otherwise the node has ended when its stray processes have.
        """
        self._receive(node, node.channel.drain())
        self._report_newly_kept()
        self._unwatch_channel(node)
        node.channel.close()
        node.drop_agent()
        running = self._nodes.remove(node)
        self._roster.forget(node)
        self._kill_timers.cancel(node.pid)
        self._starter.release_gpus(node)
        if node.report is None and not self._isolation.namespaces:
            self._lost.append((node, running))
        else:
            self._node_ended(node, running)

    def _node_ended(self, node: LocalNode, running: bool) -> None:
        """Handle the end of a node's last process. running: whether its incarnation was running
        when the agent ended."""
        event = ended(node)  # reads the count of OOM kills, which goes with the control groups
        node.remove_limits()
        if not running:
            return  # it was kept, and its end has been reported
        if node.report is None and node.restarted and not started_ranks(self._run_dir, [node.ref]):
            # the agent, which was there before, ended before it received the incarnation
            if not node.stopping:
                self._start_node(node.ref, node.attempt)
                return
            node.report = ended_before_start()
            event = ended(node)
        self._report_end(node.attempt, node.slot, event)

    def _report_end(self, attempt: int, slot: int | None, event: NodeEnded) -> None:
        """Report the end of an incarnation. slot: None if it was not started."""
        if self._logs.remove_node(attempt, slot):
            self._has_old_logs = True
        if slot is not None:
            self._starter.ended(slot)
        self._slots.leave(event.rank)
        for one in self._end_order.next(event):
            is_last = not self._nodes.any_running and not self._lost
            if is_last and self._synced.hold_end(one):
                continue  # reported after the write-back
            self._events.append(one)
