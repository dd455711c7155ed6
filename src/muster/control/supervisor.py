"""The process that owns a run, from its first breath to its last.

It holds the run's lease. Where the machine allows, it is PID 1 of the run's PID namespace, so that
killing it is the kernel's order to end every process of the run.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from muster.control import bell
from muster.control.clock import SteadyClock
from muster.control.controller import Controller
from muster.control.ledger import StoreLedger
from muster.control.recover import forget_environ, record_broken
from muster.engines.base import RunContext
from muster.engines.local.engine import LocalEngine
from muster.engines.local.isolation import Isolation
from muster.errors import MusterError, lack_of
from muster.lifecycle.events import CancelRequested, Request
from muster.lifecycle.policy import Strategy
from muster.lifecycle.states import RunState
from muster.node.files import open_own
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.storage.notify import Watcher
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
    except MusterError as error:
        record_broken(database, assignment.run_id, str(error))
    except OSError as error:  # a folder that a program has put in the place of a file, say
        traceback.print_exc()
        text = f"its supervisor cannot go on: {error} (see {folder.supervisor_log})"
        record_broken(database, assignment.run_id, text)
    except Exception as error:  # noqa: BLE001  a defect of ours must not leave the run hanging
        traceback.print_exc()
        lack = lack_of(error) if isinstance(error, OSError) else None
        text = f"internal error of Muster: {error!r}; please report it with {folder.supervisor_log}"
        record_broken(database, assignment.run_id, text if lack is None else str(lack))
    state = RunState(runs.get(database, assignment.run_id).state)
    if state.terminal:
        forget_environ(folder.environ)
    if state.at_rest:
        os.close(assignment.life)  # else it ends with us: nobody is told of an outcome there is not


def _drive(database: Database, assignment: Assignment, isolation: Isolation) -> None:
    run_id, home = assignment.run_id, assignment.home
    plan = RunPlan.from_json(runs.get(database, run_id).plan)
    attention = bell.attend(home.run_dir(run_id).bell)
    told = _hear_signals(attention)
    keep = plan.policy.strategy is Strategy.IN_PLACE and plan.policy.restarts
    context = RunContext(plan, home, assignment.environ, assignment.python, keep)
    session = LocalEngine(isolation).open(context)
    try:
        ledger = StoreLedger(database, plan, home.run_dir(run_id).pulse)
        clock = SteadyClock(events.last_time(database, run_id))
        Controller(plan.policy, ledger, session, clock, attention, told).run()
    finally:
        session.close()
        session.seal()


def _hear_signals(attention: int) -> _Told:
    """SIGTERM (somebody, or a machine going down) cancels the run instead of cutting it off."""
    told = _Told(attention)

    def on_signal(number: int, _frame: object) -> None:
        told.why = f"the run's supervisor was told to end (signal {number})"
        os.write(attention, b"!")

    signal.signal(signal.SIGTERM, on_signal)
    return told


class _Told:
    """What we were told by a signal."""

    why = ""

    def __init__(self, attention: int) -> None:
        self._attention = attention

    def __call__(self) -> list[Request]:
        bell.silence(self._attention)
        return [CancelRequested(self.why)] if self.why else []


def detach(log: Path) -> None:
    """Let go of the terminal and the submitter's files: what we say goes to the log."""
    null = os.open(os.devnull, os.O_RDWR)
    to = open_own(log, os.O_WRONLY | os.O_APPEND, 0o600)
    for descriptor, target in ((null, 0), (to, 1), (to, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(to)
