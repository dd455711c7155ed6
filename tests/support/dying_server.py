"""What a server does once, in processes that die at a chosen step of it.

They are forked from one that has imported everything, which takes longer than what they do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from muster.storage.home import Home

_PROGRAM = """
import json, os, sys, traceback
from types import SimpleNamespace
from pathlib import Path
from muster.iam.webhook_signatures import Delivery
from muster.server import deliverer, scheduler
from muster.server.log import ServerLog
from muster.server.settings import FileSettings, Settings
from muster.server.state import ServerState
from muster.server.webhooks import Webhooks
from muster.service.backend import Backend
from muster.storage.home import Home
from muster.store.sql.audit import SqlAudit
from muster.store.sql.notifications import SqlNotifications
from muster.store.sql.runs import SqlRuns
from muster.store.sql.schedules import SqlSchedules

left = [0]

def count_down():
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)

def deadly(place, name):
    function = getattr(place, name)
    def call(*args, **named):
        count_down()
        result = function(*args, **named)
        count_down()
        return result
    setattr(place, name, call)

for place, name in [
    (SqlSchedules, "decide"), (SqlSchedules, "decide_event"), (SqlSchedules, "settle"),
    (SqlAudit, "append"),
    (SqlRuns, "insert"), (Backend, "start_supervisor"),
    (SqlNotifications, "claim"), (SqlNotifications, "settle"), (deliverer, "send"),
]:
    deadly(place, name)
# what a process that was killed has begun is taken over at once
scheduler._TAKEN_OVER_AFTER = deliverer._CLAIM = 0.0

def look(state):
    scheduler.Scheduler(state).look()

def request(state, schedule, message):
    found = state.backend.store.schedules.get(schedule)
    call = SimpleNamespace(address="127.0.0.1", header=lambda name: "")
    Webhooks(state)._act(found, Delivery(message, "webhook"), call, b"body")
    look(state)

def deliver(state):
    one = deliverer.Deliverer(state)
    one.look()
    one.stop()

def act(name, *args):
    settings = Settings(file=FileSettings(separate_owners=False))
    state = ServerState(settings, Backend(Home(Path(sys.argv[1]))), None, ServerLog())
    globals()[name](state, *args)
    state.close()

for line in sys.stdin:
    point, *words = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            left[0] = point
            act(*words)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class DyingServer:
    """See the module."""

    def __init__(self, home: Home) -> None:
        argv = [sys.executable, "-c", _PROGRAM, str(home.root)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)

    def dies(self, point: int, *words: str) -> bool:
        """Act, and die at this step: whether there were so many steps. words: `look` for what is
        due and has happened; get a `request` for the webhook of a schedule, with their ids; or
        `deliver` events."""
        code = self._act(point, words)
        assert code in (0, 9)
        return code == 9

    def acts(self, *words: str) -> None:
        """Act, and die at no step."""
        assert self._act(0, words) == 0

    def _act(self, point: int, words: tuple[str, ...]) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps([point, *words])}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@contextmanager
def dying_server(home: Home) -> Iterator[DyingServer]:
    """A server of a MUSTER_HOME."""
    made = DyingServer(home)
    try:
        yield made
    finally:
        made.process.communicate(timeout=60)
