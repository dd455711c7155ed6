"""A run's event log: what there is, and what is still to come.

Entries are numbered from 1 without holes, and are read from the store: what is not committed is
never told. Who remembers the number of the last entry it has dealt with, and asks for those after
it, is told each at least once, in order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from muster.control.watch import end_of_life
from muster.lifecycle.states import RunState
from muster.secrets import hidden
from muster.service import Service
from muster.storage.notify import Watcher, wait_for
from muster.store.records import EventRecord


def entries(service: Service, run_id: str, *, after: int, follow: bool) -> Iterator[EventRecord]:
    """Entries after number `after`, secrets hidden. follow: until the run has ended."""
    found = _follow(service, run_id, after) if follow else iter(service.events(run_id, after))
    for entry in found:
        yield replace(entry, data=hidden(entry.data))


def _follow(service: Service, run_id: str, after: int) -> Iterator[EventRecord]:
    watcher = Watcher()
    pulse = service.home.run_dir(run_id).pulse
    watched = False
    life = end_of_life(service.home, run_id)
    answering = service.answering(run_id)
    try:
        while True:
            if not watched and pulse.exists():
                watcher.add(pulse)
                watched = True
            elif not watched and pulse.parent.exists():
                watcher.add(pulse.parent)  # told of the pulse when it is made
            for entry in service.events(run_id, after):
                yield entry
                after = entry.seq
            if life is None:
                if _over(service, run_id):
                    return
                with suppress(TimeoutError):
                    service.wait(run_id, 0)  # somebody must take it up
                life = end_of_life(service.home, run_id)
            elif wait_for(watcher, life, timeout=answering.patience()):
                os.close(life)
                life = None
            watcher.drain()
            service.warn(answering)
    finally:
        watcher.close()
        if life is not None:
            os.close(life)


def _over(service: Service, run_id: str) -> bool:
    return RunState(service.run(run_id).state).at_rest
