"""What one run has in an infrastructure for its slots: allocations, each for some of them, and
their record in the run's folder, where a later supervisor finds it.

An allocation is recorded before it is asked for, since it may exist from then on. One that serves
no slot any more is removed, by a thread, and the run waits for that.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.remote.cancel_orders import is_forced
from muster.engines.remote.few_threads import FewThreads
from muster.engines.remote.left import delayed, deleted_with_run, left
from muster.engines.remote.pauses import Backoff, Pauses
from muster.engines.remote.record import read_record, write_record

#: Allocations that are made or removed at the same time.
_AT_ONCE = 8
#: Seconds until it is tried again to remove an allocation, and the longest pause.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
#: Seconds for which that is tried.
_REMOVE_TIMEOUT = 1800.0


class Allocation(Struct, frozen=True):
    """Slots that share what an infrastructure was asked for."""

    number: int
    #: The slots that it is to serve and that were not given up.
    slots: tuple[int, ...]
    #: All slots for which it was made.
    made_for: tuple[int, ...]

    @property
    def is_unneeded(self) -> bool:
        """Whether it is to be removed."""
        return not self.slots


class NotRemoved(Struct, frozen=True):
    """Why an allocation was not removed. The infrastructure may have it still."""

    why: str
    #: Whether it is of no use to try again.
    is_final: bool


class _Removal(Struct):
    """An allocation that is being removed."""

    #: Until when it is tried again.
    deadline: float
    backoff: Backoff
    #: Why the last attempt has failed; "": there was none.
    why: str = ""


A = TypeVar("A", bound=Allocation)


class Record(Struct, Generic[A], frozen=True):
    """The allocations of a run."""

    allocations: tuple[A, ...] = ()
    #: The number of the next one.
    next: int = 0
    #: The port where nodes dial: a later supervisor listens there, as their settings have it. 0:
    #: they do not.
    port: int = 0


R = TypeVar("R", bound=Record)  # type: ignore[type-arg]
T = TypeVar("T")


class Allocations(ABC, Generic[A, R]):
    """The allocations of a run, by their numbers. Raises OSError if those of an earlier session are
    not known.

    file: the name of the record in the run's folder. kind: of the record. freeing: gets whether any
    are being removed, and what was not: see `HostsOwner.freeing`.
    """

    #: Where they are, as a phrase.
    place: ClassVar[str]

    def __init__(
        self,
        context: RunContext,
        file: str,
        kind: type[R],
        loop: RunLoop,
        freeing: Callable[[bool, str], object],
    ) -> None:
        self._plan, self._loop, self._freeing = context.plan, loop, freeing
        self._threads = FewThreads(loop, _AT_ONCE)
        self._folder = context.home.run_dir(context.plan.run_id).path
        self._file = self._folder / file
        self._record: R = read_record(self._file, kind) or kind()
        every = self._record.allocations
        self._allocations: dict[int, A] = {one.number: one for one in every}
        #: The slots that allocations serve, in their order; `Allocation.slots` follows when it is
        #: looked at, as the slots of large allocations leave one by one.
        self._slots = {one.number: dict.fromkeys(one.slots) for one in every}
        #: Slot -> the number of the allocation that serves it.
        self._serving = {slot: one.number for one in every for slot in one.slots}
        #: Those that are asked for at this time.
        self._making: set[int] = set()
        self._removals: dict[int, _Removal] = {}
        self._left: dict[int, str] = {}  # those that could not be removed, and why
        self._pauses = Pauses(loop)
        self._is_unwritten = False  # whether the record is to be written
        self._closed = False

    # --- the record

    @property
    def port(self) -> int:
        """The port where nodes of earlier sessions dial; 0: there are none."""
        return self._record.port

    def listens_at(self, port: int) -> None:
        """Nodes dial this port from now on."""
        self._record = replace(self._record, port=port)
        self._write()

    def __iter__(self) -> Iterator[A]:
        return iter([self[number] for number in [*self._allocations]])

    def __getitem__(self, number: int) -> A:
        one, slots = self._allocations[number], self._slots[number]
        if len(one.slots) != len(slots):
            one = self._allocations[number] = replace(one, slots=tuple(slots))
        return one

    def get(self, number: int) -> A | None:
        """An allocation; None if nothing is left of it."""
        return self[number] if number in self._allocations else None

    def of_slot(self, slot: int) -> A | None:
        """The allocation that serves a slot."""
        number = self._serving.get(slot)
        return None if number is None else self[number]

    def _add(self, one: A) -> None:
        """A new one, which has the number that is next."""
        self._record = replace(self._record, next=one.number + 1)
        self._slots[one.number] = dict.fromkeys(one.slots)
        self._serving |= dict.fromkeys(one.slots, one.number)
        self._put(one)

    def _put(self, one: A) -> None:
        """What is known of an allocation has changed. It is written before it is asked for."""
        self._allocations[one.number] = one
        self._write()

    def _put_soon(self, one: A) -> None:
        """As `_put`, written once for what happens together."""
        self._allocations[one.number] = one
        self._write_soon()

    def leave(self, slot: int) -> None:
        """No allocation serves a slot any more. One that serves none is removed."""
        if (number := self._serving.get(slot)) is not None:
            self._serve_less(number, [slot])

    def abandon(self, one: A) -> None:
        """An allocation serves no slot any more, and is removed, unless it is already."""
        if one.number in self._slots:
            self._serve_less(one.number, [*self._slots[one.number]])

    def _serve_less(self, number: int, slots: Sequence[int]) -> None:
        # a later supervisor that does not find this recorded sees the same, and does it again
        for slot in slots:
            del self._slots[number][slot]
            if self._serving.get(slot) == number:
                del self._serving[slot]
        self._write_soon()
        if not self._slots[number]:
            self.remove_unneeded()

    def _write_soon(self) -> None:
        """Write the record once for what happens together."""
        if not self._is_unwritten:
            self._is_unwritten = True
            self._loop.post(self._write_changes)

    def _write_changes(self) -> None:
        if self._is_unwritten:
            self._write()

    def _write(self) -> None:
        self._is_unwritten = False
        self._record = replace(self._record, allocations=tuple(self))
        write_record(self._file, self._record)

    def close(self) -> None:
        """Report nothing more. Allocations that serve slots stay."""
        self._closed = True
        self._pauses.close()
        self._write_changes()

    # --- making

    def _make(self, number: int, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do in a thread what makes an allocation, which is not removed meanwhile; nothing if that
        is being done. done: see `FewThreads`."""
        if number not in self._making:
            self._making.add(number)
            self._threads.in_thread(work, done, partial(self._making.discard, number))

    # --- removing

    @abstractmethod
    def _label(self, one: A) -> str:
        """What an allocation is called in a sentence for people."""

    @abstractmethod
    def _remove(self, one: A) -> NotRemoved | None:
        """Remove an allocation. In a thread."""

    def remove_unneeded(self) -> None:
        """Remove the allocations that serve no slot."""
        for one in self:
            busy = one.number in self._making or one.number in self._removals
            if one.is_unneeded and not busy and one.number not in self._left:
                self._removals[one.number] = _Removal(
                    self._loop.now() + _REMOVE_TIMEOUT, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
                )
                self._begin_removal(one)
        self._tell_freeing()

    def _begin_removal(self, one: A) -> None:
        self._threads.in_thread(partial(self._remove, one), partial(self._removed, one))

    def _removed(self, one: A, problem: NotRemoved | None) -> None:
        removal = self._removals[one.number]
        if problem is None:
            del self._removals[one.number], self._allocations[one.number], self._slots[one.number]
            self._write()
        elif not (
            problem.is_final or self._loop.now() >= removal.deadline or is_forced(self._folder)
        ):
            removal.why = problem.why
            if not self._closed:
                self._pauses.after(removal.backoff.next(), partial(self._begin_removal, one))
        else:  # the run does not wait longer for it; its record stays for `clean_up`
            del self._removals[one.number]
            self._left[one.number] = problem.why
            sys.stderr.write(f"muster: {self._label(one)} could not be removed: {problem.why}\n")
        self._tell_freeing()

    def _tell_freeing(self) -> None:
        busy = any(one.is_unneeded and one.number not in self._left for one in self)
        self._freeing(busy, "\n".join(self._sentences()))

    def _sentences(self) -> Iterator[str]:
        """What could not be removed, until now or at all: together what has the same reason."""
        waiting, given_up = defaultdict[str, list[A]](list), defaultdict[str, list[A]](list)
        for one in self:
            if one.number in self._left:
                given_up[self._left[one.number]].append(one)
            elif (removal := self._removals.get(one.number)) is not None and removal.why:
                waiting[removal.why].append(one)
        for why, those in waiting.items():
            yield delayed([*map(self._label, those)], why)
        for why, those in given_up.items():
            yield left([*map(self._label, those)], self.place, why, self._remedy(those))

    def _remedy(self, those: Sequence[A]) -> str:
        """How a user removes allocations that were left, as a clause."""
        return deleted_with_run(self._plan.run_name)
