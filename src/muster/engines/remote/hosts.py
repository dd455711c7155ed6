"""What differs between infrastructures: how nodes get hosts, and how these are reached.

A host is that of a slot: a position in `RunPlan.nodes`. It is the rank of the node that is there,
except in runs with arrays, whose nodes take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.remote.contact import Arrivals, Dial
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import Reason
from muster.node.messages import ExitReport
from muster.plan.model import GroupPlan, RunPlan
from muster.plan.template import Facts


class HostImage(Struct, frozen=True):
    """What the image of a host says of programs in it."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    #: Where programs start whose group has neither code nor a directory; "": as on other hosts.
    working_dir: str = ""

    def program(self, group: GroupPlan) -> tuple[str, ...]:
        """The command line, without `node_args`, of a group that runs it (`RunPlan.runs_image`);
        empty if there is none."""
        given = (*(group.command or ()), *group.args)
        return (*self.entrypoint, *(given if given or group.node_args else self.command))


class Companions(Protocol):
    """What the infrastructure runs beside the program of a node, and for it: the other containers
    of a pod. No call waits; what comes of it, the owner of the hosts learns. An incarnation has the
    number that its server knows (`RemoteNode.number`)."""

    def start(self, start: CompanionStart) -> None:
        """Start what runs before the program, and with it: then `companions_started`. If the
        program has started, as an earlier session may have had it, only what is to run now."""
        ...

    def stop(self) -> None:
        """The node is to end: end what runs with the program, in the grace period."""
        ...

    def kill(self) -> None:
        """End everything at once."""
        ...

    def finish(self, *, succeeded: bool, keep: bool) -> None:
        """The program has ended: `companions_ended` when what belongs to the incarnation has, too.
        succeeded: whether the program has; then what runs with it is waited for. keep: whether
        what serves the node may stay for the next incarnation, if this one has failed."""
        ...


class CompanionStart(Struct, frozen=True):
    """What is known of an incarnation whose companions start."""

    number: int
    #: What its placeholders stand for.
    facts: Facts
    #: The files on the node's host for standard output and error.
    outputs: tuple[str, str]
    #: Whether the program has started already, or was told to.
    has_begun: bool
    #: Whether it has ended: then `finish` follows at once.
    has_ended: bool


class Host(Struct, frozen=True):
    """Where a node is."""

    #: Opens a connection to the node's server, which it starts if it does not run; or where the
    #: connections arrive that the server opens.
    dial: Dial | Arrivals
    #: For people.
    name: str
    #: What the infrastructure calls it, for programs: see `NodeStatus.host_id`. "": that is not
    #: known, or it is only called by its name.
    id: str = ""
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
    #: The sources of scratch directories that are not emptied for a node: what else uses them has
    #: put something there, and does so again only on another host.
    shared: frozenset[str] = frozenset()
    #: Where its server writes mounts with given files, which are there at its start; "": in the
    #: folder of the node.
    files: str = ""
    #: Called when its node has ended since the host has not passed the preflight checks: the next
    #: host of the slot has to be another one. The server is had leave then, and the node is gone
    #: (`RemoteSession.gone`). None: the node starts here again.
    unfit: Callable[[], None] | None = None
    #: Whether the infrastructure ends all that runs there when the slot is given up: a run that is
    #: over leaves nothing there then, also without contact to the server.
    ends_with_slot: bool = False
    #: Whether programs get all variables of the server there, also with `clean_env`: they come from
    #: the image and what describes the container, such as Secrets of a cluster.
    keeps_variables: bool = False
    #: Whether its server adds the names of nodes to a hosts file, which is the node's own.
    has_names: bool = False
    #: What runs beside the program; None: nothing does.
    companions: Companions | None = None
    #: Called when one of these has failed and its node has ended: they do not start again on this
    #: host. As `unfit` otherwise. None: they do.
    spent: Callable[[], None] | None = None
    #: Called whenever contact with the server is lost: the infrastructure may know why. None:
    #: nothing is.
    lost: Callable[[], None] | None = None
    #: None: it was made from none.
    image: HostImage | None = None
    #: Further addresses from which the requests of its programs may arrive elsewhere, besides those
    #: that it has. None: not known, as they are translated on the way.
    addresses: tuple[str, ...] | None = ()
    #: Called when the server says that the infrastructure has had it end, with its node, or that a
    #: node has ended that was told to save (`HostsOwner.expiring`). The engine
    #: then finds out why, and soon calls `HostsOwner.gone`, which reports the node's end. None: it
    #: is reported at once, as a lost node.
    terminated: Callable[[], None] | None = None


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


def first_parts(plan: RunPlan) -> list[list[int]]:
    """The slots that get hosts together when a run starts: those of all groups that are no arrays,
    and those of each replica of an array that runs at once."""
    alone = [slot for group in plan.groups if not group.is_array for slot in plan.slots(group)]
    parts = [alone] if alone else []
    for group in plan.groups:
        if group.is_array:
            slots = plan.slots(group)
            firsts = range(slots.start, slots.stop, group.nodes)
            parts += [list(range(first, first + group.nodes)) for first in firsts]
    return parts


class HostsOwner(Protocol):
    """What learns of hosts. Called in the loop's thread."""

    def queued(self, slots: Sequence[int], why: str) -> None:
        """Hosts for these slots are waited for. why: a phrase. Again when it is for something
        else."""
        ...

    def placed(self, slot: int, host: Host) -> None:
        """A slot has a host."""
        ...

    def refused(self, slot: int, why: str, *, final: bool = False) -> None:
        """A slot gets no host. why: a sentence for people. final: whether it would not get one
        later either, whatever is tried: the run fails."""
        ...

    def gone(
        self,
        slot: int,
        why: str,
        reason: Reason = Reason.NODE_LOST,
        *,
        left: Path | None = None,
    ) -> None:
        """No process of a slot's node is left on its host, which it does not have any more. why:
        for people. left: a folder of this machine with what the server had in its folder, as far as
        it was saved. What is missing of the logs is taken from there."""
        ...

    def unreachable(self, slots: Sequence[int], why: str) -> None:
        """Whether the nodes of these slots run is not known, as the infrastructure says nothing of
        their hosts, which an earlier session got. why: a phrase. Again for another reason."""
        ...

    def ending(self, slots: Sequence[int], why: str) -> None:
        """The infrastructure is ending the nodes of these slots, which have hosts: `gone` follows.
        Until then, the failure of another node may come from that. why: a phrase."""
        ...

    def restarted(self, restarts: int, slots: Sequence[int], why: str) -> None:
        """The infrastructure has restarted the run by itself: no process of an older node is left,
        and no slot has a host any more. Those in `slots` get another one without being asked for
        (`Hosts.allocate`), for the nodes that the infrastructure has restarted. Not with arrays.

        restarts, why: see `lifecycle.events.RunRestarted`.
        """
        ...

    def expiring(self, slots: Sequence[int], *, signaled: bool = False) -> list[int]:
        """The infrastructure is about to end the nodes of these slots: have their programs save, as
        before a suspension (`Policy.checkpoint`), unless an earlier session has (`signaled`).
        However they end, `Host.terminated` is called then, and the engine says why with `gone`.
        Returns the slots for which that is to come: the nodes of others have ended, or were told
        to."""
        ...

    def companions_started(self, slot: int, number: int) -> None:
        """All that is to run before a program has ended well, or runs."""
        ...

    def companions_failed(self, slot: int, number: int, report: ExitReport) -> None:
        """One of them has failed, and so has the node: its program is to end."""
        ...

    def companions_ended(self, slot: int, number: int) -> None:
        """After `Companions.finish`: they have ended, or are kept."""
        ...

    def freeing(self, *, busy: bool, left: str = "") -> None:
        """Whether something that belongs to the run is being freed, such as hosts that were given
        up. While it is, a session that closes is not closed. At first: no. left: what could not be
        freed, and why: sentences, in lines; "" if nothing is known that could not. While it is
        busy, it tries again."""
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
