"""Watch files in an event loop: all who follow runs in one loop share one watcher.

A user may have few descriptors of inotify (fs.inotify.max_user_instances, 128 by default), and a
server has a thousand followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from pathlib import Path
from weakref import WeakKeyDictionary

from muster.node.file_watch import Watcher


class LoopWatcher(Watcher):
    """The share that one follower has in the watcher of its loop. To be used in that loop."""

    def __init__(self, hub: _Hub) -> None:
        self._hub = hub
        self._paths: set[Path] = set()
        self._changed: set[Path] = set()
        #: Set when there is something to drain.
        self.notified = asyncio.Event()

    def add(self, path: Path) -> None:
        """See `Watcher.add`."""
        self._hub.add(path, self)
        self._paths.add(path)

    def remove(self, path: Path) -> None:
        """See `Watcher.remove`."""
        self._paths.discard(path)
        self._hub.remove(path, self)

    def fileno(self) -> None:
        """None: wait for `notified`."""
        return None

    def timeout(self) -> None:
        """None: it never has to be drained unless it is notified."""
        return None

    def note(self, path: Path) -> None:
        """A path has changed."""
        self._changed.add(path)
        self.notified.set()

    def drain(self) -> Set[Path]:
        """See `Watcher.drain`."""
        changed, self._changed = self._changed, set()
        self.notified.clear()
        return changed

    def close(self) -> None:
        """See `Watcher.close`."""
        for path in list(self._paths):
            self.remove(path)


class _Hub:
    """The watcher of a loop, while something is watched."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watcher: Watcher | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watching: dict[Path, set[LoopWatcher]] = {}

    def add(self, path: Path, one: LoopWatcher) -> None:
        if self._watcher is None:
            self._watcher = Watcher()
            if (descriptor := self._watcher.fileno()) is not None:
                self._loop.add_reader(descriptor, self._notify)
        self._watcher.add(path)  # again if others watch it: it may be another file by now
        self._watching.setdefault(path, set()).add(one)
        self._set_timer(self._watcher)

    def remove(self, path: Path, one: LoopWatcher) -> None:
        if (ones := self._watching.get(path)) is None:
            return
        ones.discard(one)
        if ones or (watcher := self._watcher) is None:
            return
        del self._watching[path]
        watcher.remove(path)
        if not self._watching:
            self._close(watcher)

    def _notify(self) -> None:
        self._timer = None
        if (watcher := self._watcher) is None:
            return
        for path in watcher.drain():
            for one in self._watching.get(path, ()):
                one.note(path)
        self._set_timer(watcher)

    def _set_timer(self, watcher: Watcher) -> None:
        """Where there are no notifications, look from time to time."""
        delay = watcher.timeout()
        if delay is not None and self._timer is None:
            self._timer = self._loop.call_later(delay, self._notify)

    def _close(self, watcher: Watcher) -> None:
        self._watcher = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (descriptor := watcher.fileno()) is not None:
            self._loop.remove_reader(descriptor)
        watcher.close()


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, _Hub] = WeakKeyDictionary()


def loop_watcher() -> LoopWatcher:
    """A share in the watcher of the running loop."""
    loop = asyncio.get_running_loop()
    if (hub := _hubs.get(loop)) is None:
        hub = _hubs[loop] = _Hub()
    return LoopWatcher(hub)
