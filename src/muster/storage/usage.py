"""What the nodes of a run have used: recorded in the run's folder while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.node.counters import Counters
from muster.node.files import read_regular, replace_file
from muster.storage.home import RunDir

N = TypeVar("N", int, float)

#: Seconds. A rate over a shorter time is not taken for a peak: CPU time is counted in hundredths.
_SHORTEST = 0.5


#: Of an array, the usage of this many nodes that have ended last is recorded.
MOST_ENDED = 1000
#: Of a node that has just started.
NOTHING = Counters(0.0, None, 0, 0, None, None, 0)


class NodeUsage(Struct, frozen=True):
    """What a node has used in all its incarnations."""

    #: Seconds that its processes ran.
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    #: The most CPUs that were busy on average between two samples.
    cpu_peak: float = 0.0
    #: Bytes of memory at the samples: their average and the most; None if it ran too shortly.
    memory_average: int | None = None
    memory_peak: int | None = None
    disk_read: int = 0
    disk_written: int = 0
    #: None for a node that shares the machine's network.
    received: int | None = None
    sent: int | None = None
    #: How many GPUs were busy on average and at most, and bytes of their memory at most; None for
    #: a node without GPUs, or that ran too shortly.
    gpu_average: float | None = None
    gpu_peak: float | None = None
    gpu_memory_peak: int | None = None
    #: Seconds that `memory_average` and `gpu_average` are the averages of.
    memory_seconds: float = 0.0
    gpu_seconds: float = 0.0

    @property
    def cpu_average(self) -> float:
        """How many CPUs were busy on average."""
        return self.cpu_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def cpu_most(self) -> float:
        """The peak, which is at least the average: a node may have ended before any sample."""
        return max(self.cpu_peak, self.cpu_average)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data, with the average of CPUs."""
        data = asdict(self)
        del data["memory_seconds"], data["gpu_seconds"]
        cpus = {"cpu_average": round(self.cpu_average, 4), "cpu_peak": round(self.cpu_most, 4)}
        return {**data, **cpus}


def add(usage: NodeUsage, before: Counters, now: Counters, seconds: float) -> NodeUsage:
    """The usage after another interval, with the counters at its begin and end."""
    cpu = grown(before.cpu, now.cpu) or 0.0
    rate = cpu / seconds if seconds >= _SHORTEST else 0.0
    added = replace(
        usage,
        seconds=usage.seconds + seconds,
        cpu_seconds=usage.cpu_seconds + cpu,
        cpu_peak=max(usage.cpu_peak, rate),
        disk_read=usage.disk_read + (grown(before.disk_read, now.disk_read) or 0),
        disk_written=usage.disk_written + (grown(before.disk_written, now.disk_written) or 0),
        received=_sum(usage.received, before.received, now.received),
        sent=_sum(usage.sent, before.sent, now.sent),
    )
    if now.memory is not None:
        added = _with_memory(added, now.memory, seconds)
    if now.gpus is not None:
        added = _with_gpus(added, now.gpus, now.gpu_memory or 0, seconds)
    return added


def grown(before: N | None, now: N | None) -> N | None:
    """How much a counter has grown, at least by nothing; None if it is not known."""
    return None if now is None else now - min(before or 0, now)


def _with_memory(usage: NodeUsage, memory: int, seconds: float) -> NodeUsage:
    average = _average(usage.memory_average, usage.memory_seconds, memory, seconds)
    return replace(
        usage,
        memory_average=round(average),
        memory_peak=max(usage.memory_peak or 0, memory),
        memory_seconds=usage.memory_seconds + seconds,
    )


def _with_gpus(usage: NodeUsage, busy: float, memory: int, seconds: float) -> NodeUsage:
    return replace(
        usage,
        gpu_average=_average(usage.gpu_average, usage.gpu_seconds, busy, seconds),
        gpu_peak=max(usage.gpu_peak or 0.0, busy),
        gpu_memory_peak=max(usage.gpu_memory_peak or 0, memory),
        gpu_seconds=usage.gpu_seconds + seconds,
    )


def _average(before: float | None, weight: float, now: float, seconds: float) -> float:
    """The average over `weight` seconds with average `before` and `seconds` more with `now`."""
    total = weight + seconds
    return ((before or 0) * weight + now * seconds) / total if total > 0 else now


def _sum(total: int | None, before: int | None, now: int | None) -> int | None:
    more = grown(before, now)
    return total if more is None else (total or 0) + more


class EndedNodes:
    """The nodes of arrays that have ended. An array may have any number of nodes, so only the usage
    of those that ended last is kept. usage: of all nodes, by rank. in_array: whether the node with
    a rank belongs to an array."""

    def __init__(self, usage: dict[int, NodeUsage], in_array: Callable[[int], bool]) -> None:
        self._usage, self._in_array = usage, in_array
        self._ranks = dict.fromkeys(filter(in_array, usage))  # the first one first

    def add(self, rank: int) -> None:
        """A node has ended."""
        if not self._in_array(rank):
            return
        self._ranks[rank] = None
        while len(self._ranks) > MOST_ENDED:
            first = next(iter(self._ranks))
            del self._ranks[first]
            self._usage.pop(first, None)

    def discard(self, rank: int) -> None:
        """A node has started again."""
        self._ranks.pop(rank, None)


def read_usage(folder: RunDir) -> dict[int, NodeUsage]:
    """The recorded usage, by rank; empty for a run of a version that recorded none."""
    try:
        return msgspec.json.decode(read_regular(folder.usage), type=dict[int, NodeUsage])
    except (OSError, msgspec.DecodeError):
        return {}


def write_usage(folder: RunDir, usage: Mapping[int, NodeUsage]) -> None:
    """Record the usage. Raises OSError."""
    replace_file(folder.usage, msgspec.json.encode(usage), 0o600)
