"""One attempt of one run on this machine: forks its nodes, hears from them, notes their logs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from muster.engines.base import NodeEvent, RunContext
from muster.engines.local import gpus, mounting, names
from muster.engines.local.fabric import Fabric
from muster.engines.local.isolation import Isolation
from muster.engines.local.outputs import Outputs
from muster.engines.local.ports import Ports
from muster.engines.local.starting import LocalNode, Starter
from muster.engines.local.synced import SyncedMounts
from muster.errors import EngineError, MusterError
from muster.lifecycle.events import NodeEnded, NodeReady, NodeStarted
from muster.lifecycle.model import Reason
from muster.node.processes import (
    become_subreaper,
    children,
    kill_everything,
    wake_on_signals,
)
from muster.node.roster import member, write_roster
from muster.plan.model import NodePlan

_LONGEST_WAIT = 86400.0  # seconds


class LocalSession:
    """See `engines.base.Session`. Lives in the run's supervisor, whose children the nodes are."""

    def __init__(self, context: RunContext, isolation: Isolation) -> None:
        plan = context.plan
        if plan.network == "isolated" and not isolation.namespaces:
            # without them its cables would be laid in the machine's own network
            raise EngineError(f"network: isolated needs namespaces: {isolation.reason}")
        self._context = context
        self._isolation = isolation
        self._run_dir = context.home.run_dir(plan.run_id)
        self._nodes: dict[int, LocalNode] = {}  # by pid
        self._joined: list[LocalNode] = []  # ready, and not yet told to begin
        self._members: list[dict[str, Any]] = []
        self._events: list[NodeEvent] = []
        self._wake = wake_on_signals()
        if not isolation.namespaces:
            become_subreaper()
        self._ports = Ports(plan.ports, isolated=plan.network == "isolated")
        self._fabric = Fabric() if plan.network == "isolated" else None
        wanted = any(group.resources.gpus for group in plan.groups)
        self._gpus = gpus.GpuPool(context.home.root / "gpus", gpus.devices() if wanted else [])
        self._placed = mounting.place(plan, self._run_dir.mounts)
        mounting.mount_exports(plan, self._placed)
        self._synced = SyncedMounts(plan, self._placed)
        names.write_hosts(self._run_dir.hosts, plan.nodes)
        self._outputs = Outputs(plan, self._run_dir.logs(context.attempt))
        self._starter = Starter(
            context,
            isolation,
            outputs=self._outputs,
            ports=self._ports.numbers,
            gpus=self._gpus,
            placed=self._placed,
        )

    # --- what the controller asks

    def start(self, ranks: Sequence[int]) -> None:
        """See `Session.start`."""
        if self._synced.hold_start(ranks):
            return
        up = {node.rank for node in self._nodes.values()}
        for rank in ranks:
            if rank not in up:
                self._start_node(self._context.plan.nodes[rank])

    def stop(self, ranks: Sequence[int]) -> None:
        """See `Session.stop`."""
        for node in self._among(ranks):
            if node.begun:
                node.channel.send(op="stop")
            else:
                self._forget(node)
        self._events += self._synced.give_up(ranks)

    def kill(self, ranks: Sequence[int]) -> None:
        """See `Session.kill`."""
        for node in self._among(ranks):
            if not node.begun:
                self._forget(node)
            elif self._isolation.namespaces:
                os.kill(node.pid, signal.SIGKILL)  # the kernel ends all below it
            else:
                node.channel.send(op="kill")
        self._events += self._synced.give_up(ranks)
        if self._synced.holds_end_of(ranks):
            self._synced.abort()

    def _forget(self, node: LocalNode) -> None:
        """End a node whose program has not started: nothing there needs time to tidy up."""
        code = 128 + signal.SIGTERM
        node.said = _word(code, int(signal.SIGTERM), Reason.EXIT, "")
        os.kill(node.pid, signal.SIGKILL)

    def _among(self, ranks: Sequence[int]) -> list[LocalNode]:
        wanted = set(ranks)
        return [node for node in self._nodes.values() if node.rank in wanted]

    # --- launching

    def _start_node(self, node: NodePlan) -> None:
        try:
            started = self._starter.start(node)
        except (MusterError, OSError) as error:
            reason = Reason.NOT_STARTED
            self._events.append(NodeEnded(node.rank, None, reason=reason, message=str(error)))
        else:
            self._nodes[started.pid] = started
            self._synced.watch(self._run_dir.node(node.rank) / "checkpoint")

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
        return events

    def _wait(self, timeout: float | None, wake: int) -> bool:
        """Wait for one thing to happen and take it in. Whether `wake` was among it."""
        poll = select.poll()
        channels = {
            node.channel.fileno(): node
            for node in self._nodes.values()
            if not node.channel.closed  # its end is still to be reaped, and would wake us for ever
        }
        for descriptor in (wake, self._wake, *channels):
            poll.register(descriptor, select.POLLIN)
        for watched in (self._outputs.watched(), self._synced.watched()):
            if watched is not None:
                poll.register(watched, select.POLLIN)
        limits = (timeout, self._outputs.patience(), self._synced.patience())
        patience = [limit for limit in limits if limit is not None]
        # rounded up, so that a deadline has passed when we wake; poll takes 24 days at most
        ready = poll.poll(min(*patience, _LONGEST_WAIT) * 1000 + 1 if patience else None)
        for descriptor, _ in ready:
            if descriptor in channels:
                self._hear(channels[descriptor])
        self._welcome()
        self._outputs.note()
        self._synced.look()
        if any(descriptor == self._wake for descriptor, _ in ready):
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            self._reap()
        return any(descriptor == wake for descriptor, _ in ready)

    def _hear(self, node: LocalNode) -> None:
        if node.channel.closed:
            return
        for message in node.channel.receive():
            match message["event"]:
                case "joined":
                    self._joined.append(node)
                case "started":
                    self._events.append(NodeStarted(node.rank))
                case "ready":
                    self._events.append(NodeReady(node.rank))
                case "ended":
                    node.said = message

    def _welcome(self) -> None:
        """Nodes have joined: now that all can know of them, they may begin."""
        if not self._joined:
            return
        self._joined = [node for node in self._joined if node.said is None]
        for node in self._joined:
            plan = self._context.plan.nodes[node.rank]
            entry = member(plan.rank, plan.address, plan.fqdn, plan.group, plan.node_id)
            self._members.append(entry)
        write_roster(str(self._run_dir.cluster_file), self._members)
        for node in self._joined:
            if self._fabric is None or self._connect(self._fabric, node):
                node.begun = True
                node.channel.send(op="begin")
        self._joined = []

    def _connect(self, fabric: Fabric, node: LocalNode) -> bool:
        try:
            fabric.connect(node.rank, node.pid)
        except EngineError as error:
            node.said = _word(None, 0, Reason.NOT_STARTED, str(error))
            os.kill(node.pid, signal.SIGKILL)
            return False
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._nodes:
                self._ended(self._nodes[pid])
            elif (released := self._synced.reaped(pid, status)) is not None:
                self._events += released.ends
                self.start(released.ranks)
            elif not self._isolation.namespaces:
                self._kill_strays()

    def _kill_strays(self) -> None:
        """End orphans of an agent that was killed: without namespaces they come to us."""
        known = self._nodes.keys() | self._synced.pids()
        for pid in children():
            if pid not in known:
                os.kill(pid, signal.SIGKILL)

    def _ended(self, node: LocalNode) -> None:
        """The node's agent is gone and, by its nature, every process of the node with it."""
        while not node.channel.closed:
            self._hear(node)
        node.channel.close()
        del self._nodes[node.pid]
        self._joined = [other for other in self._joined if other is not node]
        self._gpus.release(node.gpus)
        self._outputs.note_node(node.rank)
        event = self._verdict(node)
        if node.limits is not None:
            if event.signal == signal.SIGKILL and node.limits.out_of_memory():
                event = replace(event, reason=Reason.OUT_OF_MEMORY)
            node.limits.remove()
        if self._nodes or not self._synced.hold_end(event):
            self._events.append(event)

    def _verdict(self, node: LocalNode) -> NodeEnded:
        said = node.said
        if said is None:
            if not self._isolation.namespaces:
                self._kill_strays()
            code = 128 + signal.SIGKILL
            text = "its agent was killed"
            return NodeEnded(node.rank, code, int(signal.SIGKILL), Reason.NODE_LOST, text)
        message = said["message"]
        if said["exit_code"] and not message:
            message = self._outputs.last_words(node.rank)
        reason = Reason(said["reason"])
        return NodeEnded(node.rank, said["exit_code"], said["signal"], reason, message)

    # --- the end

    def close(self) -> None:
        """See `Session.close`."""
        self.kill([node.rank for node in self._nodes.values()])
        self._synced.abort()
        kill_everything(self._isolation.namespaces, [])
        self._ports.close()
        if self._fabric is not None:
            self._fabric.close()

    def seal(self) -> None:
        """See `Session.seal`."""
        self._outputs.finish()


def _word(code: int | None, number: int, reason: Reason, message: str) -> dict[str, Any]:
    """What an agent would have said of its node's end."""
    return {"exit_code": code, "signal": number, "reason": reason, "message": message}
