"""Watch files and folders for changes.

Uses inotify on Linux, and polls at growing intervals where inotify is not available. Closing an
inotify descriptor takes the kernel some 14 ms, so a process keeps those that it needs no more for
its next watchers.
"""

from __future__ import annotations

import contextlib
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
#: Each watch reports once and `drain` renews it. A watch that reports every write slows down
#: programs that write line by line by a third.
_IN_ONESHOT = 0x80000000
_QUEUE = 1 << 18  # bytes; enough for a full queue of the kernel's default length
_EVENT = struct.Struct("=iIII")
_MIN_INTERVAL, _MAX_INTERVAL = 0.020, 0.100  # seconds between polls, growing without changes


class Watcher:
    """Watches files for growth and folders for new entries.

    Wait for `fileno()` (unless None) or `timeout()`, then call `drain()`. A caller that reads a
    file after `add`, and again after each `drain` that returns it, misses no change.
    """

    def __new__(cls, *_: object) -> Watcher:
        if cls is Watcher and sys.platform.startswith("linux"):
            descriptor = _take_descriptor()
            if descriptor >= 0:
                watcher = super().__new__(_Inotify)
                watcher._descriptor = descriptor
                return watcher
            # the user's limit of watchers is reached: poll
        return super().__new__(_Polling if cls is Watcher else cls)

    @staticmethod
    def polling() -> Watcher:
        """A watcher that polls, as on systems without inotify."""
        return _Polling()

    def add(self, path: Path) -> None:
        """Watch an existing file or folder. Earlier changes are not reported."""
        raise NotImplementedError

    def remove(self, path: Path) -> None:
        """Watch a path no more. Nothing if it is not watched."""
        raise NotImplementedError

    def fileno(self) -> int | None:
        """A descriptor that becomes readable with a change; None if the watcher polls."""
        raise NotImplementedError

    def timeout(self) -> float | None:
        """Seconds after which to call `drain` even if `fileno` is not readable; None = never."""
        raise NotImplementedError

    def drain(self) -> Set[Path]:
        """The paths that changed since the last call; with inotify in the order of the changes. A
        removed file is returned a last time."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop watching."""
        raise NotImplementedError


class _Inotify(Watcher):
    _descriptor: int

    def __init__(self) -> None:
        self._paths: dict[int, Path] = {}
        self._others: _Polling | None = None  # paths beyond the kernel's limit of watches

    def add(self, path: Path) -> None:
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_ONESHOT
        watch = _libc().inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if watch >= 0:
            self._paths[watch] = path
            return
        code = ctypes.get_errno()
        if code != errno.ENOSPC:
            raise OSError(code, os.strerror(code), str(path))
        # all programs of the user share the limit, and editors may exhaust it
        self._others = self._others or _Polling()
        self._others.add(path)

    def remove(self, path: Path) -> None:
        for watch in [watch for watch, watched in self._paths.items() if watched == path]:
            _libc().inotify_rm_watch(self._descriptor, watch)  # fails if the file is gone
            del self._paths[watch]
        if self._others:
            self._others.remove(path)

    def fileno(self) -> int:
        return self._descriptor

    def timeout(self) -> float | None:
        return self._others.timeout() if self._others else None

    def drain(self) -> Set[Path]:
        changed = dict.fromkeys(self._read_events())
        for path in changed:
            try:
                self.add(path)
            except OSError:
                continue  # removed or not accessible: no more changes
        if self._others:
            changed |= dict.fromkeys(self._others.drain())
        return changed.keys()

    def _read_events(self) -> list[Path]:
        """The paths of the kernel's events, which are no longer watched."""
        try:
            data = os.read(self._descriptor, _QUEUE)
        except BlockingIOError:
            return []
        changed: list[Path] = []
        at = 0
        while at < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if watch < 0:  # the queue overflowed: every path may have changed
                changed += self._paths.values()
                self._paths.clear()
            elif watch in self._paths:  # else the kernel reports the end of a watch
                changed.append(self._paths.pop(watch))
        return changed

    def close(self) -> None:
        if self._descriptor >= 0:
            _keep_descriptor(self._descriptor, self._paths)
            self._descriptor = -1  # which another watcher may have soon
            self._paths.clear()


class _Polling(Watcher):
    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}
        self._interval = _MIN_INTERVAL
        self._next = 0.0

    def add(self, path: Path) -> None:
        self._seen[path] = self._stat(path)

    def remove(self, path: Path) -> None:
        self._seen.pop(path, None)

    def fileno(self) -> None:
        return None

    def timeout(self) -> float | None:
        return max(0.0, self._next - time.monotonic())

    def drain(self) -> Set[Path]:
        changed = set()
        for path, seen in self._seen.items():
            now = self._stat(path)
            if now != seen:
                self._seen[path] = now
                changed.add(path)
        grown = min(self._interval * 1.5, _MAX_INTERVAL)
        self._interval = _MIN_INTERVAL if changed else grown
        self._next = time.monotonic() + self._interval
        return changed

    def close(self) -> None:
        self._seen.clear()

    @staticmethod
    def _stat(path: Path) -> tuple[int, int]:
        try:
            status = path.stat()
        except OSError:
            return (-1, -1)
        return (status.st_size, status.st_mtime_ns)


class RemovalWatcher:
    """Notices that one of some files or folders was deleted, moved away, or replaced.

    Wait for `fileno()`, unless it is None, then call `missing`. Does not notice that a parent
    folder was moved.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._known = {path: path.stat() for path in paths}
        self._descriptor = -1
        self._watches: list[int] = []
        self._checked = False
        if sys.platform.startswith("linux"):
            self._descriptor = _take_descriptor()
        # the removal of a file that is still open is reported as a change of its link count
        mask = _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF
        for path in self._known if self._descriptor >= 0 else ():
            watch = _libc().inotify_add_watch(self._descriptor, os.fsencode(path), mask)
            if watch < 0:  # the user's limit is reached: check every time
                self.close()
                break
            self._watches.append(watch)

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when to call `missing`; None without inotify."""
        return self._descriptor if self._descriptor >= 0 else None

    def missing(self) -> Path | None:
        """One of the paths that was removed or replaced; None if all are present."""
        try:
            if self._descriptor >= 0:
                os.read(self._descriptor, _QUEUE)
        except BlockingIOError:
            if self._checked:
                return None  # no events since the last check
        self._checked = True
        return next((path for path, known in self._known.items() if not _same(path, known)), None)

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            _keep_descriptor(self._descriptor, self._watches)
            self._descriptor, self._watches = -1, []


def _same(path: Path, known: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), known)
    except OSError:
        return False


#: Descriptors of inotify that watch nothing, for the next watchers of this process.
_unused: list[int] = []
#: The most of them: a user may have few (fs.inotify.max_user_instances, 128 by default). A run
#: takes two; to close one takes the kernel 14 ms, for which a supervisor's other runs wait.
_MOST_UNUSED = 32
os.register_at_fork(after_in_child=_unused.clear)


def _take_descriptor() -> int:
    """A descriptor of inotify; negative if the user has too many."""
    return _unused.pop() if _unused else _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)


def _keep_descriptor(descriptor: int, watches: Iterable[int]) -> None:
    """Remove what a descriptor watches, and keep it if few are kept."""
    if len(_unused) >= _MOST_UNUSED:
        os.close(descriptor)
        return
    for watch in watches:
        _libc().inotify_rm_watch(descriptor, watch)  # fails if the file is gone: nothing to remove
    with contextlib.suppress(BlockingIOError):
        while True:
            os.read(descriptor, _QUEUE)
    _unused.append(descriptor)


_library: ctypes.CDLL | None = None


def _libc() -> ctypes.CDLL:
    global _library  # noqa: PLW0603  loaded once, when first needed
    if _library is None:
        _library = ctypes.CDLL(None, use_errno=True)
    return _library


def wait_for(watcher: Watcher, *others: int, timeout: float | None = None) -> set[int]:
    """Wait until the watcher has changes to drain, or one of `others` is readable.

    Returns the readable ones of `others`. timeout: seconds; None = no timeout.
    """
    poll = select.poll()
    for descriptor in (watcher.fileno(), *others):
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    limits = [t for t in (watcher.timeout(), timeout) if t is not None]
    ready = poll.poll(min(limits) * 1000 if limits else None)
    return {descriptor for descriptor, _ in ready} & set(others)
