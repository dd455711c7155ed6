"""What nodes on other machines use, and what their threads do: for a process other than the run's
supervisor."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from muster.describe.stacks import ThreadStack
from muster.engines.remote.client import Client
from muster.engines.stacks import thread_stack
from muster.node.command_streams import NO_PROGRAM
from muster.node.counters import Counters
from muster.node.stacks import ProcessStacks
from muster.node.streams import MOST, Stream
from muster.storage.home import RunDir

#: Seconds for all nodes to answer.
_COUNTERS_TIMEOUT, _STACKS_TIMEOUT = 2.0, 60.0
#: Streams of a connection at a time.
_AT_ONCE = MOST // 2


def read_counters(folder: RunDir) -> dict[int, Counters]:
    """See `Engine.counters`. Nodes that do not answer soon are left out."""
    questions = _Questions(folder, "counters", _COUNTERS_TIMEOUT)
    questions.ask(())
    found = {rank: questions.answer(rank, Counters) for rank in questions.asked}
    return {rank: answer for rank, answer in found.items() if not isinstance(answer, str)}


def read_stacks(folder: RunDir, ranks: Collection[int]) -> tuple[list[ThreadStack], list[str]]:
    """See `Engine.stacks`. There is a sentence for a node that does not answer, too."""
    questions = _Questions(folder, "stacks", _STACKS_TIMEOUT)
    questions.ask(ranks)
    problems = [f"rank {rank}: it cannot be reached now" for rank in questions.unreachable]
    found: list[ThreadStack] = []
    for rank in questions.asked:
        processes = questions.answer(rank, list[ProcessStacks])
        if isinstance(processes, str):
            if processes != NO_PROGRAM:
                problems.append(f"rank {rank}: {processes}")
            continue
        for process in processes:
            found += [thread_stack(rank, thread) for thread in process.threads]
            if process.problem:
                problems.append(f"rank {rank}: process {process.pid}: {process.problem}")
    return found, problems


class _Questions:
    """Asks nodes of a run the same question. kind: of stream. timeout: seconds for all answers."""

    def __init__(self, folder: RunDir, kind: str, timeout: float) -> None:
        self._folder, self._kind = folder, kind
        self._timeout, self._deadline = timeout, time.monotonic() + timeout
        #: The ranks of the nodes that were asked, and of those that could not be, in order.
        self.asked: list[int] = []
        self.unreachable: list[int] = []
        self._waiting: deque[int] = deque()  # to be asked
        self._open: dict[Stream, int] = {}  # stream -> rank
        self._answers: dict[int, bytearray] = {}
        self._ends: dict[int, Stream] = {}  # of the nodes that have answered

    def ask(self, ranks: Collection[int]) -> None:
        """Ask these nodes, all if there are none, and wait for their answers. Raises
        EngineError."""
        client = Client(self._folder, self._timeout)
        try:
            nodes = client.streams.open({"kind": "nodes"})
            client.wait_for(lambda: nodes.result is not None, self._left())
            assert nodes.result is not None
            self.asked = _chosen(nodes.result["reachable"], ranks)
            self.unreachable = _chosen(nodes.result["unreachable"], ranks)
            self._waiting.extend(self.asked)
            client.on_change(lambda changed: self._step(client, changed))
            self._step(client, ())
            client.until(lambda: not self._open, self._left())
        finally:
            client.close()

    def answer(self, rank: int, kind: Any) -> Any:
        """The answer of a node as an object of this type, or why there is none, for people."""
        stream = self._ends.get(rank)
        if stream is None:
            return f"it has not answered within {self._timeout:g} s"
        if stream.canceled:
            return stream.canceled
        try:
            return msgspec.json.decode(bytes(self._answers[rank]), type=kind)
        except msgspec.DecodeError:  # empty, above all
            return "it could not answer; see server.log on its host"

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _step(self, client: Client, changed: Iterable[Stream]) -> None:
        for stream in changed:
            rank = self._open.get(stream)
            if rank is None:
                continue
            self._answers[rank] += stream.take()
            if stream.result is not None or stream.canceled:
                stream.finish({})
                del self._open[stream]
                self._ends[rank] = stream
        while self._waiting and len(self._open) < _AT_ONCE:
            rank = self._waiting.popleft()
            self._open[client.open(rank, self._kind)] = rank
            self._answers[rank] = bytearray()
        client.wake()


def _chosen(found: Sequence[int], ranks: Collection[int]) -> list[int]:
    return sorted(rank for rank in found if not ranks or rank in ranks)
