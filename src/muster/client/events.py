"""A run's event log: the recorded entries and, when following, those that come.

Entries are numbered from 1 without gaps, and are only read once they are committed. A reader that
passes the number of the last entry it has processed gets each later entry at least once, in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from muster.api.streams import Notice
from muster.client.following import give_warning
from muster.describe.times import moment, rfc3339
from muster.secrets import hidden

if TYPE_CHECKING:
    from muster.api.interface import MusterAPI
    from muster.store.records import EventRecord


class Event(Struct, frozen=True):
    """An entry of a run's event log; secrets hidden."""

    #: From 1, within the run.
    seq: int
    #: In UTC.
    time: datetime
    #: `run`, `nodes`, `failure`, `restart`, ...
    kind: str
    #: What belongs to an entry of this kind.
    data: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The entry as one readable line."""
        from muster.describe.events import brief_sentence

        return brief_sentence(self.kind, self.data)

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON-ready data, flat; the time as RFC 3339 text."""
        return {"seq": self.seq, "time": rfc3339(self.time), "kind": self.kind, **self.data}

    def __str__(self) -> str:
        return f"{rfc3339(self.time)} {self.text}"

    def _repr_html_(self) -> str:
        from muster.client.html import table

        cells = {"SEQ": str(self.seq), "TIME": rfc3339(self.time), "WHAT": self.kind}
        return table([{**cells, "DATA": self.text}])


def entries(api: MusterAPI, run_id: str, *, after: int, follow: bool) -> Iterator[Event]:
    """Entries after number `after`. follow: until the run has ended or is suspended."""
    if not follow:
        yield from map(_event, api.events(run_id, after))
        return
    with closing(api.follow_events(run_id, after)) as items:
        for item in items:
            if isinstance(item, Notice):
                give_warning(item)
            else:
                yield _event(item.entry)


async def entries_async(
    api: MusterAPI, run_id: str, *, after: int, follow: bool
) -> AsyncIterator[Event]:
    """As `entries`, in an event loop of asyncio."""
    if not follow:
        for entry in api.events(run_id, after):
            yield _event(entry)
        return
    async with aclosing(api.follow_events_async(run_id, after)) as items:
        async for item in items:
            if isinstance(item, Notice):
                give_warning(item)
            else:
                yield _event(item.entry)


def _event(entry: EventRecord) -> Event:
    return Event(entry.seq, moment(entry.time), entry.kind, hidden(to_builtins(entry.data)))
