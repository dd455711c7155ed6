"""The nodes of one run in its job runs: which slot has one, with which there is contact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.engines.loop import RunLoop
from muster.engines.oci.jobs import Jobs
from muster.engines.oci.record import Allocation
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.dialing import Dialing
from muster.engines.remote.hosts import Host, HostsOwner
from muster.lifecycle.status import Reason

if TYPE_CHECKING:
    from muster.node.connection import Connection

#: Seconds after which the end of a node that was told to end is reported, though the service does
#: not say why.
_UNEXPLAINED_AFTER = 60.0
_UNEXPLAINED = "its node server was told to end, and the service does not say why"
#: Seconds without contact after which a node is given up while others of its job run are reached:
#: the service does not say what became of one machine.
_SILENT_AFTER = 300.0
#: What a node is called whose name is not known.
_UNNAMED = "its node"


class Slot(Struct):
    """A slot that has a node, or waits for one."""

    allocation: int
    #: Where its connections are passed on to; None until it has a node.
    arrivals: Arrivals | None = None
    #: When contact was lost (see `RunLoop.now`); None: there is contact.
    lost_at: float | None = None
    #: When its node has ended, as it was told to; None: it has not.
    terminated_at: float | None = None


class Nodes:
    """The slots of a run that have nodes, or wait for them. Their owner learns what happens.

    mounted: group -> the mounts that the service makes, see `Host.mounted`. python: group -> see
    `Host.python`.
    """

    def __init__(
        self,
        loop: RunLoop,
        owner: HostsOwner,
        jobs: Jobs,
        dialing: Dialing,
        mounted: Mapping[int, Mapping[str, str]],
        python: Mapping[int, str],
    ) -> None:
        self._loop, self._owner, self._jobs, self._dialing = loop, owner, jobs, dialing
        self._mounted, self._python = mounted, python
        self._slots: dict[int, Slot] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._slots

    def expect(self, slot: int, one: Allocation) -> None:
        """A slot waits for a node of an allocation."""
        self._slots[slot] = Slot(one.number)
        arrivals = self._dialing.of(slot)
        arrivals.server, arrivals.take = one.number, partial(self._arrived, slot)

    def place_found(self, slot: int, one: Allocation) -> None:
        """A slot has a node since an earlier session; there is no contact yet."""
        self._place(slot, one.hosts.get(slot) or _UNNAMED)
        self._slots[slot].lost_at = self._loop.now()

    def give_up(self, slot: int) -> None:
        """A slot needs no node any more: its allocation does not serve it."""
        self._forget(slot)
        self._jobs.leave(slot)

    def _forget(self, slot: int) -> Slot | None:
        """A slot has no node any more, and waits for none: its server is refused, which may live on
        for a while. Returns what was known of it."""
        known = self._slots.pop(slot, None)
        if known is not None:
            self._dialing.of(slot).take = None
        return known

    def waiting(self, slots: Iterable[int] | None = None) -> list[int]:
        """The slots that wait for a node. slots: those to choose from; None: all."""
        every = self._slots if slots is None else slots
        return [s for s in every if s in self._slots and self._slots[s].arrivals is None]

    # --- ends

    def end(self, one: Allocation, why: str, reason: Reason, *, final: bool = False) -> None:
        """No process of an allocation is left. final: see `HostsOwner.refused`."""
        for slot in one.slots:
            known = self._forget(slot)
            if known is None:
                continue
            if known.arrivals is not None:
                self._owner.gone(slot, why, reason)
            else:
                self._owner.refused(slot, why, final=final)
        self._jobs.abandon(one)

    def end_terminated(self, one: Allocation, why: str, reason: Reason) -> None:
        """It is known why the nodes of an allocation were told to end: those that have are gone."""
        for slot in self._terminated(one):
            self._lose(slot, why, reason)

    def end_unexplained(self, one: Allocation) -> None:
        """It is not known why nodes were told to end; after a while, that is reported."""
        for slot in self._terminated(one):
            at = self._slots[slot].terminated_at
            if at is not None and self._loop.now() >= at + _UNEXPLAINED_AFTER:
                self._lose(slot, _UNEXPLAINED, Reason.NODE_LOST)

    def _terminated(self, one: Allocation) -> list[int]:
        found = [slot for slot in one.slots if slot in self._slots]
        return [slot for slot in found if self._slots[slot].terminated_at is not None]

    def _lose(self, slot: int, why: str, reason: Reason) -> None:
        self._forget(slot)
        self._jobs.leave(slot)
        self._owner.gone(slot, why, reason)

    def silent(self, one: Allocation) -> list[int]:
        """The slots whose nodes were lost so long ago that they are given up, while there is
        contact with others of the allocation."""
        known = {slot: self._slots[slot] for slot in one.slots if slot in self._slots}
        if not any(slot.arrivals is not None and slot.lost_at is None for slot in known.values()):
            return []
        limit = self._loop.now() - _SILENT_AFTER
        return [s for s, k in known.items() if k.lost_at is not None and k.lost_at <= limit]

    def is_reached(self, one: Allocation) -> bool:
        """Whether there is contact with all nodes of an allocation, and none was told to end."""
        known = [self._slots.get(slot) for slot in one.slots]
        return all(
            slot and slot.arrivals and slot.lost_at is None and slot.terminated_at is None
            for slot in known
        )

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
        if known.arrivals is None or known.arrivals.take is None:
            from muster.node.greeting import Refusal

            raise Refusal("the supervisor does not expect this node now")
        known.arrivals.take(connection)
        known.lost_at = None
        one = self._jobs.get(known.allocation)
        if one is not None and self.is_reached(one):
            self._jobs.all_reached(known.allocation)

    def _place(self, slot: int, name: str) -> None:
        known = self._slots[slot]
        known.arrivals = Arrivals()
        mounted = self._mounted.get(slot, {})
        one = self._jobs.get(known.allocation)
        host = Host(
            known.arrivals,
            name,
            id="" if one is None else one.run or "",
            python=self._python.get(slot, ""),
            compress=True,
            mounted=mounted,
            at_paths=frozenset(mounted.values()),
            lost=partial(self._lost, slot),
            terminated=partial(self._was_terminated, slot),
            ends_with_slot=True,
        )
        self._owner.placed(slot, host)

    def _was_terminated(self, slot: int) -> None:
        """A node has ended as its server was told to: the service knows why."""
        if (known := self._slots.get(slot)) is not None:
            known.terminated_at = self._loop.now()
            self._jobs.look_soon(known.allocation)

    def _lost(self, slot: int) -> None:
        """Contact with a node is lost: the service may know why."""
        if (known := self._slots.get(slot)) is not None:
            if known.lost_at is None:
                known.lost_at = self._loop.now()
            self._jobs.look_soon(known.allocation)
