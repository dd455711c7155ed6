"""The command `open`: reservations, and the bytes that it carries."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node.bridge import bridge
from muster.node.reservation import Offer, Owner, Place, Queue, Situation, Ticket
from support.faults import until
from support.node_servers import PROGRAM, kill, server_pid_if_any

UNITS = ["slot0", "slot1"]


class Opened:
    """A process that runs `open`, with a demand for a slot of two."""

    def __init__(self, folder: Path, rank: int = 0, run: str = "r1", **demand: Any) -> None:
        self.folder = folder / f"{run}-{rank}"
        owner = {"user": "ana@a", "run_id": run, "run": run, "rank": rank}
        wanted = {"owner": owner, "has_gpus": 0, "slots": 2, "queue": str(folder / "q"), **demand}
        settings = {"run_id": run, "rank": rank, "reserve": wanted}
        pipe = subprocess.PIPE
        argv = [*PROGRAM, "open", str(self.folder)]
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)
        self.tell(json.dumps(settings))

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def said_at_last(self) -> dict[str, Any]:
        """What it says when it waits no longer, if it has waited at all."""
        while "waits" in (found := self.said()):
            pass
        return found

    def hello(self) -> bytes:
        """The first bytes of the server."""
        assert self.process.stdout is not None
        return self.process.stdout.read(1)

    def end(self) -> tuple[int, str]:
        """Close the connection. Returns exit code and errors."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors.decode()

    @property
    def server(self) -> int | None:
        return server_pid_if_any(self.folder) if (self.folder / "lock").exists() else None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for lock in tmp_path.glob("*/lock"):
        pid = server_pid_if_any(lock.parent)
        if pid is not None:
            kill(pid)


def hold(folder: Path, wanted: int) -> Place:
    queue = Queue(UNITS, str(folder / "q"))
    place = queue.draw(Owner("bob@b", "x", "x-1", 0), wanted)
    queue.advance(place)
    assert place.ticket.units
    return place


def look(folder: Path) -> Situation:
    return Queue(UNITS, str(folder / "q")).look()


def test_a_free_machine(folder: Path) -> None:
    one = Opened(folder)
    offer = one.said()["offer"]
    assert (offer["wanted"], offer["situation"]) == (1, {"free": 2, "holders": [], "before": []})
    one.tell("enter 1")
    assert one.said() == {"has": ["slot0"]}
    assert one.server is None, "it is not started before all nodes have their machines"
    one.tell("start")
    assert one.hello()
    server = one.server
    assert server is not None
    assert one.end() == (0, "")
    assert look(folder).free == 1, "the server has it"
    again = Opened(folder)
    assert again.said() == {"has": []}
    assert again.hello()
    assert (again.server, again.end()) == (server, (0, ""))
    kill(server)
    until(lambda: look(folder).free == 2)


@pytest.mark.parametrize("told", [[], ["enter 2"]])
def test_one_that_hangs_up_before_the_start_leaves_nothing(folder: Path, told: list[str]) -> None:
    one = Opened(folder)
    assert "offer" in one.said()
    for line in told:
        one.tell(line)
        assert one.said() == {"has": ["slot0"]}
        assert look(folder).free == 0, "another one is set aside"
    assert one.end() == (0, "")
    assert look(folder) == Situation(2, [], [])
    assert one.server is None


def test_one_that_waits(folder: Path) -> None:
    place = hold(folder, 2)
    one = Opened(folder)
    assert one.said()["offer"]["situation"]["free"] == 0
    one.tell("enter 1")
    waits = one.said()["waits"]
    assert [ticket["owner"]["run"] for ticket in waits["holders"]] == ["x-1"]
    place.leave()
    assert one.said() == {"has": ["slot0"]}
    one.end()


def test_one_that_hangs_up_while_it_waits(folder: Path) -> None:
    place = hold(folder, 2)
    one = Opened(folder)
    one.said()
    one.tell("enter 1")
    assert "waits" in one.said()
    assert one.end() == (0, "")
    assert look(folder).before == []
    place.leave()


def test_two_nodes_of_a_gang(folder: Path) -> None:
    both = [Opened(folder, rank) for rank in range(2)]
    for number, one in enumerate(both):
        one.said()
        one.tell("enter 2")
        assert one.said() == {"has": [UNITS[number]]}
    for one in both:
        one.tell("start")
        assert one.hello()
        assert one.end() == (0, "")
    assert [one.server is not None for one in both] == [True, True]
    assert look(folder).free == 0


def test_one_that_returns_goes_before_one_that_waits_in_another_queue(folder: Path) -> None:
    """Run y has the other machine of the gang that run x waits for, and has lost its node here."""
    first = Opened(folder, 0, "x", slots=1)
    first.said()
    first.tell("enter 1")
    assert first.said() == {"has": ["slot0"]}
    last = Opened(folder, 1, "z", slots=1)
    last.said()
    last.tell("enter 1")
    assert "waits" in last.said()
    again = Opened(folder, 0, "y", slots=1, returns=True)
    again.said()
    again.tell("enter 1")
    assert again.said_at_last() == {"has": ["slot0"]}
    text = "muster-node: ana@a's run y, which has lost a node there, gets it first\n"
    assert first.end() == (1, text)
    again.tell("start")
    assert again.hello()
    assert again.end() == last.end() == (0, "")


def test_what_it_lacks(folder: Path) -> None:
    one = Opened(folder, gpus=1)
    assert one.said() == {"lacks": "it has no GPUs, and 1 is needed"}
    assert one.end() == (1, "")
    one = Opened(folder)
    one.said()
    one.tell("enter 3")
    text = "it has room for 2, and nodes of the run need 3 of it"
    assert one.said() == {"lacks": text}
    assert one.end() == (1, "")


def test_no_folder_can_be_made(folder: Path) -> None:
    """It is said before the machine is waited for, so that another one can be used."""
    one = Opened(Path("/proc/nothing"), queue=str(folder / "q"))
    assert "offer" in one.said()
    one.tell("enter 1")
    text = "no folder can be made in /proc/nothing: No such file or directory"
    assert one.said() == {"lacks": f"{text} (`folder` of the profile names another one)"}
    assert one.end() == (1, "")
    assert look(folder).free == 2


@pytest.mark.parametrize("line", ["leave", "enter", "enter x", "enter 1 2", "start", "x" * 1000])
def test_requests_that_there_are_not(folder: Path, line: str) -> None:
    one = Opened(folder)
    one.said()
    one.tell(line)
    assert one.said()["lacks"].startswith("unknown request b'")
    assert one.end()[0] == 1
    assert look(folder).free == 2


def test_a_queue_that_cannot_be_used(folder: Path) -> None:
    one = Opened(folder, queue="/proc/no/queue")
    code, errors = one.end()
    assert code == 1
    assert errors == "muster-node: [Errno 2] No such file or directory: '/proc/no/queue'\n"


@pytest.mark.parametrize(
    ("free", "before", "is_free"), [(2, 0, True), (3, 0, True), (1, 0, False), (2, 1, False)]
)
def test_whether_an_offer_is_free(free: int, before: int, is_free: bool) -> None:
    tickets = [Ticket(Owner("bob@b", "x", "x-1", 0), 0.0, 1)] * before
    assert Offer("q", 2, Situation(free, [], tickets)).free is is_free


# --- bytes


class Bridged:
    """A bridge in a thread, between a socket and two pipes."""

    def __init__(self) -> None:
        self.sock, other = socket.socketpair()
        reading, self.writing = os.pipe()
        self.reading, writing = os.pipe()
        self._ends = (reading, writing)
        self._other = other
        self.thread = threading.Thread(target=bridge, args=(other, reading, writing))
        self.thread.start()

    def close(self) -> None:
        """After its end."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        self._other.close()
        for descriptor in self._ends:
            os.close(descriptor)


def test_bytes_are_carried_both_ways_at_once() -> None:
    """Neither way waits for the other one, though all buffers are full."""
    one, data = Bridged(), os.urandom(3_000_000)
    os.set_blocking(one.writing, False)
    os.set_blocking(one.reading, False)
    one.sock.setblocking(False)
    unsent, found = {"pipe": data, "sock": data}, {"pipe": b"", "sock": b""}
    while any(unsent.values()) or min(map(len, found.values())) < len(data):
        writes = [one.writing] * bool(unsent["pipe"]) + [one.sock.fileno()] * bool(unsent["sock"])
        # reads little, and only when nothing can be written
        can_write = select.select([], writes, [], 0.01)[1]
        if one.writing in can_write:
            unsent["pipe"] = unsent["pipe"][os.write(one.writing, unsent["pipe"][:65_536]) :]
        if one.sock.fileno() in can_write:
            unsent["sock"] = unsent["sock"][one.sock.send(unsent["sock"][:65_536]) :]
        if not can_write:
            for ready in select.select([one.reading, one.sock], [], [], 60)[0]:
                if ready is one.sock:
                    found["pipe"] += one.sock.recv(1 << 20)
                else:
                    found["sock"] += os.read(one.reading, 1 << 20)
    assert found == {"pipe": data, "sock": data}
    os.close(one.writing)
    one.close()
    one.sock.close()
    os.close(one.reading)


@pytest.mark.parametrize("which", ["input", "output", "socket"])
def test_it_ends_when_one_end_is_closed(which: str) -> None:
    one = Bridged()
    if which == "input":
        os.close(one.writing)
    elif which == "socket":
        one.sock.close()
    else:
        os.close(one.reading)
        one.sock.send(b"x")  # what nobody reads any more
    one.close()
    if which != "input":
        os.close(one.writing)
    if which != "output":
        os.close(one.reading)
    one.sock.close()


def test_what_has_arrived_before_the_end_is_written() -> None:
    one = Bridged()
    one.sock.send(b"last words")
    one.sock.close()
    one.close()
    assert os.read(one.reading, 100) == b"last words"
    for descriptor in (one.reading, one.writing):
        os.close(descriptor)
