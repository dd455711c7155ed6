"""A supervisor's contact with the server of one node, over one connection after another."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from muster import __version__
from muster.engines.loop import RunLoop
from muster.engines.remote import answers
from muster.engines.remote.waiting import Waits
from muster.node.connection import Connection, Transport
from muster.node.greeting import (
    PROTOCOL,
    AgentHello,
    OtherProcess,
    Outdated,
    Refusal,
    SupervisorHello,
    agent_hello,
    attach,
    check_conversation,
)
from muster.node.link import Link
from muster.node.messages import Message
from muster.node.streams import Streams

#: Opens a connection to a node's server, such as by starting ssh. Does not wait until it is up.
#: Raises OSError.
Dial = Callable[[], Transport]


class Arrivals:
    """Where the connections of a node arrive that dials its supervisor (`remote.listener`)."""

    def __init__(self) -> None:
        #: Takes a connection whose other end has said hello, and has proven to be that node. Raises
        #: Refusal. None while no contact waits for any.
        self.take: Callable[[Connection], None] | None = None
        #: Which of the servers that the node has one after the other may connect, where an earlier
        #: one may still run: their tokens differ by this number.
        self.server = 0


#: Seconds until a connection has to be up, and both ends to know each other.
_GREETING_TIMEOUT = 30.0
#: Seconds after which a connection on which nothing has arrived is asked for a sign of life, and
#: after which it is given up without one.
_PING_AFTER, _GIVE_UP_AFTER = 20.0, 40.0
#: Seconds until a connection that was lost is dialed again; it doubles with each failure in a row.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class SupervisorId(Struct, frozen=True):
    """Which supervisor makes contact."""

    run_id: str
    #: The fencing token of the run's lease: it grows with each supervisor that takes over.
    turn: int


class ContactOwner(Protocol):
    """What learns of a contact. Called in the loop's thread."""

    def reached(self, *, begins: bool) -> None:
        """There is contact. begins: whether a conversation begins: what was sent before and has not
        arrived is lost, and the server says next what it knows."""
        ...

    def received(self, messages: Sequence[Message]) -> None:
        """Messages have arrived, in order, each once."""
        ...

    def streamed(self) -> None:
        """Something has arrived on streams of the connection."""
        ...

    def lost(self, why: str) -> None:
        """There is no contact, for now: the server is dialed again, or dials. why: for people. Also
        for each attempt to dial it that fails."""
        ...


class Contact:
    """Keeps contact until it is closed: dials the server, or waits until the server dials.

    What is sent arrives once there is contact. It is lost if the server was started again
    meanwhile: a new conversation begins then, in which the server says what it knows.

    compress: whether the server compresses what it sends over streams.
    """

    def __init__(
        self,
        loop: RunLoop,
        dial: Dial | Arrivals,
        supervisor: SupervisorId,
        owner: ContactOwner,
        *,
        compress: bool = False,
    ) -> None:
        self._loop = loop
        self._dial = None if isinstance(dial, Arrivals) else dial
        self._arrivals = dial if isinstance(dial, Arrivals) else None
        if self._arrivals is not None:
            self._arrivals.take = self._talk
        self._compress = compress
        self._supervisor = supervisor
        self._owner = owner
        self._participant = loop.add(self._step)
        self._link = _new_link()
        self._server: AgentHello | None = None  # what it said last in this conversation
        self._former: set[str] = set()  # processes of servers in whose place is another one
        self._connection: Connection | None = None
        self._talking = False
        self._pause = _FIRST_PAUSE
        self._due = loop.now()  # for the next thing that depends on time
        self._waits = Waits(self._participant)
        #: Whether the last connection has ended since the server broke the rules. It may do that on
        #: each: what was not taken is said again.
        self.violated = False
        #: Why contact was lost last, or the last dial has failed; "" before that.
        self.why_lost = ""
        #: The streams of the connection; new ones with each.
        self.streams = Streams(supervisor=True)
        self._participant.notify()

    @property
    def up(self) -> bool:
        """Whether there is contact, as far as is known."""
        return self._talking

    @property
    def peer(self) -> str:
        """The address from which the server has dialed; "" if it has not, or is not known."""
        known = self._arrivals is not None and self._connection is not None
        return self._connection.peer if known and self._connection is not None else ""

    @property
    def unacknowledged(self) -> bool:
        """Whether something was sent of which it is not known that it has arrived."""
        return bool(self._link.unacknowledged)

    def send(self, message: Message) -> None:
        """Send a message: now, or when there is contact."""
        self._link.send(message)
        self._participant.notify()

    def wake(self) -> None:
        """Something is to be written on a stream."""
        self._participant.notify()

    def close(self) -> None:
        """End contact. The server continues."""
        if self._arrivals is not None:
            self._arrivals.take = None
        self._hang_up()
        self._participant.close()

    # --- steps

    def _step(self, _ready: Mapping[int, int]) -> None:
        if self._connection is None and self._dial is not None and self._loop.now() >= self._due:
            self._open(self._dial)
        if self._connection is not None:
            self._advance(self._connection)
        if not self._participant.closed:
            self._wait()

    def _open(self, dial: Dial) -> None:
        try:
            self._connection = Connection(dial())
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        self._due = self._loop.now() + _GREETING_TIMEOUT

    def _advance(self, connection: Connection) -> None:
        now = self._loop.now()
        if self._talking and connection.answered and now >= self._due:
            connection.ping()  # nothing has arrived for a while
            self._due = now + _GIVE_UP_AFTER - _PING_AFTER
        answered = connection.answered
        messages = connection.step()
        if not self._talking and connection.hello is not None and not connection.ended:
            self._greet(connection)
            return
        if self._talking and (messages or (connection.answered and not answered)):
            self._due = now + _PING_AFTER
        if messages:
            self.violated = False
            self._owner.received(messages)
        if self.streams.changed() or self.streams.has_opened:
            self._owner.streamed()
        if connection is not self._connection:
            return  # the owner has closed it
        if connection.refusal:
            connection.step()  # tells the other end why, which need not close it
            self.violated = True
            self._fail(connection.refusal)
        elif connection.ended:
            self._fail(connection.ended)
        elif now >= self._due:
            self._fail("it does not answer")

    def _greet(self, connection: Connection) -> None:
        try:
            self._talk(connection)
        except Outdated:
            self._fail("another connection has taken its place")
        except Refusal as why:
            connection.refuse(str(why))
            connection.step()
            self._fail(str(why))

    def _talk(self, connection: Connection) -> None:
        """Talk over a connection whose other end has said hello. One that the node has dialed takes
        the place of an older one, which may be dead. Raises Refusal."""
        assert connection.hello is not None
        hello = agent_hello(connection.hello, self._hello())
        link, received = self._go_on(hello)
        attach(link, connection, received)
        if self._connection not in (None, connection):
            self._hang_up()
            self._owner.lost("another connection has taken its place")
        begins = self._server is None or link is not self._link
        self._connection, self._link, self._server = connection, link, hello
        self.streams = Streams(supervisor=True)
        connection.say(self._hello()._asdict())
        connection.talk(self._link, self.streams)
        self._talking = True
        self._due = self._loop.now() + _PING_AFTER
        self._participant.notify()  # what came with the hello
        self._owner.reached(begins=begins)

    def _go_on(self, hello: AgentHello) -> tuple[Link, int]:
        """The conversation to continue with, or another one that begins, and how many messages of
        it the server has received. Raises Refusal."""
        if hello.process in self._former:
            raise Refusal("another server of this node has taken its place")
        try:
            return self._link, check_conversation(self._link, hello, self._server)
        except OtherProcess:
            assert self._server is not None
            self._former.add(self._server.process)
            link = _new_link()
            return link, check_conversation(link, hello, None)

    def _hello(self) -> SupervisorHello:
        return SupervisorHello(
            protocol=PROTOCOL,
            version=__version__,
            host=socket.gethostname(),
            run_id=self._supervisor.run_id,
            turn=self._supervisor.turn,
            session=self._link.session,
            received=self._link.received,
            compress=self._compress,
        )

    def _fail(self, why: str) -> None:
        """There is no contact: dial again after a pause, or wait for the node."""
        if self._talking and not self.violated:
            self._pause = _FIRST_PAUSE
        self._hang_up()
        # those that are lost together are not dialed together
        self._due = self._loop.now() + self._pause * random.uniform(0.5, 1)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self.why_lost = why
        self._owner.lost(why)

    def _hang_up(self) -> None:
        self._waits.clear()
        if self._connection is not None:
            self._connection.close()
        self._connection, self._talking = None, False

    def _wait(self) -> None:
        self._waits.set({} if self._connection is None else self._connection.interest())
        waits = self._connection is None and self._dial is None
        self._participant.wake_at(None if waits else self._due)


def _new_link() -> Link:
    return Link(os.urandom(8).hex(), answers.check)
