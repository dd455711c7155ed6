"""Contact with real node servers, over connections that break."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.engines.remote import contact as module
from muster.engines.remote.contact import Contact, Dial, SupervisorId
from muster.node.connection import Transport
from muster.node.greeting import PROTOCOL, AgentHello
from muster.node.messages import Ended, HostFacts, Joined, Launched, Ready, Start, Started
from muster.node.processes import state_of
from muster.node.streams import OPEN
from support.contacts import Loop, Owner
from support.faults import until as wait_until
from support.node_servers import kill, launch, server_pid

Make = Callable[..., tuple[Contact, Owner]]


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.run.close()
    made.loop.close()


@pytest.fixture
def make(tmp_path: Path, loop: Loop) -> Iterator[Make]:
    made: list[Contact] = []
    folder = tmp_path / "server"

    def one(turn: int = 1, dial: Dial | None = None) -> tuple[Contact, Owner]:
        owner = Owner(folder)
        contact = Contact(loop.run, dial or owner.dial, SupervisorId("r1", turn), owner)
        made.append(contact)
        return contact, owner

    yield one
    for contact in made:
        contact.close()
    try:
        pid = server_pid(folder)
    except (AssertionError, FileNotFoundError):
        return
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: state_of(pid) in ("", "Z"), "the server has ended")


def start(loop: Loop, contact: Contact, owner: Owner, *argv: str) -> None:
    """Start a program, which then runs."""
    contact.send(launch(owner.folder, 0, *argv))
    loop.until(lambda: owner.names()[-1] == "Joined")
    contact.send(Start(0))
    loop.until(lambda: "Ready" in owner.names())


def test_the_server_is_reached_and_says_what_it_knows(make: Make, loop: Loop) -> None:
    contact, owner = make()
    assert not contact.up
    loop.until(lambda: bool(owner.messages))
    assert (contact.up, owner.told, owner.names()) == (True, ["reached"], ["HostFacts"])
    start(loop, contact, owner, "sh", "-c", "exit 3")
    loop.until(lambda: isinstance(owner.messages[-1], Ended))
    assert owner.names()[1:] == ["Launched", "Joined", "Started", "Ready", "Ended"]


def test_a_connection_that_breaks_is_replaced(make: Make, loop: Loop) -> None:
    contact, owner = make()
    loop.until(lambda: bool(owner.messages))
    for _ in range(3):
        reached = owner.told.count("reached")
        owner.dialed[-1].shutdown(socket.SHUT_RDWR)
        loop.until(lambda: not contact.up)
        contact.send(launch(owner.folder, reached, "true"))  # waits for the next connection
        loop.until(lambda reached=reached: owner.told.count("reached") > reached)  # type: ignore[misc]
        loop.until(lambda: isinstance(owner.messages[-1], Joined))
        contact.send(Start(reached))
        loop.until(lambda: isinstance(owner.messages[-1], Ended))
    assert owner.names().count("HostFacts") == owner.begun == 1  # it was the same conversation
    assert set(owner.told) == {"reached", "the other end has closed the connection"}


def test_a_server_that_was_started_again_begins_a_new_conversation(make: Make, loop: Loop) -> None:
    contact, owner = make()
    loop.until(lambda: bool(owner.messages))
    start(loop, contact, owner, "sleep", "1000")
    kill(server_pid(owner.folder))
    del owner.messages[:]
    loop.until(lambda: bool(owner.messages) and isinstance(owner.messages[-1], Ended))
    facts, *told = owner.messages
    assert isinstance(facts, HostFacts)
    assert (facts.incarnation, owner.begun) == (0, 2)
    assert [type(message) for message in told] == [Launched, Joined, Started, Ready, Ended]


def test_a_frozen_server_is_noticed(
    make: Make, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PING_AFTER", 0.2)
    monkeypatch.setattr(module, "_GIVE_UP_AFTER", 0.6)
    contact, owner = make()
    loop.until(lambda: bool(owner.messages))
    begun = loop.loop.now()
    loop.until(lambda: loop.loop.now() > begun + 1.5)
    assert owner.told == ["reached"]  # it answers
    os.kill(server_pid(owner.folder), signal.SIGSTOP)
    loop.until(lambda: not contact.up)
    assert owner.told[1] == "it does not answer"
    os.kill(server_pid(owner.folder), signal.SIGCONT)
    loop.until(lambda: contact.up)


def test_a_connection_on_which_nobody_speaks(
    make: Make, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GREETING_TIMEOUT", 0.1)
    ends: list[socket.socket] = []

    def dial() -> Transport:
        ours, theirs = socket.socketpair()
        ends.append(theirs)
        return ours

    _, owner = make(dial=dial)
    loop.until(lambda: len(owner.told) == 3)
    assert set(owner.told) == {"it does not answer"}
    for end in ends:
        end.close()


def test_a_server_that_breaks_the_rules_has_no_contact_any_more(make: Make, loop: Loop) -> None:
    """Also if it does not close the connection: nothing is asked of it there, in vain."""
    ends: list[socket.socket] = []

    def dial() -> Transport:
        ours, theirs = socket.socketpair()
        hello = AgentHello(PROTOCOL, "0", "there", "r1", 0, "p1", len(ends) + 1, "", 0)
        theirs.sendall(frame(1, json.dumps(hello._asdict()).encode()))
        ends.append(theirs)
        return ours

    contact, owner = make(dial=dial)
    loop.until(lambda: contact.up)
    stream = contact.streams.open({"kind": "read"})
    ends[0].sendall(frame(99, b""))
    loop.until(lambda: bool(stream.canceled))
    assert not contact.up
    assert owner.told == ["reached", "a frame of unknown kind 99"]
    assert ends[0].recv(1 << 16).endswith(frame(2, b"a frame of unknown kind 99"))
    loop.until(lambda: contact.up)
    for end in ends:
        end.close()


def test_a_stream_that_the_server_opens_is_told(make: Make, loop: Loop) -> None:
    """Also if nothing else arrives with it."""
    ends: list[socket.socket] = []

    def dial() -> Transport:
        ours, theirs = socket.socketpair()
        hello = AgentHello(PROTOCOL, "0", "there", "r1", 0, "p1", 1, "", 0)
        theirs.sendall(frame(1, json.dumps(hello._asdict()).encode()))
        ends.append(theirs)
        return ours

    contact, owner = make(dial=dial)
    loop.until(lambda: contact.up)
    ends[0].sendall(frame(OPEN, struct.pack(">I", 1) + b'{"kind": "code"}'))
    loop.until(lambda: owner.streams == 1)
    (stream,) = contact.streams.opened()
    assert stream.about == {"kind": "code"}
    ends[0].close()


def frame(kind: int, content: bytes) -> bytes:
    return struct.pack(">BI", kind, len(content)) + content


def test_what_cannot_be_dialed_is_tried_less_and_less_often(
    make: Make, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.4)
    times: list[float] = []

    def dial() -> Transport:
        times.append(loop.loop.now())
        raise ConnectionRefusedError(111, "Connection refused")

    _, owner = make(dial=dial)
    loop.until(lambda: len(owner.told) == 5)
    assert set(owner.told) == {"Connection refused"}
    pauses = [after - before for before, after in pairwise(times)]
    limits = [(0.05, 0.1), (0.1, 0.2), (0.2, 0.4), (0.2, 0.4)]
    assert all(low <= pause for pause, (low, _) in zip(pauses, limits, strict=True)), pauses


def test_who_is_replaced_is_told_so(make: Make, loop: Loop) -> None:
    old, told_old = make()
    loop.until(lambda: bool(told_old.messages))
    new, told_new = make(turn=2)
    loop.until(lambda: bool(told_new.messages))
    loop.until(lambda: told_old.told[-1] == "the agent talks to another supervisor")
    assert (old.up, new.up) == (False, True)


def test_a_server_of_another_version(make: Make, loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    _, owner = make(dial=lambda: ours)
    hello: dict[str, Any] = {"protocol": 0, "version": "0.0.1", "host": "gpu-7"}
    text = str(hello).replace("'", '"').encode()
    theirs.sendall(b"\x01" + len(text).to_bytes(4, "big") + text)
    loop.until(lambda: bool(owner.told))
    assert owner.told[0].startswith("the agent on gpu-7 has Muster 0.0.1 (protocol 0), ")
    assert owner.told[0].endswith(": use the same version on both")
    assert b"use the same version" in theirs.recv(1000)
    theirs.close()
