"""A run's log: the nodes' output with Muster's messages, over all attempts."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.api.streams import Live, LogChunk, Notice, Pause, Selection
from muster.errors import InvalidInput
from muster.secrets import secret_lines, without_lines
from muster.service.context import Context
from muster.service.log_lines import LineFilter, last_lines, line_filter
from muster.service.messages import Messages
from muster.storage.log_reader import Unfinished
from muster.storage.run_output import RunOutput

if TYPE_CHECKING:
    from muster.service.follow import Follower
    from muster.store.records import RunSummary
    from muster.store.run_columns import StoredPlan


def items(
    context: Context, run: RunSummary, selection: Selection, *, follow: bool, live: Live | None
) -> Generator[LogChunk | Pause | Notice]:
    """See `MusterAPI.log`. The last nodes of an attempt may still write when the next attempt has
    started."""
    with closing(_Reading(context, run, selection, follow=follow)) as reading:
        yield from reading.present()
        paused = 0.0
        while (follower := reading.follower) is not None and not reading.complete:
            timeout = None
            if live is not None:
                timeout = paused + live.busy - time.monotonic()
                if timeout <= 0:
                    yield Pause(tuple(reading.unfinished()))
                    paused, timeout = time.monotonic(), live.quiet
            final = follower.wait(reading.paths(), timeout)
            yield from follower.take_notices()
            yield from reading.new(final=final)
        yield from reading.rest()


async def items_async(
    context: Context, run: RunSummary, selection: Selection, *, follow: bool, live: Live | None
) -> AsyncGenerator[LogChunk | Pause | Notice]:
    """As `items`, in an event loop of asyncio, which other tasks use between two chunks."""
    from asyncio import sleep

    with closing(_Reading(context, run, selection, follow=follow, in_loop=True)) as reading:
        for chunk in reading.present():
            yield chunk
            await sleep(0)
        paused = 0.0
        while (follower := reading.follower) is not None and not reading.complete:
            timeout = None
            if live is not None:
                timeout = paused + live.busy - time.monotonic()
                if timeout <= 0:
                    yield Pause(tuple(reading.unfinished()))
                    paused, timeout = time.monotonic(), live.quiet
            final = await follower.wait_async(reading.paths(), timeout)
            for notice in follower.take_notices():
                yield notice
            for chunk in reading.new(final=final):
                yield chunk
                await sleep(0)
        for chunk in reading.rest():
            yield chunk


class _Reading:
    """A log while it is read: what is present at first, then what is new after each wait."""

    def __init__(
        self,
        context: Context,
        run: RunSummary,
        selection: Selection,
        *,
        follow: bool,
        in_loop: bool = False,
    ) -> None:
        with ExitStack() as stack:
            #: None: nothing is followed.
            self.follower: Follower | None = None
            if follow:
                from muster.service.follow import follow as follow_run

                self.follower = stack.enter_context(
                    closing(follow_run(context, run.id, in_loop=in_loop))
                )
            if selection.ranks is not None:  # looked up for each stream, and each replica's output
                selection = replace(selection, ranks=frozenset(selection.ranks))
            from muster.store.run_columns import StoredPlan

            folder = context.home.run_dir(run.id)
            attempts = selection.attempt
            plan = StoredPlan(context.store.runs.get(run.id))
            if attempts is None and run.attempt and plan.arrays():
                attempts = "all"  # what had ended before a suspension does not run again
            self._output = RunOutput(folder, selection.selects, attempts, run.attempt)
            stack.enter_context(closing(self._output))
            self._selection = selection
            hidden = _secrets(context, plan, run.id)
            self._hide = partial(without_lines, lines=hidden) if hidden else None
            self._with_messages = selection.with_messages
            messages = Messages(context.store, run.id, enabled=self._with_messages)
            self._log = _Log(self._output, messages, line_filter(selection), self._hide)
            self._final = self.follower is None or self.follower.ended
            self._opened = stack.pop_all()

    def present(self) -> Iterator[LogChunk]:
        self._output.open_new()
        yield from self._log.last(self._selection.tail, final=self._final)

    @property
    def complete(self) -> bool:
        """Whether nothing follows, but for `rest`."""
        return self.follower is None or self.follower.ended or self._output.complete

    def paths(self) -> list[Path]:
        """What changes when there is something new."""
        assert self.follower is not None
        events = self.follower.event_paths() if self._with_messages else ()
        return [*events, *self._output.paths()]

    def unfinished(self) -> Iterator[Unfinished]:
        """The lines that programs have not finished."""
        for stream, line in self._output.unfinished():
            yield Unfinished(stream, line if self._hide is None else self._hide(line))

    def new(self, *, final: bool) -> Iterator[LogChunk]:
        self._final = final
        self._output.open_new()
        yield from self._log.read(final=final)

    def rest(self) -> Iterator[LogChunk]:
        # messages of an attempt are recorded before its index is complete, and may be read after
        yield from self._log.read(final=self._final)

    def close(self) -> None:
        self._opened.close()


class _Log:
    """Merges messages into the output of the same attempt, and selects lines of both."""

    def __init__(
        self,
        output: RunOutput,
        messages: Messages,
        keep: LineFilter | None,
        hide: Callable[[bytes], bytes] | None,
    ) -> None:
        """hide: hides the run's secrets in output."""
        self._output = output
        self._messages = messages
        self._keep = keep
        self._hide = hide

    def last(self, lines: int | None, *, final: bool) -> Iterator[LogChunk]:
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

    def read(self, *, final: bool) -> Iterator[LogChunk]:
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

    def _merge(self, attempt: int, final: bool) -> Iterator[LogChunk]:
        output = self._read_output(attempt, final)
        merged = self._messages.merge(attempt, output)
        return merged if self._keep is None else self._keep(merged)

    def _read_output(self, attempt: int, final: bool) -> Iterator[LogChunk]:
        for chunk in self._output.read(attempt, final=final):
            data = chunk.data if self._hide is None else self._hide(chunk.data)
            yield LogChunk(chunk.time_ns, chunk.stream, data, attempt)


def _secrets(context: Context, plan: StoredPlan, run_id: str) -> list[bytes]:
    """What is hidden of the run's `${secret.NAME}` in its output."""
    if not (sealed := plan.secrets()):
        return []
    from muster.storage.sealing import unseal

    try:
        values = unseal(context.home, sealed, f"run {run_id}")
    except InvalidInput:  # without the key nobody can tell them from other words
        return []
    return [line.encode() for line in secret_lines(values.values())]
