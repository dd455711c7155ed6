"""A run's event log: the recorded entries and, when following, those that come.

Entries are numbered from 1 without gaps, and are only read once they are committed. A reader that
passes the number of the last entry it has processed gets each later entry at least once, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from msgspec.structs import replace

from muster.lifecycle.states import RunState
from muster.secrets import hidden
from muster.service import Service
from muster.store.records import EventRecord


def entries(service: Service, run_id: str, *, after: int, follow: bool) -> Iterator[EventRecord]:
    """Entries after number `after`, secrets hidden. follow: until the run has ended or is
    suspended."""
    found = _follow(service, run_id, after) if follow else iter(service.events(run_id, after))
    for entry in found:
        yield replace(entry, data=hidden(entry.data))


def _follow(service: Service, run_id: str, after: int) -> Iterator[EventRecord]:
    with closing(service.follow(run_id)) as follower:
        while True:
            ended = follower.ended
            for entry in service.events(run_id, after):
                yield entry
                after = entry.seq
            if not ended:
                follower.wait(follower.event_paths())
            elif RunState(service.run(run_id).state).at_rest:
                return
            else:
                follower.find_supervisor()
