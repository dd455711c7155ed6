"""Connections through a bucket, with objects in memory."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from muster.node import tunnel
from muster.node.tunnel import MAX_DATA, WINDOW, BadPart, End, Part, Unavailable
from support.faults import until
from support.tunnels import MemoryObjects, Tunneled


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and attempts follow each other soon."""
    monkeypatch.setattr(tunnel, "_LEAST_PAUSE", 0.001)
    monkeypatch.setattr(tunnel, "_FIRST_RETRY", 0.001)


@pytest.fixture
def connection() -> Iterator[Tunneled]:
    made = Tunneled(MemoryObjects())
    yield made
    made.close()


def received(sock: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (data := sock.recv(size - len(found))):
        found += data
    return bytes(found)


@pytest.mark.parametrize("part", [Part(0), Part(7, b"x" * MAX_DATA), Part(1 << 40, b"", last=True)])
def test_a_part_is_read_as_it_was_written(part: Part) -> None:
    assert tunnel.decode(tunnel.encode(part)) == part


@pytest.mark.parametrize("content", [b"", b"12345678", bytes(MAX_DATA + 10)])
def test_what_is_no_part_is_refused(content: bytes) -> None:
    with pytest.raises(BadPart, match=f"it has {len(content)} bytes"):
        tunnel.decode(content)


def test_names_of_parts_sort_as_they_were_sent() -> None:
    names = [tunnel.part_name("r/s/up/", "c", number) for number in (1, 2, 9, 10, 100, 1 << 30)]
    assert names == sorted(names) and names[0] == "r/s/up/c/0000000001"


def test_looks_are_rarer_the_longer_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [tunnel.pause_after(idle) for idle in (0, 0.1, 1, 3600)] == [0.02, 0.05, 0.5, 1]


def test_both_ends_hear_each_other(connection: Tunneled) -> None:
    connection.near.sendall(b"hello")
    assert received(connection.far, 5) == b"hello"
    connection.far.sendall(b"who is there?")
    assert received(connection.near, 13) == b"who is there?"


@pytest.mark.parametrize("closing", ["near", "far"])
def test_what_was_sent_before_the_end_arrives(connection: Tunneled, closing: str) -> None:
    here, there = connection.near, connection.far
    if closing == "far":
        here, there = there, here
    here.sendall(b"last words")
    here.close()
    assert received(there, 100) == b"last words", "and then the connection ends"


def test_much_arrives_complete_and_no_end_is_far_ahead(connection: Tunneled) -> None:
    data = os.urandom(3 * WINDOW * MAX_DATA // 2)
    sending = threading.Thread(target=connection.near.sendall, args=(data,))
    sending.start()
    until(lambda: connection.objects.most >= WINDOW - 2, "nobody reads it")
    assert received(connection.far, len(data)) == data
    sending.join()
    # those of the other direction say how many have arrived
    assert connection.objects.most <= 2 * WINDOW


def test_an_outage_of_the_bucket_loses_nothing() -> None:
    objects, told = MemoryObjects(), list[str]()
    connection = Tunneled(objects, report=told.append)
    connection.near.sendall(b"before ")
    assert received(connection.far, 7) == b"before "
    objects.failures = 6
    connection.near.sendall(b"after")
    assert received(connection.far, 5) == b"after"
    connection.close()
    assert {"not now", ""} == set(told)


def test_it_ends_when_nobody_serves_the_other_end() -> None:
    connection = Tunneled(MemoryObjects(), is_served=lambda: False)
    assert connection.near.recv(1) == b""
    connection.close()


def test_a_socket_with_a_high_number_is_waited_for() -> None:
    high = 1100  # `select` takes numbers below 1,024
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, high + 1), hard))
    try:
        ours, theirs = socket.socketpair()
        with theirs:
            moved = socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD, high))
        served = iter([True, False])
        End(moved, MemoryObjects(), "c", "up/", "down/", lambda: next(served), print).run()
        assert next(served, None) is None and ours.recv(1) == b""
        ours.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_end_that_cannot_say_so_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "_CLOSE_TIMEOUT", 0.0)
    objects = MemoryObjects()
    objects.failures = 1_000_000
    ours, theirs = socket.socketpair()
    ours.close()
    End(theirs, objects, "c", "up/", "down/", lambda: True, lambda _why: None).run()
    assert not objects.objects


def test_a_question_that_the_bucket_does_not_answer_ends_nothing() -> None:
    answers = iter([Unavailable("not now"), True, False])

    def is_served() -> bool:
        answer = next(answers)
        if isinstance(answer, Unavailable):
            raise answer
        return answer is True

    ours, theirs = socket.socketpair()
    End(theirs, MemoryObjects(), "c", "up/", "down/", is_served, lambda _why: None).run()
    assert next(answers, None) is None and ours.recv(1) == b""
    ours.close()


def test_an_object_of_a_stranger_ends_the_connection() -> None:
    objects = MemoryObjects()
    objects.put(tunnel.part_name("down/", "c", 1), b"?")
    ours, theirs = socket.socketpair()
    with pytest.raises(BadPart):
        End(theirs, objects, "c", "up/", "down/", lambda: True, lambda _why: None).run()
    assert ours.recv(1) == b""
    ours.close()
