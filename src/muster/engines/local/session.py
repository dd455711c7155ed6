"""One run on this machine: starts its nodes, receives their messages, and records their output."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping, Sequence

from muster.engines.base import Report, RunContext
from muster.engines.end_order import EndOrder
from muster.engines.local.namespaces import Isolation
from muster.engines.local.nodes import (
    KillTimers,
    LocalNode,
    Nodes,
    canceled_start,
    ended,
    ended_before_start,
    not_started,
    started_ranks,
)
from muster.engines.local.roster import Roster
from muster.engines.local.starting import Starter
from muster.engines.local.synced_mounts import SyncedMounts
from muster.engines.local.usage_recorder import UsageRecorder
from muster.engines.logs import RunLogs
from muster.engines.loop import RunLoop
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
from muster.node.processes import (
    become_subreaper,
    ended_children_with_cpu,
    kill_children,
    kill_everything,
    wake_on_signals,
)

#: Seconds for which nodes are started in one round of the loop: starting all nodes of a large run
#: takes longer, and a request, or another run, must not wait for that.
START_SLICE = 0.01


class LocalSession:
    """See `engines.base.Session`. Runs in the run's supervisor; nodes are its child processes."""

    def __init__(
        self,
        context: RunContext,
        isolation: Isolation,
        loop: RunLoop,
        report: Report,
        gpus: RunGpus = NO_GPUS,
    ) -> None:
        self._isolation = isolation
        self._loop = loop
        self._participant = loop.add(self._step)
        self._report = report
        self._keep = context.keep
        self._run_dir = context.home.run_dir(context.plan.run_id)
        self._nodes = Nodes()
        #: The running and kept nodes whose channel is open, by its descriptor.
        self._channels: dict[int, LocalNode] = {}
        #: The other descriptors that are watched.
        self._watched: set[int] = set()
        self._events: list[EngineEvent] = []
        #: Nodes that were just kept; their ends have not been reported.
        self._newly_kept: list[LocalNode] = []
        #: Nodes whose agent was killed and that may have processes left, each with whether its
        #: incarnation was running.
        self._lost: list[tuple[LocalNode, bool]] = []
        self._kill_timers = KillTimers()
        self._closed = False
        self._has_old_logs = False  # whether logs of earlier attempts are not finished
        self._reported = False  # whether any event has been reported
        self._child_signals = wake_on_signals()
        self._participant.watch(self._child_signals)
        if not isolation.namespaces:
            become_subreaper()
        self._roster = Roster(context.plan, self._run_dir)
        self._starter = Starter(context, isolation, gpus)
        self._synced = SyncedMounts(context.plan, self._starter.sources, context.environ)
        self._logs = RunLogs(context.plan, self._run_dir)
        self._end_order = EndOrder()
        self._usage = UsageRecorder(self._run_dir)

    # --- calls of the controller

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._starter.absent.difference_update(ref.rank for ref in nodes)
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
                os.kill(node.pid, signal.SIGKILL)  # the kernel ends the node's other processes
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
        for ref in nodes:
            kept = self._nodes.kept(ref.rank)
            if kept is not None:
                os.kill(kept.pid, signal.SIGKILL)
        ranks = [ref.rank for ref in nodes]
        self._starter.absent.update(ranks)
        for node in self._nodes.all_running():
            self._send(node, messages.Absent(node.incarnation, ranks))
        self._roster.leave(ranks)

    def notified(self) -> None:
        """See `Session.notified`. This session waits for no other process."""

    def close(self) -> None:
        """See `Session.close`. Returns when no process is left."""
        if self._closed:
            return
        self._closed = True
        self._participant.close()  # before its descriptors are closed
        self._synced.abort()
        self._usage.close()
        kill_everything(self._isolation.namespaces, [])
        for node in self._nodes.clear():
            node.channel.close()
            self._starter.release_gpus(node)
            if node.limits is not None:
                node.limits.remove()
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
        outputs = self._logs.outputs_of(attempt, ref.rank)
        node = self._nodes.kept(ref.rank)
        try:
            if node is not None:
                self._starter.restart(node, ref, attempt, outputs)
            else:
                self._synced.watch_checkpoints(self._run_dir.node(ref.rank))
                node = self._starter.start(ref, attempt, outputs)
        except (MusterError, OSError) as error:
            self._logs.remove_node(attempt, ref.rank)
            shortage = shortage_from(error) if isinstance(error, OSError) else None
            self._events.append(not_started(ref, str(shortage or error)))
        else:
            self._nodes.add(node)
            self._watch_channel(node)
            self._usage.start(ref.rank, node.pid, node.gpus)

    def _cancel_start(self, nodes: Sequence[NodeRef]) -> None:
        """Do not start these incarnations, if they have not been started."""
        for ref in nodes:
            queued = self._nodes.cancel(ref)
            if queued is not None:
                self._report_end(queued.attempt, canceled_start(ref))
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
        if self._child_signals in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._child_signals, 4096)
            self._reap()

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
        parts = (self._synced, self._kill_timers, self._roster, self._usage)
        given = (grow_timeout, *(part.timeout() for part in parts))
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

    def _report_newly_kept(self) -> None:
        """Report the ends of kept nodes, once the messages of all nodes have been received: only
        then is it known which failures to defer."""
        kept, self._newly_kept = self._newly_kept, []
        for node in kept:
            self._report_end(node.attempt, ended(node))

    # --- ends of processes

    def _reap(self) -> None:
        stray = False
        for pid, status, cpu in ended_children_with_cpu():
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
        if node.limits is not None:
            node.limits.remove()
        if not running:
            return  # it was kept, and its end has been reported
        if node.report is None and node.restarted and not started_ranks(self._run_dir, [node.ref]):
            # the kept agent ended before it received the request to restart
            if not node.stopping:
                self._start_node(node.ref, node.attempt)
                return
            node.report = ended_before_start()
            event = ended(node)
        self._report_end(node.attempt, event)

    def _report_end(self, attempt: int, event: NodeEnded) -> None:
        """Report the end of an incarnation."""
        if self._logs.remove_node(attempt, event.rank):
            self._has_old_logs = True
        for one in self._end_order.next(event):
            is_last = not self._nodes.any_running and not self._lost
            if is_last and self._synced.hold_end(one):
                continue  # reported after the write-back
            self._events.append(one)
