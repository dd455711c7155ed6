"""Reservations of this machine: what programs of several users use in turn.

A machine has units: its GPUs, or slots if it has none. Whoever needs some waits in a queue, first
come, first served, and keeps what it gets until its process ends. There is no daemon: each waiter
and each holder has a ticket, a file in a folder that all users share. A ticket is valid while its
file is locked, so that the end of a process frees what it has, however it ended.

Nodes that need units together, a gang, draw their tickets one after the other. With the first, all
that the gang needs here is set aside, so that no two gangs wait for each other in one queue.

    queue/       writable for all, as /tmp is
        id       names the queue, for who has to enter several of them in the same order
        mutex    locked while tickets are written or removed
        N.X      a ticket; N: when it was drawn (nanoseconds since the machine was started)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import stat
import time
from typing import Callable, Iterator, NamedTuple, Sequence

from muster.node import machine, records

#: The folder that all users of a machine share.
FOLDER = "/tmp/muster-queue"
#: Bytes of a ticket, at most: it may have a thousand units.
_MAX_TICKET = 1 << 16
_MAX_NAME = 200  # characters of what it says of its owner
_GPU = "gpu"  # the first letters of the names of GPUs
_SHARED_FOLDER, _SHARED_FILE = 0o1777, 0o666


class CannotReserve(Exception):  # noqa: N818
    """The text says why."""


class Owner(NamedTuple):
    """Who reserves."""

    #: The person, and the machine from which they started the run, as in "ana@laptop".
    user: str
    run_id: str
    #: The run's name, for people.
    run: str
    #: Of the node.
    rank: int


class Demand(NamedTuple):
    """What a node needs of its machine."""

    owner: Owner
    #: How many GPUs. None: all of them, or one slot of a machine without any.
    gpus: int | None = None
    #: How many GPUs the machine has. None: those that are found.
    has_gpus: int | None = None
    #: How many nodes without GPUs it runs at a time.
    slots: int = 1
    #: The folder of the queue, the same for all users of the machine.
    queue: str = FOLDER
    #: Whether fewer GPUs will do if the machine has fewer.
    reduced: bool = False
    #: Whether the node has lost its machine while others of its run have theirs. It goes before
    #: all whose gangs are not complete: they may wait for what the others have.
    returns: bool = False

    def wanted(self, units: Sequence[str]) -> int:
        """How many of a machine's units."""
        is_gpu = units[0].startswith(_GPU)
        if self.gpus and self.reduced:
            return min(self.gpus, len(units)) if is_gpu else 1
        if self.gpus:
            return self.gpus
        return len(units) if is_gpu else 1


class Ticket(NamedTuple):
    """Somebody who waits for units, or has them."""

    owner: Owner
    #: When it was drawn, or since when it has its units (seconds since the epoch).
    since: float
    #: How many units it needs.
    wanted: int
    #: Those that it has; none while it waits.
    units: Sequence[str] = ()
    #: How many all nodes of its gang need here, until the gang is complete; then `wanted`, or 0.
    share: int = 0
    #: See `Demand`.
    returns: bool = False


class Situation(NamedTuple):
    """What somebody would find, or waits for."""

    #: Units that nobody has, and that are not set aside for others.
    free: int
    #: Tickets with units.
    holders: Sequence[Ticket] = ()
    #: Tickets that wait and were drawn before.
    before: Sequence[Ticket] = ()


class Offer(NamedTuple):
    """A machine that can be waited for."""

    #: Names its queue: who needs several machines enters their queues in the order of the names,
    #: so that no two wait for each other.
    queue: str
    #: How many of the units are needed here.
    wanted: int
    situation: Situation

    @property
    def free(self) -> bool:
        """Whether there is no need to wait, as things are."""
        return self.situation.free >= self.wanted and not self.situation.before


def units_of(demand: Demand) -> list[str]:
    """The names of this machine's units. Raises CannotReserve if it lacks what is needed."""
    numbers = machine.gpu_numbers()
    if demand.has_gpus is not None:  # of those that this login may use, if it may use as many
        count = demand.has_gpus
        numbers = numbers[:count] if len(numbers) >= count else list(range(count))
    if demand.gpus and demand.gpus > len(numbers) and not demand.reduced:
        has = {0: "no GPUs", 1: "1 GPU"}.get(len(numbers), "%d GPUs" % len(numbers))
        verb = "is" if demand.gpus == 1 else "are"
        raise CannotReserve("it has %s, and %d %s needed" % (has, demand.gpus, verb))
    names = [_GPU + str(number) for number in numbers]
    return names or ["slot%d" % number for number in range(max(1, demand.slots))]


def set_visible(units: Sequence[str], demand: Demand) -> None:
    """Have programs that this process starts see the GPUs among these units only; none on a machine
    whose GPUs runs may not use."""
    numbers = [name[len(_GPU) :] for name in units if name.startswith(_GPU)]
    if numbers or demand.has_gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(numbers)


class Queue:
    """The queue for the units of this machine. Raises CannotReserve, OSError.

    units: the names of all, as this caller sees them.
    """

    def __init__(self, units: Sequence[str], folder: str) -> None:
        self._units, self._folder = units, folder
        _make_folder(folder)
        with self._mutex():
            #: The same for all who use this queue, and no other.
            self.id = self._read_id()

    def look(self) -> Situation:
        """What somebody would find who drew a ticket now."""
        with self._mutex():
            return self._situation([ticket for _, ticket in self._tickets()])

    def draw(self, owner: Owner, wanted: int, share: int = 0, *, returns: bool = False) -> Place:
        """Draw a ticket for so many of the units. share: how many all nodes of its gang need here;
        0: as many. returns: see `Demand`. Raises CannotReserve if there are not as many."""
        if max(wanted, share) > len(self._units):
            numbers = (len(self._units), max(wanted, share))
            raise CannotReserve("it has room for %d, and nodes of the run need %d of it" % numbers)
        ticket = Ticket(owner, time.time(), wanted, (), max(wanted, share), returns)
        with self._mutex():
            return Place(self, *self._add(ticket), ticket)

    def _add(self, ticket: Ticket) -> tuple[str, int]:
        """A new ticket's name, and the descriptor that keeps it locked. With the mutex."""
        name = "%020d.%s" % (time.monotonic_ns(), os.urandom(4).hex())
        path = os.path.join(self._folder, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with _all_modes():  # a ticket that others cannot read would not count for them
            descriptor = os.open(path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _write(descriptor, ticket)
        except OSError:  # such as a full disk
            os.unlink(path)
            os.close(descriptor)
            raise
        return name, descriptor

    def settle(self, place: Place) -> None:
        """The gang of a place that has its units is complete: set nothing aside for it any more."""
        if place.ticket.share <= place.ticket.wanted:
            return
        with self._mutex():
            self._replace(place, place.ticket._replace(share=place.ticket.wanted))

    def _replace(self, place: Place, ticket: Ticket) -> None:
        """Give a place another ticket, with the mutex: the end of its own one tells those who wait
        that something has changed. Raises OSError."""
        old, descriptor = place.name, place.descriptor
        place.name, place.descriptor = self._add(ticket)
        place.ticket = ticket
        os.unlink(os.path.join(self._folder, old))
        os.close(descriptor)

    def advance(self, place: Place) -> Situation:
        """Give a place its units if it is its turn, and they are free. Returns what it found.
        Raises CannotReserve if it would wait for other nodes of its run."""
        with self._mutex():
            others = [(name, one) for name, one in self._tickets() if name != place.name]
            blockers = [
                (name, one)
                for name, one in others
                if name < place.name or one.units or (one.returns and not place.ticket.returns)
            ]
            # together with what it finds: the end of one that ends from now on is noticed
            place.blockers = [os.path.join(self._folder, name) for name, _ in blockers]
            before = [one for _, one in blockers]
            # what was set aside for its gang is for this node, whoever waits
            run_id = place.ticket.owner.run_id
            own = any(_is_incomplete(one) and one.owner.run_id == run_id for one in before)
            situation = self._situation(before, run_id)
            needed = place.ticket.wanted if own else place.ticket.share
            if (own or place.ticket.returns or not situation.before) and situation.free >= needed:
                taken = {unit for one in situation.holders for unit in one.units}
                free = [unit for unit in self._units if unit not in taken]
                units = free[: place.ticket.wanted]
                self._replace(place, place.ticket._replace(units=units, since=time.time()))
                return situation
        self._check_own(place, before)
        return situation

    def _check_own(self, place: Place, before: Sequence[Ticket]) -> None:
        """Raises CannotReserve if a place would wait for other nodes of its run."""
        own = [
            one
            for one in before
            if one.owner.run_id == place.ticket.owner.run_id
            and one.owner.rank != place.ticket.owner.rank  # whose server was killed
        ]
        if sum(one.wanted for one in own) + place.ticket.wanted > len(self._units):
            ranks = ", ".join(str(one.owner.rank) for one in own)
            text = "rank %s of this run uses it already, and it has no room for both" % ranks
            raise CannotReserve(text)

    def remove(self, place: Place) -> None:
        """Remove a ticket, whose units become free."""
        with self._mutex(), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, place.name))

    def _situation(self, tickets: Sequence[Ticket], run_id: str | None = None) -> Situation:
        """run_id: for whom; None: for a run that has no ticket."""
        holders = [one for one in tickets if one.units]
        taken = {unit for one in holders for unit in one.units}
        free = sum(unit not in taken for unit in self._units)
        free = max(0, free - _set_aside(holders, run_id))
        return Situation(free, holders, [one for one in tickets if not one.units])

    def _tickets(self) -> Iterator[tuple[str, Ticket]]:
        """The names of tickets, and the tickets, in the order in which they were drawn. Those whose
        process has ended are removed."""
        for name in sorted(os.listdir(self._folder)):
            if not name[:20].isdigit():
                continue
            try:
                descriptor = os.open(os.path.join(self._folder, name), _READ)
            except OSError:  # removed meanwhile, or no ticket
                continue
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    continue
                if _is_locked(descriptor):
                    yield name, _read_ticket(os.read(descriptor, _MAX_TICKET), self._units)
                else:
                    with contextlib.suppress(OSError):  # another user's, who will remove it
                        os.unlink(os.path.join(self._folder, name))
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _mutex(self) -> Iterator[None]:
        descriptor = _open_shared(os.path.join(self._folder, "mutex"))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read_id(self) -> str:
        descriptor = _open_shared(os.path.join(self._folder, "id"))
        with os.fdopen(descriptor, "r+b") as file:
            found = file.read(64).decode(errors="replace")
            if not found:
                found = os.urandom(8).hex()
                file.write(found.encode())
        return found


class Place:
    """A ticket of this process. Those that it forks keep it as well, with `descriptor`.

    descriptor: keeps the ticket locked while it is open in any process.
    """

    def __init__(self, queue: Queue, name: str, descriptor: int, ticket: Ticket) -> None:
        self._queue = queue
        self.name, self.descriptor, self.ticket = name, descriptor, ticket
        #: The paths of tickets for whose end it may have to wait.
        self.blockers: Sequence[str] = ()

    def wait(self, waits: Callable[[Situation], None], gone: int) -> bool:
        """Wait for the units. Returns False, and gives up the ticket, if a descriptor `gone`
        becomes readable before. waits: is told what it waits for, again whenever that changes."""
        last: Situation | None = None
        with contextlib.closing(_Ends()) as ends:
            while True:
                situation = self._queue.advance(self)
                if self.ticket.units:
                    return True
                if situation != last:
                    waits(situation)
                    last = situation
                ends.watch(self.blockers)
                if gone in select.select([gone, ends.descriptor], [], [])[0]:
                    self.leave()
                    return False
                ends.clear()

    def returning(self) -> Owner | None:
        """Who waits to return (`Demand.returns`) to what this place has, or another one."""
        run_id = self.ticket.owner.run_id
        waiting = (one for one in self._queue.look().before if one.owner.run_id != run_id)
        return next((one.owner for one in waiting if one.returns), None)

    def settle(self) -> None:
        """See `Queue.settle`. `descriptor` may be another one afterwards. Raises OSError."""
        self._queue.settle(self)

    def leave(self) -> None:
        """Give up the ticket."""
        self._queue.remove(self)
        os.close(self.descriptor)


class _Ends:
    """Tells when tickets end: a descriptor becomes readable."""

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe()
        self._watched: set[str] = set()

    def watch(self, paths: Sequence[str]) -> None:
        """Watch these as well, which may have ended already."""
        import threading  # few have to wait

        for path in paths:
            if path not in self._watched:
                self._watched.add(path)
                # a thread, since only a call that blocks tells the end of a lock
                threading.Thread(
                    target=_tell_end, args=(path, os.dup(self._writing)), daemon=True
                ).start()
        if not paths:  # all have ended meanwhile
            os.write(self._writing, b"x")

    def clear(self) -> None:
        """Forget the ends so far."""
        os.read(self.descriptor, 4096)

    def close(self) -> None:
        """Watch no more."""
        os.close(self.descriptor)
        os.close(self._writing)


def _tell_end(path: str, writing: int) -> None:
    """In a thread: wait for the end of a ticket, then write to a pipe."""
    with contextlib.suppress(OSError):  # it has ended already
        descriptor = os.open(path, _READ)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(writing, b"x")
    os.close(writing)


def _is_incomplete(ticket: Ticket) -> bool:
    """Whether it has units, and others of its gang are still to get theirs."""
    return bool(ticket.units) and ticket.share > ticket.wanted


def _set_aside(holders: Sequence[Ticket], run_id: str | None) -> int:
    """How many units are set aside for gangs of other runs."""
    gangs: dict[str, list[Ticket]] = {}
    for one in holders:
        if _is_incomplete(one) and one.owner.run_id != run_id:
            gangs.setdefault(one.owner.run_id, []).append(one)
    return sum(
        max(0, max(one.share for one in gang) - sum(len(one.units) for one in gang))
        for gang in gangs.values()
    )


_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _make_folder(folder: str) -> None:
    """Raises CannotReserve if somebody else could replace what is in it."""
    with contextlib.suppress(FileExistsError), _all_modes():
        os.mkdir(folder, _SHARED_FOLDER)
    found = os.lstat(folder)
    shared = stat.S_IMODE(found.st_mode) == _SHARED_FOLDER
    if not stat.S_ISDIR(found.st_mode) or not shared:
        raise CannotReserve("%s is not a folder with the mode %o" % (folder, _SHARED_FOLDER))


def _open_shared(path: str) -> int:
    """Open a file that all users may write. It is created if need be: only then with O_CREAT, which
    kernels refuse for other users' files in such folders. Raises OSError."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    with contextlib.suppress(FileExistsError), _all_modes():
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, _SHARED_FILE)
    return os.open(path, flags)


@contextlib.contextmanager
def _all_modes() -> Iterator[None]:
    """What is created gets the mode that is asked for, whatever the umask: at once, since others
    may look at it before it could be changed."""
    mask = os.umask(0)
    try:
        yield
    finally:
        os.umask(mask)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _write(descriptor: int, ticket: Ticket) -> None:
    data = json.dumps({**ticket._asdict(), "owner": ticket.owner._asdict()}).encode()
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def _read_ticket(data: bytes, units: Sequence[str]) -> Ticket:
    """What a ticket says; of one that cannot be read, that it has everything."""
    try:
        ticket = records.read(Ticket, json.loads(data))
        # all of them are told to who waits: another user's must not make that too long
        user, run_id, run = (text[:_MAX_NAME] for text in ticket.owner[:3])
        return ticket._replace(owner=Owner(user, run_id, run, ticket.owner.rank))
    except (ValueError, RecursionError):
        return Ticket(Owner("somebody", "", "", 0), 0.0, len(units), units)
