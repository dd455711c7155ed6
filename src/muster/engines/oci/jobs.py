"""The jobs of one run in the service: creates, watches and ends them, and keeps their record.

What calls the service is done by threads: a few at a time, as it counts requests.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.oci import details
from muster.engines.oci.bucket import Bucket
from muster.engines.oci.client import Created, Service
from muster.engines.oci.ending import Times, end_job
from muster.engines.oci.profile import OciProfile
from muster.engines.oci.record import RECORD, Allocation, Record
from muster.engines.oci.refusals import CannotRun
from muster.engines.oci.states import JobRun
from muster.engines.remote.allocations import Allocations, NotRemoved

#: Seconds until the first look at a job run, and the longest pause between two.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0
#: Seconds for which one attempt to end a job waits for that, before users learn what it waits for.
_END_TIMEOUT = 60.0
#: How long a job run may wait for a machine before its way to the bucket expires.
_LONGEST_QUEUE = timedelta(days=7)
#: Seconds for which a job run gets to end by itself whose node servers leave.
_LEAVE_TIMEOUT = 20.0


class _Watch(Struct):
    """A job run that is looked at."""

    pause: float
    due: float
    last: JobRun | None = None


class Jobs(Allocations[Allocation, Record]):
    """See `Allocations`.

    seen: gets the number of an allocation that is watched, and what the service says of its run.
    """

    place = "in OCI"

    def __init__(
        self,
        context: RunContext,
        profile: OciProfile,
        loop: RunLoop,
        seen: Callable[[int, JobRun | CannotRun], object],
        freeing: Callable[[bool, str], object],
    ) -> None:
        self._profile = profile
        self._seen = seen
        self._service = Service(profile)
        #: Through which nodes reach this machine; None: they dial it.
        self.bucket = None if profile.place is None else Bucket(self._service, profile.place)
        super().__init__(context, RECORD, Record, loop, freeing)
        self._watches: dict[int, _Watch] = {}
        self._asking = False
        self._participant = loop.add(self._look)

    # --- the record

    def add(self, slots: Sequence[int]) -> Allocation:
        """A new allocation for these slots."""
        one = Allocation(self._record.next, tuple(slots), tuple(slots))
        self._add(one)
        return one

    def found_host(self, one: Allocation, slot: int, host: str) -> None:
        """The host of a slot is known. Of nodes that arrive together, that is written once."""
        if one.hosts.get(slot) == host:
            return
        self._put_soon(replace(one, hosts={**one.hosts, slot: host}))

    def close(self) -> None:
        """Watch nothing any more. Jobs stay that serve slots."""
        super().close()
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

        self._make(number, work, partial(self._created, number, done))

    def link(self, number: int) -> dict[str, str] | None:
        """Where nodes of an allocation find the bucket: the fields of `node.tunnel_process.Place`;
        None: they dial. In a thread. Raises CannotRun."""
        if self.bucket is None:
            return None
        folder = self.bucket.place.folder(self._plan.run_id)
        limit = timedelta(minutes=details.minutes(self._plan) or details.MOST_MINUTES)
        expires = datetime.now(UTC) + limit + _LONGEST_QUEUE
        url = self.bucket.link(details.job_name(self._plan.run_id, number), folder, expires)
        return {"url": url, "folder": folder}

    def _created(
        self, number: int, done: Callable[[int, CannotRun | None], object], answer: Created
    ) -> None:
        one = self[number]
        self._put(replace(one, job=answer.job or one.job, run=answer.run or one.run))
        if one.is_unneeded:
            self.remove_unneeded()
        elif not self._closed:
            done(number, answer.error)

    # --- ends

    def remove_unneeded(self) -> None:
        """End and delete the jobs that serve no slot."""
        for one in self:
            if one.is_unneeded:
                self._watches.pop(one.number, None)
        super().remove_unneeded()

    def _label(self, one: Allocation) -> str:
        return f"job {details.job_name(self._plan.run_id, one.number)}"

    def _remove(self, one: Allocation) -> NotRemoved | None:
        name = details.job_name(self._plan.run_id, one.number)
        now = time.monotonic()
        # its node servers have left, or were told to; else they may never come
        cancel_at = now + _LEAVE_TIMEOUT if one.hosts else now
        times = Times(cancel_at, now + _END_TIMEOUT)
        try:
            end_job(self._service, name, one.job, times, keep=self._profile.keep_jobs)
            if self.bucket is not None:
                self.bucket.end_links(name, self.bucket.place.folder(self._plan.run_id))
        except CannotRun as error:
            return NotRemoved(str(error), is_final=error.refused)
        return None

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
        if (one := self.get(number)) is not None:
            self.watch(one)
        if (watch := self._watches.get(number)) is not None:
            watch.pause, watch.due = _FIRST_PAUSE, self._loop.now()
            self._participant.notify()

    def all_reached(self, number: int) -> None:
        """There is contact with all nodes of an allocation. While they dial, the end of contact
        says when to look again; through a bucket, nothing does."""
        if self.bucket is None:
            self.unwatch(number)

    def unwatch(self, number: int) -> None:
        """The run of an allocation is of no interest any more."""
        self._watches.pop(number, None)

    def _look(self, _ready: Mapping[int, int]) -> None:
        now = self._loop.now()
        due = {
            number: one.run
            for number, watch in self._watches.items()
            if watch.due <= now and (one := self[number]).run is not None
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
