"""Streams of bytes beside the messages of a connection."""

from __future__ import annotations

import json
import random
import struct
import zlib

import pytest

from muster.node.link import LinkError
from muster.node.streams import (
    CANCEL,
    CHUNK,
    DATA,
    END,
    MORE,
    OPEN,
    PACKED,
    WINDOW,
    Stream,
    Streams,
)

Ends = tuple[Streams, Streams]


def ends() -> Ends:
    return Streams(supervisor=True), Streams(supervisor=False)


def carry(source: Streams, target: Streams, most: int = 1 << 30) -> int:
    """Carry up to so many frames. Returns how many."""
    for number in range(most):
        frame = source.next_frame()
        if frame is None:
            return number
        target.take_frame(*frame)
    return most


def opened(source: Streams, target: Streams, **about: object) -> tuple[Stream, Stream]:
    ours = source.open(about)
    carry(source, target)
    (theirs,) = target.opened()
    assert theirs.about == about
    return ours, theirs


def both(one: Streams, other: Streams) -> None:
    while carry(one, other) + carry(other, one):
        pass


def test_bytes_both_ways_and_results() -> None:
    one, other = ends()
    ours, theirs = opened(one, other, kind="exec")
    ours.send(b"in")
    ours.finish({})
    both(one, other)
    assert other.changed() == [theirs]
    assert (theirs.take(), theirs.result, theirs.ended) == (b"in", {}, False)
    theirs.send(b"out")
    theirs.finish({"code": 3})
    both(one, other)
    assert ours.result is None  # what precedes it was not taken
    assert (ours.take(), ours.result, ours.ended) == (b"out", {"code": 3}, True)
    assert theirs.ended
    assert (one._streams, other._streams) == ({}, {})


def test_no_more_is_sent_than_there_is_room_for() -> None:
    one, other = ends()
    ours, theirs = opened(one, other)
    ours.send(b"x" * WINDOW)
    both(one, other)
    assert ours.room == 0
    with pytest.raises(AssertionError, match="the other end has no room"):
        ours.send(b"x")
    assert theirs.take() == b"x" * WINDOW
    both(one, other)
    assert one.changed() == [ours]
    assert ours.room == WINDOW


def test_a_part_of_what_has_arrived_is_taken() -> None:
    one, other = ends()
    ours, theirs = opened(one, other)
    data = bytes(range(250)) * 1000
    ours.send(data)
    ours.finish({})
    both(one, other)
    taken = [theirs.take(size) for size in (0, 1, 70_000, 7)]
    assert [len(part) for part in taken] == [0, 1, 70_000, 7]
    assert theirs.result is None
    assert b"".join([*taken, theirs.take()]) == data
    assert theirs.result == {}


def test_a_slow_stream_does_not_hold_up_another() -> None:
    one, other = ends()
    slow, _ = opened(one, other)
    fast, received = opened(one, other)
    slow.send(b"s" * WINDOW)
    fast.send(b"f")
    carry(one, other, 2)
    assert received.take() == b"f"


def test_canceled_by_either_end() -> None:
    one, other = ends()
    ours, theirs = opened(one, other)
    theirs.send(b"x" * CHUNK * 3)
    theirs.cancel("no such file")
    both(one, other)
    assert one.changed() == [ours]
    assert (ours.canceled, ours.ended, theirs.ended) == ("no such file", True, True)
    ours.send(b"nobody reads it")
    ours.finish({})
    ours.cancel("late")
    assert one.next_frame() is None
    first, _ = opened(one, other)
    first.cancel("")
    assert first.canceled == "no reason was given"
    both(one, other)
    assert (one._streams, other._streams) == ({}, {})


def test_canceled_before_it_was_written() -> None:
    one, other = ends()
    stream = one.open({})
    stream.send(b"x")
    stream.cancel("not needed")
    both(one, other)
    (theirs,) = other.opened()
    assert theirs.canceled == "not needed"


def test_frames_of_a_canceled_stream_that_come_late() -> None:
    one, other = ends()
    ours, theirs = opened(one, other)
    theirs.send(b"x")
    ours.cancel("enough")
    both(one, other)
    assert theirs.canceled == "enough"


def test_all_end_with_the_connection() -> None:
    one, other = ends()
    ours, theirs = opened(one, other)
    ours.send(b"x")
    one.close("the connection is closed")
    assert ours.canceled == "the connection is closed"
    assert one.changed() == [ours]
    assert one.next_frame() is None
    other.close("lost")
    assert theirs.canceled == "lost"


def numbered(number: int, content: bytes = b"") -> bytes:
    return struct.pack(">I", number) + content


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (DATA, b"\0\0", "a frame without a number"),
        (OPEN, numbered(2, b"{}"), "a stream with the number of another one"),
        (OPEN, numbered(1, b"{}"), "a stream with the number of another one"),
        (OPEN, numbered(3, b"[]"), "a frame of a stream that is not JSON"),
        (OPEN, numbered(3, b"{"), "a frame of a stream that is not JSON"),
        (DATA, numbered(1, b"x" * (WINDOW + 1)), "data of a stream for which there is no room"),
        (MORE, numbered(1, b"xx"), "an invalid frame of a stream"),
        (MORE, numbered(1, numbered(1)), "a stream has more room than it may"),
        (END, numbered(1, b"x"), "a frame of a stream that is not JSON"),
    ],
)
def test_frames_that_cannot_be(kind: int, content: bytes, message: str) -> None:
    supervisor, agent = ends()
    opened(agent, supervisor)
    with pytest.raises(LinkError, match=message):
        supervisor.take_frame(kind, content)


def test_data_after_the_result() -> None:
    supervisor, agent = ends()
    opened(agent, supervisor)
    supervisor.take_frame(END, numbered(1, b"{}"))
    with pytest.raises(LinkError, match="no room"):
        supervisor.take_frame(DATA, numbered(1, b"x"))


def test_data_without_bytes_is_not_kept() -> None:
    supervisor, agent = ends()
    _, theirs = opened(agent, supervisor)
    for _ in range(3):
        supervisor.take_frame(DATA, numbered(1))
    assert not theirs._incoming, "it would grow without a limit"


def test_too_many_streams() -> None:
    supervisor, agent = ends()
    for _ in range(1000):
        agent.open({})
    carry(agent, supervisor)
    agent.open({})
    with pytest.raises(LinkError, match="too many streams"):
        carry(agent, supervisor)
    supervisor.opened()[0].cancel("")
    agent.open({})
    carry(agent, supervisor)


def test_everything_arrives_whatever_the_order(rng: random.Random) -> None:
    for _ in range(30):
        check_that_everything_arrives(rng, count=rng.randint(1, 5))


def check_that_everything_arrives(rng: random.Random, count: int) -> None:
    pair = ends()
    sent: dict[Stream, bytes] = {}
    got: dict[Stream, bytes] = {}
    ours = [pair[number % 2].open({"number": number}) for number in range(count)]
    theirs: dict[int, Stream] = {}
    left = {stream: rng.randrange(3 * WINDOW) for stream in ours}
    while not all(stream.ended for stream in [*ours, *theirs.values()]) or len(theirs) < count:
        where = rng.randrange(2)
        carry(pair[where], pair[1 - where], rng.randrange(4))
        for stream in pair[where].opened():
            theirs[stream.about["number"]] = stream
        for stream in pair[where].changed():
            got[stream] = got.get(stream, b"") + stream.take()
            if stream in theirs.values() and stream.result is not None:
                stream.finish({"size": len(got[stream])})
        for stream in ours:
            size = min(stream.room, left[stream], rng.choice((1, 1000, WINDOW)))
            data = rng.randbytes(4) * (size // 4) + b"x" * (size % 4)
            stream.send(data)
            sent[stream] = sent.get(stream, b"") + data
            left[stream] -= size
            if not left[stream]:
                stream.finish({})
    for number, stream in enumerate(ours):
        assert got.get(theirs[number], b"") == sent[stream]
        assert stream.result == {"size": len(sent[stream])}
    assert all(end._streams == {} for end in pair)


def test_what_a_frame_holds() -> None:
    """The format is the protocol: a change needs another version of it."""
    one, _ = ends()
    stream = one.open({"a": 1})
    stream.send(b"data")
    stream.finish({"b": 2})
    frames = [one.next_frame() for _ in range(4)]
    assert frames == [
        (OPEN, numbered(0, json.dumps({"a": 1}).encode())),
        (DATA, numbered(0, b"data")),
        (END, numbered(0, json.dumps({"b": 2}).encode())),
        None,
    ]
    stream = one.open({})
    stream.cancel("why")
    assert one.next_frame() == (OPEN, numbered(2, b"{}"))
    assert one.next_frame() == (CANCEL, numbered(2, b"why"))


def test_what_an_end_compresses_arrives_as_it_was() -> None:
    one, other = Streams(supervisor=True, compress=True), Streams(supervisor=False)
    ours, theirs = opened(one, other, kind="exec")
    text = b"the same line, again and again\n" * 30_000
    kinds, size = [], 0
    ours.send(text)
    while frame := one.next_frame():
        kinds.append(frame[0])
        size += len(frame[1])
        other.take_frame(*frame)
    assert set(kinds) == {PACKED}
    assert size < len(text) / 20
    assert ours.room == WINDOW - len(text), "room counts what it was"
    assert theirs.take() == text
    both(one, other)
    assert ours.room == WINDOW
    theirs.send(text)  # the other end does not compress
    assert other.next_frame() == (DATA, struct.pack(">I", theirs.number) + text[:CHUNK])


@pytest.mark.parametrize("content", [b"", b"text", zlib.compress(bytes(CHUNK + 1))])
def test_compressed_data_that_are_wrong_end_the_connection(content: bytes) -> None:
    one, other = ends()
    ours, _ = opened(one, other, kind="exec")
    with pytest.raises(LinkError, match=r"^compressed data of a stream: "):
        other.take_frame(PACKED, struct.pack(">I", ours.number) + content)


def test_compressed_data_of_a_canceled_stream_are_not_looked_at() -> None:
    one, other = ends()
    ours, theirs = opened(one, other, kind="exec")
    theirs.cancel("no")
    other.take_frame(PACKED, struct.pack(">I", ours.number) + b"text")
