"""Being told that a file has changed.

By the kernel where it can (inotify); elsewhere, and only there, by looking at growing intervals.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import time
from collections.abc import Iterable, Set
from pathlib import Path

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x80, 0x100
_IN_ATTRIB, _IN_DELETE_SELF, _IN_MOVE_SELF = 0x4, 0x400, 0x800
#: Told once, then watched anew by `drain`: a watch that tells of every write slows a program that
#: writes line by line by a third, this one does not.
_IN_ONESHOT = 0x80000000
_QUEUE = 1 << 18  # bytes; holds all a queue of the kernel's default length can
_EVENT = struct.Struct("=iIII")
_FIRST_LOOK, _LAST_LOOK = 0.020, 0.100  # seconds between looks, growing while nothing happens


class Watcher:
    """Watches files for growth and folders for new entries.

    Wait for `fileno()` (where there is one) or `timeout()`, then `drain()`. Nothing is missed by
    who looks at a file after `add`, and again after each `drain` that names it.
    """

    def __new__(cls) -> Watcher:
        if cls is Watcher and sys.platform.startswith("linux"):
            descriptor = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if descriptor >= 0:
                watcher = super().__new__(_Inotify)
                watcher._descriptor = descriptor
                return watcher
            # too many of its user's programs watch something: look, as elsewhere
        return super().__new__(_Polling if cls is Watcher else cls)

    @staticmethod
    def polling() -> Watcher:
        """The variant for systems that do not tell."""
        return _Polling()

    def add(self, path: Path) -> None:
        """Watch a file or folder that exists. What changed before is not told."""
        raise NotImplementedError

    def fileno(self) -> int | None:
        """A descriptor that becomes readable with a change; None where there is none."""
        raise NotImplementedError

    def timeout(self) -> float | None:
        """Seconds after which to call `drain` although nothing became readable; None = never."""
        raise NotImplementedError

    def drain(self) -> Set[Path]:
        """What has changed since the last call, what changed first before the rest where the
        kernel tells. A file that was removed is named a last time."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop watching."""
        raise NotImplementedError


class _Inotify(Watcher):
    _descriptor: int

    def __init__(self) -> None:
        self._paths: dict[int, Path] = {}
        self._others: _Polling | None = None  # those the kernel has no room to watch

    def add(self, path: Path) -> None:
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_ONESHOT
        watch = _libc().inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if watch >= 0:
            self._paths[watch] = path
            return
        code = ctypes.get_errno()
        if code != errno.ENOSPC:
            raise OSError(code, os.strerror(code), str(path))
        # the limit is shared by all programs of the user: editors have taken it before
        self._others = self._others or _Polling()
        self._others.add(path)

    def fileno(self) -> int:
        return self._descriptor

    def timeout(self) -> float | None:
        return self._others.timeout() if self._others else None

    def drain(self) -> Set[Path]:
        changed = dict.fromkeys(self._told())
        for path in changed:
            try:
                self.add(path)
            except OSError:
                continue  # removed, or out of reach: nothing of it is to come
        if self._others:
            changed |= dict.fromkeys(self._others.drain())
        return changed.keys()

    def _told(self) -> list[Path]:
        """What the kernel names; it is no longer watched."""
        try:
            data = os.read(self._descriptor, _QUEUE)
        except BlockingIOError:
            return []
        told: list[Path] = []
        at = 0
        while at < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if watch < 0:  # the queue overflowed: all may have changed
                told += self._paths.values()
                self._paths.clear()
            elif watch in self._paths:  # else it is the end of a watch that has told
                told.append(self._paths.pop(watch))
        return told

    def close(self) -> None:
        os.close(self._descriptor)


class _Polling(Watcher):
    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}
        self._interval = _FIRST_LOOK
        self._next = 0.0

    def add(self, path: Path) -> None:
        self._seen[path] = self._look(path)

    def fileno(self) -> None:
        return None

    def timeout(self) -> float | None:
        return max(0.0, self._next - time.monotonic())

    def drain(self) -> Set[Path]:
        changed = set()
        for path, seen in self._seen.items():
            now = self._look(path)
            if now != seen:
                self._seen[path] = now
                changed.add(path)
        grown = min(self._interval * 1.5, _LAST_LOOK)
        self._interval = _FIRST_LOOK if changed else grown
        self._next = time.monotonic() + self._interval
        return changed

    def close(self) -> None:
        self._seen.clear()

    @staticmethod
    def _look(path: Path) -> tuple[int, int]:
        try:
            status = path.stat()
        except OSError:
            return (-1, -1)
        return (status.st_size, status.st_mtime_ns)


class Presence:
    """Notices that one of some files or folders was deleted, moved away, or replaced.

    Wait for `fileno()`, where there is one, then ask for what is `missing`. That a folder above
    them was moved is not noticed.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._known = {path: path.stat() for path in paths}
        self._descriptor = -1
        self._looked = False
        if sys.platform.startswith("linux"):
            self._descriptor = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        # a file that somebody has open is told of when its last name goes: as a change of its links
        mask = _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF
        for path in self._known if self._descriptor >= 0 else ():
            watch = _libc().inotify_add_watch(self._descriptor, os.fsencode(path), mask)
            if watch < 0:  # its user's programs watch too much: look every time, as elsewhere
                os.close(self._descriptor)
                self._descriptor = -1
                break

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when it is time to look; None where there is none."""
        return self._descriptor if self._descriptor >= 0 else None

    def missing(self) -> Path | None:
        """One that is not there any more."""
        try:
            if self._descriptor >= 0:
                os.read(self._descriptor, _QUEUE)
        except BlockingIOError:
            if self._looked:
                return None  # the kernel has nothing to tell since
        self._looked = True
        return next((path for path, known in self._known.items() if not _same(path, known)), None)


def _same(path: Path, known: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), known)
    except OSError:
        return False


_library: ctypes.CDLL | None = None


def _libc() -> ctypes.CDLL:
    global _library  # noqa: PLW0603  loaded once, when first needed
    if _library is None:
        _library = ctypes.CDLL(None, use_errno=True)
    return _library


def wait_for(watcher: Watcher, *others: int, timeout: float | None = None) -> set[int]:
    """Wait until the watcher has something to drain, or one of `others` is readable.

    Returns those of `others` that are. timeout: seconds, None = for ever.
    """
    poll = select.poll()
    for descriptor in (watcher.fileno(), *others):
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    limits = [t for t in (watcher.timeout(), timeout) if t is not None]
    ready = poll.poll(min(limits) * 1000 if limits else None)
    return {descriptor for descriptor, _ in ready} & set(others)
