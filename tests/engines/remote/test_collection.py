"""What is collected from the host of a node, with a server that says what it should not."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from typing import IO, cast

import pytest

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.collection import TreeCopy, Unpacker, receive_tree
from muster.engines.remote.contact import Contact
from muster.node.streams import Streams


class There:
    """A contact with a host, and the streams of its server."""

    up = True

    def __init__(self) -> None:
        self.streams, self.server = Streams(supervisor=True), Streams(supervisor=False)

    def wake(self) -> None:
        for source, target in ((self.streams, self.server), (self.server, self.streams)):
            while (frame := source.next_frame()) is not None:
                target.take_frame(*frame)


@pytest.mark.parametrize("result", [{"left_out": 5}, {"left_out": [5]}, {"more": 1}])
def test_a_result_that_no_server_says(tmp_path: Path, result: dict[str, object]) -> None:
    loop, errors = EventLoop(), list[Exception]()
    there = There()
    contact = cast("Contact", there)
    unpacker = Unpacker(RunLoop(loop, errors.append))
    everything = partial(receive_tree, wanted=lambda target, name: True)
    copy = TreeCopy("/there", tmp_path / "here", unpacker, lambda: None, everything)
    copy.step(contact)
    (stream,) = there.server.opened()
    stream.finish(result)
    there.wake()
    copy.step(contact)
    assert copy.done
    assert copy.failure.startswith("its host has sent an invalid result: TreeResult: ")
    there.wake()
    assert stream.canceled == copy.failure
    loop.close()
    assert not errors


def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    """What is said about it can be recorded."""
    loop = EventLoop()
    there = There()
    contact = cast("Contact", there)

    def fail(_spool: object, _target: Path) -> None:
        raise FileExistsError(errno.EEXIST, "File exists: s/\udcff", "s/\udcff")

    copy = TreeCopy("/there", tmp_path, Unpacker(RunLoop(loop, print)), lambda: None, fail)
    copy.step(contact)
    (stream,) = there.server.opened()
    stream.send(b"an archive")
    stream.finish({})
    there.wake()
    copy.step(contact)
    while not copy.done:
        loop.run_once()
    assert "File exists: s/\\udcff" in copy.failure
    loop.close()


@pytest.mark.parametrize(("size", "descriptors"), [(60_000, 0), (200_000, 1)])
def test_a_folder_with_little_takes_no_descriptor(
    tmp_path: Path, size: int, descriptors: int
) -> None:
    """Thousands of nodes may end together."""
    loop, there, found = EventLoop(), There(), list[bytes]()
    contact = cast("Contact", there)

    def receive(spool: IO[bytes], _target: Path) -> None:
        found.append(spool.read())

    unpacker = Unpacker(RunLoop(loop, print))
    copy = TreeCopy("/there", tmp_path, unpacker, lambda: None, receive)
    before = len(os.listdir("/proc/self/fd"))
    copy.step(contact)
    (stream,) = there.server.opened()
    for _ in range(size // 1000):
        stream.send(bytes(1000))
        there.wake()
        copy.step(contact)
    assert len(os.listdir("/proc/self/fd")) - before == descriptors
    stream.finish({})
    there.wake()
    copy.step(contact)
    while not copy.done:
        loop.run_once()
    assert found == [bytes(size)]
    loop.close()
