"""The way from other processes on this machine to the nodes of a run: through its supervisor.

It listens on a socket in the run's folder. A client (`remote.client`) says hello, and opens streams
as a supervisor does at a node's server (`node.stream_services`), with the rank of the node as
`node`. Each becomes a stream of the contact with that node. No more is taken from one end than the
other has room for, so that nothing collects here, and a client that does not read holds up nobody.

One kind is answered here, "nodes": the result has the ranks of the nodes that are `reachable`, and
of those that are `unreachable` now.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.engines.loop import RunLoop
from muster.engines.remote.waiting import Waits
from muster.node import unix_sockets
from muster.node.connection import Connection
from muster.node.greeting import PROTOCOL
from muster.node.link import Link
from muster.node.streams import MAX_JSON, MOST, Stream, Streams

if TYPE_CHECKING:  # which clients do not need
    from muster.engines.remote.contact import Contact

#: The name of the socket in the run's folder.
SOCKET = "inside"
#: Seconds that a client may take to say hello.
_GREETING_TIMEOUT = 30.0
#: Clients at a time: each takes a descriptor.
_MOST_CLIENTS = 200
#: Streams of a contact that are left to the supervisor itself.
_RESERVED_STREAMS = 200
#: Pause after a failed accept, in seconds.
_ACCEPT_PAUSE = 1.0


def hello() -> dict[str, Any]:
    """What both ends say first."""
    return {"protocol": PROTOCOL}


class Proxy:
    """Serves the clients of one run. folder: the run's."""

    def __init__(self, loop: RunLoop, folder: str) -> None:
        self._loop = loop
        self._participant = loop.add(self._accept)
        self._clients: set[_Client] = set()
        #: The contact with each node that has a host, by rank.
        self.contacts: dict[int, Contact] = {}
        self._listener: socket.socket | None = None
        try:
            self._listener = unix_sockets.listen(folder, SOCKET)
            self._participant.watch(self._listener.fileno())
        except OSError as error:  # such as a file system without sockets: the run continues
            sys.stderr.write(f"muster: nodes cannot be reached from other processes: {error}\n")

    def add(self, rank: int, contact: Contact) -> None:
        """A node has a host."""
        self.contacts[rank] = contact

    def remove(self, rank: int) -> None:
        """A node has no host any more, or has left it to another one; nothing if it had none."""
        if self.contacts.pop(rank, None) is not None:
            self.changed(rank)

    def changed(self, rank: int) -> None:
        """Something has arrived on streams of a node, or contact was lost."""
        for client in self._clients:
            client.node_changed(rank)

    def close(self) -> None:
        """End all connections, and accept no more."""
        for client in [*self._clients]:
            client.end()
        self._participant.close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def left(self, client: _Client) -> None:
        """A client is gone."""
        self._clients.discard(client)

    def _accept(self, _ready: Mapping[int, int]) -> None:
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:  # it is gone already
            pass
        except OSError:  # such as too many open files: the listener stays readable
            self._participant.unwatch(self._listener.fileno())
            self._participant.wake_at(self._loop.now() + _ACCEPT_PAUSE)
            return
        else:
            if len(self._clients) < _MOST_CLIENTS:
                self._clients.add(_Client(self, self._loop, sock))
            else:
                connection = Connection(sock)
                connection.refuse("too many processes have connected to it")
                connection.step()
                connection.close()
        self._participant.watch(self._listener.fileno())


class _Client:
    """A connection of a client."""

    def __init__(self, proxy: Proxy, loop: RunLoop, sock: socket.socket) -> None:
        self._proxy, self._loop = proxy, loop
        self._connection = Connection(sock)
        self._connection.say(hello())
        self._streams: Streams | None = None  # once it has said hello
        self._relays: dict[int, _Relay] = {}  # by the number of the client's stream
        self._of_node: dict[int, set[_Relay]] = {}  # by rank
        self._changed: set[int] = set()  # ranks
        self._participant = loop.add(self._step)
        self._waits = Waits(self._participant)
        self._link: Link | None = None  # as well
        self._give_up_at = loop.now() + _GREETING_TIMEOUT
        self._participant.wake_at(self._give_up_at)
        self._participant.notify()

    def node_changed(self, rank: int) -> None:
        """See `Proxy.changed`."""
        if rank in self._of_node:
            self._changed.add(rank)
            self._participant.notify()

    def end(self) -> None:
        """Pass on what has arrived, as far as that is possible at once, and close it."""
        self._changed.update(self._of_node)
        self._step({})
        self._connection.step()
        self.close()

    def close(self) -> None:
        """End the connection, and its streams at the nodes. May be repeated."""
        self._waits.clear()
        self._participant.close()
        self._connection.close()
        for relay in self._relays.values():
            relay.step()
        self._proxy.left(self)

    # --- steps

    def _step(self, _ready: Mapping[int, int]) -> None:
        self._connection.step()
        if self._streams is None and self._connection.hello is not None:
            self._greet(self._connection.hello)
        if self._streams is not None:
            self._pass_on(self._streams)
        talks = self._link is not None and self._link.carried_by(self._connection)
        if talks:
            self._give_up_at = self._loop.now() + _GREETING_TIMEOUT
        if self._connection.ended or self._loop.now() >= self._give_up_at:
            self.close()
        else:
            self._waits.set(self._connection.interest())
            self._participant.wake_at(None if talks else self._give_up_at)

    def _greet(self, said: Mapping[str, Any]) -> None:
        if said.get("protocol") != PROTOCOL:
            self._connection.refuse("the run was started by another version of Muster")
            return
        self._link = Link("")  # it carries no messages
        self._link.attach(self._connection, 0)
        self._streams = Streams(supervisor=False)
        self._connection.talk(self._link, self._streams)
        self._connection.step()  # what came with the hello

    def _pass_on(self, streams: Streams) -> None:
        for stream in streams.opened():
            self._open(stream)
        found = {relay for rank in self._changed for relay in self._of_node.get(rank, ())}
        self._changed.clear()
        for stream in streams.changed():
            if (relay := self._relays.get(stream.number)) is not None:
                found.add(relay)
        for relay in found:
            if relay.step():
                self._forget(relay)

    def _forget(self, relay: _Relay) -> None:
        del self._relays[relay.stream.number]
        relays = self._of_node[relay.rank]
        relays.remove(relay)
        if not relays:
            del self._of_node[relay.rank]

    # --- opening streams

    def _open(self, stream: Stream) -> None:
        about = dict(stream.about)
        if about.get("kind") == "nodes":
            contacts = self._proxy.contacts
            reachable = [rank for rank, contact in contacts.items() if contact.up]
            unreachable = [rank for rank, contact in contacts.items() if not contact.up]
            stream.finish({"reachable": reachable, "unreachable": unreachable})
            return
        rank = about.pop("node", None)
        contact = self._proxy.contacts.get(rank) if type(rank) is int else None
        if contact is None:
            stream.cancel(f"node-{rank} has no processes" if type(rank) is int else "no node given")
        elif not contact.up:
            why = f": {contact.why_lost}" if contact.why_lost else ""
            stream.cancel(f"node-{rank} cannot be reached now{why}")
        elif contact.streams.count >= MOST - _RESERVED_STREAMS:
            stream.cancel(f"too many commands run in node-{rank}, or connections are open to it")
        elif (asked := self._at_node(about, rank, contact.streams)) is None:
            stream.cancel("an invalid request to run a command")
        elif len(json.dumps(asked)) > MAX_JSON:
            stream.cancel("the request is too long")
        else:
            relay = _Relay(rank, stream, contact, asked)
            self._relays[stream.number] = relay
            self._of_node.setdefault(rank, set()).add(relay)
            if relay.step():
                self._forget(relay)

    def _at_node(self, about: dict[str, Any], rank: int, streams: Streams) -> dict[str, Any] | None:
        """What to ask a node for: with the numbers that other streams have there. None if they are
        not streams of that node."""
        if about.get("kind") != "command":
            return about
        for name in ("input", "output", "errors"):
            if name in about:
                number = about[name]
                relay = self._relays.get(number) if type(number) is int else None
                if relay is None or relay.rank != rank or relay.streams is not streams:
                    return None
                about[name] = relay.number
        return about


class _Relay:
    """Connects a stream of a client with one of a contact."""

    def __init__(self, rank: int, stream: Stream, contact: Contact, about: Any) -> None:
        self.rank = rank
        #: The client's.
        self.stream = stream
        self._contact = contact
        #: Those of the contact's connection.
        self.streams = contact.streams
        self._at_node = contact.streams.open(about)
        contact.wake()

    @property
    def number(self) -> int:
        """The number of the stream at the node."""
        return self._at_node.number

    def step(self) -> bool:
        """Pass on what has arrived. Returns whether it is over."""
        client, node = self.stream, self._at_node
        if (
            not client.canceled
            and not node.canceled
            and (_move(client, node) | _move(node, client))
        ):
            self._contact.wake()
        if client.canceled and not node.ended:
            node.cancel(client.canceled)
            self._contact.wake()
        if node.canceled:
            client.cancel(self._why())
        return bool(node.canceled or client.canceled) or (node.ended and client.ended)

    def _why(self) -> str:
        """Why the stream was canceled at the node."""
        if self._contact.up and self._contact.streams is self.streams:
            return self._at_node.canceled
        return f"contact with node-{self.rank} was lost"


def _move(source: Stream, target: Stream) -> bool:
    """Pass on what there is room for. Returns whether there was something."""
    data = source.take(target.room)
    target.send(data)
    if source.result is not None:
        target.finish(source.result)
    return bool(data) or source.result is not None
