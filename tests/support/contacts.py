"""Contacts with nodes, in the loop of a test; and nodes that dial there."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.run_secrets import ContactSecrets
from muster.engines.remote.waiting import Waits
from muster.node.connection import Connection, Transport
from muster.node.greeting import (
    PROTOCOL,
    AgentHello,
    Refusal,
    attach,
    conversation,
    supervisor_hello,
)
from muster.node.link import Link
from muster.node.messages import Message
from muster.node.serve import Settings, connect
from muster.node.streams import Streams
from muster.node.tls import client_context, supervisor_name, wrap


class Owner:
    """Remembers what a contact tells it, and how it has dialed. folder: of the node server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.messages: list[Message] = []
        self.dialed: list[socket.socket] = []
        self.begun = self.streams = 0

    def dial(self) -> Transport:
        self.dialed.append(connect(str(self.folder), Settings("0", "r1", 0)))
        return self.dialed[-1]

    def reached(self, *, begins: bool) -> None:
        self.told.append("reached")
        self.begun += begins

    def received(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def streamed(self) -> None:
        self.streams += 1

    def lost(self, why: str) -> None:
        self.told.append(why)

    def names(self) -> list[str]:
        return [type(message).__name__ for message in self.messages]


class Loop:
    def __init__(self) -> None:
        self.loop = EventLoop()
        self.errors: list[Exception] = []
        self.run = RunLoop(self.loop, self.errors.append)
        self.ticks = self.loop.add(lambda _: None)

    def until(self, done: Callable[[], bool]) -> None:
        end = self.loop.now() + 60
        while not done():
            assert self.loop.now() < end, "it takes too long"
            self.ticks.wake_at(self.loop.now() + 1)
            self.loop.run_once()
            assert not self.errors


class Node:
    """A node that dials the listener of a run. more: changes of its hello."""

    def __init__(
        self,
        loop: EventLoop,
        port: int,
        secrets: ContactSecrets,
        *,
        run_id: str = "r1",
        link: Link | None = None,
        **more: Any,
    ) -> None:
        session, received = ("", 0) if link is None else (link.session, link.received)
        rank = more.get("rank", 0)
        own = AgentHello(PROTOCOL, "0", "there", run_id, rank, "p1", 1, session, received)
        self.own = own._replace(**{name: more.pop(name) for name in own._fields if name in more})
        sock = socket.create_connection(("127.0.0.1", port))
        context = client_context(secrets.authority)
        transport = wrap(context, sock, server=False, name=supervisor_name(run_id))
        self.connection = Connection(transport)
        self.connection.say({**self.own._asdict(), "token": secrets.token(rank), **more})
        self.link = link
        self.messages: list[Message] = []
        #: Whether it talks to its supervisor, and whether that compresses.
        self.talks = self.compress = False
        self._participant = loop.add(self._step)
        self._waits = Waits(self._participant)
        self._participant.notify()

    @property
    def ended(self) -> str:
        """Why its connection has ended."""
        return self.connection.ended

    def send(self, message: Message) -> None:
        assert self.link is not None
        self.link.send(message)
        self._participant.notify()

    def close(self) -> None:
        self._waits.clear()
        self._participant.close()
        self.connection.close()

    def _step(self, _ready: Mapping[int, int]) -> None:
        connection = self.connection
        self.messages += connection.step()
        if connection.hello is not None and not self.talks and not connection.ended:
            try:
                hello = supervisor_hello(connection.hello, self.own, 0)
                self.link = conversation(self.link, hello)
                attach(self.link, connection, hello.received)
            except Refusal as why:
                connection.refuse(str(why))
            else:
                connection.talk(self.link, Streams(supervisor=False, compress=hello.compress))
                self.talks, self.compress = True, hello.compress
                self._participant.notify()
        if connection.ended:
            self._waits.clear()
            connection.close()
        else:
            self._waits.set(connection.interest())


def is_closed(sock: socket.socket) -> bool:
    """Whether the other end has closed the connection."""
    if not select.select([sock], [], [], 0)[0]:
        return False
    try:
        while data := sock.recv(4096):
            del data  # an alert of TLS
    except ConnectionResetError:
        return True
    return True
