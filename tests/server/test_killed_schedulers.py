"""Two servers of one MUSTER_HOME are killed while they start runs of schedules.

Each time has one run or none, none is forgotten, and what was decided is done. Each run that has
succeeded has one run after it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from muster.lifecycle.schedule import Missed, Overlap, Timing
from muster.lifecycle.trigger import AfterRun
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.service.logins import create_first_admin
from muster.storage.home import Home
from muster.store.outbox_records import ListenerKind
from muster.store.records import RunFilter
from muster.store.schedule_records import Outcome
from support.api_runs import prepare
from support.faults import until
from support.server_pair import ServerPair, home_with, server_pair

#: They are due at the same moments, so that a server is busy with one of them when it is killed.
SCHEDULES = [f"s{number}" for number in range(6)]
TIMING = Timing(every=1.0, overlap=Overlap.ALLOW, start_within=300.0)
#: The schedule and the job of runs that start after these.
FOLLOWING = "following"
EVENTS = Timing(overlap=Overlap.ALLOW, missed=Missed.RUN_ONCE)
STRIKES = 8


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    with home_with(request.param) as made:
        yield made


@pytest.mark.slow
def test_each_time_has_one_run(
    home: Home, rng: random.Random, alive: Callable[[str], list[str]]
) -> None:
    backend = Backend(home)
    create_first_admin(backend.store)
    api = EmbeddedAPI(backend=backend)
    with server_pair(home) as servers:
        prepared = prepare(api, "true")
        first = api.create_schedule(SCHEDULES[0], TIMING, prepared)
        for name in SCHEDULES[1:]:
            api.create_schedule(name, TIMING, prepare(api, "true"))
        following = prepare(api, "true", name=FOLLOWING)
        api.create_schedule(FOLLOWING, EVENTS, following, AfterRun(first.job.partition("@")[0]))
        for _ in range(STRIKES):
            _kill_when_due(rng, servers, first.timing.since)
        servers.wait_until_ready()
        for name in SCHEDULES:
            api.pause_schedule(name)
        store = backend.store.schedules
        until(lambda: store.unsettled(time.time()) == [], "what was decided is done", 60)
        _wait_for_all(api)
        outbox = backend.store.outbox
        until(lambda: not outbox.pending(ListenerKind.TRIGGER, limit=1), "events are handled", 60)
        until(lambda: store.unsettled(time.time()) == [], "what was decided is done", 60)
        _wait_for_all(api)
        _check(api)
        servers.end()
        backend.close()
    until(lambda: alive(str(home.root)) == [], "no process is left", 60)


def _kill_when_due(rng: random.Random, servers: ServerPair, since: float) -> None:
    """Kill servers while they do what is due, and start them again."""
    servers.wait_until_ready()
    now = time.time()
    due = since + int(now - since) + 1 + rng.uniform(0, 0.3)
    time.sleep(max(0.0, due - now))
    servers.strike(rng)


def _wait_for_all(api: EmbeddedAPI) -> None:
    for run in api.run_records(RunFilter()):
        for _ in api.watch(run.id, 120):
            pass


def _check(api: EmbeddedAPI) -> None:
    every = api.run_records(RunFilter())
    runs = [run for run in every if run.job_name != FOLLOWING]
    after = [run.tags["muster-after"] for run in every if run.job_name == FOLLOWING]
    # those that had ended before the schedule was made have none
    assert len(after) == len({*after}) >= len(runs) - 2 * len(SCHEDULES)
    assert {*after} <= {run.name for run in runs}
    states = Counter(run.state for run in api.runs(RunFilter()))
    assert states.keys() == {"SUCCEEDED"}, states
    started: set[str | None] = set()
    for name in SCHEDULES:
        firings = api.firings(name)[::-1]
        assert {one.outcome for one in firings} == {Outcome.STARTED}, firings
        assert firings[0].time - firings[0].passed - 1 == api.schedule(name).timing.since
        for before, after in pairwise(firings):
            assert after.time - before.time == after.passed + 1, (before, after)
        for one in firings:
            assert one.run_name, one
        started |= {one.run_id for one in firings}
        times = [r.tags["muster-scheduled-time"] for r in runs if r.tags["muster-schedule"] == name]
        assert len(set(times)) == len(times) == len(firings)
    assert started == {run.id for run in runs}
    assert len({run.name for run in runs}) == len(runs)
