"""An event about which nothing can be done is tried again, given up, and holds up no other."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.identity import DEFAULT_PROJECT
from muster.lifecycle.schedule import Missed, Overlap, Timing
from muster.lifecycle.trigger import ObjectCreated
from muster.notify.retries import LONGEST
from muster.server import scheduler
from muster.server.log import ServerLog
from muster.server.scheduler import Scheduler
from muster.server.settings import FileSettings, Settings
from muster.server.state import ServerState
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from muster.store.object_records import BucketRecord
from muster.store.outbox_records import ListenerKind, NewEvent
from muster.store.schedule_records import ScheduleRecord
from muster.store.sql.reports import report
from muster.store.sql.store import SqlStore
from support.api_runs import prepare, wait

TIMING = Timing(overlap=Overlap.ALLOW, missed=Missed.RUN_ONCE)


class Clock:
    """The store's clock, which a test sets."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("muster.store.sql.leases.SqlLeases.now", lambda _: made())
    return made


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def state(own_home: Path, log: io.StringIO) -> Iterator[ServerState]:
    settings = Settings(file=FileSettings(separate_owners=False))
    made = ServerState(settings, Backend(Home(own_home)), None, ServerLog(log))
    yield made
    made.close()


def happen(store: SqlStore, project: str, name: str) -> None:
    """An object is created."""
    subject, data = f"objects/data/{name}", {"bucket": "data", "name": name}
    event = NewEvent(project, "object.created", subject, time.time(), data)
    store.database.write(lambda connection: report(connection, event))


def test_it_is_given_up_in_the_end(
    state: ServerState, clock: Clock, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, store = EmbeddedAPI(backend=state.backend), state.backend.store
    assert isinstance(store, SqlStore)

    def create(name: str) -> ScheduleRecord:
        return api.create_schedule(name, TIMING, prepare(api, "true"), ObjectCreated("data"))

    def waiting() -> list[int]:
        return [one.attempts for one in store.outbox.pending(ListenerKind.TRIGGER, limit=9)]

    store.buckets.insert(BucketRecord("b", "data", DEFAULT_PROJECT, "ana", 1.0, 1.0, {}))
    bad, good = create("bad"), create("good")
    damage = "UPDATE schedules SET timing = '{' WHERE id = ?"
    store.database.write(lambda connection: connection.execute(damage, (bad.id,)))
    # one that fails would be the only one of each look
    monkeypatch.setattr(scheduler, "_MOST_EVENTS", 1)
    server = Scheduler(state)
    for number in range(2):
        happen(store, good.project, f"object-{number}")
    for _ in range(4):
        server.look()
    assert [one.outcome for one in store.schedules.firings(good.id)] == ["started"] * 2
    assert waiting() == [1, 1]
    clock.ahead = LONGEST + 60
    for _ in range(2):
        server.look()
    assert waiting() == []
    found = store.schedules.firings(bad.id)
    assert [one.outcome for one in found] == ["refused"] * 2
    assert found[0].why.startswith("given up after 2 attempts: the record of schedule bad is corr")
    assert {one.event.subject for one in found if one.event} == {"object-0", "object-1"}
    assert log.getvalue().count("starts no run: given up after 2 attempts") == 2
    assert log.getvalue().count("runs of schedules cannot be started") == 1
    for firing in store.schedules.firings(good.id):
        wait(api, firing.run_id or "")
