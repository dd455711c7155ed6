"""A server that is killed at any step of starting a schedule's run, or of sending an event: one run
starts in the end, and the event arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.api.notifications import NotificationRequest
from muster.lifecycle.schedule import Overlap, Timing
from muster.lifecycle.trigger import AfterRun, Webhook
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from muster.store.records import RunFilter
from support.api_runs import prepare, start, wait
from support.dying_server import DyingServer, dying_server
from support.postgres import shared_server
from support.receivers import receiving

TIMING = Timing(overlap=Overlap.ALLOW)


#: What a step is does not depend on the database, and servers that are killed at random moments are
#: tried with both in `test_killed_schedulers.py`.
_KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=_KINDS)
def home(request: pytest.FixtureRequest, own_home: Path) -> Iterator[Home]:
    """A MUSTER_HOME with each kind of database."""
    made = Home(own_home)
    if request.param == "sqlite":
        yield made
        return
    made.prepare()
    with shared_server().database() as url:
        made.database_url.write_text(f"{url}\n")
        made.database_url.chmod(0o600)
        yield made


@pytest.fixture
def server(home: Home) -> Iterator[DyingServer]:
    with dying_server(home) as made:
        yield made


@pytest.fixture
def api(home: Home) -> Iterator[EmbeddedAPI]:
    backend = Backend(home)
    yield EmbeddedAPI(backend=backend)
    backend.close()


def ids(api: EmbeddedAPI) -> set[str]:
    return {run.id for run in api.runs(RunFilter())}


def test_one_run_starts_at_a_time(api: EmbeddedAPI, server: DyingServer) -> None:
    store = api.context.store.schedules
    timing = replace(TIMING, every=1000.0)
    made = api.create_schedule("nightly", timing, prepare(api, "true"))
    for point in range(1, 100):
        now, before = store.get(made.id), ids(api)
        due = round(time.time(), 6)
        since = replace(timing, since=due - 1000.0)
        store.update(now, replace(now, timing=since, next_at=due))
        died = server.dies(point, "look")
        server.acts("look")
        (firing, *_) = api.firings(made.id, limit=1)
        assert (firing.time, firing.outcome, firing.passed) == (due, "started", 0), point
        assert ids(api) - before == {firing.run_id}, point
        if not died:
            break
    assert point > 8, "it has more steps"
    for run in api.runs(RunFilter()):
        assert wait(api, run.id) == "SUCCEEDED"


@pytest.mark.slow
def test_one_run_starts_for_an_event(api: EmbeddedAPI, server: DyingServer) -> None:
    wait(api, start(api, "true", name="before").id)
    made = api.create_schedule("after", TIMING, prepare(api, "true"), AfterRun("before"))
    for point in range(1, 100):
        known = ids(api)
        again = start(api, "true", name="before")
        wait(api, again.id)
        died = server.dies(point, "look")
        server.acts("look")
        server.acts("look")
        (firing, *_) = api.firings(made.id, limit=1)
        assert firing.event is not None
        assert (firing.event.subject, firing.outcome) == (again.name, "started"), point
        assert ids(api) - known - {again.id} == {firing.run_id}, point
        if not died:
            break
    assert point > 8, "it has more steps"


def test_one_run_starts_for_a_request(api: EmbeddedAPI, server: DyingServer) -> None:
    made = api.create_schedule("hook", TIMING, prepare(api, "true"), Webhook())
    for point in range(1, 100):
        known, message = ids(api), f"msg-{point}"
        died = server.dies(point, "request", made.id, message)
        server.acts("request", made.id, message)  # the sender had no answer, and sends it again
        (firing, *_) = api.firings(made.id, limit=1)
        assert firing.event is not None
        assert (firing.event.id, firing.outcome) == (message, "started"), point
        assert ids(api) - known == {firing.run_id}, point
        if not died:
            break
    assert point > 8, "it has more steps"


def test_an_event_arrives(api: EmbeddedAPI, server: DyingServer) -> None:
    with receiving() as receiver:
        api.create_notification(NotificationRequest("hook", receiver.url, ("job.created",)))
        for point in range(1, 100):
            receiver.received.clear()
            job = prepare(api, "true", name=f"job-{point}").job
            api.create_job(job)
            died = server.dies(point, "deliver")
            server.acts("deliver")
            # twice if it was killed after it was sent, with the same id
            assert 1 <= len(receiver.received) <= 2, point
            found = {(one.json["id"], one.json["data"]["name"]) for one in receiver.received}
            assert [name for _, name in found] == [job.name], point
            (delivery,) = api.deliveries("hook", limit=1)
            assert (delivery.event_id, delivery.state) == (next(iter(found))[0], "delivered")
            if not died:
                break
    assert point > 5, "it has more steps"
