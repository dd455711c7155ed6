"""Muster's messages in a run's log, made from the run's events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from muster.api.streams import LogChunk
from muster.secrets import hidden
from muster.storage.log_index import MESSAGES

if TYPE_CHECKING:
    from muster.store.base import Store


class Messages:
    """A position in the messages of a run; reading advances it.

    A message belongs to the attempt in which its event was recorded. The first message of each
    attempt but the first says that the attempt starts.
    """

    def __init__(self, store: Store, run_id: str, *, enabled: bool) -> None:
        """enabled: False for a log without messages."""
        self._store = store
        self._run_id = run_id
        self._enabled = enabled
        self._seq = 0
        self._attempt = 0
        self._unread: dict[int, list[LogChunk]] = {}

    @property
    def attempts(self) -> Collection[int]:
        """The attempts with messages that `merge` has not returned yet."""
        return self._unread.keys()

    def read(self) -> None:
        """Read the events that were recorded since the last call.

        To be called before the nodes' output is read: a message that was recorded before some
        output is then merged before it. Raises CorruptRecord.
        """
        from muster.describe.events import in_log, sentence

        for entry in self._store.events.since(self._run_id, self._seq) if self._enabled else ():
            self._seq = entry.seq
            started = entry.attempt_started()
            self._attempt = self._attempt if started is None else started
            if in_log(entry.kind, entry.data):
                text = sentence(entry.kind, hidden(entry.data)) + "\n"
                time_ns = int(entry.time * 1e9)
                message = LogChunk(time_ns, MESSAGES, text.encode(), self._attempt, entry.kind)
                self._unread.setdefault(self._attempt, []).append(message)

    def merge(self, attempt: int, output: Iterator[LogChunk]) -> Iterator[LogChunk]:
        """An attempt's output with its messages, in the order of time."""
        messages = iter(self._unread.pop(attempt, ()))
        message = next(messages, None)
        for chunk in output:
            while message is not None and message.time_ns <= chunk.time_ns:
                yield message
                message = next(messages, None)
            yield chunk
        if message is not None:
            yield message
            yield from messages
