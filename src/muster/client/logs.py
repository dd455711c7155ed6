"""A run's output: what there is, and what is still to come, over all its attempts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.client.messages import Messages, RunChunk
from muster.control.watch import end_of_life
from muster.errors import InvalidInput, NotFound, Problem
from muster.service import Service
from muster.storage.home import Home
from muster.storage.log_reader import LogChunk, LogCursor
from muster.storage.logs import MESSAGES, StreamInfo
from muster.storage.notify import Watcher, wait_for
from muster.store.records import RunRecord


class Selection(Struct, frozen=True):
    """Which output is wanted; None = all. tail: only the last lines of it. services: that of these
    services of the framework ("all": of any), and not the program's. Messages of the service are
    of no rank and no group.

    attempt: of which attempt; None = the newest and, where one follows, those after it.
    """

    ranks: Collection[int] | None = None
    groups: Collection[str] | None = None
    streams: Collection[str] | None = None
    tail: int | None = None
    attempt: int | Literal["all"] | None = None
    services: Collection[str] | None = None

    def __call__(self, stream: StreamInfo) -> bool:
        return (
            (self.ranks is None or stream.rank in self.ranks)
            and (self.groups is None or stream.group in self.groups)
            and (self.streams is None or stream.stream in self.streams)
            and self._wants(stream.service)
        )

    @property
    def messages(self) -> bool:
        """Whether those of the service are wanted."""
        return self(MESSAGES)

    def _wants(self, service: str) -> bool:
        if not self.services:
            return not service
        return bool(service) and (service in self.services or "all" in self.services)


def chunks(
    service: Service,
    run: RunRecord,
    selection: Selection,
    *,
    follow: bool,
) -> Iterator[RunChunk]:
    """Whole lines in the order they were written, attempt by attempt. follow: until the run has
    ended or is suspended; the last nodes of an attempt may still write when the next has begun.

    Raises InvalidInput if there is no such attempt.
    """
    if isinstance(selection.attempt, int):
        check_attempt(service.home, run, selection.attempt)
    return _chunks(service, run, selection, follow=follow)


def check_attempt(home: Home, run: RunRecord, attempt: int) -> None:
    """Raises InvalidInput if there is no output of this attempt, nor will be."""
    there = sorted({*_kept(_folder(home, run)), run.attempt})
    if attempt not in there:
        text = f"there is no output of attempt {attempt} of {run.name}"
        raise InvalidInput(Problem("attempt", text, f"there are: {', '.join(map(str, there))}"))


def _chunks(
    service: Service,
    run: RunRecord,
    selection: Selection,
    *,
    follow: bool,
) -> Iterator[RunChunk]:
    source = _Source(service, run.id) if follow else None
    try:
        messages = Messages(service, run.id, wanted=selection.messages)
        folder = _folder(service.home, run)
        with closing(_Output(folder, selection, messages, run.attempt)) as output:
            final = source is None or source.ended
            output.look()
            yield from output.last(selection.tail, final=final)
            while source is not None and not source.ended and not output.complete:
                final = source.wait(output.places())
                output.look()
                yield from output.read(final=final)
            # what was said of an attempt is recorded before its index ends, and may be read after
            yield from output.read(final=final)
    finally:
        if source is not None:
            source.close()


def _folder(home: Home, run: RunRecord) -> Path:
    return home.run_dir(run.id).logs(run.attempt).parent


def _kept(folder: Path, after: int = -1) -> list[int]:
    """The attempts whose output can be read, in order."""
    return [a for a in _begun(folder, after) if (folder / str(a) / "streams.json").exists()]


def _begun(folder: Path, after: int) -> list[int]:
    try:
        names = os.listdir(folder)
    except OSError:  # nothing has started, or its output is not wanted
        return []
    return sorted(int(name) for name in names if name.isdecimal() and int(name) > after)


class _Output:
    """The output of the attempts that are wanted, as far as it has been read.

    An attempt is read until its index says that nothing follows. That may be after the next has
    begun; and of one whose supervisor was killed it never says so.

    attempt: the one that the run is in.
    """

    def __init__(
        self, folder: Path, selection: Selection, messages: Messages, attempt: int
    ) -> None:
        self._folder = folder
        self._selection = selection
        self._messages = messages
        self._cursors: dict[int, LogCursor] = {}
        self._newest = -1  # that was opened
        kept = _kept(folder)
        self._first = kept[-1] if kept else attempt  # where no attempt is asked for

    @property
    def complete(self) -> bool:
        """The one attempt that is wanted has ended."""
        return self._newest == self._selection.attempt and not self._cursors

    def look(self) -> None:
        """Open what has come since the last time."""
        found = _kept(self._folder, self._newest)
        wanted = self._selection.attempt
        if isinstance(wanted, int):
            found = [attempt for attempt in found if attempt == wanted]
        elif wanted is None:
            found = [attempt for attempt in found if attempt >= self._first]
        for attempt in found:
            with suppress(FileNotFoundError):  # too old, and removed as we came
                self._cursors[attempt] = LogCursor(self._folder / str(attempt), self._selection)
                self._newest = attempt

    def places(self) -> Iterator[Path]:
        """What changes when there is more."""
        yield from self._messages.places()
        for attempt in self._cursors:
            yield self._folder / str(attempt) / "index"
        if self._newest == self._selection.attempt:
            return
        yield next(path for path in (self._folder, *self._folder.parents) if path.exists())
        for attempt in _begun(self._folder, self._newest):
            yield self._folder / str(attempt)

    def last(self, lines: int | None, *, final: bool) -> Iterator[RunChunk]:
        """The last lines there are by now, of all attempts together; None = all."""
        if lines is None:
            yield from self.read(final=final)
            return
        self._messages.look()
        given = []
        for attempt in reversed(self._attempts()):
            cursor, said = self._cursors.get(attempt), self._messages.count(attempt)
            there = said + (cursor.tail(lines) if cursor is not None else 0)
            found = _without_first(max(0, there - lines), self._read(attempt, final=final))
            given.append(list(found))
            lines = max(0, lines - sum(chunk.data.count(b"\n") for chunk in given[-1]))
        for chunks in reversed(given):
            yield from chunks

    def read(self, *, final: bool) -> Iterator[RunChunk]:
        """What was written since the last time. final: nobody writes, so half lines are whole."""
        self._messages.look()
        for attempt in self._attempts():
            yield from self._read(attempt, final=final)

    def _attempts(self) -> list[int]:
        """Those there may be something to read of, in order."""
        said = self._messages.attempts
        wanted = self._selection.attempt
        if isinstance(wanted, int):
            said = [attempt for attempt in said if attempt == wanted]
        elif wanted is None:
            said = [attempt for attempt in said if attempt >= self._first]
        return sorted({*self._cursors, *said})

    def _read(self, attempt: int, *, final: bool) -> Iterator[RunChunk]:
        return self._messages.among(attempt, self._written(attempt, final=final))

    def _written(self, attempt: int, *, final: bool) -> Iterator[RunChunk]:
        cursor = self._cursors.get(attempt)
        if cursor is None:
            return
        yield from (_of(attempt, chunk) for chunk in cursor.read())
        if final or cursor.finished:
            yield from (_of(attempt, chunk) for chunk in cursor.drain())
        if cursor.finished:
            cursor.close()
            del self._cursors[attempt]

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()


def _without_first(lines: int, chunks: Iterable[RunChunk]) -> Iterator[RunChunk]:
    for chunk in chunks:
        there = chunk.data.count(b"\n")
        if there > lines:
            yield replace(chunk, data=chunk.data.split(b"\n", lines)[-1])
        lines = max(0, lines - there)


def _of(attempt: int, chunk: LogChunk) -> RunChunk:
    return RunChunk(chunk.time_ns, chunk.stream, chunk.data, attempt)


class _Source:
    """Waiting for a run to write or to end, told by the kernel."""

    def __init__(self, service: Service, run_id: str) -> None:
        self._service = service
        self._run_id = run_id
        self._watcher = Watcher()
        self._watched: set[Path] = set()
        self._answering = service.answering(run_id)
        self._life = end_of_life(service.home, run_id)

    @property
    def ended(self) -> bool:
        """Nobody drives the run any more."""
        return self._life is None

    def wait(self, places: Iterable[Path]) -> bool:
        """Return when one of these may have changed. Whether whoever wrote there is gone."""
        # the disk may fill up while nothing else can tell of it: programs cannot write either
        places = [*places, self._service.space_mark]
        new = [path for path in places if path not in self._watched]
        for path in new:
            self._watched.add(path)
            with suppress(FileNotFoundError):  # removed: nothing of it is to come
                self._watcher.add(path)
        if new:
            return False  # it may have changed before we watched
        assert self._life is not None, "it has not ended"
        gone = bool(wait_for(self._watcher, self._life, timeout=self._answering.patience()))
        self._watcher.drain()
        self._service.warn(self._answering)
        if gone:
            self._find_successor()
        return gone

    def _find_successor(self) -> None:
        """A supervisor that was killed may get one; without us, perhaps, not for long."""
        self._let_go()
        with suppress(TimeoutError, NotFound):  # somebody has taken the run up; it was deleted
            self._service.wait(self._run_id, 0)
        self._life = end_of_life(self._service.home, self._run_id)

    def _let_go(self) -> None:
        if self._life is not None:
            os.close(self._life)
        self._life = None

    def close(self) -> None:
        self._let_go()
        self._watcher.close()
