"""Conversations with many agents in one loop: how long until all have joined and are started.

`python bench/contacts.py 5000` for more. The agents are links in two processes, over
TCP on loopback. The floor is the same loop with the bare socket: connections, and a line each way.
"contacts over TLS" are those of a supervisor: the agents dial its listener, and prove themselves.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from common import Measure, compare

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.contact import Contact, SupervisorId
from muster.engines.remote.listener import RunListener
from muster.engines.remote.run_secrets import ContactSecrets, contact_secrets
from muster.node.connection import Connection
from muster.node.greeting import (
    PROTOCOL,
    AgentHello,
    SupervisorHello,
    agent_hello,
    attach,
    check_conversation,
    conversation,
    supervisor_hello,
)
from muster.node.link import Link
from muster.node.messages import Joined, Message, Start
from muster.node.tls import client_context, supervisor_name, wrap
from muster.storage.home import RunDir

PROCESSES = 2
SUPERVISOR = SupervisorHello(PROTOCOL, "0", "here", "r1", 1, "s1", 0)


class Talking:
    """A supervisor's end."""

    def __init__(self, sock: socket.socket) -> None:
        self.link = Link("s1")
        self.connection = Connection(sock)
        self.greeted = self.done = False

    def step(self) -> None:
        for message in self.connection.step():
            assert isinstance(message, Joined)
            self.link.send(Start(0))
        if self.connection.hello is not None and not self.greeted:
            self.greeted = True
            hello = agent_hello(self.connection.hello, SUPERVISOR)
            attach(self.link, self.connection, check_conversation(self.link, hello, None))
            self.connection.say(SUPERVISOR._asdict())
            self.connection.talk(self.link)
        self.connection.step()
        self.done = self.link.received == 1 and not self.link.unacknowledged


class Bare:
    """The floor."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.done = False

    def step(self) -> None:
        if self._sock.recv(1000) == b"joined\n":
            self._sock.sendall(b"start\n")
        else:
            self.done = True


class Joining:
    """A supervisor's contact with an agent that dials."""

    def __init__(self, loop: RunLoop, listener: RunListener, rank: int) -> None:
        self.contact = Contact(loop, listener.of(rank), SupervisorId("r1", 1), self)
        self.started = False

    @property
    def done(self) -> bool:
        return self.started and not self.contact.unacknowledged

    def reached(self, *, begins: bool) -> None:
        pass

    def streamed(self) -> None:
        pass

    def lost(self, why: str) -> None:
        raise SystemExit(why)

    def received(self, messages: Sequence[Message]) -> None:
        self.contact.send(Start(0))
        self.started = True


def agents(port: int, count: int, number: int = 0, secrets: ContactSecrets | None = None) -> None:
    """Agents that join, and acknowledge that they are started. secrets: of the run, for TLS. One
    that is given up before it has joined dials again."""
    context = None if secrets is None else client_context(secrets.authority)
    first = number * count  # of the ranks of this process
    made: dict[int, tuple[Connection, AgentHello]] = {}
    poll = select.epoll()

    def dial(rank: int) -> None:
        hello = AgentHello(PROTOCOL, "0", "there", "r1", rank, "p", 0, "", 0)
        sock = socket.create_connection(("127.0.0.1", port))
        proof = {}
        if context is not None and secrets is not None:
            sock = wrap(context, sock, server=False, name=supervisor_name("r1"))
            proof["token"] = secrets.token(rank)
        connection = Connection(sock)
        connection.say({**hello._asdict(), **proof})
        connection.step()
        made[sock.fileno()] = connection, hello
        poll.register(sock.fileno(), select.EPOLLIN)

    for rank in range(first, first + count):
        dial(rank)
    greeted: set[int] = set()
    while made:
        for descriptor, _ in poll.poll():
            connection, own = made[descriptor]
            connection.step()
            if connection.hello is not None and descriptor not in greeted:
                greeted.add(descriptor)
                answer = supervisor_hello(connection.hello, own, turn=0)
                link = conversation(None, answer)
                attach(link, connection, answer.received)
                link.send(Joined(0))
                connection.talk(link)
                connection.step()
            if connection.ended:
                poll.unregister(descriptor)
                del made[descriptor]
                if descriptor not in greeted:
                    dial(own.rank)
                greeted.discard(descriptor)


def lines(port: int, count: int, _number: int) -> None:
    """The floor's agents."""
    socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for sock in socks:
        sock.sendall(b"joined\n")
    for sock in socks:
        assert sock.recv(100) == b"start\n"
        sock.sendall(b"acknowledged\n")
    for sock in socks:
        sock.recv(1)


def joined(
    count: int, kind: type[Talking] | type[Bare], others: Callable[[int, int, int], None]
) -> Measure:
    def measure() -> float:
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
            listener.setblocking(False)
            with running(others, listener.getsockname()[1], count // PROCESSES):
                return serve(listener, kind, count // PROCESSES * PROCESSES)

    return measure


def over_tls(count: int, secrets: ContactSecrets) -> float:
    """Seconds until all agents have dialed, joined and are started."""
    loop = EventLoop()
    errors: list[Exception] = []
    run = RunLoop(loop, errors.append)
    listener = RunListener(run, "r1", secrets)
    made = [Joining(run, listener, rank) for rank in range(count // PROCESSES * PROCESSES)]
    others = partial(agents, secrets=secrets)
    with running(others, listener.port, count // PROCESSES):
        loop.run_once()  # what the contacts do at first
        start, first = 0.0, 0
        while first < len(made):
            loop.run_once()  # waits for the first agent at first
            start = start or time.perf_counter()
            while first < len(made) and made[first].done:
                first += 1
            assert not errors, errors
        took = time.perf_counter() - start
        for one in made:
            one.contact.close()
    listener.close()
    run.close()
    loop.close()
    return took


@contextmanager
def running(target: Callable[[int, int, int], None], port: int, count: int) -> Iterator[None]:
    made = [
        multiprocessing.Process(target=target, args=(port, count, number))
        for number in range(PROCESSES)
    ]
    for one in made:
        one.start()
    yield
    for one in made:
        one.join()


def serve(listener: socket.socket, kind: type[Talking] | type[Bare], count: int) -> float:
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    ends: dict[int, Talking | Bare] = {}
    socks: list[socket.socket] = []
    start, done = 0.0, 0
    while done < count:
        for descriptor, _ in poll.poll():
            start = start or time.perf_counter()
            if descriptor == listener.fileno():
                sock, _ = listener.accept()
                socks.append(sock)
                ends[sock.fileno()] = kind(sock)
                poll.register(sock.fileno(), select.EPOLLIN)
                continue
            end = ends[descriptor]
            if not end.done:
                end.step()
                done += end.done
    took = time.perf_counter() - start
    for sock in socks:
        sock.close()
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "r1").mkdir()
        secrets = contact_secrets(RunDir(Path(folder) / "r1"))
        for count in map(int, sys.argv[1:] or ("1000",)):
            compare(
                f"{count:,} agents join and are started",
                {
                    "floor: bare sockets": joined(count, Bare, lines),
                    "links": joined(count, Talking, agents),
                    "contacts over TLS": partial(over_tls, count, secrets),
                },
                rounds=5,
                count=count,
            )


if __name__ == "__main__":
    main()
