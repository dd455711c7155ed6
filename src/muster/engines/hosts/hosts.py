"""The machines of one run: asks them over ssh, waits for them, and connects to node servers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.hosts.allocation import Choice, Gang, describe
from muster.engines.hosts.profile import HostsProfile, Machine
from muster.engines.hosts.record import Record
from muster.engines.hosts.ssh import HostPipes, Lacks, Opening, SshSettings
from muster.engines.loop import RunLoop
from muster.engines.remote.hosts import Host, HostsOwner, slots_in_use
from muster.engines.remote.record import read_record, write_record
from muster.engines.remote.server_settings import server_settings
from muster.engines.reservations.demands import demand_of
from muster.node.connection import Transport
from muster.node.reservation import Offer, Situation

#: Seconds until machines are asked again, when a connection was lost while the run waited for them;
#: it doubles with each time in a row.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
#: Seconds for a machine to say what it offers.
_ANSWER_TIMEOUT = 60.0


class Asked:
    """A machine that was asked on behalf of a node (`allocation.Try`)."""

    def __init__(self, rank: int, machine: Machine, due: float) -> None:
        """due: when it has to have answered (see `RunLoop.now`)."""
        self.rank, self.machine = rank, machine
        #: None once it has failed, or was taken.
        self.pipes: HostPipes | None = None
        self.failed = ""
        self.lacks = False
        self.told: Situation | None = None  # what the owner was told of its queue
        self._due = due
        self._opening: Opening | None = None

    def begin(self, pipes: HostPipes) -> None:
        """The connection is being made."""
        self.pipes, self._opening = pipes, pipes.opening

    @property
    def due(self) -> float | None:
        """When it has to have answered; None if it has, or has failed."""
        answered = self.failed or self.offer is not None or self.has
        return None if answered else self._due

    @property
    def offer(self) -> Offer | None:
        """See `Try`."""
        return None if self._opening is None else self._opening.offer

    @property
    def entered(self) -> bool:
        """See `Try`."""
        return self._opening is not None and self._opening.entered

    @property
    def has(self) -> bool:
        """See `Try`."""
        return self._opening is not None and self._opening.has

    @property
    def waits_for(self) -> Situation | None:
        """What it waits for in the queue; None if it does not."""
        return None if self._opening is None or self.has else self._opening.situation


class _Request(Struct):
    """A gang that gets machines."""

    gang: Gang
    asked: dict[int, Asked]
    #: The slots of replicas of arrays, see `Hosts.allocate_parts`. Empty: all are needed.
    parts: Sequence[Sequence[int]] = ()
    #: Whether it has entered a queue: from then on, that machines cannot be reached is no reason
    #: to fail.
    waits: bool = False
    pause: float = _FIRST_PAUSE
    retry_at: float | None = None


class RunHosts:
    """See `engines.remote.hosts.Hosts`. user: who runs it, for those who wait for its machines."""

    def __init__(
        self,
        context: RunContext,
        profile: HostsProfile,
        ssh: SshSettings,
        user: str,
        loop: RunLoop,
        owner: HostsOwner,
    ) -> None:
        self._context, self._profile, self._ssh, self._user = context, profile, ssh, user
        self._loop, self._owner = loop, owner
        self._file = context.home.run_dir(context.plan.run_id).hosts
        new = Record(profile.folder, {}, profile.isolation_timeout)
        self._record = read_record(self._file, Record) or new
        #: The machines of nodes, in this session and in earlier ones.
        self._machines = dict(self._record.machines)
        self._placed: set[int] = set()
        #: Slots that earlier sessions have used on machines, and that were not looked for yet.
        self._found = set(slots_in_use(context) & self._machines.keys())
        #: Slots whose servers are not started again: their nodes have ended, and they are to leave.
        self._over: set[int] = set()
        #: Connections that were made before their nodes had machines, and are not used yet.
        self._ready: dict[int, HostPipes] = {}
        self._requests: list[_Request] = []
        self._watched: set[int] = set()
        self._participant = loop.add(self._step)

    def allocate(self, slots: Sequence[int]) -> None:
        """See `Hosts`."""
        found = self._place_found(slots)
        if new := [slot for slot in slots if slot not in found]:
            self._requests.append(_Request(self._new_gang(new), {}))
        self._participant.notify()

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """See `Hosts`."""
        found = self._place_found(slot for part in parts for slot in part)
        missing = [[slot for slot in part if slot not in found] for part in parts]
        missing = [part for part in missing if part]
        if found or self._placed:
            self._request_each(missing)
        elif missing:
            slots = [slot for part in missing for slot in part]
            self._requests.append(_Request(self._new_gang(slots, missing), {}, missing))
        self._participant.notify()

    def _place_found(self, slots: Iterable[int]) -> set[int]:
        """Find those of these slots again that earlier sessions have used. Returns them."""
        found = self._found.intersection(slots)
        self._found -= found
        for slot in sorted(found):
            self._place(slot, None)
        return found

    def _request_each(self, parts: Sequence[Sequence[int]]) -> None:
        """Get machines for parts when they are free: the run has some already."""
        for part in parts:
            self._requests.append(_Request(self._new_gang(part), {}, [part]))

    def place_ended(self) -> None:
        """See `Hosts`."""
        self._forget_requests()
        for slot in self._machines.keys() - self._placed:
            self._over.add(slot)
            self._place(slot, None)
        self._participant.notify()

    def give_up(self, slot: int) -> None:
        """See `Hosts`."""
        self._forget_place(slot)
        self._found.discard(slot)
        if self._machines.pop(slot, None) is not None:
            self._write()
        for request in self._requests:
            dropped = (one for part in request.gang.dropped for one in part)
            slots = [*request.gang.ranks, *dropped]
            if slot in slots:
                self._forget(request)
                left = [one for one in slots if one != slot]
                parts = [[one for one in part if one in left] for part in request.parts]
                request.parts = [part for part in parts if part]
                request.gang = self._new_gang(left, request.parts)
        self._requests = [one for one in self._requests if one.gang.ranks]
        self._participant.notify()

    def close(self) -> None:
        """See `Hosts`."""
        self._forget_requests()
        for slot in list(self._ready):
            self._close_ready(slot)
        self._placed.clear()  # nothing is said of them any more
        self._participant.close()

    def _new_gang(self, slots: Sequence[int], parts: Sequence[Sequence[int]] = ()) -> Gang:
        plan = self._context.plan
        resources = {slot: plan.group_for(plan.nodes[slot]).resources for slot in slots}
        demands = {slot: demand_of(one).gpus for slot, one in resources.items()}
        wanted = {slot: self._machines[slot] for slot in slots if slot in self._machines}
        used = [self._machines[slot] for slot in self._placed]
        machines = [one for one in self._profile.machines for _ in range(one.slots)]
        for machine in used:
            if machine in machines:
                machines.remove(machine)
        return Gang(demands, machines, wanted, parts)

    # --- steps

    def _step(self, _ready: Mapping[int, int]) -> None:
        for request in list(self._requests):
            if request.retry_at is not None and self._loop.now() < request.retry_at:
                continue
            if request.parts and not all(one.parts for one in self._requests):
                continue  # those that need all of their machines come first
            request.retry_at = None
            for asked in request.asked.values():
                self._advance(asked)
            self._choose(request)
            self._tell(request)  # also what the last step of `_choose` has read
        if not self._participant.closed:
            self._wait()

    def _advance(self, asked: Asked) -> None:
        """Read and write what is possible. That of a node that has its machine, too: it loses it
        with the connection."""
        if asked.pipes is None:
            return
        try:
            asked.pipes.advance()
        except OSError as error:
            asked.failed, asked.lacks = str(error), isinstance(error, Lacks)
        if asked.due is not None and self._loop.now() >= asked.due:
            asked.failed = f"it does not answer within {_ANSWER_TIMEOUT:.0f} s"
        if asked.failed:
            self._close(asked)

    def _tell(self, request: _Request) -> None:
        """Tell the owner what the gang waits for."""
        for asked in request.asked.values():
            situation = asked.waits_for
            if situation is not None and situation != asked.told:
                asked.told = situation
                request.pause = _FIRST_PAUSE
                why = describe(asked.machine, situation, time.time())
                self._owner.queued(request.gang.ranks, why)

    def _choose(self, request: _Request) -> None:
        gang = request.gang
        choice = gang.choose()
        while choice.ask or choice.enter is not None:
            self._drop_unused(request)
            for slot, machine in choice.ask.items():
                gang.tries[slot] = request.asked[slot] = self._ask(slot, machine)
            if choice.enter is not None:
                request.waits = True
                self._enter(request.asked[choice.enter], choice.share)
            choice = gang.choose()
        self._drop_unused(request)
        if choice.refused:
            self._refuse(request, choice)
        elif choice.complete:
            self._requests.remove(request)
            self._write_record(request)  # first: servers run there from now on
            for slot, asked in request.asked.items():
                self._place(slot, asked)
            self._request_each(gang.dropped)
            self._participant.notify()

    def _enter(self, asked: Asked, share: int) -> None:
        assert asked.pipes is not None, "it has made an offer"
        asked.pipes.opening.enter(share)
        self._advance(asked)

    def _write_record(self, request: _Request) -> None:
        chosen = {slot: one.machine for slot, one in request.asked.items()}
        if chosen.items() - self._machines.items():
            self._machines |= chosen
            self._write()

    def _write(self) -> None:
        self._record = replace(self._record, machines=dict(self._machines))
        write_record(self._file, self._record)

    def _drop_unused(self, request: _Request) -> None:
        """Close connections to machines that are not considered any more."""
        for slot, asked in list(request.asked.items()):
            if request.gang.tries.get(slot) is not asked:
                self._close(asked)
                del request.asked[slot]

    def _refuse(self, request: _Request, choice: Choice) -> None:
        slots = [*request.gang.ranks, *(slot for part in request.gang.dropped for slot in part)]
        self._forget(request)
        if choice.hopeless or not request.waits:
            self._requests.remove(request)
            for slot in slots:
                self._owner.refused(slot, choice.refused)
            return
        # machines that cannot be reached any more: that is no reason to fail
        self._owner.queued(slots, choice.refused)
        request.gang = self._new_gang(slots, request.parts)
        request.retry_at = self._loop.now() + request.pause * random.uniform(0.5, 1)
        request.pause = min(request.pause * 2, _LONGEST_PAUSE)

    def _place(self, slot: int, asked: Asked | None) -> None:
        """A node has a machine. asked: the connection that was made to it, if there is one."""
        self._placed.add(slot)
        machine = self._machines[slot]
        if asked is not None and asked.pipes is not None:
            self._unwatch(asked.pipes)
            asked.pipes.opening.start()
            self._ready[slot] = asked.pipes

        def absent(why: str) -> None:
            self._loop.post(lambda: self._absent(slot, machine, why))

        def dial() -> Transport:
            ready = self._ready.pop(slot, None)
            restarts = slot not in self._over
            return ready or self._dial(slot, machine, restarts=restarts, absent=absent)

        host = Host(
            dial,
            machine.name,
            isolation=self._record.isolation,
            compress=True,
            leaving=lambda: self._over.add(slot),
        )
        self._owner.placed(slot, host)

    def _absent(self, slot: int, machine: Machine, why: str) -> None:
        """The server of a node does not run, and is not started. Nothing of the node is left. why:
        see `Opening`."""
        if slot not in self._placed or self._machines.get(slot) != machine:
            return
        if slot in self._over:
            self.give_up(slot)
            self._owner.gone(slot, "its server does not run any more")
        else:  # it may get the machine again, when it is its turn
            self._forget_place(slot)
            self._owner.gone(
                slot, f"its node server was killed, or {machine.name} was restarted, and {why}"
            )

    def _forget_place(self, slot: int) -> None:
        self._placed.discard(slot)
        self._over.discard(slot)
        self._close_ready(slot)

    # --- connections

    def _ask(self, slot: int, machine: Machine) -> Asked:
        asked = Asked(slot, machine, self._loop.now() + _ANSWER_TIMEOUT)
        try:
            asked.begin(self._dial(slot, machine))
        except OSError as error:
            asked.failed = str(error)
        return asked

    def _dial(
        self,
        slot: int,
        machine: Machine,
        *,
        restarts: bool = False,
        absent: Callable[[str], None] | None = None,
    ) -> HostPipes:
        """restarts, absent: see `Opening`. Raises OSError."""
        plan = self._context.plan
        resources = plan.group_for(plan.nodes[slot]).resources
        owner = {"user": self._user, "run_id": plan.run_id, "run": plan.run_name, "rank": slot}
        reserve = {
            "owner": owner,
            "gpus": resources.gpus or None,
            "has_gpus": machine.gpus,
            "slots": machine.slots,
            "queue": self._profile.queue,
            "reduced": not resources.demands("gpus"),
            "returns": slot in self._machines and bool(self._placed - {slot}),
        }
        isolation, shared = self._record.isolation, self._record.folder
        settings = server_settings(plan, slot, shared, isolation=isolation, reserve=reserve)
        folder = self._record.folder_of(plan.run_id, slot)
        opening = Opening(settings, restarts=restarts, absent=absent)
        return HostPipes(self._ssh, machine, folder, opening)

    def _forget_requests(self) -> None:
        for request in self._requests:
            self._forget(request)
        self._requests.clear()

    def _forget(self, request: _Request) -> None:
        for asked in request.asked.values():
            self._close(asked)
        request.asked.clear()

    def _close(self, asked: Asked) -> None:
        if asked.pipes is not None:
            self._unwatch(asked.pipes)
            asked.pipes.close()
            asked.pipes = None

    def _close_ready(self, slot: int) -> None:
        pipes = self._ready.pop(slot, None)
        if pipes is not None:
            pipes.close()

    def _unwatch(self, pipes: HostPipes) -> None:
        for descriptor in {pipes.reading, pipes.writing} & self._watched:
            self._participant.unwatch(descriptor)
            self._watched.discard(descriptor)

    def _wait(self) -> None:
        wanted: dict[int, bool] = {}
        for request in self._requests:
            for asked in request.asked.values():
                if asked.pipes is not None:
                    wanted[asked.pipes.reading] = False
                    if asked.pipes.waits_to_write:
                        wanted[asked.pipes.writing] = True
        for descriptor in self._watched - wanted.keys():
            self._participant.unwatch(descriptor)
        for descriptor, write in wanted.items():
            self._participant.watch(descriptor, write=write)
        self._watched = set(wanted)
        times = [one.retry_at for one in self._requests if one.retry_at is not None]
        every = [one for request in self._requests for one in request.asked.values()]
        times += [one.due for one in every if one.due is not None]
        self._participant.wake_at(min(times, default=None))
