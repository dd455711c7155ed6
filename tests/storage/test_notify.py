"""Being told of changes: none missed, by either variant, in a poll or epoll loop."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.storage import notify
from muster.storage.notify import Presence, Watcher, wait_for

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


@pytest.fixture(params=[pytest.param("kernel", marks=linux), "polling"])
def watcher(request: pytest.FixtureRequest) -> Iterator[Watcher]:
    made = Watcher() if request.param == "kernel" else Watcher.polling()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "0.out"
    path.touch()
    return path


def append(path: Path, data: bytes = b"x") -> None:
    with path.open("ab") as opened:
        opened.write(data)


def test_what_has_changed_is_named_once(watcher: Watcher, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "1.out"
    other.touch()
    append(file, b"before")
    watcher.add(file)
    watcher.add(other)
    assert watcher.drain() == set()
    for _ in range(3):  # a watch that has told goes on
        append(file)
        append(file)
        assert watcher.drain() == {file}
        assert watcher.drain() == set()
    append(file)
    append(other)
    assert watcher.drain() == {file, other}


def test_a_file_that_is_emptied_has_changed(watcher: Watcher, file: Path) -> None:
    append(file)
    watcher.add(file)
    os.truncate(file, 0)
    assert watcher.drain() == {file}


def test_a_folder_tells_of_new_entries(watcher: Watcher, tmp_path: Path) -> None:
    part = tmp_path / "part"
    watcher.add(tmp_path)
    part.touch()
    assert watcher.drain() == {tmp_path}
    part.replace(tmp_path / "whole")
    assert watcher.drain() == {tmp_path}


def test_a_removed_file_is_named_a_last_time(watcher: Watcher, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "1.out"
    other.touch()
    watcher.add(file)
    watcher.add(other)
    file.unlink()
    assert watcher.drain() == {file}
    append(other)
    assert watcher.drain() == {other}


@linux
def test_a_file_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    watcher = Watcher()
    with pytest.raises(FileNotFoundError):
        watcher.add(tmp_path / "absent")
    watcher.close()


@linux
def test_the_kernel_wakes_poll_and_epoll(file: Path) -> None:
    watcher = Watcher()
    watcher.add(file)
    descriptor = watcher.fileno()
    assert descriptor is not None
    assert watcher.timeout() is None
    poll, epoll = select.poll(), select.epoll()
    poll.register(descriptor, select.POLLIN)
    epoll.register(descriptor, select.EPOLLIN)
    for _ in range(2):
        assert poll.poll(0) == []
        assert epoll.poll(0) == []
        append(file)
        assert poll.poll() == [(descriptor, select.POLLIN)]
        assert epoll.poll() == [(descriptor, select.EPOLLIN)]
        assert watcher.drain() == {file}
    epoll.close()
    watcher.close()


@linux
def test_a_flood_costs_one_event_a_file(file: Path) -> None:
    watcher = Watcher()
    watcher.add(file)
    descriptor = watcher.fileno()
    assert descriptor is not None
    for _ in range(1000):
        append(file)
        os.utime(file)
    # the change, and the end of the watch that told of it
    assert len(os.read(descriptor, 1 << 16)) == 2 * 16
    watcher.close()


def test_polling_has_no_descriptor_and_looks_less_and_less_often(file: Path) -> None:
    watcher = Watcher.polling()
    watcher.add(file)
    assert watcher.fileno() is None
    assert watcher.timeout() == 0
    for _ in range(20):
        assert watcher.drain() == set()
    assert watcher._interval == pytest.approx(notify._LAST_LOOK)  # type: ignore[attr-defined]
    timeout = watcher.timeout()
    assert timeout is not None
    assert 0 <= timeout <= notify._LAST_LOOK
    append(file)
    assert watcher.drain() == {file}
    assert watcher._interval == pytest.approx(notify._FIRST_LOOK)  # type: ignore[attr-defined]


# Writes byte by byte as fast as it can; ends with Z.
PROGRAM = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for _ in range(int(sys.argv[2])):
    os.write(file, b"x")
os.write(file, b"Z")
"""


def test_nothing_is_missed_of_a_program_that_writes_meanwhile(
    watcher: Watcher, tmp_path: Path
) -> None:
    """Who looks after `add` and after each `drain` sees all: else this would wait for ever."""
    paths = [tmp_path / f"{n}.out" for n in range(4)]
    for path in paths:
        path.touch()
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), str(3000 * n)])
        for n, path in enumerate(paths)
    ]
    unfinished = set(paths)
    for path in paths:
        watcher.add(path)
    changed = set(paths)
    while unfinished:
        unfinished -= {path for path in changed if path.read_bytes().endswith(b"Z")}
        if unfinished:
            wait_for(watcher)
            changed = watcher.drain()
    assert [program.wait() for program in programs] == [0] * 4


def test_waiting_ends_for_another_descriptor(watcher: Watcher, file: Path) -> None:
    watcher.add(file)
    receiver, sender = os.pipe()
    ready: set[int] = set()

    def wait() -> None:
        while not ready:  # the polling variant wakes on its own too
            ready.update(wait_for(watcher, receiver))
            watcher.drain()

    waiting = threading.Thread(target=wait)
    waiting.start()
    os.write(sender, b"x")
    waiting.join()
    assert ready == {receiver}
    os.close(receiver)
    os.close(sender)


def test_waiting_ends_when_time_is_up(watcher: Watcher, file: Path) -> None:
    watcher.add(file)
    assert wait_for(watcher, timeout=0) == set()


class Full:
    """A kernel with room for `room` watches more."""

    def __init__(self, room: int, instances: bool = True) -> None:
        self._real = notify._libc()
        self._room = room
        self._instances = instances

    def inotify_init1(self, flags: int) -> int:
        return self._real.inotify_init1(flags) if self._instances else -1

    def inotify_add_watch(self, descriptor: int, path: bytes, mask: int) -> int:
        if self._room == 0:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        self._room -= 1
        return int(self._real.inotify_add_watch(descriptor, path, mask))


@linux
def test_watches_run_out(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "1.out"
    other.touch()
    kernel = Full(room=1)
    monkeypatch.setattr(notify, "_libc", lambda: kernel)
    watcher = Watcher()
    watcher.add(file)
    assert watcher.timeout() is None
    watcher.add(other)
    assert watcher.timeout() is not None  # from now on it wants to be asked
    for _ in range(2):  # the second time, the first watch is gone too
        append(file)
        append(other)
        assert watcher.drain() == {file, other}
        assert watcher.drain() == set()
    watcher.close()


@linux
def test_watchers_run_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Full(room=0, instances=False)
    monkeypatch.setattr(notify, "_libc", lambda: kernel)
    watcher = Watcher()
    assert watcher.fileno() is None
    watcher.add(file)
    append(file)
    assert watcher.drain() == {file}
    watcher.close()


@linux
def test_the_queue_overflows(tmp_path: Path) -> None:
    """All may have changed, and all are watched as before."""
    paths = [tmp_path / f"{n}.out" for n in range(3)]
    watcher = Watcher()
    for path in paths:
        path.touch()
        watcher.add(path)
    overflow = notify._EVENT.pack(-1, 0x4000, 0, 0)
    read = os.read

    def overflowed(descriptor: int, length: int) -> bytes:
        return overflow if descriptor == watcher.fileno() else read(descriptor, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "read", overflowed)
        assert watcher.drain() == set(paths)
    for path in paths:
        append(path)
    assert watcher.drain() == set(paths)
    watcher.close()


@linux
def test_presence_looks_itself_where_the_kernel_has_no_room(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __getattr__(self, name: str) -> object:
            return full if name == "inotify_add_watch" else getattr(real, name)

    def full(*_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    real = notify._libc()
    monkeypatch.setattr(notify, "_library", Full())
    presence = Presence([file])
    assert presence.fileno() is None
    assert presence.missing() is None
    file.unlink()
    assert presence.missing() == file
