"""File watchers: neither variant misses a change, in a poll or epoll loop."""

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

from muster.node import file_watch
from muster.node.file_watch import RemovalWatcher, Watcher, wait_for

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="inotify exists on Linux only"
)


@pytest.fixture(params=[pytest.param("kernel", marks=linux), "polling"])
def watcher(request: pytest.FixtureRequest) -> Iterator[Watcher]:
    watcher = Watcher() if request.param == "kernel" else Watcher.polling()
    yield watcher
    watcher.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "0.out"
    path.touch()
    return path


def append(path: Path, data: bytes = b"x") -> None:
    with path.open("ab") as opened:
        opened.write(data)


def test_each_change_is_reported_once(watcher: Watcher, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "1.out"
    other.touch()
    append(file, b"before")
    watcher.add(file)
    watcher.add(other)
    assert watcher.drain() == set()
    for _ in range(3):  # a watch continues after it has reported a change
        append(file)
        append(file)
        assert watcher.drain() == {file}
        assert watcher.drain() == set()
    append(file)
    append(other)
    assert watcher.drain() == {file, other}


def test_a_truncated_file_is_reported(watcher: Watcher, file: Path) -> None:
    append(file)
    watcher.add(file)
    os.truncate(file, 0)
    assert watcher.drain() == {file}


def test_new_entries_of_a_folder_are_reported(watcher: Watcher, tmp_path: Path) -> None:
    part = tmp_path / "part"
    watcher.add(tmp_path)
    part.touch()
    assert watcher.drain() == {tmp_path}
    part.replace(tmp_path / "whole")
    assert watcher.drain() == {tmp_path}


def test_a_removed_file_is_reported_once(watcher: Watcher, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "1.out"
    other.touch()
    watcher.add(file)
    watcher.add(other)
    file.unlink()
    assert watcher.drain() == {file}
    append(other)
    assert watcher.drain() == {other}


@linux
def test_a_missing_file_cannot_be_watched(tmp_path: Path) -> None:
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
def test_many_changes_of_a_file_queue_one_event(file: Path) -> None:
    watcher = Watcher()
    watcher.add(file)
    descriptor = watcher.fileno()
    assert descriptor is not None
    for _ in range(1000):
        append(file)
        os.utime(file)
    # the change, and the end of the watch that reported it
    assert len(os.read(descriptor, 1 << 16)) == 2 * 16
    watcher.close()


def test_polling_has_no_descriptor_and_a_growing_interval(file: Path) -> None:
    watcher = Watcher.polling()
    watcher.add(file)
    assert watcher.fileno() is None
    assert watcher.timeout() == 0
    for _ in range(20):
        assert watcher.drain() == set()
    assert watcher._interval == pytest.approx(file_watch._MAX_INTERVAL)  # type: ignore[attr-defined]
    timeout = watcher.timeout()
    assert timeout is not None
    assert 0 <= timeout <= file_watch._MAX_INTERVAL
    append(file)
    assert watcher.drain() == {file}
    assert watcher._interval == pytest.approx(file_watch._MIN_INTERVAL)  # type: ignore[attr-defined]


# Writes byte by byte as fast as it can; ends with Z.
PROGRAM = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for _ in range(int(sys.argv[2])):
    os.write(file, b"x")
os.write(file, b"Z")
"""


def test_no_change_by_a_concurrent_program_is_missed(watcher: Watcher, tmp_path: Path) -> None:
    """Reading after `add` and after each `drain` is enough; otherwise this would not end."""
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
        while not ready:  # the polling variant also wakes after its interval
            ready.update(wait_for(watcher, receiver))
            watcher.drain()

    waiting = threading.Thread(target=wait)
    waiting.start()
    os.write(sender, b"x")
    waiting.join()
    assert ready == {receiver}
    os.close(receiver)
    os.close(sender)


def test_waiting_ends_after_its_timeout(watcher: Watcher, file: Path) -> None:
    watcher.add(file)
    assert wait_for(watcher, timeout=0) == set()


class LimitedKernel:
    """The C library of a kernel that allows `watches` more watches."""

    def __init__(self, watches: int, instances: bool = True) -> None:
        self._real = file_watch._libc()
        self._watches = watches
        self._instances = instances

    def inotify_init1(self, flags: int) -> int:
        return self._real.inotify_init1(flags) if self._instances else -1

    def inotify_add_watch(self, descriptor: int, path: bytes, mask: int) -> int:
        if self._watches == 0:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        self._watches -= 1
        return int(self._real.inotify_add_watch(descriptor, path, mask))


@linux
def test_a_watcher_polls_when_watches_run_out(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "1.out"
    other.touch()
    kernel = LimitedKernel(watches=1)
    monkeypatch.setattr(file_watch, "_libc", lambda: kernel)
    watcher = Watcher()
    watcher.add(file)
    assert watcher.timeout() is None
    watcher.add(other)
    assert watcher.timeout() is not None  # from now on it polls
    for _ in range(2):  # the second time, the first watch has ended as well
        append(file)
        append(other)
        assert watcher.drain() == {file, other}
        assert watcher.drain() == set()
    watcher.close()


@linux
def test_a_watcher_polls_when_inotify_instances_run_out(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = LimitedKernel(watches=0, instances=False)
    monkeypatch.setattr(file_watch, "_libc", lambda: kernel)
    monkeypatch.setattr(file_watch, "_unused", [])
    watcher = Watcher()
    assert watcher.fileno() is None
    watcher.add(file)
    append(file)
    assert watcher.drain() == {file}
    watcher.close()


@linux
def test_a_descriptor_is_kept_for_the_next_watcher(file: Path, tmp_path: Path) -> None:
    """It reports nothing of what it watched before."""
    first, other = Watcher(), tmp_path / "other"
    other.touch()
    descriptor = first.fileno()
    first.add(file)
    append(file)
    first.close()
    gone = RemovalWatcher([other])
    assert gone.fileno() == descriptor
    assert gone.missing() is None
    gone.close()
    second = Watcher()
    assert second.fileno() == descriptor
    second.add(file)
    other.unlink()
    assert second.drain() == set()
    append(file)
    assert second.drain() == {file}
    second.close()


@linux
def test_few_descriptors_are_kept(file: Path) -> None:
    watchers = [Watcher() for _ in range(2 * file_watch._MOST_UNUSED)]
    for watcher in watchers:
        watcher.add(file)
    # other processes of this user may use most of those that there are
    had = sum(watcher.fileno() is not None for watcher in watchers)
    for watcher in watchers:
        watcher.close()
    assert len(file_watch._unused) == min(had, file_watch._MOST_UNUSED)


def test_all_files_are_reported_when_the_queue_overflows(tmp_path: Path) -> None:
    """All files may have changed; all are watched as before."""
    paths = [tmp_path / f"{n}.out" for n in range(3)]
    watcher = Watcher()
    for path in paths:
        path.touch()
        watcher.add(path)
    overflow = file_watch._EVENT.pack(-1, 0x4000, 0, 0)
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
def test_a_removal_watcher_polls_when_watches_run_out(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __getattr__(self, name: str) -> object:
            return full if name == "inotify_add_watch" else getattr(real, name)

    def full(*_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    real = file_watch._libc()
    monkeypatch.setattr(file_watch, "_library", Full())
    watcher = RemovalWatcher([file])
    assert watcher.fileno() is None
    assert watcher.missing() is None
    file.unlink()
    assert watcher.missing() == file
