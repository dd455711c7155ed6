"""A run's event log: the recorded entries and, when following, those that come.

Entries are numbered from 1 without gaps, and are only read once they are committed. A reader that
passes the number of the last entry it has processed gets each later entry at least once, in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any

from msgspec import Struct

from muster.describe.times import moment, rfc3339
from muster.lifecycle.states import RunState
from muster.secrets import hidden
from muster.service import Service


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
        from muster.describe.events import sentence

        return sentence(self.kind, self.data)

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON-ready data, flat; the time as RFC 3339 text."""
        return {"seq": self.seq, "time": rfc3339(self.time), "kind": self.kind, **self.data}

    def __str__(self) -> str:
        return f"{rfc3339(self.time)} {self.text}"

    def _repr_html_(self) -> str:
        from muster.client.html import table

        cells = {"SEQ": str(self.seq), "TIME": rfc3339(self.time), "WHAT": self.kind}
        return table([{**cells, "DATA": self.text}])


def entries(service: Service, run_id: str, *, after: int, follow: bool) -> Iterator[Event]:
    """Entries after number `after`. follow: until the run has ended or is suspended."""
    if not follow:
        yield from _after(service, run_id, after)
        return
    with closing(service.follow(run_id)) as follower:
        while True:
            ended = follower.ended
            for event in _after(service, run_id, after):
                yield event
                after = event.seq
            if not ended:
                follower.wait(follower.event_paths())
            elif RunState(service.run(run_id).state).at_rest:
                return
            else:
                follower.find_supervisor()


async def entries_async(
    service: Service, run_id: str, *, after: int, follow: bool
) -> AsyncIterator[Event]:
    """As `entries`, in an event loop of asyncio."""
    from muster.service.event_loop import in_thread

    if not follow:
        for event in _after(service, run_id, after):
            yield event
        return
    with closing(service.follow(run_id)) as follower:
        while True:
            ended = follower.ended
            for event in _after(service, run_id, after):
                yield event
                after = event.seq
            if not ended:
                await follower.wait_async(follower.event_paths())
            elif RunState(service.run(run_id).state).at_rest:
                return
            else:
                await in_thread(follower.find_supervisor)


def _after(service: Service, run_id: str, seq: int) -> Iterator[Event]:
    for entry in service.events(run_id, seq):
        yield Event(entry.seq, moment(entry.time), entry.kind, hidden(entry.data))
