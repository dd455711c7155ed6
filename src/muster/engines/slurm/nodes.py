"""The nodes of one run in its jobs: which slot has which, with which there is contact, and which
are lost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.engines.loop import RunLoop
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.dialing import Dialing
from muster.engines.remote.hosts import Host, HostsOwner
from muster.engines.slurm.client import Job
from muster.engines.slurm.jobs import Jobs
from muster.engines.slurm.record import Allocation
from muster.engines.slurm.run_folder import RunFolder
from muster.engines.slurm.time_limits import TimeLimits
from muster.lifecycle.status import Reason

if TYPE_CHECKING:
    from muster.node.connection import Connection

#: Seconds without contact after which a node server is started again where it was, if Slurm says
#: that its node is still the run's.
_RESTART_AFTER = 5.0
#: Seconds between two attempts to start it again; and without contact after which its job is given
#: up, if none has succeeded: the processes of the node end with it for certain.
_RESTART_PAUSE, _UNSTARTABLE_AFTER = 30.0, 300.0
#: Seconds without contact after which a node is gone whose job Slurm does not know.
_GONE_AFTER = 10.0
#: Seconds after which the end of a node that was told to end is reported, though Slurm does not
#: say why: while its job goes on, and while that ends or Slurm does not answer.
_UNEXPLAINED_AFTER, _UNANSWERED_AFTER = 10.0, 60.0
_UNEXPLAINED = "its node server was told to end, and Slurm does not say why"
#: Seconds from the first end of a node in a job that Slurm is ending until it is reported though
#: other nodes have not ended: nodes whose ends are reported together start again in one job.
_TOGETHER_WITHIN = 10.0
#: What a node is called whose name is not known.
_UNNAMED = "its node"


class Slot(Struct):
    """A slot that has a node, or waits for one."""

    allocation: int
    #: See `Allocation.server`.
    server: int
    #: Where its connections are passed on to; None until it has a node.
    arrivals: Arrivals | None = None
    #: When contact was lost (see `RunLoop.now`); None: there is contact.
    lost_at: float | None = None
    #: When its server was last started again since contact was lost; None: it was not.
    restarted_at: float | None = None
    #: Whether the last attempt to do that has failed, though no server runs.
    failed: bool = False
    #: When its node has ended, as it was told to, or before it was told to save; None: it has not.
    terminated_at: float | None = None
    #: Whether the node was told to save, as its job is about to reach its time limit.
    warned: bool = False


class Nodes:
    """The slots of a run that have nodes, or wait for them. Their owner learns what happens."""

    def __init__(
        self,
        loop: RunLoop,
        owner: HostsOwner,
        jobs: Jobs,
        folder: RunFolder,
        limits: TimeLimits,
    ) -> None:
        self._limits = limits
        self._loop, self._owner, self._jobs, self._folder = loop, owner, jobs, folder
        self._slots: dict[int, Slot] = {}
        self._given_up: dict[int, str] = {}  # allocation -> why its job was canceled
        self._dialing: Dialing | None = None
        #: Slots and servers whose files are to go; and whether no process of them is left.
        self._unneeded: list[tuple[int, int, bool]] = []

    def listen(self, dialing: Dialing) -> None:
        """Nodes can dial from now on."""
        self._dialing = dialing

    # --- slots

    def __contains__(self, slot: int) -> bool:
        return slot in self._slots

    def expect(self, slot: int, one: Allocation) -> None:
        """A slot waits for a node of an allocation."""
        assert self._dialing is not None
        self._slots[slot] = Slot(one.number, one.server(slot))
        arrivals = self._dialing.of(slot)
        arrivals.server, arrivals.take = one.server(slot), partial(self._arrived, slot)

    def _forget(self, slot: int, *, ended: bool = False) -> Slot | None:
        """A slot has no node any more, and waits for none: its server is refused, which may live
        on for a while. ended: no process of it is left. Returns what was known of it."""
        known = self._slots.pop(slot, None)
        if known is not None:
            if self._dialing is not None:
                self._dialing.of(slot).take = None
            self._remove_files(slot, known.server, ended=ended)
        return known

    def _remove_files(self, slot: int, server: int, *, ended: bool = False) -> None:
        """In a thread, for all that end now: a file system of many machines takes its time."""
        self._unneeded.append((slot, server, ended))
        if len(self._unneeded) == 1:
            self._loop.post(self._remove_unneeded)

    def _remove_unneeded(self) -> None:
        unneeded, self._unneeded = self._unneeded, []

        def work() -> None:
            for slot, server, ended in unneeded:
                self._folder.remove_settings(slot, server)
                if ended:
                    self._folder.remove_node(slot, server)

        self._loop.in_thread(work, lambda _none: None)

    def close(self) -> None:
        """Leave what other supervisors need."""
        for slot, server, _ in self._unneeded:
            self._folder.remove_settings(slot, server)

    def write_settings(self, ones: Sequence[Allocation]) -> None:
        """Write what the servers of allocations are started with, of slots that wait for them. May
        be called in any thread. Raises OSError."""
        assert self._dialing is not None
        for one in ones:
            for slot in one.slots:
                server = one.server(slot)
                self._folder.write_settings(slot, server, self._dialing)
                known = self._slots.get(slot)
                if known is None or known.server != server:  # it was given up meanwhile
                    self._folder.remove_settings(slot, server)

    def place_found(self, slot: int, one: Allocation) -> None:
        """A slot has a node since an earlier session; there is no contact yet."""
        self._place(slot, one.hosts.get(slot) or _UNNAMED)
        self._slots[slot].lost_at = self._loop.now()
        if one.warned:
            self._warn([slot], signaled=True)

    def give_up(self, slot: int) -> None:
        """A slot needs no node any more: its allocation does not serve it."""
        self._forget(slot)
        if (one := self._jobs.of_slot(slot)) is not None:
            self._remove_files(slot, one.server(slot))  # if an earlier session has it
            self._jobs.leave(one, slot)

    def waiting(self, slots: Sequence[int] | None = None) -> list[int]:
        """The slots that wait for a node. slots: those to choose from; None: all."""
        return [
            slot
            for slot in (self._slots if slots is None else slots)
            if slot in self._slots and self._slots[slot].arrivals is None
        ]

    def has_any(self, one: Allocation) -> bool:
        """Whether a slot of an allocation has a node."""
        slots = (self._slots.get(slot) for slot in one.slots)
        return any(slot is not None and slot.arrivals is not None for slot in slots)

    def may_be_left(self, one: Allocation) -> bool:
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
                self._lose(slot, f"Slurm does not know job {one.key} any more")
        return bool(alive)

    def end(self, one: Allocation, why: str, reason: Reason, *, logs: bool = False) -> None:
        """No process of an allocation is left. logs: append the last log line as the reason."""
        for slot in one.slots:
            known = self._forget(slot, ended=True)
            if known is None:
                continue
            if known.arrivals is not None:
                self._owner.gone(slot, why, reason)
            else:
                log = self._folder.last_words(slot, known.server, one.file) if logs else ""
                self._owner.refused(slot, f"{why}: {log}" if log else why)

    # --- nodes that Slurm has told to end

    def terminated(self, one: Allocation) -> list[int]:
        """The slots of an allocation whose nodes have ended as they were told to, which was not
        reported yet."""
        return [
            slot
            for slot in one.slots
            if slot in self._slots
            and self._slots[slot].terminated_at is not None
            and not self._slots[slot].warned
        ]

    def warn(self, one: Allocation) -> None:
        """The job of an allocation is about to reach its time limit: have its nodes save. Their
        ends are reported when all have ended, or the job has."""
        if not one.warned:
            self._jobs.warned(one)
            here = [slot for slot in one.slots if slot in self._slots]
            self._warn([slot for slot in here if self._slots[slot].arrivals], signaled=False)

    def _warn(self, slots: Sequence[int], *, signaled: bool) -> None:
        """signaled: whether an earlier session has had them save."""
        left = self._owner.expiring(slots, signaled=signaled)
        for slot in slots:
            known = self._slots[slot]
            known.warned = True
            if slot not in left:
                known.terminated_at = self._loop.now()

    def _end_warned(self, one: Allocation) -> None:
        left = [slot for slot in one.slots if slot in self._slots and self._slots[slot].warned]
        if all(self._slots[slot].terminated_at is not None for slot in left):
            for slot in left:
                text = f"Slurm job {one.key} is about to reach its time limit"
                self._lose(slot, text, Reason.DEADLINE)

    def end_terminated(self, one: Allocation, why: str, reason: Reason) -> None:
        """Slurm has said why it is ending the job of an allocation."""
        if not one.ending:
            self._jobs.ending(one)
        known = [self._slots[slot] for slot in one.slots if slot in self._slots]
        times = [slot.terminated_at for slot in known if slot.arrivals is not None]
        ended = [at for at in times if at is not None]
        all_ended = len(ended) == len(times)
        if all_ended or self._loop.now() >= min(ended, default=0.0) + _TOGETHER_WITHIN:
            for slot in self.terminated(one):
                self._lose(slot, why, reason)

    def end_unexplained(self, one: Allocation, *, ending: bool) -> None:
        """It is not known why they were told to end; after a while, that is reported. ending:
        whether their job is, or Slurm does not answer, so that this may become known."""
        limit = _UNANSWERED_AFTER if ending else _UNEXPLAINED_AFTER
        for slot in self.terminated(one):
            at = self._slots[slot].terminated_at
            if at is not None and self._loop.now() >= at + limit:
                self._lose(slot, _UNEXPLAINED)

    # --- lost nodes

    def look_at(self, one: Allocation, jobs: Sequence[Job]) -> None:
        """A job runs: find out which of its nodes it has lost."""
        alive = {name for job in jobs for name in job.nodes}
        for slot in one.slots:
            known, host = self._slots.get(slot), one.hosts.get(slot)
            if known is None or known.lost_at is None or host is None:
                continue
            if known.terminated_at is not None:
                continue  # its end is about to be explained
            if host not in alive:
                text = f"node {host} was lost, and Slurm job {one.key} goes on without it"
                self._lose(slot, text)
                self._end_warned(one)  # if it was the last that had not saved
            elif one.ending:
                continue  # it is over soon
            elif known.failed and self._loop.now() >= known.lost_at + _UNSTARTABLE_AFTER:
                self._give_up_job(one, host)
            elif self._may_restart(known):
                self._start_server(one, slot, host)
        self._unwatch_if_reached(one.number)

    def _may_restart(self, known: Slot) -> bool:
        """Whether to start the server of a node again with which contact is lost."""
        if known.restarted_at is None:
            return known.lost_at is not None and self._loop.now() >= known.lost_at + _RESTART_AFTER
        return known.failed and self._loop.now() >= known.restarted_at + _RESTART_PAUSE

    def _give_up_job(self, one: Allocation, host: str) -> None:
        """End a job of which a node is of no use, though Slurm says that it is fine. The job of
        others stays, and the node is unreachable."""
        if not one.lent and one.number not in self._given_up:
            text = f"nothing could be started on node {host} for {_UNSTARTABLE_AFTER:.0f} s"
            self._given_up[one.number] = f"{text}, so Slurm job {one.key} was canceled"
            self._jobs.cancel(one)

    def why_given_up(self, number: int) -> str:
        """Why the job of an allocation was canceled; "" if it was not."""
        return self._given_up.get(number, "")

    def _lose(self, slot: int, why: str, reason: Reason = Reason.NODE_LOST) -> None:
        known = self._forget(slot)
        assert known is not None
        one = self._jobs.get(known.allocation)
        assert one is not None
        self._jobs.leave(one, slot)
        self._owner.gone(slot, why, reason)

    def use_spare(self, slot: int) -> bool:
        """Start the server of a slot on a node of a running job that nobody uses, if there is one
        that fits."""
        need = self._jobs.parts([slot])
        for one in self._jobs:
            parts = self._jobs.parts([*one.slots, slot])
            jobs = self._jobs.components(one)
            if one.warned or one.ending or len(parts) != len(jobs):
                continue
            if any(job.state != "RUNNING" for job in jobs):
                continue
            for part, job in zip(parts, sorted(jobs, key=lambda job: job.id), strict=True):
                free = [name for name in job.nodes if name not in one.hosts.values()]
                # those that have not dialed yet have nodes, too: a step gets the first ones
                unknown = [s for s in self.waiting(part.slots) if s not in {slot, *one.hosts}]
                is_spare = len(free) > len(unknown)
                if slot in part.slots and is_spare and part.flags == need[0].flags:
                    self._add(one, slot, free[-1])
                    return True
        return False

    def _add(self, one: Allocation, slot: int, host: str) -> None:
        """Have a running job serve one more slot, on a node of it that nobody uses."""
        assert self._dialing is not None
        one = self._jobs.add_slot(one, slot, host)
        self.expect(slot, one)
        self._folder.write_settings(slot, one.server(slot), self._dialing)
        self._start_server(one, slot, host)
        self._jobs.watch(one)

    def _start_server(self, one: Allocation, slot: int, host: str) -> None:
        known = self._slots[slot]
        known.restarted_at, known.failed = self._loop.now(), False
        ended = partial(self._server_ended, slot, known, host)
        self._jobs.start_server(one, slot, host, self._folder.node_script, ended)

    def _server_ended(self, slot: int, known: Slot, host: str, code: int) -> None:
        """A server that was started on a node has ended, or could not be started."""
        from muster.node.serve import SERVED  # its import takes as long as all others here

        known.failed = code not in (0, SERVED)
        if known.failed and known.arrivals is None and self._slots.get(slot) is known:
            self._forget(slot)
            if (one := self._jobs.get(known.allocation)) is not None:
                self._jobs.leave(one, slot)
            log = self._folder.last_words(slot, known.server)
            text = f"its server could not be started on the spare node {host}"
            self._owner.refused(slot, f"{text}: {log}" if log else text)

    # --- what node servers do

    def _arrived(self, slot: int, connection: Connection) -> None:
        """The server of a slot has dialed. Raises Refusal."""
        known = self._slots[slot]
        hello = connection.hello or {}
        name = str(hello.get("host", ""))[:255] or _UNNAMED
        one = self._jobs.get(known.allocation)
        assert one is not None
        self._jobs.found_host(one, slot, name)
        if known.arrivals is None:
            self._place(slot, name)
        arrivals = known.arrivals
        if arrivals is None or arrivals.take is None:
            from muster.node.greeting import Refusal

            raise Refusal("the supervisor does not expect this node now")
        arrivals.take(connection)
        known.lost_at = known.restarted_at = None
        self._unwatch_if_reached(known.allocation)

    def _unwatch_if_reached(self, number: int) -> None:
        """Look at a job no more when there is contact with all of its nodes."""
        one = self._jobs.get(number)
        if one is None:
            return
        slots = [self._slots.get(slot) for slot in one.slots]
        reached = all(slot and slot.arrivals and slot.lost_at is None for slot in slots)
        if reached and not self.terminated(one) and not self._limits.is_unknown(number):
            self._jobs.unwatch(one)

    def _place(self, slot: int, name: str) -> None:
        known = self._slots[slot]
        known.arrivals = Arrivals()
        one = self._jobs.get(known.allocation)
        host = Host(
            known.arrivals,
            name,
            id="" if one is None or one.job is None else one.key,
            python=self._folder.python,
            compress=True,
            lost=partial(self._lost, slot),
            terminated=partial(self._terminated, slot),
        )
        self._owner.placed(slot, host)

    def _terminated(self, slot: int) -> None:
        """A node has ended as its server was told to: Slurm knows why."""
        known = self._slots.get(slot)
        if known is None:
            return
        known.terminated_at = self._loop.now()
        one = self._jobs.get(known.allocation)
        if known.warned and one is not None:
            self._end_warned(one)
        else:
            self._jobs.look_soon(known.allocation)

    def _lost(self, slot: int) -> None:
        """Contact with a node is lost: Slurm may know why."""
        known = self._slots.get(slot)
        if known is not None:
            if known.lost_at is None:
                known.lost_at = self._loop.now()
            self._jobs.look_soon(known.allocation)
