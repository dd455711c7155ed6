"""A run's log: the nodes' output with Muster's messages, over all attempts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from muster.client.log_lines import LineFilter, last_lines, line_filter
from muster.client.messages import Messages, RunChunk
from muster.client.selection import Selection
from muster.service import Service
from muster.service.run_details import open_output
from muster.storage.log_reader import LogChunk
from muster.store.records import RunRecord

if TYPE_CHECKING:
    from muster.storage.log_reader import Unfinished
    from muster.storage.run_output import RunOutput

Idle = Callable[[Iterable["Unfinished"]], float]


def chunks(
    service: Service,
    run: RunRecord,
    selection: Selection,
    *,
    follow: bool,
    idle: Idle | None = None,
) -> Iterator[RunChunk]:
    """Whole lines in the order they were written, attempt by attempt.

    follow: until the run has ended or is suspended. idle: called with the lines that programs have
    not finished, whenever all others are read; returns after how many seconds at most to call it
    again. The last nodes of an attempt may still write when the next attempt has started.
    """
    with closing(_Reading(service, run, selection, follow=follow)) as reading:
        yield from reading.present()
        while (follower := reading.follower) is not None and not reading.complete:
            timeout = None if idle is None else idle(reading.unfinished())
            final = follower.wait(reading.paths(), timeout)
            yield from reading.new(final=final)
        yield from reading.rest()


async def chunks_async(
    service: Service, run: RunRecord, selection: Selection, *, follow: bool
) -> AsyncGenerator[RunChunk]:
    """As `chunks`, in an event loop of asyncio, which other tasks use between two chunks."""
    from asyncio import sleep

    with closing(_Reading(service, run, selection, follow=follow)) as reading:
        for chunk in reading.present():
            yield chunk
            await sleep(0)
        while (follower := reading.follower) is not None and not reading.complete:
            final = await follower.wait_async(reading.paths())
            for chunk in reading.new(final=final):
                yield chunk
                await sleep(0)
        for chunk in reading.rest():
            yield chunk


class _Reading:
    """A log while it is read: what is present at first, then what is new after each wait."""

    def __init__(
        self, service: Service, run: RunRecord, selection: Selection, *, follow: bool
    ) -> None:
        with ExitStack() as stack:
            #: None: nothing is followed.
            self.follower = stack.enter_context(closing(service.follow(run.id))) if follow else None
            self._output = open_output(service.home, run, selection, selection.attempt)
            stack.enter_context(closing(self._output))
            self._selection = selection
            messages = Messages(service, run.id, enabled=selection.messages)
            self._log = _Log(self._output, messages, line_filter(selection))
            self._final = self.follower is None or self.follower.ended
            self._opened = stack.pop_all()

    def present(self) -> Iterator[RunChunk]:
        self._output.open_new()
        yield from self._log.last(self._selection.tail, final=self._final)

    @property
    def complete(self) -> bool:
        """Whether nothing follows, but for `rest`."""
        return self.follower is None or self.follower.ended or self._output.complete

    def paths(self) -> list[Path]:
        """What changes when there is something new."""
        assert self.follower is not None
        events = self.follower.event_paths() if self._selection.messages else ()
        return [*events, *self._output.paths()]

    def unfinished(self) -> Iterator[Unfinished]:
        """The lines that programs have not finished."""
        return self._output.unfinished()

    def new(self, *, final: bool) -> Iterator[RunChunk]:
        self._final = final
        self._output.open_new()
        yield from self._log.read(final=final)

    def rest(self) -> Iterator[RunChunk]:
        # messages of an attempt are recorded before its index is complete, and may be read after
        yield from self._log.read(final=self._final)

    def close(self) -> None:
        self._opened.close()


class _Log:
    """Merges messages into the output of the same attempt, and selects lines of both."""

    def __init__(self, output: RunOutput, messages: Messages, keep: LineFilter | None) -> None:
        self._output = output
        self._messages = messages
        self._keep = keep

    def last(self, lines: int | None, *, final: bool) -> Iterator[RunChunk]:
        """The last lines that are present when they are read, over all attempts; None = all."""
        if lines is None:
            yield from self.read(final=final)
            return
        if self._keep is not None:  # how many lines are selected is known when all are read
            yield from last_lines(self.read(final=final), lines)
            return
        self._messages.read()
        found = []
        for attempt in reversed(self._attempts()):
            self._output.skip_to_last(attempt, lines)  # what is written from here on is read, too
            given = list(last_lines(self._merge(attempt, final), lines))
            found.append(given)
            lines = max(0, lines - sum(chunk.data.count(b"\n") for chunk in given))
        for given in reversed(found):
            yield from given

    def read(self, *, final: bool) -> Iterator[RunChunk]:
        """What was written since the last call. final: no process writes any more."""
        self._messages.read()
        attempts = self._attempts()
        for number, attempt in enumerate(attempts):
            chunks = self._merge(attempt, final)
            for first in chunks:
                # lines of earlier attempts may have been recorded after those were read above, but
                # before this one
                for earlier in attempts[:number]:
                    yield from self._merge(earlier, final)
                yield first
                yield from chunks

    def _attempts(self) -> list[int]:
        """The attempts that may have something to read, in order."""
        with_messages = filter(self._output.selects, self._messages.attempts)
        return sorted({*self._output.open_attempts, *with_messages})

    def _merge(self, attempt: int, final: bool) -> Iterator[RunChunk]:
        output = (_of_attempt(attempt, chunk) for chunk in self._output.read(attempt, final=final))
        merged = self._messages.merge(attempt, output)
        return merged if self._keep is None else self._keep(merged)


def _of_attempt(attempt: int, chunk: LogChunk) -> RunChunk:
    return RunChunk(chunk.time_ns, chunk.stream, chunk.data, attempt)
