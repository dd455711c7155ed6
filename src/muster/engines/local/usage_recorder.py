"""Records what the nodes of a session use, at a small cost."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.node.counters import Counters, NodeReading, read_idle_node, read_nodes
from muster.secrets import print_traceback
from muster.storage.home import RunDir
from muster.storage.usage import NOTHING, EndedNodes, NodeUsage, add, read_usage, write_usage
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.engines.local.gpu_sampler import GpuSampler

#: Seconds between samples: a tenth of the age of the newest node, within these.
_SHORTEST, _LONGEST = 1.0, 5.0
#: The part of one CPU that sampling may cost for each node; and for all nodes.
_COST_PER_NODE, _COST = 0.0025, 0.02
#: Seconds between two writes of the file.
_WRITE_INTERVAL = 10.0


class _Watched(Struct):
    """A node that is sampled."""

    rank: int
    #: The numbers of its GPUs.
    gpus: Sequence[int]
    #: When its last sample was taken (monotonic), and what it found.
    at: float
    reading: NodeReading


class UsageRecorder:
    """Samples the nodes of a session and records their usage in the run's folder."""

    def __init__(self, folder: RunDir, in_array: Callable[[int], bool]) -> None:
        """in_array: whether the node with a rank belongs to an array."""
        self._folder = folder
        self._usage = read_usage(folder)  # of earlier attempts
        self._ended = EndedNodes(self._usage, in_array)
        self._watched: dict[int, _Watched] = {}  # by the agent's pid
        self._newest = 0.0
        self._next: float | None = None
        self._write_at: float | None = None
        self._available = os.path.exists("/proc/self/stat")
        self._failed = False  # whether a sample has met a fault
        self._gpus: GpuSampler | None = None  # from the first sample of a node with GPUs on

    def start(
        self, rank: int, agent: int, gpus: Sequence[int], used: NodeReading | None = None
    ) -> None:
        """A node starts, restarts in place, or takes over the agent of another one. gpus: the
        numbers of its GPUs. used: what the agent has used for nodes of other runs."""
        now = time.monotonic()
        self._ended.discard(rank)
        former = self._watched.get(agent)
        if former is not None and former.rank != rank:
            self._watched[agent] = _Watched(rank, gpus, now, self._last_reading(agent, former, now))
            self._ended.add(former.rank)
        elif former is None and self._available:
            self._watched[agent] = _Watched(rank, gpus, now, used or NodeReading(NOTHING, 0.0))
            self._newest = now
            due = now + _SHORTEST
            # not later because of each start: in an array, some node starts all the time
            self._next = due if self._next is None else min(self._next, due)

    def end(self, agent: int, cpu: float) -> None:
        """A node has ended. cpu: seconds of CPU time of all its processes, with the agent."""
        watched = self._watched.pop(agent, None)
        if watched is None:
            return
        before = watched.reading.counters
        # nothing else is known of the time since the last sample
        last = Counters(
            max(cpu - watched.reading.agent_cpu, before.cpu or 0.0),
            None,
            before.disk_read,
            before.disk_written,
            before.received,
            before.sent,
            0,
        )
        self._add(watched, last, time.monotonic())
        self._ended.add(watched.rank)
        if not self._watched:
            self._next = None

    def _last_reading(self, agent: int, watched: _Watched, now: float) -> NodeReading:
        """What an agent has used until now, which is added to the usage of its node."""
        with as_root():
            reading = read_idle_node(agent)
        if reading is None:
            return watched.reading
        self._add(watched, reading.counters, now)
        return reading

    def timeout(self) -> float | None:
        """Seconds until the next sample; None while no node runs."""
        return None if self._next is None else max(0.0, self._next - time.monotonic())

    def step(self) -> None:
        """Take samples if they are due."""
        now = time.monotonic()
        if self._next is None or now < self._next:
            return
        spent = time.thread_time()
        self._sample(now)
        if self._write_at is not None and now >= self._write_at:
            self._write()
        cost = time.thread_time() - spent
        age = (now - self._newest) / 10
        allowed = min(_COST, _COST_PER_NODE * len(self._watched))
        self._next = now + max(min(max(age, _SHORTEST), _LONGEST), cost / allowed)

    def pids(self) -> Collection[int]:
        """The processes that this object has started."""
        return () if self._gpus is None else self._gpus.pids()

    def reaped(self, pid: int) -> bool:
        """Handle the end of a child process; False if it is not of this object."""
        return self._gpus is not None and self._gpus.reaped(pid)

    def close(self) -> None:
        """Record the usage of all nodes; those that were kept for a restart have not ended."""
        if self._watched:
            self._sample(time.monotonic())
        self._write()
        if self._gpus is not None:
            self._gpus.close()

    def _sample(self, now: float) -> None:
        try:
            with as_root():
                readings = read_nodes(self._watched.keys())
            found = {
                agent: reading._replace(counters=self._with_gpus(agent, reading.counters, now))
                for agent, reading in readings.items()
            }
        except OSError:  # at the limit of open files: the next sample may succeed
            return
        except Exception:  # noqa: BLE001  a fault of the measurement must not end the run
            if not self._failed:
                print_traceback()  # in supervisor.log, once
            self._failed = True
            return
        for agent, reading in found.items():
            watched = self._watched[agent]
            self._add(watched, reading.counters, now)
            watched.at, watched.reading = now, reading

    def _with_gpus(self, agent: int, counters: Counters, now: float) -> Counters:
        numbers = self._watched[agent].gpus
        if not numbers:
            return counters
        from muster.engines.local.gpu_sampler import GpuSampler
        from muster.node.gpu_usage import with_usage

        if self._gpus is None:
            self._gpus = GpuSampler()
        gpus = self._gpus.read(now)
        return with_usage(counters, [gpus[number] for number in numbers if number in gpus])

    def _write(self) -> None:
        """Write the file. A full disk or a deleted run is not reported here."""
        self._write_at = None
        if self._usage:
            with contextlib.suppress(OSError):
                write_usage(self._folder, self._usage)

    def _add(self, watched: _Watched, counters: Counters, now: float) -> None:
        usage = self._usage.get(watched.rank, NodeUsage())
        seconds = max(now - watched.at, 0.0)
        self._usage[watched.rank] = add(usage, watched.reading.counters, counters, seconds)
        if self._write_at is None:
            self._write_at = now + _WRITE_INTERVAL
