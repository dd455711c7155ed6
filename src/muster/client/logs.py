"""A run's log: the nodes' output with Muster's messages, over all attempts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from muster.client.log_lines import LineFilter, last_lines, line_filter, without_first
from muster.client.messages import Messages, RunChunk
from muster.client.selection import Selection, check_attempt
from muster.service import Service
from muster.service.run_details import open_output
from muster.storage.log_reader import LogChunk
from muster.store.records import RunRecord

if TYPE_CHECKING:
    from muster.storage.run_output import RunOutput


def chunks(
    service: Service,
    run: RunRecord,
    selection: Selection,
    *,
    follow: bool,
) -> Iterator[RunChunk]:
    """Whole lines in the order they were written, attempt by attempt.

    follow: until the run has ended or is suspended. The last nodes of an attempt may still write
    when the next attempt has started. Raises InvalidInput if there is no such attempt.
    """
    if isinstance(selection.attempt, int):
        check_attempt(service.home, run, selection.attempt)
    return _chunks(service, run, selection, follow=follow)


def _chunks(
    service: Service,
    run: RunRecord,
    selection: Selection,
    *,
    follow: bool,
) -> Iterator[RunChunk]:
    with ExitStack() as stack:
        follower = stack.enter_context(closing(service.follow(run.id))) if follow else None
        output = open_output(service.home, run, selection, selection.attempt)
        stack.enter_context(closing(output))
        messages = Messages(service, run.id, enabled=selection.messages)
        log = _Log(output, messages, line_filter(selection))
        final = follower is None or follower.ended
        output.open_new()
        yield from log.last(selection.tail, final=final)
        while follower is not None and not follower.ended and not output.complete:
            events = follower.event_paths() if selection.messages else ()
            final = follower.wait([*events, *output.paths()])
            output.open_new()
            yield from log.read(final=final)
        # messages of an attempt are recorded before its index is complete, and may be read after
        yield from log.read(final=final)


class _Log:
    """Merges messages into the output of the same attempt, and selects lines of both."""

    def __init__(self, output: RunOutput, messages: Messages, keep: LineFilter | None) -> None:
        self._output = output
        self._messages = messages
        self._keep = keep

    def last(self, lines: int | None, *, final: bool) -> Iterator[RunChunk]:
        """The last lines that are present, over all attempts; None = all."""
        if lines is None:
            yield from self.read(final=final)
            return
        if self._keep is not None:  # how many lines are selected is known when all are read
            yield from last_lines(self.read(final=final), lines)
            return
        self._messages.read()
        found = []
        for attempt in reversed(self._attempts()):
            present = self._messages.count(attempt) + self._output.skip_to_last(attempt, lines)
            given = list(without_first(max(0, present - lines), self._merge(attempt, final)))
            found.append(given)
            lines = max(0, lines - sum(chunk.data.count(b"\n") for chunk in given))
        for given in reversed(found):
            yield from given

    def read(self, *, final: bool) -> Iterator[RunChunk]:
        """What was written since the last call. final: no process writes any more."""
        self._messages.read()
        for attempt in self._attempts():
            yield from self._merge(attempt, final)

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
