"""The supervisor: the process that drives a run from start to end.

It holds the run's lease. Where the machine allows it, the supervisor is PID 1 of the run's PID
namespace, so that the kernel kills every process of the run when the supervisor dies. Runs that a
program starts soon after one another may share one (`shared_supervisor`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError, convert

from muster.control import drive, stored_submission
from muster.control.clock import SteadyClock
from muster.control.keeper import Keeper
from muster.control.ledger import StoreLedger
from muster.control.open_store import open_store
from muster.control.persist import plan_to_run
from muster.control.recover import record_broken
from muster.engines.base import Engine, Report, RunContext, Session
from muster.engines.loop import EventLoop, Participant, RunLoop
from muster.errors import HomeGone, MusterError, StoreBusy, StoreError, shortage_from
from muster.file_system import file_system_of
from muster.lifecycle.events import HandOverRequested
from muster.lifecycle.policy import Strategy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus, alive_nodes
from muster.node.file_watch import RemovalWatcher, Watcher
from muster.node.files import direct_output
from muster.plan.model import RunPlan
from muster.secrets import print_traceback, secret_lines
from muster.storage import wakeup
from muster.storage.home import Home
from muster.store.records import (
    EventRecord,
    Lease,
    LeaseLost,
    NodeRecord,
    RunRecord,
    RunSummary,
)
from muster.store.run_columns import Lifecycle, lifecycle_of
from muster.unix_account import UnixAccount, as_root

if TYPE_CHECKING:
    from muster.iam.run_checks import RunChecks
    from muster.store.base import Store


#: Seconds that a supervisor waits for the store when it starts. Later, it tries again.
DATABASE_TIMEOUT = 10.0
#: Seconds between looks for a run's files where the kernel does not notify of their removal.
_PRESENCE_INTERVAL = 1.0


class Assignment(Struct, frozen=True):
    """The run that a supervisor drives, and what its nodes start from (see `RunContext`)."""

    home: Home
    lease: Lease
    environ: Mapping[str, str]
    python: str
    #: The descriptor of the run's lock.
    lock: int
    #: That of the liveness pipe, closed when the outcome is recorded (`storage.liveness`).
    liveness: int
    account: UnixAccount | None = None

    @classmethod
    def of(cls, request: Mapping[str, Any], held: Sequence[int]) -> Assignment:
        """The assignment of a request to the launcher, and its descriptors."""
        home, lease = Home(Path(request["home"])), Lease(**request["lease"])
        given = request["account"]
        account = None if given is None else convert(given, UnixAccount)
        lock, liveness = held
        environ, python = request["environ"], request["python"]
        return cls(home, lease, environ, python, lock, liveness, account)


def warm(engine: Engine) -> None:
    """Import the modules and compile the decoders that a supervisor needs, before the fork."""
    # imported here too, since a supervisor without open files left must be able to record the end
    import muster.control.command_line
    import muster.control.unsupervised_steps  # noqa: F401

    engine.warm()
    for kind in (RunPlan, Lifecycle, RunRecord, NodeRecord, EventRecord, RunSummary):
        with contextlib.suppress(ValidationError):
            convert({}, kind)  # compiles the decoder
    Watcher().close()


def supervise(assignment: Assignment, engine: Engine) -> None:
    """Drive the run until it has ended or is suspended. Errors are recorded with the run."""
    store = open_store(assignment.home, timeout=DATABASE_TIMEOUT)
    loop = EventLoop()
    driver = drive.Driver(loop)
    keeper = make_keeper(store, assignment.home, loop)
    supervised = SupervisedRun(store, assignment, engine, keeper)
    signal.signal(signal.SIGTERM, lambda *_: supervised.terminate())
    supervised.begin(driver, loop)
    try:
        driver.drive()
    except Exception as error:  # noqa: BLE001  an internal error must not leave the run without an end
        supervised.fail(error)
    if supervised.conclude() and assignment.home.config.exists():
        delete_old_runs(store, assignment.home)


def make_keeper(store: Store, home: Home, loop: EventLoop) -> Keeper:
    """The keeper of the leases of a process."""
    return Keeper(store, loop, shared=file_system_of(home.root).shared)


@as_root()
def delete_old_runs(store: Store, home: Home) -> None:
    """Apply the retention in the configuration. Nobody waits for this process any more."""
    from muster.control.retention import apply_retention

    try:
        apply_retention(store, home)
    except (MusterError, OSError) as error:
        print(f"old runs were not deleted: {error}", file=sys.stderr)  # noqa: T201  supervisor.log


class SupervisedRun:
    """A run that this process drives: what it takes besides the driver, from its record to its end.

    alone: whether the process drives no other run.
    """

    def __init__(
        self,
        store: Store,
        assignment: Assignment,
        engine: Engine,
        keeper: Keeper,
        *,
        alone: bool = True,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._assignment = assignment
        self._engine = engine
        self._alone = alone
        self._folder = assignment.home.run_dir(assignment.lease.run_id)
        self._liveness = assignment.liveness
        self._why = ""  # why the run is to be handed over
        self._signals: _Signals | None = None
        self._run: drive.DrivenRun | None = None
        self._error: Exception | None = None
        self._found: RunStatus | None = None  # as recorded, if nodes may outlive their supervisor
        self._left = False  # whether nodes were left to the next process before any session

    @property
    def ended(self) -> bool:
        """Whether it is driven no more, and to be concluded."""
        return self._run is None or self._run.outcome is not None

    def begin(self, driver: drive.Driver, loop: EventLoop) -> None:
        """Begin to drive the run. If that fails, it has ended, or its nodes are left alone."""
        try:
            parts = self._parts()
            self._run = driver.add(parts)
            assert self._signals is not None  # by `_parts`
            self._signals.watch(loop, self._run.wake)
        except Exception as error:  # noqa: BLE001  recorded by `conclude`
            self._error = error
            self._left = self._found is not None and drive.leaves_nodes(error, self._found)

    def _parts(self) -> drive.RunParts:
        store, assignment = self._store, self._assignment
        run_id, home = assignment.lease.run_id, assignment.home
        record = store.runs.get(run_id)
        plan = plan_to_run(home, record)
        ledger = StoreLedger(store, plan, assignment.lease, self._folder)
        detached = self._engine.capabilities.detached
        self._signals = _Signals(assignment, self._keeper)
        recorded = self._found = ledger.load() if detached else None
        context = RunContext(
            plan,
            home,
            assignment.environ,
            assignment.python,
            keep=plan.policy.strategy is Strategy.IN_PLACE and plan.policy.restarts,
            resumes=lifecycle_of(record).resumes,
            started=record.started_at or time.time(),
            alive={} if recorded is None else alive_nodes(recorded),
            attempt=0 if recorded is None else recorded.attempt,
            native_restarts=0 if recorded is None else recorded.native_restarts,
            turn=assignment.lease.token,
            alone=self._alone,
            account=assignment.account,
            **self._checks(record, plan),
        )
        return drive.RunParts(
            policy=plan.policy,
            ledger=ledger,
            clock=SteadyClock(store.events.last_time(run_id)),
            open=self._opener(plan, context),
            requests=self._requests,
            detached=detached,
            secrets=secret_lines(plan.secrets.values()),
        )

    def _checks(self, record: RunRecord, plan: RunPlan) -> dict[str, Any]:
        """`RunContext.check_image` and `check_url`. Policies decide about runs that act as
        themselves."""
        if plan.principal is None:
            return {}

        def checks() -> RunChecks:
            from muster.iam.run_checks import checks_of  # few runs need it

            found = checks_of(self._store, record, plan)
            assert found is not None
            return found

        return {
            "check_image": lambda image: checks().image(image),
            "check_url": lambda url, written: checks().url(url, written),
        }

    def _opener(self, plan: RunPlan, context: RunContext) -> drive.OpenSession:
        """What opens the session of the run, when the runs before it have succeeded."""
        open_session = partial(self._engine.open, context)
        if not plan.after:
            return open_session
        from muster.control.runs_before import AwaitingSession  # few runs wait for others

        def open_later(loop: RunLoop, report: Report) -> Session:
            return AwaitingSession(self._store, context, loop, report, open_session)

        return open_later

    def _requests(self) -> list[HandOverRequested]:
        assert self._signals is not None  # by `_parts`
        self._signals.check()
        return [HandOverRequested(self._why)] if self._why else []

    def terminate(self) -> None:
        """SIGTERM, from a user or at shutdown of the machine: end the nodes in order, unless they
        are detached, and leave the run to the next process. Called by a signal handler."""
        why = "the run's supervisor received SIGTERM"
        detached = self._engine.capabilities.detached
        rest = "left its nodes and exited" if detached else "stopped all nodes and exited"
        self._why = f"{why}, {rest}"
        if self._signals is not None:
            self._signals.wake()

    def fail(self, error: Exception) -> None:
        """The run cannot be driven any more."""
        self._error = error

    def conclude(self) -> bool:
        """Record an error, and give up the run. Returns whether it has ended for good."""
        signals, self._signals = self._signals, None
        if signals is not None:
            signals.close()
        outcome = self._run.outcome if self._run is not None else None
        error = self._error or (outcome.error if outcome is not None else None)
        if outcome is not None and error is None and outcome.handed_over:
            # waiting processes notice when its descriptors are closed. The next command on this
            # host may take the lease then; on another host, if leases expire
            if self._store.leases.term is not None:
                with contextlib.suppress(StoreError):
                    self._store.leases.release(self._assignment.lease)
            return False
        left = self._left if outcome is None else outcome.left
        return (error is None or self._record(error, left=left)) and self._give_up()

    def release(self) -> None:
        """Close the run's descriptors, as the end of a process does. After `conclude`."""
        # who waits for the liveness pipe to be closed finds the lock free
        os.close(self._assignment.lock)
        if self._liveness >= 0:
            os.close(self._liveness)

    def _record(self, error: Exception, *, left: bool) -> bool:
        """Record an error with the run. left: whether its nodes are left to the next process.
        Returns False if the run is not this process's, or has no record any more."""
        store, folder, lease = self._store, self._folder, self._assignment.lease
        if not self._alone:
            with contextlib.suppress(OSError), as_root():  # its folder may be gone
                direct_output(folder.supervisor_log)
        if isinstance(error, LeaseLost):
            print(error, file=sys.stderr)  # noqa: T201  supervisor.log
            return False  # the run is another process's now
        if isinstance(error, StoreBusy):
            print(error, file=sys.stderr)  # noqa: T201  supervisor.log
            return False  # another process continues the run, when the store can be used
        if left:
            print_traceback(error)
            return False  # nothing of the run has failed
        if isinstance(error, HomeGone) and store.replaced:
            print(error, file=sys.stderr)  # noqa: T201  the log was probably deleted, too
            return False  # there is no record to end; waiting processes notice that themselves
        text = str(error)
        if not isinstance(error, MusterError):
            print_traceback(error)
            log = folder.supervisor_log
            text = f"internal error of Muster: {error!r}; please report it with {log}"
        if isinstance(error, OSError):  # for instance, if a program has replaced a file by a folder
            text = f"its supervisor cannot continue: {error} (see {folder.supervisor_log})"
            text = str(shortage_from(error) or text)
        try:
            record_broken(store, self._assignment.home, lease, text)
        except LeaseLost as lost:  # it learns that only now
            print(lost, file=sys.stderr)  # noqa: T201  supervisor.log
            return False
        return True

    def _give_up(self) -> bool:
        lease = self._assignment.lease
        state = RunState(self._store.runs.summary(lease.run_id).state)
        if state.terminal:
            stored_submission.delete(self._folder)
        if state.at_rest:
            # otherwise it is closed with the lock: there is no outcome to wait for
            os.close(self._liveness)
            self._liveness = -1
            with contextlib.suppress(StoreError):  # then only a process on this host may take it
                self._store.leases.release(lease)
        return state.terminal


class _Signals:
    """What a supervisor watches besides the nodes of a run: its wakeup FIFO, its lease, and whether
    its files still exist."""

    @as_root()
    def __init__(self, assignment: Assignment, keeper: Keeper) -> None:
        home, folder = assignment.home, assignment.home.run_dir(assignment.lease.run_id)
        self._keeper = keeper
        self._lease = assignment.lease
        self._wakeup = wakeup.open(folder.wakeup)
        paths = (home.records, folder.lock, folder.path, home.runs, home.root)
        self._presence = RemovalWatcher(paths)
        self._gone = False  # whether one of the files is
        self._participant: Participant | None = None

    def watch(self, loop: EventLoop, attend: Callable[[], None]) -> None:
        """Call `attend` when `check` has to be called, or there may be requests."""

        def look(ready: Mapping[int, int]) -> None:
            look_later()
            if not ready and self._presence.missing() is None:
                return  # a run that waits would look at all runs before it each time
            wakeup.drain(self._wakeup)  # later requests make it readable again
            attend()

        def look_later() -> None:
            # all processes of a user share the kernel's limit, so there may be no descriptor
            if self._presence.fileno() is None and not self._gone:
                participant.wake_at(loop.now() + _PRESENCE_INTERVAL)

        participant = self._participant = loop.add(look)
        self._keeper.keep(self._lease, attend)
        for descriptor in (self._wakeup, self._presence.fileno()):
            if descriptor is not None:
                participant.watch(descriptor)
        look_later()

    def check(self) -> None:
        """Raises HomeGone if a file of the run is missing, LeaseLost."""
        missing = self._presence.missing()
        if missing is not None:
            descriptor = self._presence.fileno()
            self._gone = True
            if self._participant is not None:
                # nobody reads it any more, while the session takes its time to close
                if descriptor is not None:
                    self._participant.unwatch(descriptor)
                self._participant.wake_at(None)
            raise HomeGone(f"{missing} was deleted or moved away while the run was running")
        self._keeper.check(self._lease.run_id)

    def wake(self) -> None:
        """Have `attend` called. For signal handlers."""
        with contextlib.suppress(BlockingIOError):  # it is full of notifications
            os.write(self._wakeup, b"!")

    def close(self) -> None:
        """Watch nothing more."""
        self._keeper.drop(self._lease.run_id)
        if self._participant is not None:
            self._participant.close()
        self._presence.close()
        os.close(self._wakeup)


def detach(log: Path) -> None:
    """Detach from the terminal and the submitter's files; output goes to the log."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    direct_output(log)
