"""A node on its host, and the contact with its server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from muster.engines.loop import RunLoop
from muster.engines.remote.collection import TreeCopy
from muster.engines.remote.contact import Contact, SupervisorId
from muster.engines.remote.hosts import Host
from muster.engines.remote.node import RemoteNode
from muster.node import messages
from muster.node.greeting import SERVER_TIMEOUT
from muster.node.messages import Message

#: Seconds that a host gets to end a node that has no contact, and by which clocks may differ.
_ISOLATION_MARGIN = 20.0


class NodeContactOwner(Protocol):
    """What learns of the contacts with nodes. Called in the loop's thread."""

    def began(self, owner: NodeContact) -> None:
        """A conversation with a node's server begins."""
        ...

    def heard(self, owner: NodeContact, received: Sequence[Message]) -> None:
        """Messages of a node's server have arrived."""
        ...

    def contact_changed(self, slot: int) -> None:
        """Contact with the server of a slot was found or lost, or something has arrived on its
        streams."""
        ...

    def deadlines_changed(self) -> None:
        """Contact with a node was lost, or is there again."""
        ...


class NodeContact:
    """A node and the contact with its server. supervisor: of this process."""

    def __init__(
        self,
        owner: NodeContactOwner,
        node: RemoteNode,
        host: Host,
        loop: RunLoop,
        supervisor: SupervisorId,
    ) -> None:
        self._owner = owner
        self._loop = loop
        #: The newest node in its slot. Nodes of an array take turns.
        self.node = node
        assert node.slot is not None, "it has a host"
        self.slot = node.slot
        self.host = host
        #: Why its node does not start here again, for people; "" if it may.
        self.unfit = ""
        #: Called then (`Host.unfit`, `Host.spent`).
        self.give_up_host: Callable[[], None] | None = None
        #: Since when there is no contact; None: there is.
        self.lost_at: float | None = loop.now()
        #: Since when there is none that is of use: the server may be reached, and break the rules
        #: each time.
        self.useless_at = loop.now()
        self._violates = False  # whether its server broke the rules, and has said nothing since
        self._told_to_leave = False
        #: What is copied before its server leaves; None before that begins.
        self.last: Sequence[TreeCopy] | None = None
        #: Whether the folder on its host stays, as what is in it could not be copied.
        self.keeps_folder = False
        self.contact = Contact(loop, host.dial, supervisor, self, compress=host.compress)

    def reached(self, *, begins: bool) -> None:
        """See `ContactOwner`."""
        self.node.reached(begins=begins)
        self.lost_at = None
        self._owner.deadlines_changed()
        if begins:
            self._told_to_leave = False  # another server may not have heard it
            self._owner.began(self)
        self._owner.contact_changed(self.slot)

    def received(self, received: Sequence[Message]) -> None:
        """See `ContactOwner`."""
        self._violates = False
        self._owner.heard(self, received)

    def streamed(self) -> None:
        """See `ContactOwner`."""
        self._owner.contact_changed(self.slot)

    def lost(self, why: str) -> None:
        """See `ContactOwner`."""
        if not self.unfit:
            self.node.lost(why)
        if self.lost_at is None:
            self.lost_at = self._loop.now()
            if not self._violates:
                self.useless_at = self.lost_at
            self._violates = self.contact.violated
            self._owner.deadlines_changed()
        self._owner.contact_changed(self.slot)
        if self.host.lost is not None:
            self.host.lost()

    def end_use(self, why: str, give_up: Callable[[], None]) -> None:
        """Its node does not start here again. why: for people. give_up: called when it has
        ended."""
        self.unfit, self.give_up_host = self.unfit or why, self.give_up_host or give_up

    @property
    def isolated_at(self) -> float | None:
        """When its host has ended the node by itself, if there is no contact until then; None:
        never."""
        if self.lost_at is None or self.host.isolation is None:
            return None
        # the server may notice the loss of contact as much later
        return self.lost_at + self.host.isolation + SERVER_TIMEOUT + _ISOLATION_MARGIN

    def close(self) -> None:
        """End contact, and copy nothing more."""
        self.contact.close()
        for tree in self.last or ():
            tree.close()

    def leave(self) -> bool:
        """Have the server leave. Returns whether it was told, and has closed the connection."""
        if not self._told_to_leave:
            self._told_to_leave = True
            if self.host.leaving is not None and not self.keeps_folder:
                self.host.leaving()
            self.contact.send(messages.Leave(keep=self.keeps_folder))
            return False
        return not self.contact.up and not self.contact.unacknowledged
