"""A server that is killed at any step of starting a schedule's run: one run starts in the end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from muster.lifecycle.schedule import Overlap, Timing
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from muster.store.records import RunFilter
from support.api_runs import prepare, wait

#: Looks once for what is due, and dies at point N. 0: at none.
LOOK = """
import os, sys
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
    (SqlSchedules, "decide"), (SqlSchedules, "settle"), (SqlAudit, "append"),
    (SqlRuns, "insert"), (Backend, "start_supervisor"),
]:
    deadly(kind, name)
scheduler._TAKEN_OVER_AFTER = 0.0
settings = Settings(file=FileSettings(separate_owners=False))
state = ServerState(settings, Backend(Home(Path(sys.argv[1]))), None, ServerLog())
scheduler.Scheduler(state).look()
state.close()
"""


def look(home: Path, point: int = 0) -> int:
    """The exit code."""
    argv = [sys.executable, "-c", LOOK, str(home), str(point)]
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
