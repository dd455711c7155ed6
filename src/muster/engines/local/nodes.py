"""The nodes of a session: which exist, and how each ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from array import array
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.engines.node_ends import ended_before_start, failed_to_start, node_ended
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.node.channel import Channel
from muster.node.control_groups import NodeGroups
from muster.node.files import read_regular
from muster.node.messages import ExitReport
from muster.plan.model import NodePlan
from muster.storage.home import RunDir
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.engines.local.agent_pool import PooledAgent

#: Seconds that an agent has to report the end of its node after it was sent the command to kill it.
_KILL_TIMEOUT = 5.0


class LocalNode(Struct, eq=False):
    """A node whose agent has not ended."""

    #: The current incarnation; for a node that is kept, the last one.
    ref: NodeRef
    #: The attempt that the incarnation belongs to.
    attempt: int
    #: The node as it is planned, in its slot.
    plan: NodePlan
    #: Its position in `RunPlan.nodes`.
    slot: int
    #: The agent's process.
    pid: int
    channel: Channel
    limits: NodeGroups | None
    #: The GPUs that the node may see.
    gpus: tuple[int, ...]
    #: The agent, if it may run another node after this one.
    agent: PooledAgent | None = None
    #: Whether its program may have started.
    started: bool = False
    #: Whether the agent was there before, and may have ended before it got this incarnation.
    restarted: bool = False
    #: Whether a stop of the incarnation was requested.
    stopping: bool = False
    #: How the incarnation ended, once it has.
    report: ExitReport | None = None
    #: How many processes had been killed at the memory limit before this incarnation.
    oom_kills_before: int = 0

    @property
    def incarnation(self) -> int:
        """The number of the current incarnation."""
        return self.ref.incarnation

    @property
    def was_oom_killed(self) -> bool:
        """Whether the kernel killed a process of this incarnation at the node's memory limit."""
        return self.limits is not None and self._oom_kills() > self.oom_kills_before

    def begin_incarnation(self, ref: NodeRef, attempt: int, plan: NodePlan) -> None:
        """Reset what belongs to an incarnation. The node was kept, and restarts in place or gives
        its slot to another one."""
        self.ref, self.attempt, self.report, self.stopping = ref, attempt, None, False
        self.plan = plan
        self.started = self.restarted = True
        self.record_oom_kills()

    def record_oom_kills(self) -> None:
        """Record how many processes were killed at the memory limit before a new incarnation."""
        self.oom_kills_before = self._oom_kills()

    def _oom_kills(self) -> int:
        if self.limits is None:
            return 0
        with as_root():
            return self.limits.oom_kill_count()

    def remove_limits(self) -> None:
        """Remove its control groups; no process of it is left."""
        if self.limits is not None:
            with as_root():
                self.limits.remove()

    def fail_to_start(self, message: str) -> None:
        """End a node that cannot start; its program has not started."""
        self._kill(failed_to_start(message))

    def end_before_start(self) -> None:
        """End a node whose program has not started: nothing needs time to stop."""
        self._kill(ended_before_start())

    def kill_agent(self) -> None:
        """Kill the agent. Without an exit report, the node is lost."""
        self.drop_agent()
        os.kill(self.pid, signal.SIGKILL)

    def drop_agent(self) -> None:
        """The agent runs no other node."""
        if self.agent is not None:
            self.agent.close()
            self.agent = None

    def _kill(self, report: ExitReport) -> None:
        self.report = report
        self.kill_agent()


class QueuedStart(Struct, frozen=True):
    """An incarnation that is to be started."""

    ref: NodeRef
    #: The attempt that the incarnation belongs to.
    attempt: int


class Nodes:
    """The nodes of one session. Each rank has one running node or none, and each slot a kept one
    or none.

    Incarnations are queued before they are started, so that a session that starts many nodes can
    answer its controller between two of them.
    """

    def __init__(self, size: int) -> None:
        """size: the number of ranks."""
        #: Running and kept nodes, by the pid of their agent.
        self.by_pid: dict[int, LocalNode] = {}
        self._queued: dict[int, QueuedStart] = {}  # by rank, the next one first
        self._running: dict[int, LocalNode] = {}  # by rank
        self._kept: dict[int, LocalNode] = {}  # by slot
        #: By rank, the first incarnation that may start. Four bytes each: an array has any number.
        self._next = array("I", bytes(4 * size))

    @property
    def any_running(self) -> bool:
        """Whether an incarnation of any rank has not ended, or is queued."""
        return bool(self._running or self._queued)

    @property
    def any_queued(self) -> bool:
        """Whether `next_queued` returns an incarnation."""
        return bool(self._queued)

    def queue(self, ref: NodeRef, attempt: int) -> bool:
        """Queue the start of an incarnation, which is the newest of its rank from now on. Returns
        False, and does nothing, if it may not start.

        An incarnation starts once, and not while another one of its rank is running.
        """
        active = ref.rank in self._running or ref.rank in self._queued
        if active or ref.incarnation < self._next[ref.rank]:
            return False
        self._next[ref.rank] = ref.incarnation + 1
        self._queued[ref.rank] = QueuedStart(ref, attempt)
        return True

    def next_queued(self) -> QueuedStart:
        """Remove the first incarnation from the queue and return it."""
        return self._queued.pop(next(iter(self._queued)))

    def cancel(self, ref: NodeRef) -> QueuedStart | None:
        """Remove an incarnation from the queue and return it; None if it is not queued."""
        queued = self._queued.get(ref.rank)
        return self._queued.pop(ref.rank) if queued is not None and queued.ref == ref else None

    def kept(self, slot: int) -> LocalNode | None:
        """The kept node in a slot."""
        return self._kept.get(slot)

    def kept_nodes_of(self, ranks: Collection[int]) -> list[LocalNode]:
        """The kept nodes of those of these ranks that have no incarnation queued."""
        kept = [node for node in self._kept.values() if node.ref.rank in ranks]
        return [node for node in kept if node.ref.rank not in self._queued]

    def running(self, refs: Iterable[NodeRef]) -> list[LocalNode]:
        """The nodes that run exactly these incarnations."""
        nodes = ((self._running.get(ref.rank), ref) for ref in refs)
        return [node for node, ref in nodes if node is not None and node.ref == ref]

    def all_running(self) -> list[LocalNode]:
        """All nodes whose incarnation has not ended."""
        return list(self._running.values())

    def add(self, node: LocalNode) -> None:
        """Register an incarnation that starts, of a new node or of one that was kept."""
        self.by_pid[node.pid] = node
        self._kept.pop(node.slot, None)
        self._running[node.ref.rank] = node

    def keep(self, node: LocalNode) -> None:
        """Keep a node whose incarnation has ended."""
        del self._running[node.ref.rank]
        self._kept[node.slot] = node

    def remove(self, node: LocalNode) -> bool:
        """Remove a node whose agent has ended. Returns whether its incarnation was running."""
        del self.by_pid[node.pid]
        if self._kept.get(node.slot) is node:
            del self._kept[node.slot]
            return False
        del self._running[node.ref.rank]
        return True

    def clear(self) -> list[LocalNode]:
        """Remove and return all nodes."""
        nodes = list(self.by_pid.values())
        for known in (self.by_pid, self._queued, self._running, self._kept):
            known.clear()
        return nodes


class KillTimers:
    """Kills agents that do not report the end of their node in time after a kill command."""

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}  # by the agent's pid

    def start(self, pid: int) -> None:
        """Start the timer of an agent, unless it is running."""
        self._deadlines.setdefault(pid, time.monotonic() + _KILL_TIMEOUT)

    def cancel(self, pid: int) -> None:
        """Cancel the timer of an agent that has reported or ended."""
        self._deadlines.pop(pid, None)

    def timeout(self) -> float | None:
        """Seconds until the first timer expires; None without timers."""
        if not self._deadlines:
            return None
        return max(0.0, min(self._deadlines.values()) - time.monotonic())

    def kill_expired(self) -> None:
        """Kill the agents whose timers have expired."""
        now = time.monotonic()
        for pid in [pid for pid, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[pid]
            os.kill(pid, signal.SIGKILL)


# --- ends


def ended(node: LocalNode) -> NodeEnded:
    """The end of a node's incarnation. Without an exit report, its agent was killed."""
    invalid = node.channel.invalid
    why = f"its agent sent an invalid message: {invalid}" if invalid else "its agent was killed"
    lost = ExitReport(128 + signal.SIGKILL, int(signal.SIGKILL), Reason.NODE_LOST, why)
    report = node.report or lost
    if report.signal == signal.SIGKILL and node.was_oom_killed:
        report = report._replace(reason=Reason.OUT_OF_MEMORY)
    return node_ended(node.ref, report)


def started_ranks(run_dir: RunDir, refs: Iterable[NodeRef]) -> frozenset[int]:
    """The ranks of those incarnations whose programs may have started.

    Agents write a mark just before they start the first process; it survives agent and supervisor.
    The marks are not forced to disk, which would take longer than starting a node: after a power
    failure the newest may be missing, as may what the programs wrote.
    """
    started = set(_marks(run_dir))
    return frozenset(ref.rank for ref in refs if ref in started)


def _marks(run_dir: RunDir) -> Iterator[NodeRef]:
    """The incarnation that last started in each slot."""
    for folder in run_dir.nodes():
        with contextlib.suppress(OSError, ValueError):
            line = read_regular(folder / "begun", 64)
            words = line.split()
            if line.endswith(b"\n") and words:
                # earlier versions wrote no rank: it was the name of the folder
                rank = int(words[1]) if len(words) > 1 else int(folder.name)
                yield NodeRef(rank, int(words[0]))
