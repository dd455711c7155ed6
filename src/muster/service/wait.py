"""Wait until a run has ended or is suspended, and warn of what may prevent that."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from math import inf

from muster.api.streams import Notice, RunItem
from muster.control import lease, run_lock
from muster.control.recover import why_not_here
from muster.control.supervisor_check import SupervisorCheck
from muster.errors import EngineError, HomeGone, StoreError
from muster.lifecycle.states import AT_REST
from muster.service.context import Context
from muster.service.recovery import recover_now
from muster.storage.liveness import has_supervisor, wait_for_end, wait_for_process
from muster.store.records import RunSummary

#: Seconds in which a supervisor that has closed the liveness pipe releases its lock.
_RELEASE_TIMEOUT = 1.0
#: Seconds between looks at a lock that another process holds: the kernel does not notify others
#: when a lock is released.
_LEASE_INTERVAL = 0.02
#: Seconds between looks at a run that a process on another host drives.
_ELSEWHERE_INTERVAL = 1.0


def watch(
    context: Context, run_id: str, timeout: float | None, every: float | None
) -> Generator[RunItem | Notice]:
    """Wait until a run has ended or is suspended. See `MusterAPI.watch`.

    Recovers the run if its supervisor is killed meanwhile.
    """
    deadline = inf if timeout is None else time.monotonic() + timeout
    check, interval = new_check(context, run_id), inf if every is None else every
    while True:
        left = max(deadline - time.monotonic(), 0)
        run = None
        with suppress(TimeoutError):
            wait_for_end(context.home, run_id, min(left, check.due_in(), interval))
            run = recover_or_wait(context, run_id, deadline)
        if run is not None and run.state in AT_REST:
            yield RunItem(run)
            return
        if timeout is not None and time.monotonic() >= deadline:
            raise timed_out(context, run_id, timeout)
        yield from notices(context, check)
        if every is not None:
            yield RunItem(context.store.runs.summary(run_id))


def timed_out(context: Context, run_id: str, timeout: float) -> TimeoutError:
    """The error for a run that is in progress after `timeout` seconds."""
    name = context.store.runs.summary(run_id).name
    return TimeoutError(f"run {name} has not ended within {round(timeout, 2):g} s")


def recover_or_wait(context: Context, run_id: str, deadline: float = inf) -> RunSummary:
    """Return a run's summary once it has a supervisor, has ended or is suspended.

    Recovers the run if its supervisor was killed; while another process does so, waits for that
    one until `deadline` (time.monotonic()). If its supervisor is on another host, returns after a
    moment.
    """
    folder = context.home.run_dir(run_id)
    while True:
        run = context.store.runs.summary(run_id)
        if run.state in AT_REST or has_supervisor(context.home, run_id):
            return run
        _check_recoverable(context, run)
        pid = run_lock.last_holder(folder.lock)
        if recover_now(context.backend):
            continue
        if lease.other_host(context.store, run_id):
            time.sleep(min(_ELSEWHERE_INTERVAL, max(0.0, deadline - time.monotonic())))
            return context.store.runs.summary(run_id)
        _check_recoverable_here(context, run)
        if time.monotonic() >= deadline:
            return run
        # either the supervisor closed the liveness pipe and has not yet released its lock, or
        # another process is recovering the run
        if pid is not None:
            wait_for_process(pid, min(_RELEASE_TIMEOUT, deadline - time.monotonic()))
        if run_lock.is_held(folder.lock):
            time.sleep(_LEASE_INTERVAL)


def _check_recoverable(context: Context, run: RunSummary) -> None:
    if context.store.replaced:
        raise HomeGone(
            f"{context.home.root} was deleted or moved away while {run.name} was running: "
            "Muster ended its processes and records nothing more of it"
        )
    if context.home.read_only():
        raise StoreError(
            f"{run.name} is {run.state}, but its supervisor has ended, and {context.home.root} "
            "is read-only: to record the run's end, copy it to a folder you can write to, "
            "and set MUSTER_HOME to the copy"
        )


def _check_recoverable_here(context: Context, run: RunSummary) -> None:
    """Raise EngineError if a run without a supervisor is left alone here."""
    if objection := why_not_here(context.store, context.home, run.id):
        why = f"{run.name} is {run.state}, but its supervisor has ended, and it cannot be recovered"
        raise EngineError(f"{why} here: {objection}")


def new_check(context: Context, run_id: str) -> SupervisorCheck:
    """A check of whether the supervisor of a run answers."""
    folder, name = context.home.run_dir(run_id), context.store.runs.summary(run_id).name
    return SupervisorCheck(folder, name, partial(lease.of_other_host, context.store, run_id))


def notices(context: Context, check: SupervisorCheck) -> Iterator[Notice]:
    """What is to be said now: that the supervisor of a run does not answer, that the disk is
    full."""
    if text := check.check():
        yield Notice("not_answering", text)
    if text := context.backend.space_warning():
        yield Notice("low_space", text)
