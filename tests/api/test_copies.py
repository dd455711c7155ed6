"""The two ends of a copy."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from muster.api import copies
from muster.api.copies import EndHere, Outcome
from muster.errors import EngineError


class FakeEnd:
    """cannot_start: it takes over its descriptor, and raises an exception."""

    preamble = b""

    def __init__(self, *, cannot_start: bool = False) -> None:
        self._cannot_start = cannot_start
        self.descriptor = -1
        self.stopped = 0

    def start(self, descriptor: int) -> None:
        self.descriptor = descriptor
        if self._cannot_start:
            os.close(descriptor)
            raise EngineError("it has ended")

    def finish(self) -> Outcome:
        return Outcome()

    def stop(self) -> None:
        self.stopped += 1
        if not self._cannot_start and self.descriptor >= 0:
            os.close(self.descriptor)


def is_open(descriptor: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{descriptor}")


@pytest.mark.parametrize("fails", ["sender", "receiver"])
def test_an_end_is_stopped_if_the_other_cannot_start(fails: str) -> None:
    """A server would keep its process as a zombie."""
    pipe = os.pipe()  # the next one has the same descriptors
    for descriptor in pipe:
        os.close(descriptor)
    sender, receiver = (FakeEnd(cannot_start=one == fails) for one in ("sender", "receiver"))
    with pytest.raises(EngineError):
        copies.start(sender, receiver)
    assert (sender.stopped, receiver.stopped) == (1, 1)
    assert not any(map(is_open, pipe))


def test_ends_here_for_which_there_are_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has started would wait for the other one for ever."""
    receiver = EndHere("here", "rb", lambda of, _: of.read(), lambda _size: None)
    sender = EndHere("here", "wb", lambda to, _: to.write(b"x"), lambda _size: None)

    def cannot_start() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(sender._thread, "start", cannot_start)
    with pytest.raises(RuntimeError):
        copies.start(sender, receiver)
    assert not receiver._thread.is_alive()


class Reader(FakeEnd):
    """Reads what comes first, and nothing more."""

    def __init__(self, preamble: bytes, size: int) -> None:
        super().__init__()
        self.preamble, self._size = preamble, size
        self.received = b""
        self._thread = threading.Thread(target=self._read)

    def start(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._thread.start()

    def _read(self) -> None:
        with os.fdopen(self.descriptor, "rb", buffering=0) as pipe:
            while len(self.received) < self._size:
                self.received += pipe.read(self._size - len(self.received))

    def finish(self) -> Outcome:
        self._thread.join()
        return Outcome(failed=len(self.received) < len(self.preamble))


@pytest.mark.parametrize("size", [0, 1000, 1 << 20])
def test_a_receiver_may_end_before_it_has_read_the_preamble(size: int) -> None:
    """The preamble is larger than a pipe. What the receiver says of its end is raised."""
    preamble = os.urandom(1 << 20)
    receiver, sender = Reader(preamble, size), FakeEnd()
    copies.start(sender, receiver)
    os.close(sender.descriptor)
    assert receiver.finish().failed == (size < len(preamble))
    assert receiver.received == preamble[:size]


@pytest.mark.parametrize(("kind", "raw"), [("file", True), ("file", False), ("folder", False)])
def test_what_was_sent_is_not_left_open(tmp_path: Path, kind: str, raw: bool) -> None:
    """A program may copy any number of files."""
    source = tmp_path / kind
    if kind == "folder":
        source.mkdir()
    else:
        source.write_bytes(bytes(1 << 20))
    sender = copies.sender_here(str(source), raw=raw, progress=lambda _size: None)
    receiver = EndHere("here", "rb", lambda of, _: of.read(), lambda _size: None)
    assert copies.connect(sender, receiver) == ()
    opened = [os.readlink(f"/proc/self/fd/{name}") for name in own_descriptors()]
    assert str(source) not in opened


def own_descriptors() -> list[str]:
    found = os.listdir("/proc/self/fd")
    return [name for name in found if os.path.lexists(f"/proc/self/fd/{name}")]
