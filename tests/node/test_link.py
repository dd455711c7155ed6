"""Conversations that outlive their connections."""

from __future__ import annotations

import json
import struct
from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.node import link as link_module
from muster.node.link import Link, LinkError
from muster.node.messages import Absent, Message, Signal, Stop


class Wire:
    """A connection between two links, whose frames arrive when `carry` is called."""

    def __init__(self, one: Link, other: Link) -> None:
        self.ends = one, other
        self.frames: tuple[deque[tuple[str, bytes]], ...] = (deque(), deque())
        self.received: tuple[list[Message], list[Message]] = ([], [])
        said = one.received, other.received
        one.attach(self, said[1])
        other.attach(self, said[0])

    def write(self, side: int) -> None:
        link, frames = self.ends[side], self.frames[side]
        if not link.carried_by(self):
            return
        while (data := link.next_message()) is not None:
            frames.append(("message", data))
        if (data := link.next_acknowledgment()) is not None:
            frames.append(("received", data))

    def carry(self, side: int) -> bool:
        """The next frame arrives at an end. False if there is none."""
        link = self.ends[side]
        if not self.frames[1 - side] or not link.carried_by(self):
            return False
        kind, data = self.frames[1 - side].popleft()
        if kind == "received":
            link.take_acknowledgment(data)
        elif (message := link.take(data)) is not None:
            self.received[side].append(message)
        return True

    def run(self) -> tuple[list[Message], list[Message]]:
        """Until nothing is left to do. Returns what each end has received."""
        busy = True
        while busy:
            self.write(0)
            self.write(1)
            busy = self.carry(0) | self.carry(1)
        return self.received


def content(number: int, text: str = '{"type": "stop", "incarnation": 1}') -> bytes:
    return struct.pack(">Q", number) + text.encode()


def test_messages_arrive_in_order_and_are_acknowledged() -> None:
    one, other = Link("s"), Link("s")
    wire = Wire(one, other)
    for number in range(3):
        one.send(Signal(number, 15))
    assert one.unacknowledged == sum(
        len(json.dumps({"type": "signal", "incarnation": n, "number": 15})) for n in range(3)
    )
    assert wire.run()[1] == [Signal(number, 15) for number in range(3)]
    assert (one.unacknowledged, other.received) == (0, 3)


def test_messages_wait_for_a_connection() -> None:
    one, other = Link("s"), Link("s")
    one.send(Stop(0))
    other.send(Stop(1))
    assert Wire(one, other).run() == ([Stop(1)], [Stop(0)])


@pytest.mark.parametrize("arrives", ["its acknowledgment", "the message", "nothing"])
def test_a_break_loses_and_doubles_nothing(arrives: str) -> None:
    one, other = Link("s"), Link("s")
    wire = Wire(one, other)
    one.send(Stop(0))
    wire.write(0)
    if arrives != "nothing":
        wire.carry(1)
    if arrives == "its acknowledgment":
        wire.write(1)
        wire.carry(0)
    again = Wire(one, other)
    one.send(Stop(1))
    again.run()
    assert wire.received[1] + again.received[1] == [Stop(0), Stop(1)]
    assert one.unacknowledged == 0


def test_a_connection_that_was_replaced_carries_nothing_more() -> None:
    one, other = Link("s"), Link("s")
    former = Wire(one, other)
    present = Wire(one, other)
    one.detach(former)
    assert not one.carried_by(former)
    assert one.carried_by(present)
    one.detach(present)
    assert not one.carried_by(present)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"1234567", "a frame without a number"),
        (content(2), "message 2 after message 0"),
        (content(1, "x"), "message 1 is invalid: "),
        (content(1, "[" * 100_000), "message 1 is invalid: "),
        (content(1, '{"type": "no"}'), "message 1 is invalid: "),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, error: str) -> None:
    link = Link("s")
    with pytest.raises(LinkError, match=error):
        link.take(data)
    assert link.take(content(1)) == Stop(1)
    assert link.take(content(1)) is None, "it is here already"


@pytest.mark.parametrize("count", [2, -1, 1 << 63])
def test_what_was_not_sent_cannot_have_arrived(count: int) -> None:
    link = Link("s")
    link.send(Stop(0))
    link.attach("wire", 0)
    assert link.next_message() is not None
    with pytest.raises(LinkError, match=r"acknowledged, 1 were sent|has lost messages"):
        link.attach("wire", count)
    if count > 0:
        with pytest.raises(LinkError, match=f"{count} messages are acknowledged, 1 were sent"):
            link.take_acknowledgment(struct.pack(">Q", count))


@pytest.mark.parametrize("more", [0, 1])
def test_an_end_that_has_forgotten_what_it_received_is_noticed(more: int) -> None:
    one, other = Link("s"), Link("s")
    one.send(Stop(0))
    Wire(one, other).run()
    for number in range(more):
        one.send(Stop(number))
    assert not one.fresh
    with pytest.raises(LinkError, match="it has lost messages that it had received"):
        one.attach("wire", 0)


def test_a_message_that_cannot_be_sent_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Link("s"), Link("s")
    with pytest.raises(KeyError):
        one.send("no message")  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(link_module, "MAX_MESSAGE", 100)
        with pytest.raises(LinkError, match=r"a message of \d+ bytes is too large"):
            one.send(Absent(0, list(range(100))))
    assert one.fresh
    one.send(Stop(1))
    assert Wire(one, other).run()[1] == [Stop(1)]


class Conversation(RuleBasedStateMachine):
    """Two ends, over connections that break at any frame, on either side first."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = Link("s"), Link("s")
        self.sent: tuple[list[Message], list[Message]] = ([], [])
        self.received: tuple[list[Message], list[Message]] = ([], [])
        self.wires: list[Wire] = []

    @initialize()
    def begin(self) -> None:
        self.connect()

    @rule()
    def connect(self) -> None:
        """Frames of the connection before may still arrive, and are not looked at."""
        wire = Wire(*self.ends)
        wire.received = self.received
        self.wires = [*self.wires[-1:], wire]

    @rule(side=st.integers(0, 1), count=st.integers(1, 3))
    def send(self, side: int, count: int) -> None:
        for _ in range(count):
            self.sent[side].append(Stop(len(self.sent[side])))
            self.ends[side].send(self.sent[side][-1])

    @rule(side=st.integers(0, 1), which=st.integers(0, 1))
    def write(self, side: int, which: int) -> None:
        self.wires[which % len(self.wires)].write(side)

    @rule(side=st.integers(0, 1), which=st.integers(0, 1), count=st.integers(1, 4))
    def carry(self, side: int, which: int, count: int) -> None:
        for _ in range(count):
            self.wires[which % len(self.wires)].carry(side)

    @rule(side=st.integers(0, 1), which=st.integers(0, 1))
    def lose(self, side: int, which: int) -> None:
        """One end notices that a connection is lost."""
        self.ends[side].detach(self.wires[which % len(self.wires)])

    @rule()
    def finish(self) -> None:
        self.connect()
        self.wires[-1].run()
        assert self.received == (self.sent[1], self.sent[0])
        assert [end.unacknowledged for end in self.ends] == [0, 0]

    @invariant()
    def nothing_is_doubled_lost_or_reordered(self) -> None:
        for side in (0, 1):
            got = self.received[side]
            assert got == self.sent[1 - side][: len(got)]


TestConversation = Conversation.TestCase
