"""One run on this machine: forks its nodes, hears from them, notes their logs."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import time
from collections.abc import Sequence

from muster.engines.base import RunContext
from muster.engines.local import gpus, metadata, mounting, names
from muster.engines.local.attempts import Attempts
from muster.engines.local.begun import begun
from muster.engines.local.crew import Crew
from muster.engines.local.endpoints import write_endpoints
from muster.engines.local.ends import never_begun, not_started, verdict
from muster.engines.local.fabric import Fabric
from muster.engines.local.following import Following
from muster.engines.local.isolation import Isolation
from muster.engines.local.joining import Joining
from muster.engines.local.overdue import Overdue
from muster.engines.local.ports import Ports
from muster.engines.local.starting import LocalNode, Starter, short_folder
from muster.engines.local.synced import SyncedMounts
from muster.errors import EngineError, MusterError, lack_of
from muster.lifecycle.events import DiskExceeded, NodeEnded, NodeEvent, NodeReady, NodeStarted
from muster.lifecycle.status import NodeRef
from muster.node.channel import Message
from muster.node.processes import (
    become_subreaper,
    ended_children,
    kill_children,
    kill_everything,
    wake_on_signals,
)
from muster.plan.names import service_names

_LONGEST_WAIT = 86400.0  # seconds


class LocalSession:
    """See `engines.base.Session`. Lives in the run's supervisor, whose children the nodes are."""

    def __init__(self, context: RunContext, isolation: Isolation) -> None:
        plan = context.plan
        if plan.own_interfaces and not isolation.namespaces:
            # without them its cables would be laid in the machine's own network
            raise EngineError(f"network: {plan.network} needs namespaces: {isolation.reason}")
        self._isolation = isolation
        self._keep = context.keep
        self._run_dir = context.home.run_dir(plan.run_id)
        self._crew = Crew()
        self._events: list[NodeEvent] = []
        self._rested: list[LocalNode] = []  # kept, their ends not told yet
        self._lost: list[tuple[LocalNode, bool]] = []  # (node, lived): without its agent, but not
        # without processes
        self._overdue = Overdue()
        self._closed = False
        self._heard = False  # whether a first event was handed over
        self._wake = wake_on_signals()
        if not isolation.namespaces:
            become_subreaper()
        self._ports = Ports(plan.ports, len(plan.nodes), own=plan.own_interfaces)
        if plan.tls:
            from muster.storage.certificates import make_certificates

            make_certificates(self._run_dir.tls, plan.nodes)
        fabric = None
        if plan.own_interfaces:  # first, as its way out takes its time
            fabric = Fabric(self._run_dir.namespace if plan.network == "cluster" else None)
        self._joining = Joining(plan, self._run_dir.cluster_file, fabric)
        wanted = any(group.resources.gpus for group in plan.groups)
        self._gpus = gpus.GpuPool(context.home.root / "gpus", gpus.devices() if wanted else [])
        placed = mounting.place(plan, context.home)
        documented: frozenset[str] = frozenset()
        if isolation.namespaces:
            documented = metadata.prepare(plan, self._run_dir.path)
        self._synced = SyncedMounts(plan, placed)
        routed = plan.network == "cluster"
        names.write_hosts(self._run_dir.hosts, plan.nodes, service_names(plan), routed=routed)
        if routed:
            names.write_resolver(self._run_dir.resolver)
        token = secrets.token_hex(16)
        write_endpoints(plan, self._ports.numbers, token, self._run_dir)
        self._attempts = Attempts(plan, self._run_dir)
        self._following = Following()
        self._starter = Starter(
            context,
            isolation,
            ports=self._ports.numbers,
            token=token,
            gpus=self._gpus,
            placed=placed,
            documented=documented,
        )

    # --- what the controller asks

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._starter.absent.difference_update(ref.rank for ref in nodes)
        newer = self._attempts.open(attempt)
        if not self._synced.hold_start(nodes):
            self._begin(nodes)
        if newer:
            self._attempts.retire()

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`. What has not begun has nothing to hear it with."""
        for node in self._crew.living(nodes):
            if node.begun:
                node.tell("signal", number=number)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        for node in self._crew.living(nodes):
            if node.begun:
                node.leaving = True
                node.tell("stop")
            else:
                _forget(node)
        self._events += self._synced.give_up(nodes)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        for node in self._crew.living(nodes):
            if not node.begun:
                _forget(node)
            elif self._isolation.namespaces and not self._keep:
                os.kill(node.pid, signal.SIGKILL)  # the kernel ends all below it
            else:
                node.leaving = True
                node.tell("kill")
                self._overdue.expect(node.pid)
        self._events += self._synced.give_up(nodes)
        if self._synced.holds_end_of(nodes):
            self._synced.abort()

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        for ref in nodes:
            kept = self._crew.kept(ref.rank)
            if kept is not None:
                os.kill(kept.pid, signal.SIGKILL)
        ranks = [ref.rank for ref in nodes]
        self._starter.absent.update(ranks)
        for node in self._crew.everybody():
            node.tell("absent", ranks=ranks)
        self._joining.leave(ranks)

    # --- launching

    def _begin(self, nodes: Sequence[NodeRef]) -> None:
        for ref in nodes:
            if self._crew.claim(ref):
                self._start_node(ref)

    def _start_node(self, ref: NodeRef) -> None:
        outputs = self._attempts.enter(ref.rank)
        attempt = self._attempts.newest
        node = self._crew.kept(ref.rank)
        try:
            if node is not None:
                self._starter.start_again(node, ref, attempt, outputs)
            else:
                self._synced.watch(self._run_dir.node(ref.rank))
                node = self._starter.start(ref, attempt, outputs)
        except (MusterError, OSError) as error:
            self._attempts.leave(attempt, ref.rank)
            lack = lack_of(error) if isinstance(error, OSError) else None
            self._events.append(not_started(ref, str(lack or error)))
        else:
            self._crew.begin(node)

    # --- hearing

    def events(self, timeout: float | None, wake: int) -> list[NodeEvent]:
        """See `Session.events`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            woken = self._wait(left, wake)
            if woken or left == 0.0:
                break
        events, self._events = self._events, []
        self._heard = self._heard or bool(events)
        return events

    def _wait(self, timeout: float | None, wake: int) -> bool:
        """Wait for one thing to happen and take it in. Whether `wake` was among it."""
        poll = select.poll()
        channels = {
            node.channel.fileno(): node
            for node in self._crew.agents.values()
            if not node.channel.closed  # its end is still to be reaped, and would wake us for ever
        }
        # that the run is in progress is recorded before what its programs write
        growing = self._attempts.watched() if self._heard else ()
        for descriptor in (wake, self._wake, *channels, *growing):
            poll.register(descriptor, select.POLLIN)
        for descriptor, node in channels.items():
            if node.channel.unsent:
                poll.register(descriptor, select.POLLIN | select.POLLOUT)
        for part in (self._synced, self._joining):
            if (watched := part.watched()) is not None:
                poll.register(watched, select.POLLIN)
        parts = (self._attempts, self._synced, self._overdue, self._joining)
        limits = (timeout, *(part.patience() for part in parts))
        patience = [limit for limit in limits if limit is not None]
        # rounded up, so that a deadline has passed when we wake; poll takes 24 days at most
        ready = poll.poll(min(*patience, _LONGEST_WAIT) * 1000 + 1 if patience else None)
        for descriptor, what in ready:
            if descriptor in channels:
                channels[descriptor].channel.flush()
                if what & ~select.POLLOUT:
                    node = channels[descriptor]
                    self._hear(node, node.channel.receive())
        self._tell_rested()
        self._joining.welcome()
        if self._heard:
            self._attempts.note()
        self._synced.look()
        self._overdue.end()
        if any(descriptor == self._wake for descriptor, _ in ready):
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            self._reap()
        return any(descriptor == wake for descriptor, _ in ready)

    def _hear(self, node: LocalNode, messages: Sequence[Message]) -> None:
        for message in messages:
            ref = node.ref
            if message["incarnation"] != ref.incarnation:
                continue
            match message["event"]:
                case "joined":
                    self._joining.join(node)
                case "started":
                    self._events.append(NodeStarted(ref.rank, ref.incarnation))
                case "ready":
                    self._events.append(NodeReady(ref.rank, ref.incarnation))
                case "disk":
                    sizes = message["used"], message["allowed"]
                    self._events.append(DiskExceeded(ref.rank, *sizes, ref.incarnation))
                case "done":
                    self._following.begin(node)
                case "ended":
                    node.said = message
                    if message["kept"]:
                        self._crew.rest(node)
                        self._overdue.forget(node.pid)
                        self._rested.append(node)

    def _tell_rested(self) -> None:
        """Once all have been heard: who follows whom is known then."""
        rested, self._rested = self._rested, []
        for node in rested:
            self._tell(node, verdict(node))

    # --- ends

    def _reap(self) -> None:
        stray = False
        for pid, status in ended_children():
            if pid in self._crew.agents:
                self._gone(self._crew.agents[pid])
            elif self._joining.reaped(pid):
                continue
            elif (released := self._synced.reaped(pid, status)) is not None:
                self._events += released.ends
                self._begin(released.nodes)
            else:
                stray = True
        if (stray or self._lost) and not self._kill_strays():
            while self._lost:
                self._end(*self._lost.pop(0))

    def _kill_strays(self) -> bool:
        """Kill orphans of an agent that was killed: without namespaces they come to us. Whether
        any is left; its end will wake us."""
        if self._isolation.namespaces:
            return False
        return bool(kill_children(self._crew.agents.keys() | self._synced.pids()))

    def _gone(self, node: LocalNode) -> None:
        """The node's agent is gone. If it could say so itself, or has a namespace, every process
        of the node is gone with it."""
        self._hear(node, node.channel.drain())
        self._tell_rested()
        node.channel.close()
        lived = self._crew.remove(node)
        self._joining.forget(node)
        self._overdue.forget(node.pid)
        self._gpus.release(node.gpus)
        if node.said is None and not self._isolation.namespaces:
            self._lost.append((node, lived))
        else:
            self._end(node, lived)

    def _end(self, node: LocalNode, lived: bool) -> None:
        """No process of the node is left. lived: whether its life had not ended before."""
        event = verdict(node)
        if node.limits is not None:
            node.limits.remove()
        if not lived:
            return  # a node that was kept: its end was told
        if node.said is None and node.again and not begun(self._run_dir, [node.ref]):
            # it had gone before it heard that it was to begin again
            if not node.leaving:
                self._attempts.leave(node.attempt, node.ref.rank)
                self._start_node(node.ref)
                return
            node.said = never_begun()
            event = verdict(node)
        self._tell(node, event)

    def _tell(self, node: LocalNode, event: NodeEnded) -> None:
        if self._attempts.leave(node.attempt, node.ref.rank):
            self._attempts.retire()
        for told in self._following.sort(node, event):
            if self._crew.busy or self._lost or not self._synced.hold_end(told):
                self._events.append(told)

    def close(self) -> None:
        """See `Session.close`."""
        if self._closed:
            return
        self._closed = True
        self._synced.abort()
        kill_everything(self._isolation.namespaces, [])
        for node in self._crew.clear():
            node.channel.close()
            self._gpus.release(node.gpus)
            if node.limits is not None:
                node.limits.remove()
        self._ports.close()
        self._joining.close()
        shutil.rmtree(short_folder(self._run_dir.path.name), ignore_errors=True)

    def seal(self) -> None:
        """See `Session.seal`."""
        self._attempts.seal()


def _forget(node: LocalNode) -> None:
    """End a node whose program has not started: nothing there needs time to tidy up."""
    node.said = never_begun()
    os.kill(node.pid, signal.SIGKILL)
