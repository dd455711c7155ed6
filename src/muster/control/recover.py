"""Recovery of runs whose supervisor has ended before they did: the next command restarts them by
their policy, or records their end."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from muster.control import lease, run_lock, stored_submission
from muster.control.clean_up import clean_up_soon, is_under_way
from muster.errors import EngineError, InvalidInput, NotRecovered, Problem, StoreError
from muster.lifecycle.states import RunState
from muster.storage.home import Home, RunDir
from muster.storage.liveness import has_supervisor, wait_for_process
from muster.storage.owners import account_of_run
from muster.store.records import CorruptRecord, Lease, LeaseLost, RunSummary
from muster.submission import Submission
from muster.unix_account import acting_as, as_root

if TYPE_CHECKING:
    from muster.store.base import Store

#: A run that loses this many supervisors in a row before any node starts is ended. One whose nodes
#: outlive their supervisors is ended when it loses one more within `_SOON` seconds, and no state of
#: a node has changed meanwhile.
MAX_LOST_SUPERVISORS = 3
_SOON = 600.0

NEVER_STARTED = "the run was accepted, but its supervisor never started; start the run again"
SUPERVISOR_KILLED = "the run's supervisor was killed, and every process of the run with it"
SUPERVISOR_REPLACED = "its supervisor has ended; another one takes over, and its nodes keep running"
SUPERVISOR_STARTED_LATE = "the run was accepted, but its supervisor never started; another one does"
LOST_REPEATEDLY = (
    f"the run lost {MAX_LOST_SUPERVISORS + 1} supervisors within {_SOON / 60:g} minutes; "
    "supervisor.log in its folder may say why"
)

#: Starts a supervisor for a run: (the run's lease, its engine, descriptors of its lock and its
#: liveness pipe, what its nodes start from). Raises EngineError: the run has failed then.
StartSupervisor = Callable[[Lease, str, tuple[int, int], Submission], None]


def recover(store: Store, home: Home, start_supervisor: StartSupervisor) -> list[str]:
    """Recover every run that should have a supervisor and has none. Returns their ids.

    Runs that cannot be recovered here are left alone, with a warning (NotRecovered).
    """
    recovered = []
    # a suspended run is among them if its supervisor was killed before it saw a request to cancel
    for run_id in store.runs.needing_supervisor():
        try:
            with acting_as(account_of_run(home.run_dir(run_id))):
                found = _recover(store, home, run_id, start_supervisor)
            if found:
                recovered.append(run_id)
        except StoreError:
            raise
        except EngineError as error:
            name = store.runs.summary(run_id).name
            text = f"{name} has lost its supervisor, and is not recovered yet: {error}"
            warnings.warn(text, NotRecovered, stacklevel=2)
        except Exception as error:  # noqa: BLE001  of an engine: the other runs are recovered
            name = store.runs.summary(run_id).name
            text = f"{name} has lost its supervisor, and recovering it fails: {error!r}"
            warnings.warn(text, NotRecovered, stacklevel=2)
    return recovered


def _recover(store: Store, home: Home, run_id: str, start_supervisor: StartSupervisor) -> bool:
    """Recover one run. False if it has a supervisor, perhaps on another host, another process is
    recovering it, or it cannot be recovered here."""
    folder = home.run_dir(run_id)
    if not folder.path.is_dir():
        why = f"{folder.path} was deleted while the run was in progress"
        return _take_and_break(store, home, run_id, why)
    if (replaced := _find_replaced_file(folder)) is not None:
        if _has_supervisor(home, folder, run_id):
            return False
        why = f"{replaced} was replaced by something else during the run"
        return _take_and_break(store, home, run_id, why)
    held = run_lock.acquire(folder.lock)
    if held is None:
        return False
    try:
        pid = run_lock.last_holder(folder.lock)
        if pid is not None and run_lock.is_supervisor(pid, folder) is not False:
            # a process closes its files a moment before its PID namespace is emptied
            wait_for_process(pid, run_lock.EXIT_TIMEOUT)
            if run_lock.is_supervisor(pid, folder):
                name = store.runs.summary(run_id).name
                text = f"{name} is left alone: process {pid} drives it in a copy of {home.root}"
                warnings.warn(text, NotRecovered, stacklevel=2)
                return False
        own = _take(store, home, run_id)
        if own is None:
            return False
        why = NEVER_STARTED if pid is None else SUPERVISOR_KILLED
        try:
            _continue(store, home, own, held, why, start_supervisor)
        except EngineError:
            # recorded with the run, unless its nodes outlive supervisors and could not be ended
            if not RunState(store.runs.summary(run_id).state).at_rest:
                raise
        return True
    finally:
        os.close(held)


def adopt(store: Store, home: Home, run_id: str, start_supervisor: StartSupervisor) -> None:
    """Take a run from another host, which a user says is gone, and continue it here by its policy.

    Raises InvalidInput if no process of another host drives the run, one of them still holds its
    lock, or it cannot run here; EngineError as `start_supervisor`.
    """
    folder, run = home.run_dir(run_id), store.runs.summary(run_id)
    host = lease.other_host(store, run_id)
    if not host:
        raise InvalidInput(_not_to_adopt(run))
    if not folder.path.is_dir():
        text = f"the files of {run.name} are not on this host: {folder.path} does not exist"
        raise InvalidInput(Problem("", text, f"share or copy MUSTER_HOME of {host}"))
    if objection := why_not_here(store, home, run_id):
        raise InvalidInput(Problem("", f"{run.name} cannot continue here: {objection}"))
    held = run_lock.acquire(folder.lock)
    if held is None:
        text = f"a process on {host} still drives {run.name}: it holds {folder.lock}"
        hint = f"if {host} is gone, its file server releases the lock after a while; try again"
        raise InvalidInput(Problem("", text, hint))
    try:
        own = lease.take_alone(store, run_id, force=True)
        why = f"a user adopted the run, because host {host} is gone"
        _continue(store, home, own, held, why, start_supervisor)
    finally:
        os.close(held)


def _not_to_adopt(run: RunSummary) -> Problem:
    """Why a run that no process of another host drives is not to be adopted."""
    state = RunState(run.state)
    if state.terminal:
        hint = f"`muster run {run.job_name}` starts its job again"
        return Problem("", f"{run.name} has ended: it is {state}", hint)
    if state is RunState.SUSPENDED:
        hint = f"`muster runs resume {run.name}` continues it here"
        return Problem("", f"no host drives {run.name}: it is {state}", hint)
    hint = f"`muster status {run.name}` shows how far it is"
    return Problem("", f"{run.name} need not be adopted: it runs here", hint)


def why_not_here(store: Store, home: Home, run_id: str) -> str:
    """Why a run cannot continue here, though another process may continue it: its engine is not
    installed, the key of its secrets is missing, or this shell allows too few open files. Empty if
    it can."""
    # imported here: every command looks for runs to recover, few commands find one
    from muster.control.persist import plan_to_run
    from muster.control.replicas import desired_replicas
    from muster.engines.registry import engine_named

    try:
        engine = engine_named(store.runs.summary(run_id).engine, home)
        if not store.runs.pending_requests(run_id).cancel:  # its end needs no secrets
            stored_submission.read(home, run_id)
            record = store.runs.get(run_id)
            plan = plan_to_run(home, record)
            return engine.lacking_here(plan, desired_replicas(record, plan))
    except CorruptRecord:
        return ""  # recovery ends it
    except InvalidInput as error:
        return str(error)
    return ""


def _take(store: Store, home: Home, run_id: str) -> Lease | None:
    """Take the lease of a run without a supervisor here. None if it may have one on another host,
    or cannot continue here, which is warned of."""
    if lease.other_host(store, run_id):
        return None
    if objection := why_not_here(store, home, run_id):
        name = store.runs.summary(run_id).name
        text = f"{name} has lost its supervisor, and cannot be recovered here: {objection}"
        warnings.warn(text, NotRecovered, stacklevel=2)
        return None
    return lease.take(store, run_id)


def _take_and_break(store: Store, home: Home, run_id: str, why: str) -> bool:
    """End a run without a supervisor. False if that is not possible here."""
    own = _take(store, home, run_id)
    if own is None:
        return False
    record_broken(store, home, own, why, soon=True)
    store.leases.release(own)
    return True


def _continue(
    store: Store,
    home: Home,
    own: Lease,
    lock: int,
    why: str,
    start_supervisor: StartSupervisor,
) -> None:
    """Record the loss of the supervisor, and start another one if the policy restarts the run, or
    its nodes have outlived the one before.

    own: the run's lease, which goes to the supervisor, or is released. lock: the descriptor of the
    run's lock. why: as of SupervisorLost. Raises EngineError as `start_supervisor`, and if nodes
    that outlive supervisors could not be ended: the run is still in progress then.
    """
    folder = home.run_dir(own.run_id)
    try:
        # processes that wait for the run's end wait for this descriptor to be closed
        with as_root():
            liveness = os.open(folder.liveness_pipe, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # the submit was interrupted
        liveness = -1
    try:
        record_lost(store, home, own, why)
        run = store.runs.get(own.run_id)
        in_progress = not RunState(run.state).at_rest
        if in_progress and liveness < 0:
            _end_unattended(store, home, own, run.engine)
        elif in_progress:
            submission = stored_submission.read(home, own.run_id)
            if submission is None:
                text = f"the run's environment cannot be read from {folder.environ} any more"
                record_broken(store, home, own, f"{text}; start the run again", soon=True)
            else:
                start_supervisor(own, run.engine, (lock, liveness), submission)
    except CorruptRecord as error:  # the other runs still have to be recovered
        store.runs.end_corrupt(own, str(error), time.time())
    finally:
        state = RunState(store.runs.summary(own.run_id).state)
        if state.terminal:
            stored_submission.delete(folder)
        if state.at_rest:
            store.leases.release(own)
        if liveness >= 0:
            os.close(liveness)


def _end_unattended(store: Store, home: Home, own: Lease, engine: str) -> None:
    """End a run whose nodes outlive their supervisor, and which can have no other one. Others are
    ended when they have lost too many. Raises as `record_broken`."""
    from muster.engines.registry import engine_named

    if engine_named(engine, home).capabilities.detached:
        pipe = home.run_dir(own.run_id).liveness_pipe
        why = f"{pipe} was deleted while the run was in progress"
        record_broken(store, home, own, why, soon=True)


def _find_replaced_file(folder: RunDir) -> Path | None:
    """The lock or liveness pipe, if a program has replaced it, by a folder for instance."""
    if os.path.lexists(folder.lock) and not folder.lock.is_file():
        return folder.lock
    if os.path.lexists(folder.liveness_pipe) and not folder.liveness_pipe.is_fifo():
        return folder.liveness_pipe
    return None


def _has_supervisor(home: Home, folder: RunDir, run_id: str) -> bool:
    """Whether a run has a supervisor, when one of lock and liveness pipe was replaced."""
    if folder.lock.is_file() and run_lock.is_held(folder.lock):
        return True
    return has_supervisor(home, run_id)


def record_lost(store: Store, home: Home, own: Lease, why: str) -> None:
    """Record that a run's supervisor and nodes are lost, and what follows by its policy. Pending
    requests are applied in the same step, and what the next supervisor needs is reserved again.
    Nothing if the run has ended. Raises CorruptRecord, and InvalidInput if the run's engine is not
    installed here; EngineError as `clean_up_soon`.

    Where nodes outlive their supervisor, nothing is lost: the run's status stays as it is, and the
    next supervisor attaches to them, and applies requests.
    """
    from muster.engines.registry import engine_named

    run_id = own.run_id
    run = store.runs.summary(run_id)
    engine = engine_named(run.engine, home)
    if engine.capabilities.detached and not RunState(run.state).at_rest:
        try:
            _record_replaced(store, home, own, why)
        except CorruptRecord:  # nobody can attach to its nodes
            clean_up_soon(engine, run_id)
            raise
        return
    clean_up_soon(engine, run_id)
    record = store.runs.get(run_id)
    if RunState(record.state).terminal:
        return
    from muster.control.ledger import StoreLedger
    from muster.control.persist import plan_of
    from muster.control.reserve import reserve_again
    from muster.control.runs_before import waits_for
    from muster.control.unsupervised_steps import record_step
    from muster.engines import admission
    from muster.lifecycle.events import Event, RunAdmitted, RunBroken, RunQueued, SupervisorLost
    from muster.lifecycle.status import NodeRef

    plan, folder = plan_of(record), home.run_dir(run_id)
    ledger = StoreLedger(store, plan, own, folder)
    before = ledger.load()
    refs = [NodeRef(rank, node.incarnation) for rank, node in enumerate(before.nodes) if node.alive]
    facts: list[Event] = [*ledger.requests()]
    started = engine.started_ranks(folder, refs)
    lost, handed_over = (
        store.events.count_since_last_node_entry(run_id, kind)
        for kind in ("supervisor_lost", "handed_over")
    )
    queued = before.state is RunState.QUEUED  # many may be lost while it waits, as in reboots
    if not started and not queued and lost - handed_over >= MAX_LOST_SUPERVISORS:
        facts.append(RunBroken(why))
    else:
        facts.append(SupervisorLost(why, started))
        lacking = reserve_again(store, home, record, plan)
        waits = admission.describe(lacking) if lacking else waits_for(store, plan)
        facts.append(RunQueued(waits) if waits else RunAdmitted())
    record_step(store, plan, ledger, before, facts)


def _record_replaced(store: Store, home: Home, own: Lease, why: str) -> None:
    """Record that a run whose nodes keep running gets another supervisor; or end it, if it has
    lost too many. Raises as `record_lost`, and EngineError."""
    from muster.control.clock import SteadyClock
    from muster.control.controller import Record
    from muster.control.ledger import StoreLedger
    from muster.control.persist import plan_of
    from muster.lifecycle.effects import Entry

    events = store.events
    now = SteadyClock(events.last_time(own.run_id)).now()
    replaced, handed_over = (
        events.count_since_last_node_entry(own.run_id, kind, now - _SOON)
        for kind in ("supervisor_replaced", "handed_over")
    )
    # its nodes are not attached to while they are being ended
    if replaced - handed_over >= MAX_LOST_SUPERVISORS or is_under_way(own.run_id):
        record_broken(store, home, own, LOST_REPEATEDLY, soon=True)
        return
    plan, folder = plan_of(store.runs.get(own.run_id)), home.run_dir(own.run_id)
    ledger = StoreLedger(store, plan, own, folder)
    status = ledger.load()
    texts = {SUPERVISOR_KILLED: SUPERVISOR_REPLACED, NEVER_STARTED: SUPERVISOR_STARTED_LATE}
    entry = Entry("supervisor_replaced", {"why": texts.get(why, why)})
    ledger.record(Record(status, status, (entry,), now))


def record_broken(store: Store, home: Home, own: Lease, why: str, *, soon: bool = False) -> None:
    """End a run that cannot continue under any policy. soon: in a command that is about something
    else. Raises LeaseLost, EngineError as `Engine.clean_up` or `clean_up_soon`."""
    from muster.engines.registry import find_engine

    engine = find_engine(store.runs.summary(own.run_id).engine, home)
    if engine is not None:  # without it, no supervisor was started
        if engine.capabilities.detached:
            _check_lease(store, own)  # its nodes may be those of another supervisor
        if soon:
            clean_up_soon(engine, own.run_id)
        else:
            engine.clean_up(own.run_id)
    try:
        _record_broken(store, home.run_dir(own.run_id), own, why)
    except CorruptRecord as error:
        text = why if why == str(error) else f"{why}; {error}"
        store.runs.end_corrupt(own, text, time.time())


def _check_lease(store: Store, own: Lease) -> None:
    """Raises LeaseLost if another process has the lease of the run."""
    found = store.leases.get(own.run_id)
    if found is None or (found.owner, found.token) != (own.owner, own.token):
        raise LeaseLost(own, found)


def _record_broken(store: Store, folder: RunDir, own: Lease, why: str) -> None:
    run = store.runs.get(own.run_id)
    if RunState(run.state).terminal:
        return
    from muster.control.ledger import StoreLedger
    from muster.control.persist import plan_of
    from muster.control.unsupervised_steps import record_step
    from muster.lifecycle.events import RunBroken

    plan = plan_of(run)
    ledger = StoreLedger(store, plan, own, folder)
    record_step(store, plan, ledger, ledger.load(), [*ledger.requests(), RunBroken(why)])
