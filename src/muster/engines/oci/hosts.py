"""The hosts of one run's nodes: has job runs created for them, and learns what becomes of these.

Nothing polls for the start of a node: its server dials the supervisor. The service is asked about a
job run while a node has not done that, and while contact with one is lost; and now and then if
nodes do not reach the supervisor themselves, but through a bucket.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import Any

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.oci.artifact import artifact, description
from muster.engines.oci.details import image_of, mounted_by_service, parts_of
from muster.engines.oci.jobs import Jobs
from muster.engines.oci.listen import listen_address
from muster.engines.oci.nodes import Nodes
from muster.engines.oci.profile import OciProfile
from muster.engines.oci.record import Allocation
from muster.engines.oci.refusals import CannotRun
from muster.engines.oci.states import (
    JobRun,
    how_it_ended,
    is_ending,
    short_id,
    why_it_waits,
)
from muster.engines.oci.tunnel import Tunnel
from muster.engines.remote.dialing import Dialing, first_free
from muster.engines.remote.hosts import HostsOwner, slots_in_use
from muster.engines.remote.pauses import Pauses
from muster.engines.remote.run_secrets import contact_secrets
from muster.engines.remote.wanted_slots import WantedSlots
from muster.lifecycle.status import Reason

#: Seconds until something is tried again that was not possible.
_RETRY_PAUSE = 5.0


class OciHosts:
    """See `engines.remote.hosts.Hosts`. Raises OSError if the jobs of the run are not known."""

    def __init__(
        self,
        context: RunContext,
        profile: OciProfile,
        loop: RunLoop,
        owner: HostsOwner,
    ) -> None:
        self._context, self._profile = context, profile
        self._loop, self._owner = loop, owner
        self._jobs = Jobs(context, profile, loop, self._seen, self._freeing)
        #: Slots whose nodes were found alive, and are not placed yet.
        self._in_use = set(slots_in_use(context))
        self._nodes: Nodes | None = None  # once they can dial
        self._dialing: Dialing | None = None
        self._tunnel: Tunnel | None = None
        self._left = ""  # see `HostsOwner.freeing`
        self._trouble = ""  # why nodes do not reach this machine, though they have started
        self._wanted = WantedSlots()
        self._told: dict[int, str] = {}  # allocation -> what was reported of its wait
        self._given_up: dict[int, str] = {}  # allocation -> why its job run was canceled
        self._pauses = Pauses(loop)
        self._over = False  # whether `place_ended` waits for it
        self._closed = False
        # the secrets take their time to be made
        loop.in_thread(self._make_secrets, self._listen)
        loop.post(self._jobs.remove_unneeded)  # of an earlier session

    # --- where nodes dial

    def _make_secrets(self) -> OSError | None:
        run_dir = self._context.home.run_dir(self._context.plan.run_id)
        try:
            contact_secrets(run_dir)
        except OSError as error:
            return error
        return None

    def _listen(self, error: OSError | None) -> None:
        """Listen where nodes dial, as the first supervisor of the run has."""
        if self._closed:
            return
        try:
            if error is not None:
                raise error
            self._dialing = self._listening()
        except OSError as why:
            text = f"nodes cannot dial this machine: {why}"
            for slot in self._wanted:
                self._owner.queued([slot], text)
            self._pauses.after(
                _RETRY_PAUSE, lambda: self._loop.in_thread(self._make_secrets, self._listen)
            )
            return
        plan = self._context.plan
        if (bucket := self._jobs.bucket) is None:
            self._jobs.listens_at(self._dialing.port)
        else:
            self._tunnel = Tunnel(bucket, plan.run_id, self._dialing.port, self._report)
            self._loop.in_thread(self._tunnel.run, self._tunnel_ended)
        groups = {slot: plan.group(node.group) for slot, node in enumerate(plan.nodes)}
        mounted = {s: mounted_by_service(group, self._profile) for s, group in groups.items()}
        python = {
            slot: group.container.python or self._profile.python
            for slot, group in groups.items()
            if image_of(group, self._profile) is not None
        }
        nodes = Nodes(self._loop, self._owner, self._jobs, self._dialing, mounted, python)
        self._nodes = nodes
        self._allocate_all()
        if self._over:
            self.place_ended()  # again: it could not place them before

    def _listening(self) -> Dialing:
        """Raises OSError."""
        if self._jobs.bucket is not None:
            return Dialing(self._context, self._loop, "127.0.0.1", None)
        return first_free(self._listening_at, self._jobs.port, self._profile.ports)

    def _listening_at(self, port: int) -> Dialing:
        """Raises OSError."""
        address = listen_address(self._profile)
        assert address is not None, "the engine has checked it"
        make = partial(
            Dialing,
            context=self._context,
            loop=self._loop,
            address_file=None,
            port=port,
            reached_at=address,
        )
        if self._profile.listen is not None:
            return make(listen=self._profile.listen)
        try:
            return make(listen=address)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            return make(listen="")  # the address is that of a gateway, or a name

    # --- what the session asks for

    def allocate(self, slots: Sequence[int]) -> None:
        """See `Hosts`."""
        self._wanted.add(slots)
        self._loop.post(self._allocate_all)  # with those that others are asked for now

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """See `Hosts`. Each part is a job run of its own."""
        self._wanted.add_parts(parts)
        self._loop.post(self._allocate_all)

    def _allocate_all(self) -> None:
        if self._nodes is None or self._closed:
            return
        together, parts = self._wanted.take()
        for part in parts_of([together, *parts], self._profile):
            if new := self._find(self._nodes, part):
                one = self._jobs.add(new)
                for slot in new:
                    self._nodes.expect(slot, one)
                self._create(one.number, again=False)

    def _find(self, nodes: Nodes, slots: Sequence[int]) -> list[int]:
        """Find the nodes that slots have. Returns those that need a new job run."""
        new, found = [], dict[int, Allocation]()
        for slot in slots:
            known = self._jobs.of_slot(slot)
            if known is None:
                new.append(slot)
                continue
            nodes.expect(slot, known)
            if slot in self._in_use:
                self._in_use.discard(slot)
                nodes.place_found(slot, known)
            found[known.number] = known
        for one in found.values():
            self._continue(one)
        return new

    def _continue(self, one: Allocation) -> None:
        """Continue an allocation of an earlier session."""
        if one.run is None:
            self._create(one.number, again=True)
        else:
            self._jobs.watch(one)

    def place_ended(self) -> None:
        """See `Hosts`."""
        self._over = True
        self._wanted.take()
        if self._nodes is None:
            return
        for slot in self._nodes.waiting():
            self.give_up(slot)  # it waits for a host, which nobody needs any more
        for one in self._jobs:
            if one.run is None and one.slots:
                self._jobs.abandon(one)  # nothing runs, or it was not asked for
                continue
            for slot in one.slots:
                if slot not in self._nodes:
                    self._nodes.expect(slot, one)
                    self._nodes.place_found(slot, one)
            if one.slots:
                self._jobs.watch(one)
        self._jobs.remove_unneeded()

    def give_up(self, slot: int) -> None:
        """See `Hosts`."""
        self._in_use.discard(slot)
        self._wanted.drop(slot)
        if self._nodes is not None:
            self._nodes.give_up(slot)
        else:
            self._jobs.leave(slot)

    def close(self) -> None:
        """See `Hosts`."""
        self._closed = True
        self._pauses.close()
        self._jobs.close()
        if self._tunnel is not None:
            self._tunnel.close()
        if self._dialing is not None:
            self._dialing.close()

    # --- creation

    def _create(self, number: int, *, again: bool) -> None:
        one, dialing = self._jobs.get(number), self._dialing
        if one is None or one.is_unneeded or one.run is not None or dialing is None:
            return  # it was given up, or created, meanwhile
        plan, folder = self._context.plan, self._profile.folder
        has_log = self._profile.log_group is not None
        told = description(plan, one.made_for, number, folder, dialing, copy_log=has_log)
        make = partial(self._artifact, one.number, told)
        self._jobs.create(one, make, self._created, again=again)

    def _artifact(self, number: int, told: dict[str, Any]) -> bytes:
        """The artifact of a job. In a thread. Raises CannotRun, OSError."""
        if (place := self._jobs.link(number)) is not None:
            told = {**told, "tunnel": place}
        return artifact(told)

    def _created(self, number: int, error: CannotRun | None) -> None:
        one = self._jobs.get(number)
        assert one is not None and self._nodes is not None
        if error is None:
            self._jobs.watch(one)
        elif error.refused:
            text = f"the service refuses the job run: {error}"
            self._nodes.end(one, text, Reason.NODE_LOST)
        else:
            self._say_queued(one, f"the service does not create the job run yet: {error}")
            self._pauses.after(_RETRY_PAUSE, partial(self._create, number, again=True))

    # --- what the service says

    def _seen(self, number: int, answer: JobRun | CannotRun) -> None:
        one, nodes = self._jobs.get(number), self._nodes
        assert one is not None and nodes is not None
        if isinstance(answer, CannotRun):
            self._say_queued(one, f"the service does not say how its job run is: {answer}")
            nodes.end_unexplained(one)
        elif answer.over:
            self._told.pop(number, None)
            if answer.state == "FAILED" and nodes.waiting(one.slots):
                # what keeps nodes from dialing is in their log
                self._jobs.unwatch(number)
                self._jobs.last_line(answer, partial(self._failed, number, answer))
            else:
                nodes.end(one, *self._why(one, answer))
        elif is_ending(answer):
            nodes.end_terminated(one, *self._why(one, answer))
        else:
            self._say_queued(one, why_it_waits(answer))
            nodes.end_unexplained(one)
            if nodes.silent(one):
                self._give_up_silent(nodes, one, answer)
        if nodes.is_reached(one):
            self._jobs.all_reached(number)

    def _failed(self, number: int, run: JobRun, line: str) -> None:
        """A job run has failed before all of its nodes have dialed. line: the last of its log."""
        one = self._jobs.get(number)
        if one is not None and self._nodes is not None and not self._closed:
            why, reason = self._why(one, run)
            self._nodes.end(one, f"{why}: {line}" if line else why, reason)

    def _why(self, one: Allocation, run: JobRun) -> tuple[str, Reason]:
        """Why the nodes of an allocation end, and the reason of their failure."""
        if (why := self._given_up.get(one.number)) is not None:
            return why, Reason.NODE_LOST
        reason, why = how_it_ended(run)
        return why, reason

    def _give_up_silent(self, nodes: Nodes, one: Allocation, run: JobRun) -> None:
        """End a job run of which a node does not answer: its end is certain then."""
        names = ", ".join(one.hosts.get(slot, "a node") for slot in nodes.silent(one))
        where = f"job run {short_id(run.id)}"
        why = f"there was no contact with {names} for minutes, so {where} was canceled"
        self._given_up[one.number] = why
        self._jobs.cancel(run)

    def _say_queued(self, one: Allocation, why: str) -> None:
        """Say what an allocation waits for, if that is new."""
        assert self._nodes is not None
        why = self._trouble or why
        waiting = self._nodes.waiting(one.slots)
        if waiting and self._told.get(one.number) != why:
            self._told[one.number] = why
            self._owner.queued(waiting, why)

    def _report(self, why: str) -> None:
        """What keeps messages from going through the bucket; "" for nothing. In any thread."""

        def take() -> None:
            self._trouble = why and f"nodes do not reach this machine through the bucket: {why}"
            for one in self._jobs if why and self._nodes is not None else ():
                self._say_queued(one, self._trouble)

        self._loop.post(take)

    def _freeing(self, busy: bool, left: str) -> None:
        """Whether jobs are being ended, and what was not. When the run is over, the bucket is
        cleared after them."""
        self._left = left
        if self._tunnel is not None and self._over and all(one.is_unneeded for one in self._jobs):
            if not busy:
                self._tunnel.close()
            busy = True
        self._owner.freeing(busy=busy, left=left)

    def _tunnel_ended(self, _nothing: None) -> None:
        """Nothing is left in the bucket."""
        self._tunnel = None
        self._owner.freeing(busy=False, left=self._left)
