"""What differs between infrastructures: how nodes get hosts, and how these are reached.

A host is that of a slot: a position in `RunPlan.nodes`. It is the rank of the node that is there,
except in runs with arrays, whose nodes take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.remote.contact import Arrivals, Dial
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import Reason


class Host(Struct, frozen=True):
    """Where a node is."""

    #: Opens a connection to the node's server, which it starts if it does not run; or where the
    #: connections arrive that the server opens.
    dial: Dial | Arrivals
    #: For people.
    name: str
    #: Seconds without contact after which the server ends its node by itself, see
    #: `node.server.Limits`. None: never.
    isolation: float | None = None
    #: The path there of the Python that runs `python` jobs; "": the one that runs the server.
    python: str = ""
    #: Whether the server compresses output and files that it sends: over a network. On one machine
    #: that would take longer.
    compress: bool = False
    #: Called when the server is about to leave with its folder: it is not to be started again.
    #: None: one that is started again leaves as well.
    leaving: Callable[[], None] | None = None
    #: Where the mounts of the node are there already, by their sources: such as in a container,
    #: which has them at the paths of the job. Others are found or copied (`remote.mounts`).
    mounted: Mapping[str, str] = {}
    #: The paths of mounts that are there: the node sees them where the job wants them, and what is
    #: above otherwise only its server.
    at_paths: frozenset[str] = frozenset()
    #: Where its server writes mounts with given files, which are there at its start; "": in the
    #: folder of the node.
    files: str = ""
    #: Called whenever contact with the server is lost: the infrastructure may know why. None:
    #: nothing is.
    lost: Callable[[], None] | None = None


def slots_in_use(context: RunContext) -> frozenset[int]:
    """The slots whose nodes were given to an earlier session and may be alive on hosts that it got
    for them. Of an array, these may be all."""
    plan, found = context.plan, set[int]()
    for ref, status in context.alive.items():
        group = plan.group_of(ref.rank)
        if status.state is NodeState.QUEUED:
            continue
        if group.is_array:
            found.update(plan.slots(group))
        else:
            found.add(plan.slot_of(plan.node(ref.rank)))
    return frozenset(found)


class HostsOwner(Protocol):
    """What learns of hosts. Called in the loop's thread."""

    def queued(self, slots: Sequence[int], why: str) -> None:
        """Hosts for these slots are waited for. why: a phrase. Again when it is for something
        else."""
        ...

    def placed(self, slot: int, host: Host) -> None:
        """A slot has a host."""
        ...

    def refused(self, slot: int, why: str) -> None:
        """A slot gets no host. why: a sentence for people."""
        ...

    def gone(self, slot: int, why: str, reason: Reason = Reason.NODE_LOST) -> None:
        """No process of a slot's node is left on its host, which it does not have any more. why:
        for people."""
        ...

    def freeing(self, *, busy: bool) -> None:
        """Whether something that belongs to the run is being freed, such as hosts that were given
        up. While it is, a session that closes is not closed. At first: no."""
        ...


class Hosts(Protocol):
    """The hosts of one run's nodes. No call waits for the infrastructure."""

    def allocate(self, slots: Sequence[int]) -> None:
        """Get a host for each of these slots, all or none: now or later. They have none, and wait
        for none. One that an earlier session got for a slot is found again (`slots_in_use`)."""
        ...

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """Get hosts for slots of arrays, in parts that are of use alone: the slots of one replica.
        As many parts as there are hosts for, at least one, now or later; and the others when there
        are more. Otherwise as `allocate`. Only with `Capabilities.arrays`."""
        ...

    def place_ended(self) -> None:
        """The run is over: find the hosts that earlier sessions got for nodes which had ended
        before this one. Their servers are to leave, so they are placed; one whose server does not
        run any more is gone."""
        ...

    def give_up(self, slot: int) -> None:
        """The slot needs no host any more: its server has left, or it waits for a host."""
        ...

    def close(self) -> None:
        """Watch the infrastructure no more. Hosts that were not given up stay."""
        ...
