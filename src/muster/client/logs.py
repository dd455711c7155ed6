"""A run's output: what there is, and what is still to come."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from muster.control.watch import end_of_life
from muster.service import Service
from muster.storage.log_reader import LogChunk, LogCursor
from muster.storage.logs import StreamInfo
from muster.storage.notify import Watcher, wait_for
from muster.store.records import RunRecord


class Selection(Struct, frozen=True):
    """Which output is wanted; None = all. tail: only the last lines of it."""

    ranks: Collection[int] | None = None
    groups: Collection[str] | None = None
    streams: Collection[str] | None = None
    tail: int | None = None

    def __call__(self, stream: StreamInfo) -> bool:
        return (
            (self.ranks is None or stream.rank in self.ranks)
            and (self.groups is None or stream.group in self.groups)
            and (self.streams is None or stream.stream in self.streams)
        )


def chunks(
    service: Service, run: RunRecord, selection: Selection, *, follow: bool
) -> Iterator[LogChunk]:
    """Whole lines in the order they were written. follow: until the run has ended."""
    folder = service.home.run_dir(run.id).logs(run.attempt)
    source = _Followed(service, run, folder) if follow else None
    try:
        if source is not None:
            source.wait_until_there()
        if not (folder / "streams.json").exists():
            return  # its output was not wanted, or nothing has started
        with closing(LogCursor(folder, selection)) as cursor:
            if selection.tail is not None:
                cursor.tail(selection.tail)
            while True:
                yield from cursor.read()
                if cursor.finished or source is None or source.ended:
                    break
                source.wait(folder / "index")
            yield from cursor.drain()
    finally:
        if source is not None:
            source.close()


class _Followed:
    """Waiting for a run's log to grow or its supervisor to end, told by the kernel."""

    def __init__(self, service: Service, run: RunRecord, folder: Path) -> None:
        self._folder = folder
        self._end = end_of_life(service.home, run.id)
        self._watcher: Watcher | None = None
        self.ended = self._end is None

    def wait_until_there(self) -> None:
        """Return when the log exists, or never will."""
        if not self._wanted():
            return
        parent = self._folder
        while not parent.exists():
            parent = parent.parent
        watcher = Watcher()
        watcher.add(parent)
        while self._wanted() and not self.ended:
            nearer = next((p for p in (self._folder, *self._folder.parents) if p.exists()), parent)
            if nearer != parent:
                parent = nearer
                watcher.add(parent)
                continue
            self._poll(watcher)
        watcher.close()

    def _wanted(self) -> bool:
        return not (self._folder / "streams.json").exists()

    def wait(self, index: Path) -> None:
        """Return when the index may have grown or the supervisor has ended."""
        if self._watcher is None:
            self._watcher = Watcher()
            self._watcher.add(index)
            return  # it may have grown before we watched
        self._poll(self._watcher)

    def _poll(self, watcher: Watcher) -> None:
        assert self._end is not None, "it has not ended"
        self.ended = bool(wait_for(watcher, self._end))
        watcher.drain()

    def close(self) -> None:
        if self._end is not None:
            os.close(self._end)
        if self._watcher is not None:
            self._watcher.close()
