"""Muster's messages in a run's log, made from the run's events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from muster.api.streams import LogChunk
from muster.lifecycle.states import NodeState
from muster.storage.log_index import MESSAGES

if TYPE_CHECKING:
    from muster.describe.log_entries import LogEntries
    from muster.plan.model import Parameters
    from muster.store.base import Store
    from muster.store.records import EventRecord


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
        self._entries: LogEntries | None = None

    @property
    def attempts(self) -> Collection[int]:
        """The attempts with messages that `merge` has not returned yet."""
        return self._unread.keys()

    def read(self) -> None:
        """Read the events that were recorded since the last call.

        To be called before the nodes' output is read: a message that was recorded before some
        output is then merged before it. Raises CorruptRecord.
        """
        if not self._enabled:
            return
        if (shown := self._entries) is None:
            from muster.describe.log_entries import LogEntries  # while the supervisor starts

            shown = self._entries = LogEntries(
                partial(_arrays, self._store, self._run_id),
                cache(partial(_parameters, self._store, self._run_id)),
            )
        for entry in self._store.events.since(self._run_id, self._seq):
            self._seq = entry.seq
            started = entry.attempt_started()
            self._attempt = self._attempt if started is None else started
            time_ns = int(entry.time * 1e9)
            for text in shown.texts(entry.time, entry.kind, entry.data):
                data = f"{text}\n".encode()
                message = LogChunk(time_ns, MESSAGES, data, self._attempt, _kind(entry))
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


def _kind(entry: EventRecord) -> str:
    """See `LogChunk.kind`."""
    waits = entry.kind == "nodes" and entry.data.get("state") == NodeState.QUEUED
    return "queued" if waits else entry.kind


def _arrays(store: Store, run_id: str) -> list[range]:
    """The ranks of each array of a run. No method: a cycle of references would keep the store open
    at the end of a command."""
    from muster.store.run_columns import StoredPlan

    return [group.ranks for group in StoredPlan(store.runs.get(run_id)).arrays()]


def _parameters(store: Store, run_id: str) -> Parameters | None:
    """Those of a run's array; values of secret ones are sealed texts. No method, as above."""
    from muster.store.run_columns import StoredPlan

    return StoredPlan(store.runs.get(run_id)).parameters()
