"""The process that owns a run, from its first breath to its last.

It holds the run's lease. Where the machine allows, it is PID 1 of the run's PID namespace, so that
killing it is the kernel's order to end every process of the run.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from muster.control import bell
from muster.control.clock import SteadyClock
from muster.control.controller import Controller
from muster.control.ledger import StoreLedger
from muster.control.persist import lifecycle_of, plan_of
from muster.control.recover import forget_environ, record_broken
from muster.engines.base import RunContext
from muster.engines.local.engine import LocalEngine
from muster.engines.local.isolation import Isolation
from muster.errors import HomeGone, MusterError, lack_of
from muster.lifecycle.events import CancelRequested, Request
from muster.lifecycle.policy import Strategy
from muster.lifecycle.states import RunState
from muster.node.files import open_own
from muster.plan.model import RunPlan
from muster.secrets import print_traceback
from muster.storage.home import Home, RunDir
from muster.storage.notify import Presence, Watcher
from muster.store import events, runs
from muster.store.database import Database


class Assignment(Struct, frozen=True):
    """Which run to drive, and what its nodes start from (see `RunContext`).

    life: the descriptor to let go of when the outcome is recorded (see `control.watch`).
    """

    home: Home
    run_id: str
    environ: Mapping[str, str]
    python: str
    life: int


def warm() -> None:
    """Load and compile what every supervisor needs, once, in the process they are forked from."""
    # the last two record the end of a run that broke, of a lack of open files, say: it must be
    # possible without opening any
    import muster.control.step
    import muster.engines.local.cgroups
    import muster.engines.local.session  # noqa: F401

    RunPlan.warm()
    Watcher().close()


def supervise(assignment: Assignment, isolation: Isolation) -> None:
    """Drive the run to its end, or to where it is suspended. Whatever goes wrong is recorded with
    the run."""
    database = Database.open(assignment.home.database)
    folder = assignment.home.run_dir(assignment.run_id)
    try:
        _drive(database, assignment, isolation)
    except HomeGone as error:
        if database.gone:
            print(error, file=sys.stderr)  # noqa: T201  into a log that is gone, most likely
            return  # who waits for the run finds that there is nothing to wait for
        record_broken(database, folder, assignment.run_id, str(error))
    except MusterError as error:
        record_broken(database, folder, assignment.run_id, str(error))
    except OSError as error:  # a folder that a program has put in the place of a file, say
        print_traceback()
        text = f"its supervisor cannot continue: {error} (see {folder.supervisor_log})"
        record_broken(database, folder, assignment.run_id, str(lack_of(error) or text))
    except Exception as error:  # noqa: BLE001  a defect of ours must not leave the run hanging
        print_traceback()
        text = f"internal error of Muster: {error!r}; please report it with {folder.supervisor_log}"
        record_broken(database, folder, assignment.run_id, text)
    state = RunState(runs.summary(database, assignment.run_id).state)
    if state.terminal:
        forget_environ(folder.environ)
    if state.at_rest:
        os.close(assignment.life)  # else it ends with us: nobody is told of an outcome there is not


def _drive(database: Database, assignment: Assignment, isolation: Isolation) -> None:
    run_id, home = assignment.run_id, assignment.home
    record = runs.get(database, run_id)
    plan = plan_of(record)
    attention = _Attention(home, home.run_dir(run_id))
    keep = plan.policy.strategy is Strategy.IN_PLACE and plan.policy.restarts
    resumes = lifecycle_of(record).resumes
    started = record.started_at or time.time()
    context = RunContext(plan, home, assignment.environ, assignment.python, keep, resumes, started)
    session = LocalEngine(isolation).open(context)
    try:
        ledger = StoreLedger(database, plan, home.run_dir(run_id))
        clock = SteadyClock(events.last_time(database, run_id))
        Controller(
            plan.policy, ledger, session, clock, attention.descriptor, attention.requests
        ).run()
    finally:
        session.close()
        session.seal()


class _Attention:
    """What a supervisor looks at besides its nodes: its bell, SIGTERM, and whether what it keeps
    for the run is still there.

    descriptor: readable when it is time to call `requests`.
    """

    def __init__(self, home: Home, folder: RunDir) -> None:
        self._bell = self.descriptor = bell.attend(folder.bell)
        self._why = ""
        paths = (home.database, folder.lease, folder.path, home.runs, home.root)
        self._presence = Presence(paths)
        changes = self._presence.fileno()
        if changes is not None:
            self._both = select.epoll()
            for descriptor in (self._bell, changes):
                self._both.register(descriptor, select.EPOLLIN)
            self.descriptor = self._both.fileno()
        signal.signal(signal.SIGTERM, self._terminate)

    def requests(self) -> list[Request]:
        """What was asked by a signal. Raises HomeGone."""
        bell.silence(self._bell)
        gone = self._presence.missing()
        if gone is not None:
            raise HomeGone(f"{gone} was deleted or moved away while the run was running")
        return [CancelRequested(self._why)] if self._why else []

    def _terminate(self, number: int, _frame: object) -> None:
        """Somebody, or a machine going down: the run is canceled instead of being cut off."""
        self._why = f"the run's supervisor was told to end (signal {number})"
        os.write(self._bell, b"!")


def detach(log: Path) -> None:
    """Let go of the terminal and the submitter's files: what we say goes to the log."""
    null = os.open(os.devnull, os.O_RDWR)
    to = open_own(log, os.O_WRONLY | os.O_APPEND, 0o600)
    for descriptor, target in ((null, 0), (to, 1), (to, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(to)
