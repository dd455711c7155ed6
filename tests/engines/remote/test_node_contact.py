"""A node on a real node server, and the contact with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from muster.engines.remote.contact import SupervisorId
from muster.engines.remote.hosts import Host
from muster.engines.remote.node import RemoteNode
from muster.engines.remote.node_contact import NodeContact
from muster.node.messages import Message
from support.contacts import Loop, Owner
from support.node_servers import kill, server_pid


class Session:
    """Listens to nothing."""

    def began(self, owner: NodeContact) -> None:
        pass

    def heard(self, owner: NodeContact, received: Sequence[Message]) -> None:
        pass

    def contact_changed(self, rank: int) -> None:
        pass

    def deadlines_changed(self) -> None:
        pass


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.run.close()
    made.loop.close()


def test_a_server_that_was_started_again_is_told_to_leave(loop: Loop, tmp_path: Path) -> None:
    """The connection was lost when the first one left: it is not known whether it has heard it."""
    folder = tmp_path / "server"
    host = Host(Owner(folder).dial, "here")
    node = NodeContact(Session(), RemoteNode(0, slot=0), host, loop.run, SupervisorId("r1", 1))
    loop.until(lambda: node.contact.up)
    assert not node.leave()
    kill(server_pid(folder))
    loop.until(lambda: not node.contact.up)
    loop.until(lambda: node.contact.up)
    loop.until(node.leave)
    node.close()
