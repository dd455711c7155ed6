"""A server that is killed at any step of starting a schedule's run: one run starts in the end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from muster.lifecycle.schedule import Overlap, Timing
from muster.lifecycle.trigger import AfterRun, Webhook
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from muster.store.records import RunFilter
from support.api_runs import prepare, start, wait

#: Looks once for what is due and has happened, and dies at point N; 0: at none. With the id of a
#: schedule and that of a request, that is sent to its webhook before.
LOOK = """
import os, sys
from types import SimpleNamespace
from pathlib import Path
from muster.server import scheduler
from muster.server.log import ServerLog
from muster.server.settings import FileSettings, Settings
from muster.server.state import ServerState
from muster.service.backend import Backend
from muster.storage.home import Home
from muster.store.sql.audit import SqlAudit
from muster.store.sql.runs import SqlRuns
from muster.store.sql.schedules import SqlSchedules

left = [int(sys.argv[2])]

def count_down():
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)

def deadly(kind, name):
    function = getattr(kind, name)
    def call(*args, **named):
        count_down()
        result = function(*args, **named)
        count_down()
        return result
    setattr(kind, name, call)

for kind, name in [
    (SqlSchedules, "decide"), (SqlSchedules, "decide_event"), (SqlSchedules, "settle"),
    (SqlAudit, "append"),
    (SqlRuns, "insert"), (Backend, "start_supervisor"),
]:
    deadly(kind, name)
scheduler._TAKEN_OVER_AFTER = 0.0
settings = Settings(file=FileSettings(separate_owners=False))
state = ServerState(settings, Backend(Home(Path(sys.argv[1]))), None, ServerLog())
if len(sys.argv) > 3:
    from muster.iam.webhook_signatures import Delivery
    from muster.server.webhooks import Webhooks
    schedule = state.backend.store.schedules.get(sys.argv[3])
    call = SimpleNamespace(address="127.0.0.1", header=lambda name: "")
    Webhooks(state)._act(schedule, Delivery(sys.argv[4], "webhook"), call, b"body")
scheduler.Scheduler(state).look()
state.close()
"""


def look(home: Path, point: int = 0, *request: str) -> int:
    """The exit code."""
    argv = [sys.executable, "-c", LOOK, str(home), str(point), *request]
    return subprocess.run(argv, check=False, timeout=120).returncode


def test_one_run_starts_wherever_the_server_is_killed(own_home: Path) -> None:
    backend = Backend(Home(own_home))
    api, store = EmbeddedAPI(backend=backend), backend.store.schedules
    timing = Timing(every=1000.0, overlap=Overlap.ALLOW)
    made = api.create_schedule("nightly", timing, prepare(api, "true"))
    killed = 0
    for point in range(1, 100):
        now = store.get(made.id)
        due = round(time.time(), 6)
        since = replace(timing, since=due - 1000.0)
        store.update(now, replace(now, timing=since, next_at=due))
        before = {run.id for run in api.runs(RunFilter())}
        code = look(own_home, point)
        assert code in (0, 9)
        killed += code == 9
        assert look(own_home) == 0
        (firing, *_) = api.firings(made.id, limit=1)
        assert (firing.time, firing.outcome, firing.passed) == (due, "started", 0), point
        assert {run.id for run in api.runs(RunFilter())} - before == {firing.run_id}, point
        if code == 0:
            break
    assert killed >= 10, "it has more steps"
    for run in api.runs(RunFilter()):
        assert wait(api, run.id) == "SUCCEEDED"
    backend.close()


def test_one_run_starts_for_an_event_wherever_the_server_is_killed(own_home: Path) -> None:
    backend = Backend(Home(own_home))
    api = EmbeddedAPI(backend=backend)
    before = start(api, "true", name="before")
    wait(api, before.id)
    timing = Timing(overlap=Overlap.ALLOW)
    made = api.create_schedule("after", timing, prepare(api, "true"), AfterRun("before"))
    killed = 0
    for point in range(1, 100):
        known = {run.id for run in api.runs(RunFilter())}
        again = start(api, "true", name="before")
        wait(api, again.id)
        code = look(own_home, point)
        assert code in (0, 9)
        killed += code == 9
        assert look(own_home) == 0
        assert look(own_home) == 0
        (firing, *_) = api.firings(made.id, limit=1)
        assert firing.event is not None
        assert (firing.event.subject, firing.outcome) == (again.name, "started"), point
        started = {run.id for run in api.runs(RunFilter())} - known - {again.id}
        assert started == {firing.run_id}, point
        if code == 0:
            break
    assert killed >= 10, "it has more steps"
    backend.close()


def test_one_run_starts_for_a_request_wherever_the_server_is_killed(own_home: Path) -> None:
    backend = Backend(Home(own_home))
    api = EmbeddedAPI(backend=backend)
    timing = Timing(overlap=Overlap.ALLOW)
    made = api.create_schedule("hook", timing, prepare(api, "true"), Webhook())
    killed = 0
    for point in range(1, 100):
        known = {run.id for run in api.runs(RunFilter())}
        request = (made.id, f"msg-{point}")
        code = look(own_home, point, *request)
        assert code in (0, 9)
        killed += code == 9
        assert look(own_home, 0, *request) == 0  # the sender had no answer, and sends it again
        (firing, *_) = api.firings(made.id, limit=1)
        assert firing.event is not None
        assert (firing.event.id, firing.outcome) == (request[1], "started"), point
        assert {run.id for run in api.runs(RunFilter())} - known == {firing.run_id}, point
        if code == 0:
            break
    assert killed >= 10, "it has more steps"
    backend.close()
