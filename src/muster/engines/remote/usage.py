"""Records what nodes on other machines use, as `muster runs show` prints it.

Their servers are asked now and then (`node.query_streams`), and say what programs have used in all
when a node ends. While a node cannot be reached, nothing is lost but peaks: its counters grow on.
What was last heard of each node is kept in a file, from which another supervisor continues.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Struct

from muster.engines.remote.contact import Contact
from muster.node.counters import Counters
from muster.node.files import read_regular, replace_file
from muster.node.streams import Stream
from muster.storage.home import RunDir
from muster.storage.usage import NOTHING, EndedNodes, NodeUsage, add, read_usage, write_usage

#: Seconds between samples: a tenth of the newest node's age, within these bounds, and at least
#: `_PER_NODE` for each node, so that many nodes take no more than a few percent of a CPU here.
_SHORTEST, _LONGEST = 1.0, 10.0
_PER_NODE = 0.02
#: Seconds between two writes of the files.
_WRITE_INTERVAL = 10.0


class _Heard(Struct, array_like=True):
    """What was last heard of a node."""

    incarnation: int
    #: When (epoch seconds).
    at: float
    counters: Counters


class RemoteUsage:
    """Records the usage of one run's nodes. now: the loop's time. in_array: whether the node with a
    rank belongs to an array."""

    def __init__(
        self, folder: RunDir, now: Callable[[], float], in_array: Callable[[int], bool]
    ) -> None:
        self._folder, self._now = folder, now
        self._seen = folder.usage.with_name("usage-heard.json")
        self._usage = read_usage(folder)  # of earlier attempts
        self._ended = EndedNodes(self._usage, in_array)
        self._before = _read_heard(self._seen)  # of an earlier supervisor
        self._heard: dict[int, _Heard] = {}  # of the nodes that run
        #: Of those that have ended, and have kept their agents, by slot.
        self._kept: dict[int, Counters] = {}
        self._questions: dict[int, Stream] = {}
        self._answers: dict[int, bytearray] = {}
        self._newest = 0.0
        self._write_at: float | None = None
        #: When to call `ask`, in the loop's time; None while no node runs.
        self.due: float | None = None

    def start(self, rank: int, incarnation: int, slot: int) -> None:
        """The programs of an incarnation run in a slot, as was told now."""
        heard = self._before.pop(rank, None)
        if heard is None or heard.incarnation != incarnation:
            heard = _Heard(incarnation, time.time(), self._kept.pop(slot, NOTHING))
        self._heard[rank] = heard
        self._ended.discard(rank)
        self._newest = self._now()
        due = self._newest + _SHORTEST
        self.due = due if self.due is None else min(self.due, due)

    def end(self, rank: int, cpu: float | None = None, *, kept_in: int | None = None) -> None:
        """A node has ended; nothing if that is known. cpu: seconds that its programs have used
        since the start of its agent, or None. kept_in: the slot in which that stays, if it
        does."""
        heard = self._heard.get(rank)
        if heard is None:
            return
        last = heard.counters
        # nothing else is known of the time since the last sample
        self._add(rank, last._replace(cpu=last.cpu if cpu is None else cpu, memory=None, gpus=None))
        del self._heard[rank]
        if kept_in is not None:
            self._kept[kept_in] = heard.counters
        self._ended.add(rank)
        self._drop_question(rank)
        if not self._heard:
            self.due = None

    def forget(self, slot: int) -> None:
        """A node that was kept was given up."""
        self._kept.pop(slot, None)

    def ask(self, contacts: Mapping[int, Contact]) -> None:
        """Ask the nodes that can be reached, and write the files if that is due."""
        now = self._now()
        for rank in self._heard:
            contact = contacts.get(rank)
            if rank not in self._questions and contact is not None and contact.up:
                self._questions[rank] = contact.streams.open({"kind": "counters"})
                self._answers[rank] = bytearray()
                contact.wake()
        if self._write_at is not None and now >= self._write_at:
            self._write()
        interval = min(max((now - self._newest) / 10, _SHORTEST), _LONGEST)
        self.due = now + max(interval, _PER_NODE * len(self._heard))

    def take(self, ranks: Iterable[int]) -> None:
        """Take the answers that have arrived from these nodes."""
        for rank in ranks:
            question = self._questions.get(rank)
            if question is None:
                continue
            self._answers[rank] += question.take()
            if question.result is not None:
                # one that could not be given is empty
                with contextlib.suppress(msgspec.DecodeError):
                    self._add(rank, msgspec.json.decode(self._answers[rank], type=Counters))
            if question.result is not None or question.canceled:
                self._drop_question(rank)

    def close(self) -> None:
        """Record the usage of all nodes until now."""
        for rank in list(self._questions):
            self._drop_question(rank)
        self._write()

    def _drop_question(self, rank: int) -> None:
        question = self._questions.pop(rank, None)
        if question is not None:
            question.finish({})
            del self._answers[rank]

    def _add(self, rank: int, counters: Counters) -> None:
        """Add what a node has used since it was last heard."""
        heard, now = self._heard[rank], time.time()
        before = heard.counters
        if (counters.cpu or 0.0) < (before.cpu or 0.0):
            before = NOTHING  # it has another agent, whose counters begin at nothing
        seconds = max(now - heard.at, 0.0)
        self._usage[rank] = add(self._usage.get(rank, NodeUsage()), before, counters, seconds)
        heard.counters, heard.at = counters, now
        if self._write_at is None:
            self._write_at = self._now() + _WRITE_INTERVAL

    def _write(self) -> None:
        """Write the files. A full disk or a deleted run is not reported here."""
        self._write_at = None
        with contextlib.suppress(OSError):
            if self._usage:
                replace_file(self._seen, msgspec.json.encode(self._heard), 0o600)
                write_usage(self._folder, self._usage)


def _read_heard(path: object) -> dict[int, _Heard]:
    try:
        return msgspec.json.decode(read_regular(str(path)), type=dict[int, _Heard])
    except (OSError, msgspec.DecodeError):
        return {}
