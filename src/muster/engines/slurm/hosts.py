"""The allocations of one run: submits jobs, waits for their nodes, and notices when these are lost.

Nothing polls for the start of a job: its node servers dial the supervisor. Slurm is asked about a
job while that has not happened, and while contact with one of its nodes is lost.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.loop import Participant, RunLoop
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.dialing import Dialing
from muster.engines.remote.hosts import Host, HostsOwner, slots_in_use
from muster.engines.remote.record import read_record, write_record
from muster.engines.slurm import script
from muster.engines.slurm.client import (
    CannotRun,
    Job,
    cancel,
    cancel_words,
    check_version,
    client_environ,
    jobs_of_run,
    submit,
)
from muster.engines.slurm.listen import listen_address
from muster.engines.slurm.profile import SlurmProfile
from muster.engines.slurm.program import folder_of, provide_program, remove_files
from muster.engines.slurm.reasons import (
    expected_start,
    how_it_ended,
    is_news,
    most_telling,
    why_it_waits,
)
from muster.engines.slurm.record import RECORD, Allocation, Record
from muster.engines.slurm.watcher import watcher_of
from muster.node.files import replace_file
from muster.node.host_programs import inherited

if TYPE_CHECKING:
    from muster.node.connection import Connection

#: Seconds until a submission is tried again that Slurm has not answered.
_RETRY_PAUSE = 5.0
#: Seconds without contact after which a node server is started again where it was, if Slurm says
#: that its node is still the run's.
_RESTART_AFTER = 5.0
#: Seconds without contact after which a node is gone whose job Slurm does not know.
_GONE_AFTER = 10.0


class _Slot(Struct):
    """A slot that has a node, or waits for one."""

    allocation: int
    #: Where its connections are passed on to; None until it has a node.
    arrivals: Arrivals | None = None
    #: When contact was lost (see `RunLoop.now`); None: there is contact.
    lost_at: float | None = None
    #: Whether its server was started again since contact was lost.
    restarted: bool = False


class SlurmHosts:
    """See `engines.remote.hosts.Hosts`."""

    def __init__(
        self, context: RunContext, profile: SlurmProfile, loop: RunLoop, owner: HostsOwner
    ) -> None:
        self._context, self._profile, self._plan = context, profile, context.plan
        self._loop, self._owner = loop, owner
        self._environ = dict(context.environ)
        self._file = context.home.run_dir(self._plan.run_id).path / RECORD
        new = Record(str(folder_of(profile, context.home.root) / self._plan.run_id))
        record = read_record(self._file, Record) or new
        self._record, self._folder = record, Path(record.folder)
        self._allocations = {one.number: one for one in record.allocations}
        self._next = record.next
        self._program = Path()  # the node program, for nodes
        self._slots: dict[int, _Slot] = {}
        #: Slots whose nodes were found alive, and are not placed yet.
        self._in_use = set(slots_in_use(context))
        self._components: dict[int, Sequence[Job]] = {}  # allocation -> as Slurm said last
        self._steps: list[subprocess.Popen[bytes]] = []
        self._looked: set[int] = set()  # allocations that were seen waiting
        self._told: dict[int, str] = {}  # allocation -> what the owner was told of its queue
        self._waiting: dict[int, Job] = {}  # allocation -> of which the owner was told why it waits
        self._dialing: Dialing | None = None
        self._wanted: list[int] = []  # slots that are to be in one job
        self._parts: list[Sequence[int]] = []  # slots that are to be in a job each
        self._pauses: list[Participant] = []
        self._is_unwritten = False  # whether the record is to be written
        self._over = False  # whether `place_ended` waits for it
        self._closed = False
        self._watcher = watcher_of(loop, self._environ)
        self._find_address()

    # --- files that nodes see

    def _find_address(self) -> None:
        """Find out where to listen, and provide the node program, in a thread."""
        listen, environ, folder = self._profile.listen, self._environ, self._folder.parent

        def work() -> str | CannotRun:
            try:
                check_version(environ)
                self._program = provide_program(folder)
            except OSError as error:
                text = f"the folder that nodes share cannot be written: {error}"
                return CannotRun(text, refused=True)
            except CannotRun as error:
                return error
            return listen or listen_address(environ)

        self._loop.in_thread(work, self._listen)

    def _listen(self, address: str | CannotRun) -> None:
        """The address at which nodes dial is known."""
        if self._closed:
            return
        if isinstance(address, CannotRun):
            slots = [*self._wanted, *(slot for part in self._parts for slot in part)]
            why = str(address)
            if address.refused:
                self._wanted, self._parts = [], []
                for slot in slots:
                    self._owner.refused(slot, f"Slurm cannot be used: {why}")
            else:
                self._owner.queued(slots, f"Slurm does not answer: {why}")
            self._later(self._find_address)
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            dialing = Dialing(self._context, self._loop, address, self._folder / "address")
        except OSError as error:
            text = f"nodes cannot dial {address}: {error}; set `listen` in the profile"
            self._listen(CannotRun(text, refused=True))
            return
        self._dialing = dialing
        python = self._profile.python or self._context.python
        nodes = f"{self._profile.scratch or self._folder.parent}/{self._plan.run_id}"
        text = script.node_script(str(self._folder), python, str(self._program), nodes)
        replace_file(self._folder / "node.sh", text.encode(), 0o600)
        environ = {} if self._plan.clean_env else inherited(self._context.environ)
        text = script.environment_script(environ)
        replace_file(self._folder / "environment", text.encode(), 0o600)
        self._allocate_all()
        if self._over:
            self.place_ended()  # again: it could not place them before

    def _later(self, call: Callable[[], None]) -> None:
        """Call something after a pause, unless this is closed by then."""

        def due(_ready: Mapping[int, int]) -> None:
            participant.close()
            call()

        participant = self._loop.add(due)
        participant.wake_at(self._loop.now() + _RETRY_PAUSE)
        self._pauses = [one for one in self._pauses if not one.closed]
        self._pauses.append(participant)

    def _write_settings(self, slot: int) -> None:
        assert self._dialing is not None
        token = self._folder / f"{slot}.token"
        replace_file(token, self._dialing.token(slot).encode(), 0o600)
        shared = str(self._profile.scratch or self._folder.parent)
        settings = self._dialing.settings(slot, shared, str(token))
        settings["amounts"] |= {"required": []}  # Slurm limits what its nodes have
        text = json.dumps(settings).encode() + b"\n"
        replace_file(self._folder / f"{slot}.settings", text, 0o600)

    # --- what the session asks for

    def allocate(self, slots: Sequence[int]) -> None:
        """See `Hosts`."""
        self._wanted += slots
        self._loop.post(self._allocate_all)  # with those that others are asked for now

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """See `Hosts`. Each part is a job of its own."""
        self._parts += parts
        self._loop.post(self._allocate_all)

    def _allocate_all(self) -> None:
        if self._dialing is None or self._closed:
            return
        wanted, self._wanted = self._wanted, []
        parts, self._parts = self._parts, []
        for part in (wanted, *parts):
            self._allocate(part)

    def _allocate(self, slots: Sequence[int]) -> None:
        new, found = [], set[int]()
        of_slot = {slot: one for one in self._allocations.values() for slot in one.slots}
        for slot in slots:
            known = of_slot.get(slot)
            if known is not None and known.lent and slot not in self._in_use:
                self._leave(self._allocations[known.number], slot)  # it was not started there
                known = None
            if known is not None:
                self._expect(slot, known.number)
                if slot in self._in_use:
                    self._in_use.discard(slot)
                    self._place(slot, known.hosts.get(slot) or "its node")
                    self._slots[slot].lost_at = self._loop.now()
                found.add(known.number)
            elif not self._use_spare(slot):
                new.append(slot)
        for number in found:
            self._submit_or_watch(number)
        if new:
            self._submit_new(new)

    def _submit_new(self, slots: Sequence[int]) -> None:
        number, self._next = self._next, self._next + 1
        lent = lent_job(self._environ)
        # first: it may be submitted from now on
        self._put(Allocation(number, tuple(slots), lent, lent is not None))
        for slot in slots:
            self._expect(slot, number)
            self._write_settings(slot)
        if lent is None:
            self._submit(number, again=False)
        else:
            self._use_lent(number)

    def _use_lent(self, number: int) -> None:
        """Start the servers of slots in the job in which this process was started."""
        one = self._allocations[number]
        for part in script.components(self._plan, one.slots, self._profile.options):
            step = shlex.split(script.step_of(str(self._folder), [part]))
            where = [f"--jobid={one.job}", "--overlap", "--immediate=60"]
            words = [step[0], *where, f"--job-name={self._name(number)}", *step[1:]]
            self._loop.in_thread(partial(self._run_step, words), partial(self._step_ended, number))
        self._watch(one)

    def _run_step(self, words: Sequence[str]) -> str:
        """Run a step until it ends, in a thread. Returns what it has said if it has failed."""
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

    def _step_ended(self, number: int, why: str) -> None:
        """A step in a job of others has ended; why: "" if it has not failed."""
        one = self._allocations.get(number)
        if one is None or self._closed or not why:
            return
        new = [s for s in one.slots if s in self._slots and self._slots[s].arrivals is None]
        for slot in new:
            self._slots.pop(slot)
            self._leave(self._allocations[number], slot)
            log = last_line(self._folder / f"{slot}.log")
            where = f"Slurm job {one.job}, in which this was started, cannot run it"
            self._owner.refused(slot, f"{where}: {log or why.removeprefix('srun: error: ')}")

    def _expect(self, slot: int, number: int) -> None:
        assert self._dialing is not None
        self._slots[slot] = _Slot(number)
        self._dialing.of(slot).take = partial(self._arrived, slot)

    def place_ended(self) -> None:
        """See `Hosts`."""
        self._over = True
        self._wanted.clear()
        self._parts.clear()
        for slot in [slot for slot, one in self._slots.items() if one.arrivals is None]:
            self.give_up(slot)  # it waits for a host, which nobody needs any more
        if self._dialing is None:
            return
        for one in list(self._allocations.values()):
            for slot in one.slots:
                if slot not in self._slots:
                    self._expect(slot, one.number)
                    self._place(slot, one.hosts.get(slot) or "its node")
                    self._slots[slot].lost_at = self._loop.now()
            self._submit_or_watch(one.number, over=True)

    def give_up(self, slot: int) -> None:
        """See `Hosts`."""
        self._slots.pop(slot, None)
        self._in_use.discard(slot)
        self._wanted = [one for one in self._wanted if one != slot]
        self._parts = [[one for one in part if one != slot] for part in self._parts]
        if self._dialing is not None:
            self._dialing.of(slot).take = None
        for name in ("settings", "token"):
            (self._folder / f"{slot}.{name}").unlink(missing_ok=True)
        one = next((a for a in self._allocations.values() if slot in a.slots), None)
        if one is not None:
            self._leave(one, slot)

    def _leave(self, one: Allocation, slot: int) -> None:
        """An allocation does not serve a slot any more. One that serves none is ended."""
        left = tuple(other for other in one.slots if other != slot)
        hosts = {other: host for other, host in one.hosts.items() if other != slot}
        if left:
            self._put(replace(one, slots=left, hosts=hosts))
        else:
            self._drop(one)
            self._cancel(one)

    def close(self) -> None:
        """See `Hosts`."""
        self._closed = True
        for pause in self._pauses:
            pause.close()
        if self._is_unwritten:
            self._write()
        for one in self._allocations.values():
            self._forget(one)
        if self._dialing is not None:
            self._dialing.close()
        for step in self._steps:
            step.poll()
        if not self._allocations:
            remove_files(self._folder)

    # --- allocations

    def _put(self, one: Allocation) -> None:
        self._allocations[one.number] = one
        self._write()

    def _drop(self, one: Allocation) -> None:
        self._forget(one)
        self._allocations.pop(one.number, None)
        self._components.pop(one.number, None)
        self._write()

    def _write(self) -> None:
        self._is_unwritten = False
        every = tuple(self._allocations.values())
        self._record = replace(self._record, allocations=every, next=self._next)
        write_record(self._file, self._record)

    def _write_soon(self) -> None:
        """Write what is known of nodes that arrive together once."""
        if not self._is_unwritten:
            self._is_unwritten = True
            self._loop.post(self._write)

    def _forget(self, one: Allocation) -> None:
        if one.job is not None:
            self._watcher.forget(self, one.job)

    def _cancel(self, one: Allocation) -> None:
        """End a job that serves no slot: a process does that, which outlives this one."""
        if one.lent:
            return
        self._start(cancel_words(self._name(one.number), one.job))

    def _start(self, words: Sequence[str]) -> None:
        """Start a command of Slurm in the background."""
        self._steps = [step for step in self._steps if step.poll() is None]
        null = subprocess.DEVNULL
        self._steps.append(
            subprocess.Popen(
                words,
                stdin=null,
                stdout=null,
                stderr=null,
                cwd="/",
                env=client_environ(self._environ),
                start_new_session=True,
            )
        )

    def _name(self, number: int) -> str:
        return script.job_name(self._plan.run_id, number)

    def _submit_or_watch(self, number: int, *, over: bool = False) -> None:
        """Go on with an allocation of an earlier session. over: it is not submitted any more."""
        one = self._allocations[number]
        if one.job is None:
            self._submit(number, again=True, over=over)
        else:
            self._watch(one)

    def _submit(self, number: int, *, again: bool, over: bool = False) -> None:
        """Submit a job in a thread. again: it may have been, and is looked for first."""
        one = self._allocations.get(number)
        if one is None:  # it was given up
            return
        parts = script.components(self._plan, one.slots, self._profile.options)
        name, environ, run_id = self._name(number), self._environ, self._plan.run_id
        text = script.batch_script(name, self._plan.run_name, str(self._folder), parts)

        def work() -> int | CannotRun | None:
            try:
                if again:
                    known = [job for job in jobs_of_run(run_id, environ) if job.name == name]
                    if known or over:
                        return min((job.leader for job in known), default=None)
                job = submit(text, environ, "--chdir=/")
                if self._closed and number not in self._allocations:
                    # it was given up meanwhile, and nobody else knows it
                    cancel(name, job, environ)
            except CannotRun as error:
                return error
            else:
                return job

        self._loop.in_thread(work, partial(self._submitted, number, over=over))

    def _submitted(self, number: int, answer: int | CannotRun | None, *, over: bool) -> None:
        one = self._allocations.get(number)
        if one is None:  # it was given up meanwhile
            if isinstance(answer, int):
                self._cancel(Allocation(number, (), answer))
            return
        if isinstance(answer, int):
            one = replace(one, job=answer)
            self._put(one)
            if not self._closed:
                self._watch(one)
        elif answer is None:
            self._end_allocation(one, "there is no job in Slurm")
        elif answer.refused:
            self._refuse(one, f"Slurm refuses the job: {answer}")
        else:
            self._say_queued(one, f"Slurm does not answer: {answer}")
            self._later(partial(self._submit, number, again=True, over=over))

    def _refuse(self, one: Allocation, why: str) -> None:
        self._drop(one)
        for slot in one.slots:
            self._slots.pop(slot, None)
            self._owner.refused(slot, why)

    # --- what Slurm says

    def _watch(self, one: Allocation) -> None:
        assert one.job is not None
        seen = partial(self._seen, one.number)
        name = None if one.lent else self._name(one.number)
        self._watcher.watch(self, one.job, name, self._loop, seen)

    def _look_soon(self, number: int) -> None:
        one = self._allocations.get(number)
        if one is not None and one.job is not None:
            self._watch(one)
            self._watcher.look_soon(self, one.job)

    def _seen(self, number: int, answer: Sequence[Job] | CannotRun) -> None:
        one = self._allocations.get(number)
        if one is None or one.job is None or self._closed:
            return
        if isinstance(answer, CannotRun):
            if not self._has_nodes(one):
                self._waiting.pop(number, None)  # it is told again after this
                self._say_queued(one, f"Slurm does not answer: {answer}")
            return
        self._components[number] = answer
        if not answer and self._may_have_nodes(one):
            return  # the watcher looks again after a pause, and when contact is lost
        if not answer or all(job.over for job in answer):
            worst = next((job for job in answer if job.state != "COMPLETED"), None)
            last = worst or next(iter(answer), None)
            self._ended(one, last)
        elif self._over and any(job.waits for job in answer):
            self._end_allocation(one, f"Slurm job {one.job} was canceled while it waited")
            self._cancel(one)
        elif any(job.waits for job in answer):
            waiting = most_telling(job for job in answer if job.waits)
            told = self._waiting.get(number)
            # most start soon after Slurm has looked at them
            if (waiting.reason != "None" or number in self._looked) and is_news(told, waiting):
                self._waiting[number] = waiting
                self._say_queued(one, f"{why_it_waits(waiting)}{expected_start(waiting)}")
            self._looked.add(number)
        else:
            self._look_at_nodes(one, answer)

    def _may_have_nodes(self, one: Allocation) -> bool:
        """Whether nodes are left of a job that Slurm does not know: it may have lost its state.
        Those without contact are given up after a while."""
        alive: list[int] = []
        gone: list[int] = []
        for slot in one.slots:
            known = self._slots.get(slot)
            if known is None or known.arrivals is None:
                continue
            at = known.lost_at
            is_gone = at is not None and self._loop.now() >= at + _GONE_AFTER
            (gone if is_gone else alive).append(slot)
        if alive:
            for slot in gone:
                self._lose(slot, f"Slurm does not know job {one.job} any more")
        return bool(alive)

    def _has_nodes(self, one: Allocation) -> bool:
        slots = (self._slots.get(slot) for slot in one.slots)
        return any(slot is not None and slot.arrivals is not None for slot in slots)

    def _say_queued(self, one: Allocation, why: str) -> None:
        if self._told.get(one.number) == why:
            return
        self._told[one.number] = why
        waiting = [s for s in one.slots if s in self._slots and self._slots[s].arrivals is None]
        if waiting:
            self._owner.queued(waiting, why)

    def _ended(self, one: Allocation, job: Job | None) -> None:
        """A job has ended, and all of its processes."""
        assert one.job is not None
        reason, why = how_it_ended(one.job, job)
        self._drop(one)
        for slot in one.slots:
            known = self._slots.pop(slot, None)
            if known is None:
                continue
            if known.arrivals is not None:
                self._owner.gone(slot, why, reason)
            else:
                log = last_line(self._folder / f"{slot}.log") or last_line(
                    self._folder / f"job-{one.number}.log"
                )
                self._owner.refused(slot, f"{why}: {log}" if log else why)

    def _end_allocation(self, one: Allocation, why: str) -> None:
        """No process of a job is left, or none was started."""
        self._drop(one)
        for slot in one.slots:
            known = self._slots.pop(slot, None)
            if known is not None and known.arrivals is not None:
                self._owner.gone(slot, why)
            elif known is not None:
                self._owner.refused(slot, why)

    def _look_at_nodes(self, one: Allocation, jobs: Sequence[Job]) -> None:
        """A job runs: find out which of its nodes it has lost."""
        alive = {name for job in jobs for name in job.nodes}
        for slot in one.slots:
            known = self._slots.get(slot)
            if known is None or known.lost_at is None:
                continue
            host = one.hosts.get(slot)
            if host is not None and host not in alive:
                self._lose(
                    slot, f"node {host} was lost, and Slurm job {one.job} goes on without it"
                )
            elif (
                host is not None
                and not known.restarted
                and self._loop.now() >= known.lost_at + _RESTART_AFTER
            ):
                known.restarted = True
                self._start_server(one, slot, host)
        slots = (self._slots.get(slot) for slot in self._allocations.get(one.number, one).slots)
        if all(slot is not None and slot.arrivals and slot.lost_at is None for slot in slots):
            self._forget(one)

    def _lose(self, slot: int, why: str) -> None:
        one = self._allocations[self._slots.pop(slot).allocation]
        self._leave(one, slot)
        self._owner.gone(slot, why)

    def _use_spare(self, slot: int) -> bool:
        """Start the server of a slot on a node of a running job that nobody uses, if there is one
        that fits."""
        need = script.components(self._plan, [slot], self._profile.options)
        for one in self._allocations.values():
            parts = script.components(self._plan, [*one.slots, slot], self._profile.options)
            jobs = self._components.get(one.number, ())
            if len(parts) != len(jobs) or any(job.state != "RUNNING" for job in jobs):
                continue
            for part, job in zip(parts, sorted(jobs, key=lambda job: job.id), strict=True):
                free = [name for name in job.nodes if name not in one.hosts.values()]
                if slot in part.slots and free and part.flags == need[0].flags:
                    self._add(one, slot, free[0])
                    return True
        return False

    def _add(self, one: Allocation, slot: int, host: str) -> None:
        """Have a running job serve one more slot, on a node of it that nobody uses."""
        hosts = {**one.hosts, slot: host}
        one = replace(one, slots=(*one.slots, slot), hosts=hosts)
        self._put(one)
        self._expect(slot, one.number)
        self._write_settings(slot)
        self._start_server(one, slot, host)
        self._watch(one)

    def _start_server(self, one: Allocation, slot: int, host: str) -> None:
        """Start the server of a slot on a node of a running job. It ends at once if one runs."""
        jobs = self._components.get(one.number, ())
        job = next((job.id for job in jobs if host in job.nodes), one.job)
        step = script.STEP.split()
        where = [f"--jobid={job}", "--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1"]
        node = ["sh", str(self._folder / "node.sh"), f"{slot}-{slot}"]
        self._start([*step, *where, *node])

    # --- what node servers do

    def _arrived(self, slot: int, connection: Connection) -> None:
        """The server of a slot has dialed. Raises Refusal."""
        known = self._slots[slot]
        hello = connection.hello or {}
        name = str(hello.get("host", ""))[:255] or "its node"
        one = self._allocations[known.allocation]
        if one.hosts.get(slot) != name:
            one.hosts[slot] = name
            self._write_soon()
        if known.arrivals is None:
            self._place(slot, name)
        arrivals = known.arrivals
        if arrivals is None or arrivals.take is None:
            from muster.node.greeting import Refusal

            raise Refusal("the supervisor does not expect this node now")
        arrivals.take(connection)
        known.lost_at, known.restarted = None, False
        self._forget_if_reached(known.allocation)

    def _forget_if_reached(self, number: int) -> None:
        """Look at a job no more when there is contact with all of its nodes."""
        one = self._allocations[number]
        slots = [self._slots.get(slot) for slot in one.slots]
        if all(slot is not None and slot.arrivals and slot.lost_at is None for slot in slots):
            self._forget(one)

    def _place(self, slot: int, name: str) -> None:
        known = self._slots[slot]
        known.arrivals = Arrivals()
        host = Host(
            known.arrivals,
            name,
            python=self._profile.python or self._context.python,
            compress=True,
            lost=partial(self._lost, slot),
        )
        self._owner.placed(slot, host)

    def _lost(self, slot: int) -> None:
        """Contact with a node is lost: Slurm may know why."""
        known = self._slots.get(slot)
        if known is not None and not self._closed:
            if known.lost_at is None:
                known.lost_at = self._loop.now()
            self._look_soon(known.allocation)


#: srun says so on clusters that bind nothing.
_NOISE = "lacks support for cpu binding"


def lent_job(environ: Mapping[str, str]) -> int | None:
    """The id of the job in which a process with this environment was started; None if in none."""
    text = environ.get("SLURM_JOB_ID", "")
    return int(text) if text.isdigit() else None


def last_line(path: Path) -> str:
    """The last line of a log, for people; "" if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    shown = [line.strip() for line in lines if line.strip() and _NOISE not in line]
    return shown[-1].removeprefix("muster-node: ")[:300] if shown else ""
