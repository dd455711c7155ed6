"""Two servers of one MUSTER_HOME are killed while they send events.

Each event arrives, those of one run in their order; one that arrives twice has the same id.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from threading import Lock

import pytest

from muster.api.notifications import NotificationRequest
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.service.logins import create_first_admin
from muster.storage.home import Home
from muster.store.records import RunStep
from muster.store.sql.store import SqlStore
from support.faults import until
from support.receivers import Received, Receiver, Reply, receiving
from support.server_pair import KINDS, home_with, server_pair
from support.store_records import accept_and_drive, job

RUNS = 30
STATES = ("run.accepted", "run.in_progress", "run.succeeded")
STRIKES = 4


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    with home_with(request.param) as made:
        yield made


class Flaky:
    """Answers 503 from time to time, and counts."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._lock = rng, Lock()

    def __call__(self, _: Received) -> Reply:
        with self._lock:
            return Reply(503) if self._rng.random() < 0.1 else Reply()


def happen(store: SqlStore, number: int) -> None:
    """What a run reports that starts and succeeds."""
    run, lease = accept_and_drive(store, job(f"job-{number}"))
    for state in ("IN_PROGRESS", "SUCCEEDED"):
        store.runs.save(RunStep(lease, {"state": state}, [], [], 2.0))
    assert run.id


@pytest.mark.slow
def test_each_event_arrives_in_order(home: Home, rng: random.Random) -> None:
    backend = Backend(home)
    create_first_admin(backend.store)
    api = EmbeddedAPI(backend=backend)
    store = backend.store
    assert isinstance(store, SqlStore)
    with receiving() as receiver:
        receiver.answer = Flaky(rng)
        api.create_notification(NotificationRequest("hook", receiver.url, ("run.*",)))
        with server_pair(home) as servers:
            for strike in range(STRIKES):
                servers.wait_until_ready()
                before = len(receiver.received)
                for number in range(RUNS // STRIKES):
                    happen(store, strike * 100 + number)
                until(lambda before=before: len(receiver.received) > before, "events arrive", 60)
                servers.strike(rng)
            _check(api, receiver, RUNS // STRIKES * STRIKES * len(STATES))
            servers.end()
    backend.close()


@pytest.mark.slow
def test_two_servers_send_each_event_once(home: Home) -> None:
    backend = Backend(home)
    create_first_admin(backend.store)
    api, store = EmbeddedAPI(backend=backend), backend.store
    assert isinstance(store, SqlStore)
    with receiving() as receiver, server_pair(home):
        api.create_notification(NotificationRequest("hook", receiver.url, ("run.*",)))
        for number in range(RUNS):
            happen(store, number)
        count = RUNS * len(STATES)
        until(lambda: len(receiver.received) >= count, "events arrive", 60)
        _check(api, receiver, count)
        assert len(receiver.received) == count
    backend.close()


def _check(api: EmbeddedAPI, receiver: Receiver, count: int) -> None:
    """Each event was delivered, those of a run in their order."""

    def all_sent() -> bool:
        found = api.deliveries("hook", limit=1000)
        return len(found) == min(count, 100) and {one.state for one in found} == {"delivered"}

    # what a killed server had claimed is sent when its claim has expired
    until(all_sent, "each event is delivered", 150)
    events = [(one.json["subject"], one.json["id"], one.json["type"]) for one in receiver.received]
    assert len({event_id for _, event_id, _ in events}) == count
    by_run: dict[str, list[str]] = {}
    for subject, event_id, _ in events:
        by_run.setdefault(subject, []).append(event_id)
    types = {event_id: kind.removeprefix("muster.") for _, event_id, kind in events}
    for ids in by_run.values():
        # an event is repeated until it is known to have arrived, and then the next one is sent
        in_order = [one for one, _ in groupby(ids)]
        assert tuple(types[one] for one in in_order) == STATES, in_order
