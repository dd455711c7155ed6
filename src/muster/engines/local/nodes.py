"""The nodes of a session: which exist, and how each ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

from msgspec import Struct

from muster.engines.local.limits import NodeLimits
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.node.channel import Channel
from muster.node.files import read_regular
from muster.node.messages import ExitReport
from muster.storage.home import RunDir

#: Seconds that an agent has to report the end of its node after it was sent the command to kill it.
_KILL_TIMEOUT = 5.0


class LocalNode(Struct, eq=False):
    """A node whose agent has not ended."""

    #: The current incarnation; for a node that is kept, the last one.
    ref: NodeRef
    #: The attempt that the incarnation belongs to.
    attempt: int
    #: The agent's process.
    pid: int
    channel: Channel
    limits: NodeLimits | None
    #: The GPUs that the node may see.
    gpus: tuple[int, ...]
    #: Whether its program may have started.
    started: bool = False
    #: Whether this incarnation is a restart in place.
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
        return self.limits is not None and self.limits.oom_kill_count() > self.oom_kills_before

    def begin_incarnation(self, ref: NodeRef, attempt: int) -> None:
        """Reset what belongs to an incarnation. The node was kept and restarts in place."""
        self.ref, self.attempt, self.report, self.stopping = ref, attempt, None, False
        self.started = self.restarted = True
        self.record_oom_kills()

    def record_oom_kills(self) -> None:
        """Record how many processes were killed at the memory limit before a new incarnation."""
        self.oom_kills_before = 0 if self.limits is None else self.limits.oom_kill_count()

    def fail_to_start(self, message: str) -> None:
        """End a node that cannot start; its program has not started."""
        self._kill(_failed_to_start(message))

    def end_before_start(self) -> None:
        """End a node whose program has not started: nothing needs time to stop."""
        self._kill(ended_before_start())

    def kill_agent(self) -> None:
        """Kill the agent. Without an exit report, the node is lost."""
        os.kill(self.pid, signal.SIGKILL)

    def _kill(self, report: ExitReport) -> None:
        self.report = report
        self.kill_agent()


class QueuedStart(Struct, frozen=True):
    """An incarnation that is to be started."""

    ref: NodeRef
    #: The attempt that the incarnation belongs to.
    attempt: int


class Nodes:
    """The nodes of one session. Each rank has one running node, or one kept node, or none.

    Incarnations are queued before they are started, so that a session that starts many nodes can
    answer its controller between two of them.
    """

    def __init__(self) -> None:
        #: Running and kept nodes, by the pid of their agent.
        self.by_pid: dict[int, LocalNode] = {}
        self._queued: dict[int, QueuedStart] = {}  # by rank, the next one first
        self._running: dict[int, LocalNode] = {}  # by rank
        self._kept: dict[int, LocalNode] = {}  # by rank
        self._newest: dict[int, int] = {}  # newest incarnation, by rank

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
        if active or ref.incarnation <= self._newest.get(ref.rank, -1):
            return False
        self._newest[ref.rank] = ref.incarnation
        self._queued[ref.rank] = QueuedStart(ref, attempt)
        return True

    def next_queued(self) -> QueuedStart:
        """Remove the first incarnation from the queue and return it."""
        return self._queued.pop(next(iter(self._queued)))

    def cancel(self, ref: NodeRef) -> QueuedStart | None:
        """Remove an incarnation from the queue and return it; None if it is not queued."""
        queued = self._queued.get(ref.rank)
        return self._queued.pop(ref.rank) if queued is not None and queued.ref == ref else None

    def kept(self, rank: int) -> LocalNode | None:
        """The kept node of a rank that has no incarnation queued."""
        return None if rank in self._queued else self._kept.get(rank)

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
        self._kept.pop(node.ref.rank, None)
        self._running[node.ref.rank] = node

    def keep(self, node: LocalNode) -> None:
        """Keep a node whose incarnation has ended."""
        del self._running[node.ref.rank]
        self._kept[node.ref.rank] = node

    def remove(self, node: LocalNode) -> bool:
        """Remove a node whose agent has ended. Returns whether its incarnation was running."""
        del self.by_pid[node.pid]
        if self._kept.get(node.ref.rank) is node:
            del self._kept[node.ref.rank]
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


def ended_before_start() -> ExitReport:
    """The exit report for a node that was stopped before its program started."""
    return ExitReport(128 + signal.SIGTERM, int(signal.SIGTERM), Reason.EXIT)


def canceled_start(ref: NodeRef) -> NodeEnded:
    """The end of an incarnation that was stopped before its node was started."""
    return _ended(ref, ended_before_start())


def _failed_to_start(message: str) -> ExitReport:
    return ExitReport(None, 0, Reason.NOT_STARTED, message)


def not_started(ref: NodeRef, message: str) -> NodeEnded:
    """The end of an incarnation for which no node could be started."""
    return _ended(ref, _failed_to_start(message))


def ended(node: LocalNode) -> NodeEnded:
    """The end of a node's incarnation. Without an exit report, its agent was killed."""
    invalid = node.channel.invalid
    why = f"its agent sent an invalid message: {invalid}" if invalid else "its agent was killed"
    lost = ExitReport(128 + signal.SIGKILL, int(signal.SIGKILL), Reason.NODE_LOST, why)
    report = node.report or lost
    if report.signal == signal.SIGKILL and node.was_oom_killed:
        report = report._replace(reason=Reason.OUT_OF_MEMORY)
    return _ended(node.ref, report)


def _ended(ref: NodeRef, report: ExitReport) -> NodeEnded:
    return NodeEnded(
        ref.rank,
        report.exit_code,
        report.signal,
        Reason(report.reason),
        report.message,
        ref.incarnation,
        report.raised_at,
    )


def started_ranks(run_dir: RunDir, refs: Iterable[NodeRef]) -> frozenset[int]:
    """The ranks of those incarnations whose programs may have started.

    Agents write a mark just before they start the first process; it survives agent and supervisor.
    The marks are not forced to disk, which would take longer than starting a node: after a power
    failure the newest may be missing, as may what the programs wrote.
    """
    return frozenset(
        ref.rank for ref in refs if _mark(run_dir, ref.rank) == b"%d\n" % ref.incarnation
    )


def _mark(run_dir: RunDir, rank: int) -> bytes:
    try:
        return read_regular(run_dir.node(rank) / "begun", 32)
    except OSError:
        return b""
