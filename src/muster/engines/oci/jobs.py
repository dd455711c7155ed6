"""The jobs of one run in the service: creates, watches and ends them, and keeps their record.

What calls the service is done by threads: a few at a time, as it counts requests.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.oci import details
from muster.engines.oci.client import Created, Service
from muster.engines.oci.ending import Times, end_job
from muster.engines.oci.profile import OciProfile
from muster.engines.oci.record import RECORD, Allocation, Record
from muster.engines.oci.refusals import CannotRun
from muster.engines.oci.states import JobRun
from muster.engines.remote.record import read_record, write_record

#: Seconds until the first look at a job run, and the longest pause between two.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0
#: Seconds for which the end of a job is waited for before the run ends without it.
_END_TIMEOUT = 1800.0
#: Seconds for which a job run gets to end by itself whose node servers leave.
_LEAVE_TIMEOUT = 20.0


class _Watch(Struct):
    """A job run that is looked at."""

    pause: float
    due: float
    last: JobRun | None = None


class Jobs:
    """The jobs of a run, by the numbers of their allocations. Raises OSError if those of an earlier
    session are not known.

    seen: gets the number of an allocation that is watched, and what the service says of its run.
    freeing: gets whether jobs are being ended.
    """

    def __init__(
        self,
        context: RunContext,
        profile: OciProfile,
        loop: RunLoop,
        seen: Callable[[int, JobRun | CannotRun], object],
        freeing: Callable[[bool], object],
    ) -> None:
        self._plan, self._profile, self._loop = context.plan, profile, loop
        self._seen, self._freeing = seen, freeing
        self._service = Service(profile)
        self._file = context.home.run_dir(self._plan.run_id).path / RECORD
        self._record = read_record(self._file, Record) or Record()
        self._allocations = {one.number: one for one in self._record.allocations}
        self._creating: set[int] = set()
        self._ending: set[int] = set()
        self._left: set[int] = set()  # those that could not be ended
        self._watches: dict[int, _Watch] = {}
        self._asking = False
        self._participant = loop.add(self._look)
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

    def __iter__(self) -> Iterator[Allocation]:
        return iter([*self._allocations.values()])

    def get(self, number: int) -> Allocation | None:
        """An allocation; None if nothing is left of it."""
        return self._allocations.get(number)

    def of_slot(self, slot: int) -> Allocation | None:
        """The allocation that serves a slot."""
        return next((one for one in self if slot in one.slots), None)

    def add(self, slots: Sequence[int]) -> Allocation:
        """A new allocation for these slots."""
        one = Allocation(self._record.next, tuple(slots), tuple(slots))
        self._record = replace(self._record, next=one.number + 1)
        self._put(one)  # first: its job may be created from now on
        return one

    def found_host(self, one: Allocation, slot: int, host: str) -> None:
        """The host of a slot is known. Of nodes that arrive together, that is written once."""
        if one.hosts.get(slot) == host:
            return
        self._allocations[one.number] = replace(one, hosts={**one.hosts, slot: host})
        if not self._is_unwritten:
            self._is_unwritten = True
            self._loop.post(self._write)

    def leave(self, one: Allocation, slot: int) -> None:
        """An allocation does not serve a slot any more. One that serves none is ended."""
        self._put(replace(one, slots=tuple(other for other in one.slots if other != slot)))
        self.end_unneeded()

    def abandon(self, one: Allocation) -> None:
        """An allocation serves no slot any more, and is ended."""
        self._put(replace(one, slots=()))
        self.end_unneeded()

    def _put(self, one: Allocation) -> None:
        self._allocations[one.number] = one
        self._write()

    def _write(self) -> None:
        self._is_unwritten = False
        every = tuple(self._allocations.values())
        self._record = replace(self._record, allocations=every)
        write_record(self._file, self._record)

    def close(self) -> None:
        """Watch nothing any more. Jobs stay that serve slots."""
        self._closed = True
        if self._is_unwritten:
            self._write()
        self._participant.close()

    # --- creation

    def create(
        self,
        one: Allocation,
        artifact: Callable[[], bytes],
        done: Callable[[int, CannotRun | None], object],
        *,
        again: bool,
    ) -> None:
        """Create the job of an allocation and its run. again: that was tried before. done: gets its
        number, and why it was not possible; not if it was given up meanwhile."""
        if one.number in self._creating:
            return
        self._creating.add(one.number)
        plan, profile, number = self._plan, self._profile, one.number
        job = details.job_details(plan, one.made_for, number, profile)

        def work() -> Created:
            return self._service.create(
                job,
                lambda ocid: details.run_details(plan, ocid, number, profile),
                artifact,
                details.artifact_name(plan.run_id, number),
                again=again,
            )

        self._loop.in_thread(work, partial(self._created, number, done))

    def _created(
        self, number: int, done: Callable[[int, CannotRun | None], object], answer: Created
    ) -> None:
        self._creating.discard(number)
        one = self._allocations[number]
        self._put(replace(one, job=answer.job or one.job, run=answer.run or one.run))
        if one.is_unneeded:
            self.end_unneeded()
        elif not self._closed:
            done(number, answer.error)

    # --- ends

    def end_unneeded(self) -> None:
        """End and delete the jobs that serve no slot."""
        busy = self._ending | self._creating | self._left
        for one in self:
            if one.is_unneeded and one.number not in busy:
                self._ending.add(one.number)
                self._watches.pop(one.number, None)
                self._loop.in_thread(partial(self._end, one), partial(self._ended, one.number))
        self._tell_freeing()

    def _tell_freeing(self) -> None:
        self._freeing(any(one.is_unneeded and one.number not in self._left for one in self))

    def _end(self, one: Allocation) -> CannotRun | None:
        """In a thread."""
        name = details.job_name(self._plan.run_id, one.number)
        now = time.monotonic()
        # its node servers have left, or were told to; else they may never come
        cancel_at = now + _LEAVE_TIMEOUT if one.hosts else now
        times = Times(cancel_at, now + _END_TIMEOUT)
        try:
            end_job(self._service, name, one.job, times, keep=self._profile.keep_jobs)
        except CannotRun as error:
            return error
        return None

    def _ended(self, number: int, error: CannotRun | None) -> None:
        self._ending.discard(number)
        if error is None:
            self._allocations.pop(number, None)
            self._write()
        else:  # the run does not wait longer for it; its record stays for `clean_up`
            self._left.add(number)
            name = details.job_name(self._plan.run_id, number)
            sys.stderr.write(f"muster: job {name} was left in the service: {error}\n")
        self._tell_freeing()

    def cancel(self, run: JobRun) -> None:
        """Have a job run end that has nodes. What comes of it is seen as for any other."""

        def work() -> CannotRun | None:
            try:
                self._service.cancel(run)
            except CannotRun as error:
                return error  # whoever asks for it looks at the run again
            return None

        self._loop.in_thread(work, lambda _error: None)

    def last_line(self, run: JobRun, done: Callable[[str], None]) -> None:
        """Find out what the nodes of a job run have printed last. done: gets it; "" if that is not
        known."""
        group = self._profile.log_group
        if group is None or not run.log:
            done("")
            return

        def work() -> str:
            try:
                return self._service.last_line(run, group)
            except CannotRun as error:
                return f"its log cannot be read: {error}"

        self._loop.in_thread(work, done)

    # --- what the service says

    def watch(self, one: Allocation) -> None:
        """Look at the run of an allocation, until `unwatch`."""
        if one.run is not None and one.number not in self._watches:
            self._watches[one.number] = _Watch(_FIRST_PAUSE, self._loop.now() + _FIRST_PAUSE)
            self._participant.notify()

    def look_soon(self, number: int) -> None:
        """Something has happened to the run of an allocation."""
        if (one := self._allocations.get(number)) is not None:
            self.watch(one)
        if (watch := self._watches.get(number)) is not None:
            watch.pause, watch.due = _FIRST_PAUSE, self._loop.now()
            self._participant.notify()

    def unwatch(self, number: int) -> None:
        """The run of an allocation is of no interest any more."""
        self._watches.pop(number, None)

    def last_seen(self, number: int) -> JobRun | None:
        """What the service has said last of a run that is watched."""
        watch = self._watches.get(number)
        return None if watch is None else watch.last

    def _look(self, _ready: Mapping[int, int]) -> None:
        now = self._loop.now()
        due = {
            number: one.run
            for number, watch in self._watches.items()
            if watch.due <= now and (one := self._allocations[number]).run is not None
        }
        if due and not self._asking:
            self._asking = True
            self._loop.in_thread(partial(self._ask, due), self._take)
        if not self._asking:
            self._participant.wake_at(min((w.due for w in self._watches.values()), default=None))

    def _ask(self, runs: Mapping[int, str]) -> dict[int, JobRun | CannotRun]:
        """In a thread."""
        found: dict[int, JobRun | CannotRun] = {}
        for number, run in runs.items():
            try:
                found[number] = self._service.run(run)
            except CannotRun as error:
                found[number] = error
        return found

    def _take(self, found: Mapping[int, JobRun | CannotRun]) -> None:
        self._asking = False
        for number, answer in found.items():
            watch = self._watches.get(number)
            if watch is None:
                continue
            changed = isinstance(answer, JobRun) and answer != watch.last
            if isinstance(answer, JobRun):
                watch.last = answer
            watch.pause = _FIRST_PAUSE if changed else min(2 * watch.pause, _LONGEST_PAUSE)
            watch.due = self._loop.now() + watch.pause * random.uniform(0.75, 1.25)
            if not self._closed:
                self._seen(number, answer)
        self._participant.notify()
