"""Conversations over real sockets, TLS and pipes."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.node.connection import Connection, Pipes, Transport
from muster.node.link import Link
from muster.node.messages import Absent, Message, Stop
from muster.storage.certificates import make_certificates

Pair = tuple[Connection, Connection]
HELLO = {"protocol": 1}


def sockets(_folder: Path) -> tuple[Transport, Transport]:
    return socket.socketpair()


def tcp(_folder: Path) -> tuple[Transport, Transport]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialed = socket.create_connection(listener.getsockname())
        return listener.accept()[0], dialed


def pipes(_folder: Path) -> tuple[Transport, Transport]:
    (first_in, second_out), (second_in, first_out) = os.pipe(), os.pipe()
    return Pipes(first_in, first_out), Pipes(second_in, second_out)


def encrypted(folder: Path, trusted: str = "tls") -> tuple[Transport, Transport]:
    """As between a supervisor and an agent, who trust the run's authority and nobody else."""
    node = SimpleNamespace(address="127.0.0.1", hostname="node-0", names=("node-0",))
    for name in {"tls", trusted}:
        make_certificates(folder / name, [node])
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "tls/ca.pem")
    client = ssl.create_default_context(cafile=folder / trusted / "ca.pem")
    for context in (server, client):
        context.load_cert_chain(folder / "tls/cert.pem", folder / "tls/key.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = tcp(folder)
    assert isinstance(ours, socket.socket)
    assert isinstance(theirs, socket.socket)
    late: Any = {"do_handshake_on_connect": False}
    return (
        server.wrap_socket(ours, server_side=True, **late),
        client.wrap_socket(theirs, server_hostname="node-0", **late),
    )


KINDS = [sockets, tcp, pipes, encrypted]


@pytest.fixture(params=KINDS)
def transports(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Transport, Transport]:
    found: tuple[Transport, Transport] = request.param(tmp_path)
    return found


@pytest.fixture
def pair(transports: tuple[Transport, Transport]) -> Iterator[Pair]:
    made = Connection(transports[0]), Connection(transports[1])
    yield made
    for connection in made:
        connection.close()


def step(connection: Connection) -> list[Message]:
    """Wait until the connection can do something, and have it do that."""
    poll = select.poll()
    for descriptor, events in connection.interest().items():
        poll.register(descriptor, events)
    assert poll.poll(120_000), "nothing more happens"
    return connection.step()


def until(connection: Connection, done: Callable[[], bool]) -> list[Message]:
    found = []
    while not done():
        found += step(connection)
    return found


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Each in a thread of its own, as the two ends are processes of their own."""
    results: list[Any] = [None] * len(works)

    def run(place: int) -> None:
        results[place] = works[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads)
    return results


def greet(pair: Pair) -> tuple[Link, Link]:
    """Let both say hello, and talk."""
    links = Link("s"), Link("s")
    for connection in pair:
        connection.say(HELLO)
    at_once(*(lambda c=c: until(c, lambda: c.hello is not None) for c in pair))
    assert [connection.hello for connection in pair] == [HELLO, HELLO]
    for connection, link in zip(pair, links, strict=True):
        link.attach(connection, 0)
        connection.talk(link)
    return links


def test_messages_of_any_size_go_both_ways_at_once(pair: Pair) -> None:
    one, other = greet(pair)
    large = Absent(0, list(range(700_000)))  # more than any buffer on the way
    for link in (one, other):
        for message in (Stop(1), large, Stop(2)):
            link.send(message)

    def work(connection: Connection, link: Link) -> list[Message]:
        return until(connection, lambda: link.unacknowledged == 0 and link.received == 3)

    found = at_once(*(lambda c=c, e=e: work(c, e) for c, e in zip(pair, (one, other), strict=True)))
    assert found == [[Stop(1), large, Stop(2)]] * 2
    assert [connection.ended for connection in pair] == ["", ""]


def test_the_end_of_the_other_is_noticed(pair: Pair) -> None:
    one, other = greet(pair)
    one.send(Stop(1))
    at_once(
        lambda: until(pair[0], lambda: one.unacknowledged == 0),
        lambda: until(pair[1], lambda: other.received == 1 and not pair[1]._unsent),
    )
    pair[1].close()
    until(pair[0], lambda: bool(pair[0].ended))
    assert pair[0].step() == []
    assert pair[0].interest() == {}
    pair[0].close()
    assert not one.carried_by(pair[0])


def test_what_arrived_before_a_reset_is_not_lost(tmp_path: Path) -> None:
    ours, theirs = tcp(tmp_path)
    connection, link = Connection(ours), Link("s")
    assert isinstance(theirs, socket.socket)
    hello = b"{}"
    text = b'{"type": "stop", "incarnation": 1}'
    frames = struct.pack(">BI", 1, len(hello)) + hello
    frames += struct.pack(">BIQ", 3, 8 + len(text), 1) + text
    theirs.sendall(frames)
    connection.say(HELLO)
    until(connection, lambda: connection.hello is not None and not connection._unsent)
    link.attach(connection, 0)
    connection.talk(link)
    theirs.close()  # it has not read the hello: the kernel resets the connection
    found = until(connection, lambda: bool(connection.ended))
    assert found == [Stop(1)]
    assert link.received == 1
    connection.close()


def test_nothing_is_looked_at_before_this_end_has_decided_to_talk(pair: Pair) -> None:
    """Messages of who is not the agent are not taken, and it is sent none."""
    ours, theirs = pair
    own, their = Link("s"), Link("s")
    own.send(Stop(0))
    their.send(Stop(1))
    their.attach(theirs, 0)
    theirs.talk(their)
    theirs.say(HELLO)
    ours.say(HELLO)
    at_once(
        lambda: until(ours, lambda: ours.hello is not None and len(ours._incoming) > 0),
        lambda: until(theirs, lambda: theirs.hello is not None and not theirs._unsent),
    )
    assert (own.received, their.received) == (0, 0)
    own.attach(ours, 0)
    ours.talk(own)
    found = at_once(
        lambda: until(ours, lambda: own.unacknowledged == 0 and own.received == 1),
        lambda: until(theirs, lambda: their.unacknowledged == 0 and their.received == 1),
    )
    assert found == [[Stop(1)], [Stop(0)]]


def closes_when_ended(connection: Connection) -> str:
    until(connection, lambda: bool(connection.ended))
    connection.close()
    return connection.ended


@pytest.mark.parametrize("size", [0, 600_000])
def test_a_refusal_is_told_also_to_who_is_writing(pair: Pair, size: int) -> None:
    for connection in pair:
        connection.say(HELLO)
    at_once(*(lambda c=c: until(c, lambda: c.hello is not None) for c in pair))
    link = Link("s")
    link.attach(pair[1], 0)
    pair[1].talk(link)
    if size:
        link.send(Absent(0, list(range(size))))
    pair[0].refuse("another run: \ud800\x1b[2J")
    told = at_once(*(lambda c=c: closes_when_ended(c) for c in pair))
    assert told == ["another run: ??[2J"] * 2


@pytest.mark.parametrize("why", ["", "no"])
def test_an_end_always_has_a_reason(why: str) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    theirs.sendall(struct.pack(">BI", 2, len(why)) + why.encode())
    assert closes_when_ended(connection) == (why or "no reason was given")
    theirs.close()


@pytest.mark.parametrize("transports", KINDS, indirect=True)
def test_what_came_with_the_hello_is_taken_at_once(transports: tuple[Transport, Transport]) -> None:
    """Also if nothing more arrives, and there is nothing to write."""
    pair = Connection(transports[0]), Connection(transports[1])
    their = Link("s")
    their.send(Stop(1))
    their.attach(pair[1], 0)
    pair[1].say(HELLO)
    pair[1].talk(their)
    at_once(
        lambda: until(pair[0], lambda: len(pair[0]._incoming) > 0),
        lambda: until(pair[1], lambda: not pair[1]._unsent and not pair[1]._handshaking),
    )
    assert pair[0].hello == HELLO
    own = Link("s")
    own.attach(pair[0], 0)
    pair[0].talk(own)
    assert step(pair[0]) == [Stop(1)]
    for connection in pair:
        connection.close()


def test_a_connection_that_is_replaced_ends(tmp_path: Path) -> None:
    pair = Connection((made := tcp(tmp_path))[0]), Connection(made[1])
    one, other = greet(pair)
    other.attach("another connection", 0)
    one.send(Stop(1))
    step(pair[0])
    assert step(pair[1]) == [], "it arrives on the other connection"
    assert pair[1].ended == "another connection has taken its place"
    assert other.carried_by("another connection")
    for connection in pair:
        connection.close()


def test_an_end_that_has_not_decided_waits_quietly() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    theirs.setblocking(False)
    theirs.sendall(struct.pack(">BI", 1, 2) + b"{}")
    while connection.interest():  # until there is nothing that it could do
        theirs.send(struct.pack(">BI", 3, 1 << 20) * 1000)
        connection.step()
    assert connection.ended == ""
    assert len(connection._incoming) < 1 << 18
    connection.close()
    theirs.close()


def test_pings_are_answered(pair: Pair) -> None:
    one, _ = greet(pair)
    assert pair[0].answered
    pair[0].ping()
    assert not pair[0].answered
    done = threading.Event()

    def ask() -> None:
        until(pair[0], lambda: pair[0].answered)
        done.set()
        one.send(Stop(0))
        pair[0].step()

    at_once(ask, lambda: until(pair[1], done.is_set))


def test_the_next_connection_is_not_hurt_by_the_end_of_the_former(tmp_path: Path) -> None:
    former = Connection((first := tcp(tmp_path))[0]), Connection(first[1])
    one, other = greet(former)
    one.send(Stop(1))
    second = pipes(tmp_path)
    present = Connection(second[0]), Connection(second[1])
    for link, connection, far in zip((one, other), present, (other, one), strict=True):
        link.attach(connection, far.received)
        connection.hello = HELLO  # greeted
        connection.talk(link)
    for connection in former:
        connection.interest()
        connection.step()
        connection.close()
    found = at_once(
        lambda: until(present[0], lambda: one.unacknowledged == 0),
        lambda: until(present[1], lambda: other.received == 1 and not present[1]._unsent),
    )
    assert found[1] == [Stop(1)]
    for connection in present:
        connection.close()


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    ours, theirs = encrypted(tmp_path, trusted="other")
    pair = Connection(ours), Connection(theirs)
    at_once(*(lambda c=c: until(c, lambda: bool(c.ended)) for c in pair))
    assert pair[1].ended == "TLS: self-signed certificate in certificate chain"
    assert pair[0].ended.startswith("TLS: ")
    for connection in pair:
        connection.close()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it does not say hello"),
        (struct.pack(">BI", 3, 16 << 20), "it does not say hello"),
        (struct.pack(">BI", 3, 0), "it does not say hello"),
        (struct.pack(">BI", 1, 2) + b"[]", "it does not say hello"),
        (struct.pack(">BI", 1, 1 << 20), "a frame of kind 1 with 1048576 bytes"),
        (struct.pack(">BI", 2, 4) + b"\x1b[2J", "?[2J"),
    ],
)
def test_what_is_no_agent_is_not_talked_to(data: bytes, error: str) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    assert closes_when_ended(connection).startswith(error)
    connection.close()
    theirs.close()


def test_a_flood_of_pings_takes_no_memory() -> None:
    ours, theirs = socket.socketpair()
    connection, link = Connection(ours), Link("s")
    theirs.sendall(struct.pack(">BI", 1, 2) + b"{}")
    until(connection, lambda: connection.hello is not None)
    link.attach(connection, 0)
    connection.talk(link)
    theirs.setblocking(False)
    for _ in range(200):
        try:
            theirs.send(struct.pack(">BI", 5, 0) * 1000)
        except BlockingIOError:
            connection.interest()
            connection.step()
    assert len(connection._unsent) <= 1 << 16
    connection.close()
    theirs.close()
