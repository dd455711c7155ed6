"""Conversations with many agents in one loop: how long until all have joined and are started.

`python bench/contacts.py 5000` for more. The agents are links in two processes, over
TCP on loopback. The floor is the same loop with the bare socket: connections, and a line each way.
"contacts over TLS" are those of a supervisor: the agents dial its listener, and prove themselves.

Then the supervisor "dies", and another one is reached by all of them; and what contacts cost that
have nothing to say: memory of this process, and its CPU within a minute.
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
from multiprocessing.sharedctypes import Synchronized
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

    def __init__(self, loop: RunLoop, listener: RunListener, rank: int, turn: int = 1) -> None:
        self.contact = Contact(loop, listener.of(rank), SupervisorId("r1", turn), self)
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


def agents(
    port: int,
    count: int,
    number: int = 0,
    secrets: ContactSecrets | None = None,
    next_port: Synchronized[int] | None = None,
) -> None:
    """Agents that join, and acknowledge that they are started. secrets: of the run, for TLS. One
    that is given up before it has joined dials again. next_port: that of the next supervisor, when
    there is one; 0: there is none."""
    context = None if secrets is None else client_context(secrets.authority)
    first = number * count  # of the ranks of this process
    made: dict[int, tuple[Connection, AgentHello]] = {}
    poll = select.epoll()

    def dial(rank: int) -> None:
        hello = AgentHello(PROTOCOL, "0", "there", "r1", rank, "p", 0, "", 0)
        current = 0 if next_port is None else next_port.value
        sock = socket.create_connection(("127.0.0.1", current or port))
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
                if descriptor not in greeted or (next_port is not None and next_port.value):
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
    one = Supervising(secrets, count // PROCESSES * PROCESSES)
    with running(partial(agents, secrets=secrets), one.port, count // PROCESSES):
        one.wait_for_first()
        start = time.perf_counter()
        one.until_joined()
        took = time.perf_counter() - start
        one.end()
    return took


class Supervising:
    """A supervisor to which so many agents are to dial."""

    def __init__(self, secrets: ContactSecrets, count: int, turn: int = 1) -> None:
        self._loop, self._errors = EventLoop(), list[Exception]()
        self._run = RunLoop(self._loop, self._errors.append)
        self._listener = RunListener(self._run, "r1", secrets)
        self.port = self._listener.port
        self._made = [Joining(self._run, self._listener, rank, turn) for rank in range(count)]
        self._loop.run_once()  # what the contacts do at first

    def wait_for_first(self) -> None:
        """Until the first agent dials."""
        self._loop.run_once()

    def until_joined(self) -> None:
        """Until all have joined and are started."""
        first = 0
        while first < len(self._made):
            self._loop.run_once()
            while first < len(self._made) and self._made[first].done:
                first += 1
            assert not self._errors, self._errors

    def idle(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        ticks = self._loop.add(lambda _: None)
        while time.monotonic() < end:
            ticks.wake_at(self._loop.now() + 1)
            self._loop.run_once()
        assert not self._errors, self._errors

    def end(self) -> None:
        """Close all connections."""
        for one in self._made:
            one.contact.close()
        self._listener.close()
        self._run.close()
        self._loop.close()


def reconnected(count: int, secrets: ContactSecrets) -> float:
    """Seconds from the death of a supervisor, with the next one ready, until all agents have joined
    that one."""
    count = count // PROCESSES * PROCESSES
    next_port: Synchronized[int] = multiprocessing.Value("i", 0)
    first = Supervising(secrets, count)
    others = partial(agents, secrets=secrets, next_port=next_port)
    with running(others, first.port, count // PROCESSES):
        first.until_joined()
        second = Supervising(secrets, count, turn=2)
        next_port.value = second.port
        start = time.perf_counter()
        first.end()
        second.until_joined()
        took = time.perf_counter() - start
        next_port.value = 0
        second.end()
    return took


def print_idle(count: int, secrets: ContactSecrets, seconds: float = 60.0) -> None:
    """Print what idle contacts cost this process."""
    count = count // PROCESSES * PROCESSES
    before = memory()
    one = Supervising(secrets, count)
    with running(partial(agents, secrets=secrets), one.port, count // PROCESSES):
        one.until_joined()
        used = time.process_time()
        one.idle(seconds)
        share = (time.process_time() - used) / seconds
        grown = memory() - before
        one.end()
    text = f"{grown:.0f} MiB ({grown / count * 1024:.0f} KiB each), {share:.1%} of a CPU"
    print(f"\n{count:,} idle contacts over TLS: {text}")


def memory() -> float:
    """What this process has in memory, in MiB."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


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
            compare(
                f"{count:,} agents have another supervisor",
                {"reconnected over TLS": partial(reconnected, count, secrets)},
                rounds=3,
                count=count,
            )
            # in a fresh process: this one has memory that it does not use any more
            idle = multiprocessing.get_context("spawn").Process(
                target=print_idle, args=(count, secrets)
            )
            idle.start()
            idle.join()


if __name__ == "__main__":
    main()
