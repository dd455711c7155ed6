"""The hosts of one run's nodes: has jobs submitted for them, and learns what becomes of these.

Nothing polls for the start of a job: its node servers dial the supervisor. Slurm is asked about a
job while that has not happened, and while contact with one of its nodes is lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.remote.dialing import Dialing
from muster.engines.remote.hosts import HostsOwner, slots_in_use
from muster.engines.remote.pauses import Pauses
from muster.engines.remote.run_secrets import contact_secrets
from muster.engines.remote.wanted_slots import WantedSlots
from muster.engines.slurm.client import CannotRun, Job, check_version
from muster.engines.slurm.jobs import Jobs
from muster.engines.slurm.listen import listen_address
from muster.engines.slurm.nodes import Nodes
from muster.engines.slurm.profile import SlurmProfile
from muster.engines.slurm.reasons import how_it_ended, why_it_ends, worst
from muster.engines.slurm.record import Allocation
from muster.engines.slurm.run_folder import RunFolder
from muster.engines.slurm.shared_folder import provide_program
from muster.engines.slurm.time_limits import TimeLimits
from muster.engines.slurm.waiting import Waiting
from muster.lifecycle.status import Reason

#: Seconds until a submission is tried again that Slurm has not answered.
_RETRY_PAUSE = 5.0


class SlurmHosts:
    """See `engines.remote.hosts.Hosts`."""

    def __init__(
        self, context: RunContext, profile: SlurmProfile, loop: RunLoop, owner: HostsOwner
    ) -> None:
        self._context, self._profile = context, profile
        self._loop, self._owner = loop, owner
        self._jobs = Jobs(context, profile, loop, self._seen, self._dropped)
        self._folder = RunFolder(self._jobs.folder, context, profile)
        checkpoint = context.plan.policy.checkpoint
        grace = None if checkpoint is None else checkpoint.grace
        self._limits = TimeLimits(loop, grace, self._jobs.look_soon, self._warn)
        self._nodes = Nodes(loop, owner, self._jobs, self._folder, self._limits)
        self._waiting: dict[int, Waiting] = {}  # allocation -> what was reported of its queue
        #: Slots whose nodes were found alive, and are not placed yet.
        self._in_use = set(slots_in_use(context))
        self._program = Path()  # the node program, for nodes
        self._dialing: Dialing | None = None
        self._wanted = WantedSlots()
        self._pauses = Pauses(loop)
        self._over = False  # whether `place_ended` waits for it
        self._closed = False
        self._find_address()

    # --- where nodes dial

    def _find_address(self) -> None:
        """Find out where to listen, and provide the node program and the run's secrets, in threads:
        commands of Slurm are waited for meanwhile."""
        environ = self._context.environ
        found: list[str | CannotRun] = [self._profile.listen] if self._profile.listen else []

        def ask() -> None:
            found.append(listen_address(environ))

        def prepare() -> str | CannotRun:
            asking = [threading.Thread(target=ask, daemon=True)] if not found else []
            # no daemon: a process that exits while one is in a library's code aborts
            asking += [threading.Thread(target=self._make_secrets, daemon=False)]
            for one in asking:
                one.start()
            try:
                check_version(environ)
                self._program = provide_program(self._folder.path.parent)
            except OSError as error:
                text = f"the folder that nodes share cannot be written: {error}"
                return CannotRun(text, refused=True)
            except CannotRun as error:
                return error
            for one in asking:
                one.join()
            return found[0]

        self._loop.in_thread(prepare, self._listen)

    def _make_secrets(self) -> None:
        """Make those of the run, which `Dialing` reads."""
        run_dir = self._context.home.run_dir(self._context.plan.run_id)
        with contextlib.suppress(OSError):  # it fails there again, and says so
            contact_secrets(run_dir)

    def _listen(self, address: str | CannotRun) -> None:
        """The address at which nodes dial is known."""
        if self._closed:
            return
        if isinstance(address, CannotRun):
            self._cannot_be_used(address)
            return
        try:
            self._folder.create()
            dialing = Dialing(self._context, self._loop, address, self._folder.address_file)
        except OSError as error:
            text = f"nodes cannot dial {address}: {error}; set `listen` in the profile"
            self._cannot_be_used(CannotRun(text, refused=True))
            return
        self._dialing = dialing
        self._nodes.listen(dialing)
        self._folder.write_scripts(self._program)
        self._allocate_all()
        if self._over:
            self.place_ended()  # again: it could not place them before

    def _cannot_be_used(self, why: CannotRun) -> None:
        slots = [*self._wanted]
        if why.refused:
            self._wanted.take()
            for slot in slots:
                self._owner.refused(slot, f"Slurm cannot be used: {why}")
        else:
            self._owner.queued(slots, f"Slurm does not answer: {why}")
        self._pauses.after(_RETRY_PAUSE, self._find_address)

    # --- what the session asks for

    def allocate(self, slots: Sequence[int]) -> None:
        """See `Hosts`."""
        self._wanted.add(slots)
        self._loop.post(self._allocate_all)  # with those that others are asked for now

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """See `Hosts`. Each part is a job of its own."""
        self._wanted.add_parts(parts)
        self._loop.post(self._allocate_all)

    def _allocate_all(self) -> None:
        if self._dialing is None or self._closed:
            return
        together, parts = self._wanted.take()
        if new := self._allocate(together):
            self._submit_new([new])
        for jobs in self._jobs.batches([new for part in parts if (new := self._allocate(part))]):
            self._submit_new(jobs)

    def _allocate(self, slots: Sequence[int]) -> list[int]:
        """Find the nodes that slots have, or spare ones. Returns those that need a new job."""
        new, found = [], dict[int, Allocation]()
        of_slot = {slot: one for one in self._jobs for slot in one.slots}
        for slot in slots:
            known = of_slot.get(slot)
            if known is not None and known.lent and slot not in self._in_use:
                self._nodes.give_up(slot)  # it was not started there
                known = None
            if known is not None:
                self._nodes.expect(slot, known)
                if slot in self._in_use:
                    self._in_use.discard(slot)
                    self._nodes.place_found(slot, known)
                found[known.number] = known
            elif not self._nodes.use_spare(slot):
                new.append(slot)
        for one in found.values():
            self._submit_or_watch(one)
        return new

    def _submit_new(self, jobs: Sequence[Sequence[int]]) -> None:
        """Submit jobs for these slots, together."""
        assert self._dialing is not None
        added = self._jobs.add(jobs)
        for one in added:
            for slot in one.slots:
                self._nodes.expect(slot, one)
            if one.lent:
                self._nodes.write_settings([one])
                self._jobs.use_lent(one, partial(self._step_ended, one.number))
                self._jobs.watch(one)
        if not added[0].lent:
            self._submit(added[0].number, again=False)

    def _step_ended(self, number: int, why: str) -> None:
        """A step in a job of others has ended; why: "" if it has not failed."""
        one = self._jobs.get(number)
        if one is None or self._closed or not why:
            return
        for slot in self._nodes.waiting(one.slots):
            self._nodes.give_up(slot)
            log = self._folder.last_words(slot, one.server(slot))
            where = f"Slurm job {one.key}, in which this was started, cannot run it"
            self._owner.refused(slot, f"{where}: {log or why.removeprefix('srun: error: ')}")

    def place_ended(self) -> None:
        """See `Hosts`."""
        self._over = True
        self._wanted.take()
        for slot in self._nodes.waiting():
            self.give_up(slot)  # it waits for a host, which nobody needs any more
        if self._dialing is None:
            return
        for one in self._jobs:
            for slot in one.slots:
                if slot not in self._nodes:
                    self._nodes.expect(slot, one)
                    self._nodes.place_found(slot, one)
            self._submit_or_watch(one, over=True)

    def give_up(self, slot: int) -> None:
        """See `Hosts`."""
        self._in_use.discard(slot)
        self._wanted.drop(slot)
        self._nodes.give_up(slot)

    def close(self) -> None:
        """See `Hosts`."""
        self._closed = True
        self._pauses.close()
        self._limits.close()
        self._jobs.close()
        if self._dialing is not None:
            self._dialing.close()
        if [*self._jobs]:
            self._nodes.close()
        else:
            self._folder.remove()

    # --- submissions

    def _submit_or_watch(self, one: Allocation, *, over: bool = False) -> None:
        """Continue an allocation of an earlier session. over: it is not submitted any more."""
        if one.job is None:
            if self._jobs.array_of(one)[0] == one:  # the others are submitted with it
                self._submit(one.number, again=True, over=over)
        else:
            self._jobs.watch(one)

    def _submit(self, number: int, *, again: bool, over: bool = False) -> None:
        """Submit a job. again: it may have been, and is looked for first."""
        one = self._jobs.get(number)
        if one is not None and one.job is None:  # else it was given up
            done, ones = partial(self._submitted, over=over), self._jobs.array_of(one)
            prepare = partial(self._nodes.write_settings, ones)
            self._jobs.submit(ones, prepare, done, again=again, over=over)

    def _submitted(self, one: Allocation, answer: int | CannotRun | None, *, over: bool) -> None:
        if isinstance(answer, int):
            if not self._closed:
                self._jobs.watch(one)
        elif answer is None:
            self._end(one, "there is no job in Slurm")
        elif answer.refused and one.array is not None:
            # some of its tasks may be allowed as jobs; or arrays are not
            self._submit(self._jobs.separate(one).number, again=False)
        elif answer.refused:
            self._end(one, f"Slurm refuses the job: {answer}")
        else:
            self._say_queued(one, f"Slurm does not answer: {answer}")
            if self._jobs.array_of(one)[0] == one:
                self._pauses.after(
                    _RETRY_PAUSE, partial(self._submit, one.number, again=True, over=over)
                )

    # --- what Slurm says

    def _seen(self, number: int, answer: Sequence[Job] | CannotRun) -> None:
        one = self._jobs.get(number)
        assert one is not None
        if isinstance(answer, CannotRun):
            if not self._nodes.has_any(one):
                self._say_queued(one, f"Slurm does not answer: {answer}")
            self._nodes.end_unexplained(one, ending=True)
        elif not answer and self._nodes.may_be_left(one):
            return  # the watcher looks again after a pause, and when contact is lost
        elif not answer:
            self._ended(one, answer)
        elif all(job.over for job in answer) or self._nodes.terminated(one):
            self._jobs.explain(one, partial(self._explained, number))
        elif any(job.waits for job in answer):
            self._waits(one, answer)
        elif not any(job.ending for job in answer):  # else nodes are missing that are not lost
            self._limits.see(number, answer)
            self._nodes.look_at(one, answer)

    def _dropped(self, number: int) -> None:
        """An allocation does not exist any more."""
        self._limits.forget(number)
        self._waiting.pop(number, None)

    def _warn(self, number: int) -> None:
        """A job is about to reach its time limit."""
        if (one := self._jobs.get(number)) is not None:
            self._nodes.warn(one)

    def _waits(self, one: Allocation, jobs: Sequence[Job]) -> None:
        if self._over:
            self._end(one, f"Slurm job {one.key} was canceled while it waited")
            self._jobs.cancel(one)
            return
        why = self._waiting.setdefault(one.number, Waiting()).see(jobs)
        if why is not None:
            self._tell_queued(one, why)

    def _say_queued(self, one: Allocation, why: str) -> None:
        """Say what a job waits for other than what Slurm says of it."""
        if self._waiting.setdefault(one.number, Waiting()).say(why):
            self._tell_queued(one, why)

    def _tell_queued(self, one: Allocation, why: str) -> None:
        if waiting := self._nodes.waiting(one.slots):
            self._owner.queued(waiting, why)

    def _explained(self, number: int, jobs: Sequence[Job] | CannotRun) -> None:
        """Slurm was asked how a job has ended, or why some of its nodes were told to."""
        one = self._jobs.get(number)
        assert one is not None and one.job is not None
        if isinstance(jobs, CannotRun):
            self._nodes.end_unexplained(one, ending=True)  # the watcher looks again after a pause
        elif all(job.over for job in jobs):
            self._ended(one, jobs)
        elif known := why_it_ends(one.key, jobs):
            reason, why = known
            self._nodes.end_terminated(one, why, reason)
        else:
            self._nodes.end_unexplained(one, ending=any(job.ending for job in jobs))

    def _ended(self, one: Allocation, jobs: Sequence[Job]) -> None:
        """A job has ended, and all of its processes."""
        assert one.job is not None
        if why := self._nodes.why_given_up(one.number):
            reason = Reason.NODE_LOST
        else:
            reason, why = how_it_ended(one.key, worst(jobs))
        self._end(one, why, reason, logs=True)

    def _end(
        self, one: Allocation, why: str, reason: Reason = Reason.NODE_LOST, *, logs: bool = False
    ) -> None:
        """No process of a job is left, or none was started."""
        self._jobs.drop(one)
        self._nodes.end(one, why, reason, logs=logs)
