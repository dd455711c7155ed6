"""The messages of the service in a run's log, made from the run's events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from muster.secrets import hidden
from muster.storage.log_reader import LogChunk
from muster.storage.logs import MESSAGES

if TYPE_CHECKING:
    from muster.service import Service


class RunChunk(LogChunk, frozen=True):
    """Some lines of one stream, and which attempt of the run wrote them. kind: of a message of the
    service, the kind of event that it tells."""

    attempt: int
    kind: str = ""


class Messages:
    """A place in the messages on a run; looking moves it on.

    They belong to the attempt that they were made in: that it begins is the first of each but the
    first attempt. wanted: False for those who do not want any.
    """

    def __init__(self, service: Service, run_id: str, *, wanted: bool) -> None:
        self._service = service
        self._run_id = run_id
        self._wanted = wanted
        self._seq = 0
        self._attempt = 0
        self._waiting: dict[int, list[RunChunk]] = {}

    @property
    def attempts(self) -> Collection[int]:
        """Those with messages that were not taken yet."""
        return self._waiting.keys()

    def look(self) -> None:
        """Read what was recorded since the last time.

        Before the nodes' output is: what was written before a message was noted before it, too.
        """
        from muster.lifecycle.sentences import in_log, sentence

        for entry in self._service.events(self._run_id, self._seq) if self._wanted else ():
            self._seq = entry.seq
            if entry.kind in ("attempt", "resumed"):
                self._attempt = int(entry.data["attempt"])
            if in_log(entry.kind, entry.data):
                text = sentence(entry.kind, hidden(entry.data)) + "\n"
                time_ns = int(entry.time * 1e9)
                found = RunChunk(time_ns, MESSAGES, text.encode(), self._attempt, entry.kind)
                self._waiting.setdefault(self._attempt, []).append(found)

    def count(self, attempt: int) -> int:
        """How many of an attempt wait to be taken."""
        return len(self._waiting.get(attempt, ()))

    def among(self, attempt: int, output: Iterator[RunChunk]) -> Iterator[RunChunk]:
        """An attempt's output with its messages where they belong by their time."""
        waiting = iter(self._waiting.pop(attempt, ()))
        message = next(waiting, None)
        for chunk in output:
            while message is not None and message.time_ns <= chunk.time_ns:
                yield message
                message = next(waiting, None)
            yield chunk
        if message is not None:
            yield message
            yield from waiting

    def places(self) -> Iterator[Path]:
        """What changes when there is more."""
        if self._wanted:
            folder = self._service.home.run_dir(self._run_id)
            yield folder.pulse if folder.pulse.exists() else folder.path
