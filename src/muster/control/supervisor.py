"""The supervisor: the process that drives a run from start to end.

It holds the run's lease. Where the machine allows it, the supervisor is PID 1 of the run's PID
namespace, so that the kernel kills every process of the run when the supervisor dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.control import drive, stored_submission
from muster.control.clock import SteadyClock
from muster.control.ledger import StoreLedger
from muster.control.persist import plan_to_run
from muster.control.recover import record_broken
from muster.engines.base import Engine, RunContext
from muster.engines.loop import EventLoop
from muster.errors import HomeGone, MusterError, StoreError, shortage_from
from muster.file_system import file_system_of
from muster.lifecycle.events import HandOverRequested
from muster.lifecycle.policy import Strategy
from muster.lifecycle.states import RunState
from muster.node.files import open_or_replace
from muster.plan.model import RunPlan
from muster.secrets import print_traceback
from muster.storage import wakeup
from muster.storage.file_watch import RemovalWatcher, Watcher
from muster.storage.home import Home
from muster.store.records import Lease, LeaseLost
from muster.store.run_columns import lifecycle_of
from muster.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from muster.store.base import Store

#: Seconds between looks at what processes of other hosts have requested.
_LOOK_INTERVAL = 1.0


class Assignment(Struct, frozen=True):
    """The run that a supervisor drives, and what its nodes start from (see `RunContext`)."""

    home: Home
    lease: Lease
    environ: Mapping[str, str]
    python: str
    liveness: int
    """Descriptor of the liveness pipe, closed when the outcome is recorded (`storage.liveness`)."""


def warm(engine: Engine) -> None:
    """Import the modules and compile the decoders that a supervisor needs, before the fork."""
    # imported here too, since a supervisor without open files left must be able to record the end
    import muster.control.unsupervised_steps  # noqa: F401

    engine.warm()
    RunPlan.warm()
    Watcher().close()


def supervise(assignment: Assignment, engine: Engine) -> None:
    """Drive the run until it has ended or is suspended. Errors are recorded with the run."""
    store = SqliteStore.open(assignment.home.database)
    lease, folder = assignment.lease, assignment.home.run_dir(assignment.lease.run_id)
    try:
        if _drive(store, assignment, engine):
            # waiting processes notice when this one exits. The lease stays: the next command on
            # this host may take it then, and another host has to adopt the run
            return
    except LeaseLost as error:
        print(error, file=sys.stderr)  # noqa: T201  supervisor.log
        return  # the run is another process's now
    except HomeGone as error:
        if store.replaced:
            print(error, file=sys.stderr)  # noqa: T201  the log was probably deleted, too
            return  # there is no record to end; waiting processes notice that themselves
        record_broken(store, folder, lease, str(error))
    except MusterError as error:
        record_broken(store, folder, lease, str(error))
    except OSError as error:  # for instance, if a program has replaced a file by a folder
        print_traceback()
        text = f"its supervisor cannot continue: {error} (see {folder.supervisor_log})"
        record_broken(store, folder, lease, str(shortage_from(error) or text))
    except Exception as error:  # noqa: BLE001  an internal error must not leave the run without an end
        print_traceback()
        text = f"internal error of Muster: {error!r}; please report it with {folder.supervisor_log}"
        record_broken(store, folder, lease, text)
    state = RunState(store.runs.summary(lease.run_id).state)
    if state.terminal:
        stored_submission.delete(folder)
    if state.at_rest:
        # otherwise it is closed at exit: there is no outcome to wait for
        os.close(assignment.liveness)
        with contextlib.suppress(StoreError):  # then only a process on this host may take it
            store.leases.release(lease)
    if state.terminal and assignment.home.config.exists():
        _delete_old_runs(store, assignment.home)


def _delete_old_runs(store: Store, home: Home) -> None:
    """Apply the retention in the configuration. Nobody waits for this process any more."""
    from muster.control.retention import apply_retention

    try:
        apply_retention(store, home)
    except (MusterError, OSError) as error:
        print(f"old runs were not deleted: {error}", file=sys.stderr)  # noqa: T201  supervisor.log


def _drive(store: Store, assignment: Assignment, engine: Engine) -> bool:
    """Drive the run until it is at rest, or handed over. Whether it is handed over."""
    run_id, home = assignment.lease.run_id, assignment.home
    record = store.runs.get(run_id)
    plan = plan_to_run(home, record)
    signals = _Signals(store, assignment)
    keep = plan.policy.strategy is Strategy.IN_PLACE and plan.policy.restarts
    resumes = lifecycle_of(record).resumes
    started = record.started_at or time.time()
    context = RunContext(plan, home, assignment.environ, assignment.python, keep, resumes, started)
    loop = EventLoop()
    driver = drive.Driver(loop)
    run = driver.add(
        drive.RunParts(
            policy=plan.policy,
            ledger=StoreLedger(store, plan, assignment.lease, home.run_dir(run_id)),
            clock=SteadyClock(store.events.last_time(run_id)),
            open=partial(engine.open, context),
            requests=signals.requests,
        )
    )
    signals.watch(loop, run.wake)
    driver.drive()
    assert run.outcome is not None  # it is driven no more
    if run.outcome.error is not None:
        raise run.outcome.error
    return run.outcome.handed_over


class _Signals:
    """What a supervisor watches besides its nodes: its wakeup FIFO, SIGTERM, and whether the files
    of the run still exist.

    Where other hosts may use MUSTER_HOME, it looks every second: their processes cannot wake it,
    and one may have adopted the run.
    """

    def __init__(self, store: Store, assignment: Assignment) -> None:
        home, folder = assignment.home, assignment.home.run_dir(assignment.lease.run_id)
        self._store = store
        self._lease = assignment.lease
        self._shared = file_system_of(home.root).shared
        self._check_lease = False
        self._wakeup = wakeup.open(folder.wakeup)
        self._why = ""
        paths = (home.database, folder.lock, folder.path, home.runs, home.root)
        self._presence = RemovalWatcher(paths)
        signal.signal(signal.SIGTERM, self._terminate)

    def watch(self, loop: EventLoop, attend: Callable[[], None]) -> None:
        """Call `attend` when `requests` has to be called."""

        def look(_: object) -> None:
            if self._shared:
                self._check_lease = True
                participant.wake_at(loop.now() + _LOOK_INTERVAL)
            wakeup.drain(self._wakeup)  # later requests make it readable again
            attend()

        participant = loop.add(look)
        if self._shared:
            participant.notify()
        for descriptor in (self._wakeup, self._presence.fileno()):
            if descriptor is not None:
                participant.watch(descriptor)

    def requests(self) -> list[HandOverRequested]:
        """A request to hand over after SIGTERM. Raises HomeGone if a file of the run is missing,
        LeaseLost if another process has taken the lease, StoreBusy."""
        missing = self._presence.missing()
        if missing is not None:
            raise HomeGone(f"{missing} was deleted or moved away while the run was running")
        if self._check_lease:
            found = self._store.leases.get(self._lease.run_id)
            self._check_lease = False
            if found != self._lease:
                raise LeaseLost(self._lease, found)
        return [HandOverRequested(self._why)] if self._why else []

    def _terminate(self, number: int, _frame: object) -> None:
        """SIGTERM, from a user or at shutdown of the machine: end the nodes in order, and leave the
        run to the next process."""
        name = signal.Signals(number).name
        self._why = f"the run's supervisor received {name}, stopped all nodes and exited"
        with contextlib.suppress(BlockingIOError):  # it is full of notifications
            os.write(self._wakeup, b"!")


def detach(log: Path) -> None:
    """Detach from the terminal and the submitter's files; output goes to the log."""
    null = os.open(os.devnull, os.O_RDWR)
    to = open_or_replace(log, os.O_WRONLY | os.O_APPEND, 0o600)
    for descriptor, target in ((null, 0), (to, 1), (to, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(to)
