"""The log files of a run: a folder for each attempt, and an index of how its files grow.

The programs write to the files directly. The supervisor watches the files and records when each
one grew, so that readers can merge the output of many nodes in time order.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.node.file_watch import Watcher
from muster.node.files import remove_unless_regular
from muster.plan.model import NodePlan, RunPlan
from muster.storage.home import RunDir
from muster.storage.log_index import LogWriter, StreamInfo, is_finished
from muster.storage.shared_output import present_file

_SUFFIXES: tuple[tuple[str, Literal["stdout", "stderr"]], ...] = (
    ("out", "stdout"),
    ("err", "stderr"),
)
#: Seconds between two records of growth. The first output after a pause is recorded at once; while
#: output keeps coming the interval doubles, so that recording costs little compared to writing.
_SHORTEST_INTERVAL, _LONGEST_INTERVAL = 0.001, 0.020


class NodeOutputs(Struct, frozen=True):
    """The output files of one node in one attempt."""

    #: (stdout, stderr) of each process that the node starts.
    processes: tuple[tuple[str, str], ...]
    #: Where the files of the node's services are; None if the run's output is not kept.
    folder: Path | None
    #: What the names of the node's files start with.
    stem: str
    #: (stdout, stderr) of each rank that the node's launcher starts, if ranks have files.
    ranks: tuple[tuple[str, str], ...] = ()

    def service(self, name: str) -> str:
        """The file of a service that does not write to the program's output."""
        return os.devnull if self.folder is None else str(self.folder / f"{self.stem}.{name}.log")


class AttemptLogs:
    """The log files of one attempt, and the index of their growth."""

    def __init__(self, plan: RunPlan, folder: Path) -> None:
        self._plan = plan
        self._writer: LogWriter | None = None
        self._numbers: dict[Path, int] = {}
        self._of_slot: defaultdict[int, list[StreamInfo]] = defaultdict(list)
        self._interval = _SHORTEST_INTERVAL
        self._next_record = 0.0  # on the monotonic clock
        if not plan.log_output:
            return
        streams = tuple(_streams(plan))
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = LogWriter(folder, [stream for _, stream in streams])
        self._watcher = Watcher()
        for node, stream in streams:
            path = folder / stream.file
            if stream.shared:
                path = present_file(path)
            remove_unless_regular(path)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))  # half the cost of `touch`
            self._watcher.add(path)
            self._numbers[path] = stream.number
            self._of_slot[plan.slot_of(node)].append(stream)
        self._folder = folder

    def assign_outputs(self, node: NodePlan, *, continued: bool = False) -> NodeOutputs:
        """Give one node the files of its slot, and return them. continued: whether it has them
        already, from an earlier session. Raises OSError."""
        if self._writer is None:
            discarded = ((os.devnull, os.devnull),) * self._plan.processes_of(node.rank)
            return NodeOutputs(discarded, None, "")
        streams = self._of_slot[self._plan.slot_of(node)]
        shared = [stream.number for stream in streams if stream.shared]
        if shared:
            own = self._writer.keep_owner if continued else self._writer.set_owner
            own(time.time_ns(), shared, node.rank)
        processes, ranks = _writers(self._plan, node.rank)
        return NodeOutputs(
            tuple(self._files(node, local_rank) for local_rank in processes),
            self._folder,
            _stem(self._plan, node),
            tuple(self._files(node, local_rank) for local_rank in ranks),
        )

    def _files(self, node: NodePlan, local_rank: int | None) -> tuple[str, str]:
        out, err = (
            os.path.join(self._folder, _name(self._plan, node, local_rank, suffix))
            for suffix, _ in _SUFFIXES
        )
        if self._plan.group(node.group).is_array:
            return str(present_file(Path(out))), str(present_file(Path(err)))
        return out, err

    def waits(self) -> tuple[int | None, float | None]:
        """The descriptor to poll for growth, and the seconds after which to call `record_growth`
        even if nothing happens; None for none and never."""
        if self._writer is None:
            return None, None
        # one look at the clock for both: if the interval passed between two, nothing would wake us
        left = self._next_record - time.monotonic()
        return (None, left) if left > 0 else (self._watcher.fileno(), self._watcher.timeout())

    def record_growth(self) -> None:
        """Record which files have grown, unless that was done less than the interval ago."""
        now = time.monotonic()
        if self._writer is None or now < self._next_record:
            return
        grown = self._watcher.drain()
        if grown:
            self._writer.note_growth(time.time_ns(), [self._numbers[path] for path in grown])
            self._interval = min(self._interval * 2, _LONGEST_INTERVAL)
            self._next_record = now + self._interval
        elif now > self._next_record + 4 * self._interval:
            self._interval = _SHORTEST_INTERVAL

    def record_node(self, slot: int) -> None:
        """Record the final sizes of the files of a slot; the node in it has ended."""
        if self._writer is None:
            return
        streams = self._of_slot[slot]
        self._writer.note_growth(time.time_ns(), [stream.number for stream in streams])
        for stream in streams:
            if stream.shared:
                self._writer.collect(stream.number)

    def finish(self) -> None:
        """Record the final sizes of all files and mark the attempt's logs as complete."""
        if self._writer is not None:
            self._writer.note_growth(time.time_ns(), self._numbers.values())
            self._writer.finish(time.time_ns())
            self._writer.close()
            self._watcher.close()


class RunLogs:
    """The logs of the newest attempt of a run, and of earlier attempts that still have nodes.

    Attempts overlap: nodes of an attempt can still be ending while those of the next one start.
    """

    def __init__(self, plan: RunPlan, run_dir: RunDir) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._open: dict[int, AttemptLogs] = {}
        self._nodes: Counter[int] = Counter()  # nodes that have not ended, by attempt
        #: The number of the newest attempt; -1 before the first one.
        self.newest = -1
        self._may_have_left = True  # whether an earlier session may have left attempts unfinished

    def open(self, attempt: int) -> bool:
        """Create the files of an attempt. Returns False if it is not newer than the newest."""
        if attempt <= self.newest:
            return False
        self._may_have_left = self._may_have_left and (attempt > 0 or self.newest >= 0)
        self._open[attempt] = AttemptLogs(self._plan, self._run_dir.logs(attempt))
        self.newest = attempt
        return True

    def reopen(self, attempt: int) -> None:
        """Continue with the files of an attempt that an earlier session has opened, if it has."""
        if attempt not in self._open:
            self._open[attempt] = AttemptLogs(self._plan, self._run_dir.logs(attempt))
            self.newest = max(self.newest, attempt)

    def add_node(self, attempt: int) -> None:
        """Count a node that is to start in an attempt."""
        self._nodes[attempt] += 1

    def assign_outputs(
        self, attempt: int, node: NodePlan, *, continued: bool = False
    ) -> NodeOutputs:
        """Give a node the files of its slot in an attempt, and return them. continued: see
        `AttemptLogs.assign_outputs`. Raises OSError."""
        return self._open[attempt].assign_outputs(node, continued=continued)

    def remove_node(self, attempt: int, slot: int | None) -> bool:
        """Count a node as ended. slot: None if it was not started. Returns whether an earlier
        attempt has no nodes left by that."""
        self._nodes[attempt] -= 1
        if slot is not None:
            self._open[attempt].record_node(slot)
        return attempt < self.newest and not self._nodes[attempt]

    def finish_old_attempts(self) -> None:
        """Complete the logs of earlier attempts without nodes, and delete those too old to keep.

        Takes a while: call it after the nodes of the newest attempt have been started.
        """
        for attempt in [a for a in self._open if a < self.newest and not self._nodes[a]]:
            self._open.pop(attempt).finish()
        self._delete_old_logs()

    def finish_left_attempts(self) -> None:
        """Complete the logs of attempts that an earlier session has left and whose nodes have all
        ended: of all but those that are open here. Otherwise their readers would wait for more."""
        if not self._may_have_left:
            return
        self._may_have_left = False
        logs = self._run_dir.logs(0).parent
        for folder in logs.iterdir() if logs.is_dir() else ():
            if not folder.name.isdigit() or int(folder.name) in self._open:
                continue
            if not is_finished(folder):
                AttemptLogs(self._plan, folder).finish()

    def _delete_old_logs(self) -> None:
        keep = self._plan.keep_attempts
        logs = self._run_dir.logs(self.newest).parent
        if keep is None or self.newest < keep or not logs.is_dir():
            return
        import shutil  # most runs restart rarely

        for folder in logs.iterdir():
            if folder.name.isdigit() and int(folder.name) <= self.newest - keep:
                shutil.rmtree(folder, ignore_errors=True)

    def waits(self) -> tuple[list[int], float | None]:
        """The descriptors to poll for growth, and the seconds after which to call `record_growth`
        even if nothing happens; None for never."""
        found = [logs.waits() for logs in self._open.values()]
        descriptors = [descriptor for descriptor, _ in found if descriptor is not None]
        return descriptors, min((left for _, left in found if left is not None), default=None)

    def record_growth(self) -> None:
        """Record which files have grown."""
        for logs in self._open.values():
            logs.record_growth()

    def finish(self) -> None:
        """Mark the logs of all attempts as complete."""
        self.finish_left_attempts()
        for logs in self._open.values():
            logs.finish()
        self._open.clear()


def _streams(plan: RunPlan) -> Iterator[tuple[NodePlan, StreamInfo]]:
    numbers = count()
    for node in plan.nodes:
        processes, ranks = _writers(plan, node.rank)
        for local_rank in (*processes, *ranks):
            for suffix, stream in _SUFFIXES:
                name = _name(plan, node, local_rank, suffix)
                made = _stream(next(numbers), name, node, local_rank, stream)
                yield node, replace(made, shared=plan.group(node.group).is_array)
        for service in plan.group(node.group).role.services:
            if service.output == "own":
                name = f"{_stem(plan, node)}.{service.name}.log"
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
    """Local ranks of the processes that a node starts, and of the ranks with files of their own
    that its launcher starts. A launcher of several ranks has no local rank: None."""
    ranks, processes = range(plan.ranks_of(rank)), plan.processes_of(rank)
    launcher = processes == 1 < plan.processes_per_node
    return (None,) if launcher else range(processes), ranks


def _name(plan: RunPlan, node: NodePlan, local_rank: int | None, suffix: str) -> str:
    """workers-3.out; for one of several processes workers-3.0.out"""
    several = max(plan.processes_of(node.rank), plan.ranks_of(node.rank)) > 1
    which = f".{local_rank}" if several and local_rank is not None else ""
    return f"{_stem(plan, node)}{which}.{suffix}"


def _stem(plan: RunPlan, node: NodePlan) -> str:
    if plan.group(node.group).is_array:
        return f"{node.group}-slot-{plan.slot_of(node)}"
    return f"{node.group}-{node.rank}"
