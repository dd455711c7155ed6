"""Which machines the nodes of a run get. Pure.

A gang of nodes gets a machine for each, all or none. Machines are asked what they offer, in the
order of the profile, until enough of them are free. If there are not enough, those with the
shortest queues are waited for, one after the other: everybody enters queues in the same order, and
gets all that it needs of a machine at once, so that no two runs wait for each other. A connection
that is lost gives up its machine. If the machine that replaces it comes before others that were
entered already, these are entered again, to keep the order.

The replicas of an array run a few at a time, so a gang for their slots makes do with the machines
that are free, if these are enough for one replica.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from operator import le
from typing import Protocol

from msgspec import Struct

from muster.engines.hosts.profile import Machine
from muster.escapes import visible_line
from muster.node.reservation import Offer, Situation, Ticket

#: Machines of which a refusal says why they cannot be used.
_MAX_REASONS = 5
_HALF_DAY = 43_200  # seconds
#: Characters of a name in a ticket that are shown.
_MAX_SHOWN = 100


class Try(Protocol):
    """A machine that was asked on behalf of a node."""

    rank: int
    machine: Machine
    #: Why it cannot be used; "" if it can, as far as is known.
    failed: str
    #: Whether it failed because it can be reached, but lacks what is needed.
    lacks: bool

    @property
    def offer(self) -> Offer | None:
        """None until it has answered, and if the node's server runs there."""
        ...

    @property
    def entered(self) -> bool:
        """Whether it has entered the machine's queue."""
        ...

    @property
    def has(self) -> bool:
        """Whether the node has what it needs of it, while the connection lasts; or its server runs
        there."""
        ...


class Choice(Struct, frozen=True):
    """What to do next for a gang."""

    #: rank -> the machine to ask on its behalf.
    ask: Mapping[int, Machine] = {}
    #: The node that enters the queue of its machine next; None: wait for answers.
    enter: int | None = None
    #: How many units all nodes of the gang need of that machine.
    share: int = 0
    #: Whether each node has its machine.
    complete: bool = False
    #: Why there are no machines, for people; "" if there may be.
    refused: str = ""
    #: Whether it is refused also if all machines can be reached again.
    hopeless: bool = False


class _Slot:
    """A machine, or one of several places of it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        #: The most GPUs that a node may need, as far as is known; -1: no node can use it.
        self.most = inf if machine.gpus is None else float(machine.gpus)
        #: Tickets that were waiting, and that had units, when it was asked last; None: it may be
        #: free.
        self.busy: tuple[int, int] | None = None
        #: Why it was not used, for people.
        self.failed = ""
        self.reachable = True


class Gang:
    """Nodes that need machines together.

    demands: rank -> how many GPUs it needs; 0 for none in particular. machines: those that may be
    used: one that runs several nodes at a time is listed as often. wanted: rank -> the machine to
    ask first. parts: the nodes in parts, all but one of which it can do without; none if it needs
    all nodes.
    """

    def __init__(
        self,
        demands: Mapping[int, int],
        machines: Sequence[Machine],
        wanted: Mapping[int, Machine] | None = None,
        parts: Sequence[Sequence[int]] = (),
    ) -> None:
        self._demands = dict(demands)
        self._parts = list(parts)
        #: The parts for which there is no machine now.
        self.dropped: list[Sequence[int]] = []
        #: Those that need most first: what they can use, others can use as well, but not the
        #: other way round.
        self._by_demand = sorted(demands, key=lambda rank: (-demands[rank], rank))
        self._slots = [_Slot(machine) for machine in machines]
        self._given: dict[int, _Slot] = {}
        self._wanted = dict(wanted or {})
        #: rank -> what was asked on its behalf, and is still considered.
        self.tries: dict[int, Try] = {}
        self._settled = False  # whether the machines are chosen, though some are in use

    @property
    def ranks(self) -> list[int]:
        """Its nodes."""
        return list(self._demands)

    def choose(self) -> Choice:
        """What to do next. The caller puts what it has asked into `tries`."""
        self._take_failures()
        if not self._settled:
            self._take_busy()
        reachable = [slot for slot in self._slots if slot.reachable]
        while not self._suffice(reachable) and not self._asking() and self._drop_part():
            pass
        if not self._suffice(reachable):
            # the refusal names everything that is wrong, not what was found first
            return Choice() if self._asking() else self._refusal()
        ask = self._give_out()
        if ask:
            return Choice(ask=ask)
        if self._asking():
            return Choice()
        if len(self.tries) == len(self._demands):
            return self._advance()
        if self._drop_part():
            return self.choose()
        self._settled = True  # all have answered, and not enough are free
        ask = self._give_out()
        return Choice(ask=ask) if ask else self._refusal()

    def _drop_part(self) -> bool:
        """Do without the nodes of one part: one that lacks a machine, if there is one. Returns
        False if all nodes that are left are needed."""
        if len(self._parts) < 2:
            return False
        lacks = [part for part in self._parts if not self.tries.keys() >= set(part)]
        part = (lacks or self._parts)[-1]
        self._parts.remove(part)
        self.dropped.append(part)
        for rank in part:
            del self._demands[rank]
            self._by_demand.remove(rank)
            self._given.pop(rank, None)
            self._wanted.pop(rank, None)
            self.tries.pop(rank, None)
        return True

    def _asking(self) -> bool:
        """Whether a machine has not answered yet."""
        return any(one.offer is None and not one.has for one in self.tries.values())

    def _take_failures(self) -> None:
        for rank, one in list(self.tries.items()):
            if not one.failed:
                continue
            slot = self._drop(rank)
            slot.failed = one.failed
            if not one.lacks:
                slot.reachable = False
            elif one.offer is None:  # it may suffice for a node that needs less
                slot.most = self._demands[rank] - 1
            else:
                slot.most = -1

    def _take_busy(self) -> None:
        """Drop machines that are not free for what the gang needs of them."""
        used: dict[str, int] = {}
        for rank in self._by_demand:
            one = self.tries.get(rank)
            if one is None or one.has or one.entered or one.offer is None:
                continue
            offer = one.offer
            wanted = used.get(offer.queue, 0) + offer.wanted
            if offer.situation.free < wanted or offer.situation.before:
                busy = len(offer.situation.before), len(offer.situation.holders)
                self._drop(rank).busy = busy
            else:
                used[offer.queue] = wanted

    def _drop(self, rank: int) -> _Slot:
        del self.tries[rank]
        return self._given.pop(rank)

    def _suffice(self, slots: Sequence[_Slot]) -> bool:
        """Whether these are enough for all nodes, in use or not."""
        most = sorted((slot.most for slot in slots if slot.most >= 0), reverse=True)
        demands = [self._demands[rank] for rank in self._by_demand]
        return len(most) >= len(demands) and all(map(le, demands, most))

    def _give_out(self) -> dict[int, Machine]:
        """Give each node that lacks a machine one that may be free; once they are settled, any.
        Returns whom to ask."""
        ask: dict[int, Machine] = {}
        for rank in self._by_demand:
            if rank in self._given:
                continue
            for changed, slot in self._moves(rank):
                self.tries.pop(changed, None)
                self._wanted.pop(changed, None)
                self._given[changed], ask[changed] = slot, slot.machine
        return ask

    def _moves(self, rank: int) -> list[tuple[int, _Slot]]:
        """What nodes get which machines, so that this one gets one, too; none if that cannot be.
        It may take one from a node that needs less, and can use another one."""
        moves: list[tuple[int, _Slot]] = []
        while True:
            slot = self._next(rank)
            if slot is not None:
                return [*moves, (rank, slot)]
            loser = self._loser(rank)
            if loser is None:
                return []
            moves.append((rank, self._given[loser]))
            rank = loser

    def _next(self, rank: int) -> _Slot | None:
        """The machine to ask next: the one that is wanted, or the first; of those that are in use,
        the one with the shortest queue."""
        given = {id(slot) for slot in self._given.values()}
        free = [
            slot
            for slot in self._slots
            if self._fits(rank, slot)
            and id(slot) not in given
            and (slot.busy is None or self._settled)
        ]
        wanted = self._wanted.get(rank)
        others = set(self._wanted.values())  # its own one comes first all the same
        return min(
            free,
            key=lambda slot: (
                slot.machine != wanted,
                slot.machine in others,
                slot.busy or (0, 0),
            ),
            default=None,
        )

    def _loser(self, rank: int) -> int | None:
        """The node that needs least of those whose machine this one can use, if it needs less. A
        server that runs stays where it is."""
        for other in reversed(self._by_demand):
            if self._demands[other] >= self._demands[rank]:
                return None
            one = self.tries.get(other)
            runs = one is not None and one.has and not one.entered
            if other in self._given and not runs and self._fits(rank, self._given[other]):
                return other
        return None

    def _fits(self, rank: int, slot: _Slot) -> bool:
        return slot.reachable and slot.most >= self._demands[rank]

    def _advance(self) -> Choice:
        """Every node has a machine that offers something."""
        waiting = [one for one in self.tries.values() if not one.has]
        if not waiting:
            return Choice(complete=True)
        first = min(waiting, key=_order)
        if first.entered:
            return Choice()
        # after a connection was lost, another machine may have taken its place
        later = [one for one in self.tries.values() if one.entered and _order(one) > _order(first)]
        if later:
            for one in later:
                del self.tries[one.rank]
            return Choice(ask={one.rank: one.machine for one in later})
        assert first.offer is not None
        queue = first.offer.queue
        offers = [one.offer for one in self.tries.values() if one.offer is not None]
        share = sum(offer.wanted for offer in offers if offer.queue == queue)
        return Choice(enter=first.rank, share=share)

    def _refusal(self) -> Choice:
        needed = len(self._demands)
        text = f"{needed} machines are needed at the same time, and fewer can be used"
        if len({one.machine.name for one in self._slots}) < len(self._slots):
            text = f"room for {needed} nodes is needed at the same time, and there is less"
        if needed == 1:
            text = "no machine can be used"
        reasons = {f"{one.machine.name}: {one.failed}": None for one in self._slots if one.failed}
        shown = [*reasons][:_MAX_REASONS]
        if len(reasons) > len(shown):
            shown.append(f"and {len(reasons) - len(shown)} more")
        return Choice(refused="; ".join([text, *shown]), hopeless=not self._suffice(self._slots))


def _order(one: Try) -> tuple[str, int]:
    return ("" if one.offer is None else one.offer.queue), one.rank


def describe(machine: Machine, situation: Situation, now: float) -> str:
    """Why a run waits, as a sentence. now: epoch seconds."""
    users = ", ".join(_uses(situation.holders, now))
    text = f"{machine.name} is not free" + (f": {users}" if users else "")
    if count := len(situation.before):
        nodes = "1 other node comes" if count == 1 else f"{count} other nodes come"
        text += f"; {nodes} first"
    return text


def _uses(tickets: Sequence[Ticket], now: float) -> Iterator[str]:
    runs = {(one.owner.user, one.owner.run_id): one for one in tickets}
    for one in runs.values():
        user, name = _shown(one.owner.user), _shown(one.owner.run)
        run = f"{user}'s run {name}" if name else user
        yield f"{run} has used it since {_time(one.since, now)}" if one.since else f"{run} uses it"


def _shown(text: str) -> str:
    """A text of a ticket. Tickets are written by other people: they may say anything."""
    return visible_line(text[:_MAX_SHOWN])


def _time(at: float, now: float) -> str:
    """A time for people."""
    form = "%H:%M" if abs(now - at) < _HALF_DAY else "%Y-%m-%d %H:%M"
    try:
        return time.strftime(form, time.localtime(at))
    except (OverflowError, OSError, ValueError):
        return "an unknown time"
