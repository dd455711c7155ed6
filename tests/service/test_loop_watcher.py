"""Followers in one event loop share a watcher."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from muster.service.loop_watcher import LoopWatcher, loop_watcher


def _descriptors_of_inotify() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify"
        except FileNotFoundError:
            pass  # that of the listing
    return found


async def _changes(one: LoopWatcher) -> set[Path]:
    await asyncio.wait_for(one.notified.wait(), 30)
    return set(one.drain())


def test_many_share_one_descriptor(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()

    async def check() -> None:
        before = _descriptors_of_inotify()
        ones = [loop_watcher() for _ in range(300)]
        for number, one in enumerate(ones):
            one.add(tmp_path / "abc"[number % 3])
        assert _descriptors_of_inotify() <= before + 1
        for _ in range(2):  # watches are renewed
            (tmp_path / "a").write_text("changed")
            for one in ones[::3]:
                assert await _changes(one) == {tmp_path / "a"}
        assert not any(one.notified.is_set() for one in ones[1::3])
        for one in ones[:-1]:
            one.close()
        (tmp_path / "c").write_text("changed")
        assert await _changes(ones[-1]) == {tmp_path / "c"}
        ones[-1].close()
        last = loop_watcher()  # after all have been closed
        last.add(tmp_path)
        (tmp_path / "new").touch()
        assert await _changes(last) == {tmp_path}
        last.close()

    asyncio.run(check())


def test_a_path_that_is_no_longer_watched(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()

    async def check() -> None:
        one = loop_watcher()
        one.add(tmp_path / "a")
        one.add(tmp_path / "b")
        one.remove(tmp_path / "a")
        (tmp_path / "a").write_text("changed")
        (tmp_path / "b").write_text("changed")
        assert await _changes(one) == {tmp_path / "b"}
        one.close()

    asyncio.run(check())
