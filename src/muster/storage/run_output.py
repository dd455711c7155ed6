"""The output of a run over its attempts, read as it is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from muster.storage.home import RunDir
from muster.storage.log_index import StreamInfo
from muster.storage.log_reader import LogChunk, LogCursor, Unfinished


def attempts_with_output(folder: RunDir) -> list[int]:
    """The attempts whose output can be read, in order."""
    return _readable_attempts(_root(folder))


class RunOutput:
    """A position in the output of the selected attempts; reading advances it.

    An attempt is read until its index says that it is complete. That may be after the next attempt
    has started, or, if its supervisor was killed, when the run has another one or has ended.
    """

    def __init__(
        self,
        folder: RunDir,
        select: Callable[[StreamInfo], bool],
        attempts: int | Literal["all"] | None,
        current: int,
    ) -> None:
        """select: which streams. attempts: one attempt, all, or None for the newest with output and
        those after it. current: the attempt that the run is in."""
        self._root = _root(folder)
        self._select = select
        self._attempts = attempts
        readable = _readable_attempts(self._root)
        self._first = readable[-1] if readable else current
        self._cursors: dict[int, LogCursor] = {}
        self._newest = -1  # of those that were opened

    def selects(self, attempt: int) -> bool:
        """Whether an attempt is among the selected ones."""
        if self._attempts is None:
            return attempt >= self._first
        return self._attempts in ("all", attempt)

    @property
    def open_attempts(self) -> Collection[int]:
        """The attempts that may have more output."""
        return self._cursors.keys()

    @property
    def complete(self) -> bool:
        """Whether the only selected attempt was read to its end."""
        return self._newest == self._attempts and not self._cursors

    def open_new(self) -> None:
        """Open the selected attempts that have started since the last call."""
        for attempt in filter(self.selects, _readable_attempts(self._root, self._newest)):
            with suppress(FileNotFoundError):  # an old attempt, deleted in this moment
                self._cursors[attempt] = LogCursor(self._root / str(attempt), self._select)
                self._newest = attempt

    def paths(self) -> Iterator[Path]:
        """The files and folders that change when there is more to read."""
        for attempt in self._cursors:
            yield self._root / str(attempt) / "index"
        if self._newest == self._attempts:
            return
        yield next(path for path in (self._root, *self._root.parents) if path.exists())
        for attempt in _started_attempts(self._root, self._newest):
            yield self._root / str(attempt)

    def skip_to_last(self, attempt: int, lines: int) -> None:
        """Advance so that at most this many of the present lines are left."""
        if (cursor := self._cursors.get(attempt)) is not None:
            cursor.tail(lines)

    def read(self, attempt: int, *, final: bool) -> Iterator[LogChunk]:
        """What was written to an attempt's output since the last call.

        final: no process writes any more, so that a line without a newline is complete.
        """
        cursor = self._cursors.get(attempt)
        if cursor is None:
            return
        yield from cursor.read()
        if final or cursor.finished:
            yield from cursor.drain()
        if cursor.finished:
            cursor.close()
            del self._cursors[attempt]

    def unfinished(self) -> Iterator[Unfinished]:
        """The lines of the newest attempt that programs have not finished."""
        cursor = self._cursors.get(self._newest)
        if cursor is not None:
            yield from cursor.unfinished()

    def close(self) -> None:
        """Close the open files."""
        for cursor in self._cursors.values():
            cursor.close()


def _root(folder: RunDir) -> Path:
    return folder.logs(0).parent


def _readable_attempts(root: Path, after: int = -1) -> list[int]:
    return [a for a in _started_attempts(root, after) if (root / str(a) / "streams.json").exists()]


def _started_attempts(root: Path, after: int) -> list[int]:
    try:
        names = os.listdir(root)
    except OSError:  # nothing has started, or the run keeps no output
        return []
    return sorted(int(name) for name in names if name.isdecimal() and int(name) > after)
