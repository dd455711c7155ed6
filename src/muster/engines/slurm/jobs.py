"""The jobs of one run in Slurm: submits, finds, watches and cancels them, and keeps their record.

What takes time is done by threads, or by processes that outlive this one.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.remote.few_threads import FewThreads
from muster.engines.remote.record import read_record, write_record
from muster.engines.slurm import script
from muster.engines.slurm.client import (
    PERSISTENT,
    CannotRun,
    Job,
    cancel,
    cancel_words,
    client_environ,
    details_of,
    jobs_of_run,
    submit,
)
from muster.engines.slurm.profile import SlurmProfile
from muster.engines.slurm.record import RECORD, Allocation, Record
from muster.engines.slurm.shared_folder import folder_of
from muster.engines.slurm.watcher import watcher_of

#: Seconds until jobs are canceled if no command could be started for that.
_CANCEL_PAUSE = 5.0
#: Commands that submit jobs at the same time, of one run.
_AT_ONCE = 8


class Jobs:
    """The jobs of a run, by the numbers of their allocations. Raises OSError if those of an earlier
    session are not known.

    seen: gets the number of an allocation that is watched, and what Slurm says of its job. dropped:
    gets that of one that does not exist any more.
    """

    def __init__(
        self,
        context: RunContext,
        profile: SlurmProfile,
        loop: RunLoop,
        seen: Callable[[int, Sequence[Job] | CannotRun], object],
        dropped: Callable[[int], object],
    ) -> None:
        self._plan, self._options = context.plan, profile.options
        self._loop, self._seen, self._dropped = loop, seen, dropped
        self._environ = dict(context.environ)
        self._file = context.home.run_dir(self._plan.run_id).path / RECORD
        new = Record(str(folder_of(profile, context.home.root) / self._plan.run_id))
        self._record = read_record(self._file, Record) or new
        self._allocations = {one.number: one for one in self._record.allocations}
        self._next = self._record.next
        #: Allocation -> the components of its job, as Slurm reported last.
        self._components: dict[int, Sequence[Job]] = {}
        self._threads = FewThreads(loop, _AT_ONCE)  # that submit
        self._to_cancel: dict[str, list[str]] = {}  # name -> ids of its jobs, if they are known
        self._canceling = loop.add(self._cancel)
        self._commands: list[subprocess.Popen[bytes]] = []
        self._watcher = watcher_of(loop, self._environ)
        self._is_unwritten = False  # whether the record is to be written
        self._closed = False

    # --- the record

    @property
    def folder(self) -> Path:
        """The folder of the run that nodes share."""
        return Path(self._record.folder)

    def __iter__(self) -> Iterator[Allocation]:
        return iter([*self._allocations.values()])

    def get(self, number: int) -> Allocation | None:
        """An allocation; None if it was dropped."""
        return self._allocations.get(number)

    def of_slot(self, slot: int) -> Allocation | None:
        """The allocation that serves a slot."""
        return next((one for one in self if slot in one.slots), None)

    def add(self, jobs: Sequence[Sequence[int]]) -> list[Allocation]:
        """New allocations for these slots, of jobs that are to be submitted together; or of the one
        in which this process was started."""
        lent = lent_job(self._environ)
        array = self._next if lent is None and len(jobs) > 1 else None
        added = [
            Allocation(number, tuple(slots), lent, lent is not None, array=array)
            for number, slots in enumerate(jobs, self._next)
        ]
        self._next += len(added)
        self._allocations.update({one.number: one for one in added})
        self._write()  # first: they may be submitted from now on
        return added

    def array_of(self, one: Allocation) -> list[Allocation]:
        """The allocations that are submitted with one, and that one."""
        if one.array is None:
            return [one]
        return [other for other in self if other.array == one.array and other.job is None]

    def separate(self, one: Allocation) -> Allocation:
        """An allocation of an array that was refused gets a job of its own."""
        one = replace(one, array=None)
        self._put(one)
        return one

    def batches(self, jobs: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
        """See `script.batches`."""
        return script.batches(self._plan, jobs, self._options)

    def add_slot(self, one: Allocation, slot: int, host: str) -> Allocation:
        """An allocation serves one more slot, on a node that it has."""
        one = replace(
            one,
            slots=(*one.slots, slot),
            hosts={**one.hosts, slot: host},
            servers={**one.servers, slot: self._next},
        )
        self._next += 1
        self._put(one)
        return one

    def warned(self, one: Allocation) -> None:
        """The nodes of an allocation are told to save. A later session does not tell them again."""
        self._put(replace(one, warned=True))

    def ending(self, one: Allocation) -> None:
        """Slurm is ending the job of an allocation."""
        self._put(replace(one, ending=True))

    def found_host(self, one: Allocation, slot: int, host: str) -> None:
        """The node of a slot is known. Of nodes that arrive together, that is written once."""
        if one.hosts.get(slot) == host:
            return
        one.hosts[slot] = host
        self._write_soon()

    def drop(self, one: Allocation) -> None:
        """A job has ended, or there is none."""
        self.unwatch(one)
        self._allocations.pop(one.number, None)
        self._components.pop(one.number, None)
        self._dropped(one.number)
        self._write_soon()

    def leave(self, one: Allocation, slot: int) -> None:
        """An allocation does not serve a slot any more. One that serves none is ended."""
        left = tuple(other for other in one.slots if other != slot)
        hosts = {other: host for other, host in one.hosts.items() if other != slot}
        servers = {other: number for other, number in one.servers.items() if other != slot}
        if left:
            one = replace(one, slots=left, hosts=hosts, servers=servers)
            self._allocations[one.number] = one
            self._write_soon()
        else:
            self.drop(one)
            self.cancel(one)

    def _put(self, one: Allocation) -> None:
        self._allocations[one.number] = one
        self._write()

    def _write_soon(self) -> None:
        """Write the record, once for all that changes now."""
        if not self._is_unwritten:
            self._is_unwritten = True
            self._loop.post(self._write)

    def _write(self) -> None:
        self._is_unwritten = False
        every = tuple(self._allocations.values())
        self._record = replace(self._record, allocations=every, next=self._next)
        write_record(self._file, self._record)

    def close(self) -> None:
        """Watch nothing any more. Jobs stay."""
        self._closed = True
        if self._is_unwritten:
            self._write()
        for one in self:
            self.unwatch(one)
        self._cancel()
        self._canceling.close()
        for command in self._commands:
            command.poll()

    # --- commands of Slurm

    def name(self, one: Allocation) -> str:
        """The name in Slurm of an allocation's job."""
        return script.job_name(self._plan.run_id, one.name_number)

    def parts(self, slots: Iterable[int]) -> list[script.Component]:
        """The components of a job for these slots."""
        return script.components(self._plan, slots, self._options)

    def submit(
        self,
        ones: Sequence[Allocation],
        prepare: Callable[[], object],
        done: Callable[[Allocation, int | CannotRun | None], object],
        *,
        again: bool,
        over: bool = False,
    ) -> None:
        """Submit a job in a thread, for one allocation, or for all of an array that are left.
        again: it may have been, and is looked for first. over: it is not submitted any more.
        prepare: called in the thread before it is; raises OSError if that is not possible. done:
        gets its id for each of them; None if there is no job. Of allocations that were given up
        meanwhile, the job is canceled, and nothing is reported."""
        name, environ, run_id = self.name(ones[0]), self._environ, self._plan.run_id
        text = self._script(ones)

        def work() -> int | CannotRun | None:
            try:
                if again:
                    known = [job for job in jobs_of_run(run_id, environ) if job.name == name]
                    if known or over:
                        return min((job.leader for job in known), default=None)
                if not any(one.number in self._allocations for one in ones):
                    return None  # all were given up while this waited for its turn
                prepare()
                job = submit(text, environ, "--chdir=/")
                if self._closed and not any(one.number in self._allocations for one in ones):
                    # it was given up meanwhile, and nobody else knows it
                    cancel(name, str(job), environ)
            except CannotRun as error:
                return error
            except OSError as error:
                why = f"the folder that nodes share cannot be written: {error}"
                return CannotRun(why, refused=True)
            else:
                return job

        # a few at a time: there are many if an array was refused
        self._threads.in_thread(work, partial(self._submitted, ones, done))

    def _script(self, ones: Sequence[Allocation]) -> str:
        """The script of a job. ones: its allocations; of an array, some may have been given up
        before it was submitted: their tasks end at once, as they find no settings."""
        first, last = ones[0], ones[-1]
        slots: Sequence[int] = first.slots
        if first.array is not None:
            before = (first.task or 0) * len(slots)
            slots = [slot - before for slot in slots]
        tasks = 1 if last.task is None else last.task + 1
        return script.batch_script(
            self.name(first), self._plan.run_name, str(self.folder), self.parts(slots), tasks
        )

    def _submitted(
        self,
        ones: Sequence[Allocation],
        done: Callable[[Allocation, int | CannotRun | None], object],
        answer: int | CannotRun | None,
    ) -> None:
        left = [one.number for one in ones if one.number in self._allocations]
        if isinstance(answer, int):
            for one in ones:
                if one.number not in left:  # it was given up meanwhile
                    self.cancel(replace(one, job=answer))
            self._allocations.update(
                {number: replace(self._allocations[number], job=answer) for number in left}
            )
            self._write()
        for number in left:
            if (known := self._allocations.get(number)) is not None:
                done(known, answer)

    def cancel(self, one: Allocation) -> None:
        """End a job that serves no slot, soon: a process does that, which outlives this one, and
        goes on until Slurm has answered."""
        if one.lent or (one.job is None and one.array is not None):
            return  # a task of an array that is being submitted is canceled when its id is known
        ids = self._to_cancel.setdefault(self.name(one), [])
        if one.job is not None:
            ids.append(one.key)
        self._canceling.notify()

    def _cancel(self, _ready: Mapping[int, int] = {}) -> None:
        """Start to cancel jobs, those of a name together: each command has Slurm list all jobs."""
        self._commands = [one for one in self._commands if one.poll() is None]
        for name, ids in [*self._to_cancel.items()]:
            try:
                words = ["sh", "-c", PERSISTENT, "sh", *cancel_words(name, *ids)]
                self._commands.append(self._start(words))
            except OSError:  # such as too many processes
                self._canceling.wake_at(self._loop.now() + _CANCEL_PAUSE)
                return
            del self._to_cancel[name]

    def start_server(
        self,
        one: Allocation,
        slot: int,
        host: str,
        node_script: Path,
        ended: Callable[[int], None],
    ) -> None:
        """Start the server of a slot on a node of a running job. It ends at once if one runs.
        ended: called with the exit code when the server has ended, or could not be started."""
        job = next((job.id for job in self.components(one) if host in job.nodes), one.key)
        step = script.STEP.split()
        where = [f"--jobid={job}", "--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1"]
        where.append("--immediate=60")
        serve = ["sh", str(node_script), str(one.server(slot)), f"{slot}-{slot}"]

        def work() -> int:
            try:
                return self._start([*step, *where, *serve]).wait()
            except OSError:  # such as too many processes
                return 1

        self._loop.in_thread(work, ended)

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command of Slurm, which goes on if this process is killed. Raises OSError."""
        null = subprocess.DEVNULL
        return subprocess.Popen(
            words,
            stdin=null,
            stdout=null,
            stderr=null,
            cwd="/",
            env=client_environ(self._environ),
            start_new_session=True,
        )

    # --- the job in which this process was started

    def use_lent(self, one: Allocation, ended: Callable[[str], None]) -> None:
        """Start the servers of slots in it: a step for each component, in a thread. ended: called
        when one ends, with its error message if it has failed, else ""."""
        for part in self.parts(one.slots):
            step = shlex.split(script.step_of(str(self.folder), [part], f"{one.number}"))
            where = [f"--jobid={one.job}", "--overlap", "--immediate=60"]
            words = [step[0], *where, f"--job-name={self.name(one)}", *step[1:]]
            self._loop.in_thread(partial(self._run_step, words), ended)

    def _run_step(self, words: Sequence[str]) -> str:
        """Run a step until it ends, in a thread. Returns its error message if it has failed."""
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd="/",
                env=client_environ(self._environ),
                start_new_session=True,  # it goes on if this process is killed
                check=False,
            )
        except OSError as error:
            return f"srun cannot be run: {error.strerror}"
        text = done.stderr.decode(errors="replace").strip()
        return text.splitlines()[-1] if done.returncode and text else ""

    # --- what Slurm says

    def watch(self, one: Allocation) -> None:
        """Look at a job from time to time."""
        assert one.job is not None
        name = None if one.lent else self.name(one)
        self._watcher.watch(self, one.key, name, self._loop, partial(self._saw, one.number))

    def look_soon(self, number: int) -> None:
        """Look at a job soon; nothing if there is none yet."""
        one = self._allocations.get(number)
        if one is not None and one.job is not None:
            self.watch(one)
            self._watcher.look_soon(self, one.key)

    def unwatch(self, one: Allocation) -> None:
        """Look at a job no more."""
        if one.job is not None:
            self._watcher.forget(self, one.key)

    def _saw(self, number: int, answer: Sequence[Job] | CannotRun) -> None:
        if number not in self._allocations or self._closed:
            return
        if not isinstance(answer, CannotRun):
            self._components[number] = answer
        self._seen(number, answer)

    def explain(self, one: Allocation, done: Callable[[Sequence[Job] | CannotRun], object]) -> None:
        """Ask Slurm how a job has ended, or why it is ending, in a thread. done: gets its
        components with details, unless it was dropped meanwhile."""
        assert one.job is not None
        key, environ, name = one.key, self._environ, None if one.lent else self.name(one)

        def work() -> Sequence[Job] | CannotRun:
            try:
                return [job for job in details_of(key, environ) if name in (None, job.name)]
            except CannotRun as error:
                return error

        def answered(answer: Sequence[Job] | CannotRun) -> None:
            if one.number in self._allocations and not self._closed:
                done(answer)

        self._loop.in_thread(work, answered)

    def components(self, one: Allocation) -> Sequence[Job]:
        """The components of a job, as Slurm reported last; empty if it has not."""
        return self._components.get(one.number, ())


def lent_job(environ: Mapping[str, str]) -> int | None:
    """The id of the job in which a process with this environment was started; None if in none."""
    text = environ.get("SLURM_JOB_ID", "")
    return int(text) if text.isdigit() else None
