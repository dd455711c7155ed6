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
from muster.control.controller import Controller
from muster.control.persist import status_of
from muster.control.recover import record_loss
from muster.engines.base import RunContext
from muster.engines.local.engine import LocalEngine
from muster.engines.local.isolation import Isolation
from muster.errors import MusterError
from muster.lifecycle.states import RunState
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.storage.notify import Watcher
from muster.store import runs
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
    import muster.engines.local.session  # noqa: F401

    RunPlan.warm()
    Watcher().close()


def supervise(assignment: Assignment, isolation: Isolation) -> None:
    """Drive the run to its end. Whatever goes wrong is recorded with the run."""
    database = Database.open(assignment.home.database)
    try:
        _drive(database, assignment, isolation)
    except MusterError as error:
        record_loss(database, assignment.run_id, str(error))
    except Exception as error:  # noqa: BLE001  a defect of ours must not leave the run hanging
        traceback.print_exc()
        log = assignment.home.run_dir(assignment.run_id).supervisor_log
        text = f"internal error of Muster: {error!r}; please report it with {log}"
        record_loss(database, assignment.run_id, text)
    if RunState(runs.get(database, assignment.run_id).state).terminal:
        os.close(assignment.life)  # else it ends with us: nobody is told of an outcome there is not


def _drive(database: Database, assignment: Assignment, isolation: Isolation) -> None:
    record = runs.get(database, assignment.run_id)
    plan = RunPlan.from_json(record.plan)
    status = status_of(record, runs.nodes(database, assignment.run_id))
    attention = bell.attend(assignment.home.run_dir(assignment.run_id).bell)
    told = _hear_signals(attention)
    context = RunContext(
        plan, status.attempt, assignment.home, assignment.environ, assignment.python
    )
    session = LocalEngine(isolation).open(context)
    try:
        Controller(database, plan, session, status, attention, told).run()
    finally:
        session.close()
        session.seal()


def _hear_signals(attention: int) -> _Told:
    """SIGTERM (somebody, or a machine going down) cancels the run instead of cutting it off."""
    told = _Told()

    def on_signal(number: int, _frame: object) -> None:
        told.why = f"the run's supervisor was told to end (signal {number})"
        os.write(attention, b"!")

    signal.signal(signal.SIGTERM, on_signal)
    return told


class _Told:
    """Why we were told to end, or ""."""

    why = ""

    def __call__(self) -> str:
        return self.why


def detach(log: Path) -> None:
    """Let go of the terminal and the submitter's files: what we say goes to the log."""
    null = os.open(os.devnull, os.O_RDWR)
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, target in ((null, 0), (to, 1), (to, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(to)
