"""Where the nodes' output goes, and noting how it grows."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec import Struct

from muster.node.files import make_way
from muster.plan.model import NodePlan, RunPlan
from muster.storage.logs import LogWriter, StreamInfo
from muster.storage.notify import Watcher

_SUFFIXES: tuple[tuple[str, Literal["stdout", "stderr"]], ...] = (
    ("out", "stdout"),
    ("err", "stderr"),
)
#: While output pours in, growth is noted this often at most (seconds): the first bytes after a
#: silence at once, a flood every 20 ms, so that noting costs nothing beside writing.
_FASTEST, _SLOWEST = 0.001, 0.020


class NodeOutputs(Struct, frozen=True):
    """The files of one node. processes: (stdout, stderr) of each process that the node starts;
    folder: where its services have theirs, None if output is not kept; ranks: (stdout, stderr) of
    each rank that its launcher starts, if those have files of their own."""

    processes: tuple[tuple[str, str], ...]
    folder: Path | None
    stem: str
    ranks: tuple[tuple[str, str], ...] = ()

    def service(self, name: str) -> str:
        """What a service writes to, if that is its own."""
        return os.devnull if self.folder is None else str(self.folder / f"{self.stem}.{name}.log")


class Outputs:
    """The output files of one attempt. Processes write to them directly."""

    def __init__(self, plan: RunPlan, folder: Path) -> None:
        self._plan = plan
        self._writer: LogWriter | None = None
        self._numbers: dict[Path, int] = {}
        self._of_node: defaultdict[int, list[int]] = defaultdict(list)
        self._gap = _FASTEST
        self._quiet_until = 0.0
        self._unwatched = False  # what `watched` said last
        if not plan.log_output:
            return
        streams = tuple(_streams(plan))
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = LogWriter(folder, [stream for _, stream in streams])
        self._watcher = Watcher()
        for node, stream in streams:
            path = folder / stream.file
            make_way(path)
            path.touch()
            self._watcher.add(path)
            self._numbers[path] = stream.number
            self._of_node[node.rank].append(stream.number)
        self._folder = folder

    def of(self, rank: int) -> NodeOutputs:
        """Those of a node."""
        if self._writer is None:
            nowhere = ((os.devnull, os.devnull),) * self._plan.processes_of(rank)
            return NodeOutputs(nowhere, None, "")
        node = self._plan.nodes[rank]
        own, ranks = _writers(self._plan, rank)
        return NodeOutputs(
            tuple(self._files(node, local_rank) for local_rank in own),
            self._folder,
            _stem(node),
            tuple(self._files(node, local_rank) for local_rank in ranks),
        )

    def _files(self, node: NodePlan, local_rank: int | None) -> tuple[str, str]:
        out, err = (_name(self._plan, node, local_rank, suffix) for suffix, _ in _SUFFIXES)
        return str(self._folder / out), str(self._folder / err)

    def watched(self) -> int | None:
        """The descriptor to wait on for growth; None while growth may wait."""
        self._unwatched = time.monotonic() < self._quiet_until
        return None if self._writer is None or self._unwatched else self._watcher.fileno()

    def patience(self) -> float | None:
        """Seconds after which `note` wants to be called although nothing happened."""
        if self._writer is None:
            return None
        if self._unwatched:  # by now its time may be over, and nobody would be woken
            return max(self._quiet_until - time.monotonic(), 0.0)
        return self._watcher.timeout()

    def note(self) -> None:
        """Note what has grown, unless that was done just now."""
        now = time.monotonic()
        if self._writer is None or now < self._quiet_until:
            return
        grown = self._watcher.drain()
        if grown:
            self._writer.note_growth(time.time_ns(), [self._numbers[path] for path in grown])
            self._gap = min(self._gap * 2, _SLOWEST)
            self._quiet_until = now + self._gap
        elif now > self._quiet_until + 4 * self._gap:
            self._gap = _FASTEST

    def note_node(self, rank: int) -> None:
        """Note all of a node that has ended."""
        if self._writer is not None:
            self._writer.note_growth(time.time_ns(), self._of_node[rank])

    def finish(self) -> None:
        """Note the rest and say that nothing follows."""
        if self._writer is not None:
            self._writer.note_growth(time.time_ns(), self._numbers.values())
            self._writer.finish(time.time_ns())
            self._writer.close()

    def close(self) -> None:
        """Stop watching, which takes the kernel some 14 ms: who ends anyway leaves it to that."""
        if self._writer is not None:
            self._watcher.close()


def _streams(plan: RunPlan) -> Iterator[tuple[NodePlan, StreamInfo]]:
    numbers = count()
    for node in plan.nodes:
        own, ranks = _writers(plan, node.rank)
        for local_rank in (*own, *ranks):
            for suffix, stream in _SUFFIXES:
                name = _name(plan, node, local_rank, suffix)
                yield node, _stream(next(numbers), name, node, local_rank, stream)
        for service in plan.group(node.group).role.services:
            if service.output == "own":
                name = f"{_stem(node)}.{service.name}.log"
                of = None if plan.processes_per_node > 1 else 0
                yield node, _stream(next(numbers), name, node, of, "stderr", service.name)


def _stream(
    number: int,
    file: str,
    node: NodePlan,
    local_rank: int | None,
    stream: Literal["stdout", "stderr"],
    service: str = "",
) -> StreamInfo:
    return StreamInfo(
        number=number,
        file=file,
        rank=node.rank,
        group=node.group,
        node_id=node.node_id,
        local_rank=local_rank,
        stream=stream,
        service=service,
    )


def _writers(plan: RunPlan, rank: int) -> tuple[Sequence[int | None], Sequence[int]]:
    """Local ranks of what a node starts, and of what its launcher starts that has files of its
    own. A launcher of several ranks is none of them: None."""
    ranks, processes = range(plan.ranks_of(rank)), plan.processes_of(rank)
    launcher = processes == 1 < plan.processes_per_node
    return (None,) if launcher else range(processes), ranks


def _name(plan: RunPlan, node: NodePlan, local_rank: int | None, suffix: str) -> str:
    """workers-3.out; of one of several processes workers-3.0.out"""
    several = max(plan.processes_of(node.rank), plan.ranks_of(node.rank)) > 1
    which = f".{local_rank}" if several and local_rank is not None else ""
    return f"{_stem(node)}{which}.{suffix}"


def _stem(node: NodePlan) -> str:
    return f"{node.group}-{node.rank}"
