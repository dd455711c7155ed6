"""Runs whose supervisor is gone: whoever notices first has them go on, or records their end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.control import lease
from muster.control.watch import end_of_life, wait_for_process
from muster.lifecycle.states import RunState
from muster.node.files import read_regular, replace_file
from muster.storage.home import Home, RunDir
from muster.store import events, runs
from muster.store.database import Database
from muster.store.records import CorruptRecord, RunRecord, RunSummary

_DYING = 5.0  # seconds; by then the number is somebody else's
#: A run that lost so many supervisors in a row, with nothing of it started, is given up.
_HOPELESS = 3

NEVER = "the run was accepted, but its supervisor never came up; start it again"
WHY = "the run's supervisor was killed, and every process of the run with it"

#: Has a supervisor started: run id, (lease, life), the environment its nodes start from.
Launch = Callable[[str, tuple[int, int], Mapping[str, str]], None]


def recover(db: Database, home: Home, launch: Launch) -> list[str]:
    """Take up every run that says it lives but that nobody drives. Returns their ids."""
    return [run.id for run in runs.live(db) if _take_up_if_lost(db, home, run, launch)]


def _take_up_if_lost(db: Database, home: Home, run: RunSummary, launch: Launch) -> bool:
    try:
        # a supervisor may have died when its run was suspended, before it heard of a cancel
        if run.state == RunState.SUSPENDED and not runs.requests(db, run.id).cancel:
            return False
        return _take_up(db, home, run.id, launch)
    except CorruptRecord:  # of a suspended run: nobody waits for it, and who asks for it is told
        return False


def _take_up(db: Database, home: Home, run_id: str, launch: Launch) -> bool:
    folder = home.run_dir(run_id)
    if not folder.path.is_dir():
        record_broken(db, folder, run_id, f"{folder.path} was deleted while the run was going")
        return True
    if (replaced := _replaced(folder)) is not None:
        if _driven(home, folder, run_id):
            return False
        record_broken(
            db, folder, run_id, f"{replaced} was replaced by something else during the run"
        )
        return True
    held = lease.acquire(folder.lease)
    if held is None:
        return False  # somebody drives it, or takes it up
    try:
        # whoever waits for the run while we hold its lease waits for this to be let go of
        life = os.open(folder.life, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # its acceptance was cut short
        life = -1
    try:
        pid = lease.holder(folder.lease)
        if pid is not None:
            # a dying process lets go of its files a moment before its namespace is emptied
            wait_for_process(pid, _DYING)
        why = WHY if pid is not None else NEVER
        try:
            if not lose(db, folder, run_id, why):
                return False
            state = RunState(runs.get(db, run_id).state)
            if state.terminal:
                forget_environ(folder.environ)
            elif not state.at_rest and life >= 0:
                launch(run_id, (held, life), _environ(folder.environ))
        except CorruptRecord as error:  # it must not be in the way of the others, nor of who waits
            runs.end_corrupt(db, run_id, str(error))
        return True
    finally:
        os.close(held)
        if life >= 0:
            os.close(life)


def _replaced(folder: RunDir) -> Path | None:
    """Which of those that tell who drives a run a program has replaced by a folder, say."""
    if os.path.lexists(folder.lease) and not folder.lease.is_file():
        return folder.lease
    if os.path.lexists(folder.life) and not folder.life.is_fifo():
        return folder.life
    return None


def _driven(home: Home, folder: RunDir, run_id: str) -> bool:
    """Whether somebody drives a run, by what is left of those that tell."""
    if folder.lease.is_file() and lease.held(folder.lease):
        return True
    life = end_of_life(home, run_id)
    if life is not None:
        os.close(life)
    return life is not None


def lose(db: Database, folder: RunDir, run_id: str, why: str) -> bool:
    """Record that a run's nodes went with its supervisor, and what follows from that by its
    policy; False if it has ended already. A cancel that nobody heard is honoured. Raises
    CorruptRecord."""
    # imported here: every command looks for such runs, hardly any finds one
    from muster.engines.local import cgroups

    cgroups.sweep(run_id)
    record = runs.get(db, run_id)
    if RunState(record.state).terminal:
        return False
    from muster.control.ledger import StoreLedger
    from muster.control.persist import plan_of
    from muster.control.step import step
    from muster.engines.local.begun import begun
    from muster.lifecycle.events import Event, RunBroken, SupervisorLost
    from muster.lifecycle.status import NodeRef

    plan = plan_of(record)
    ledger = StoreLedger(db, plan, folder)
    before = ledger.load()
    refs = [NodeRef(rank, node.incarnation) for rank, node in enumerate(before.nodes) if node.alive]
    told: list[Event] = [*ledger.requests()]
    had_begun = begun(folder, refs)
    if not had_begun and events.count(db, run_id, "supervisor_lost") >= _HOPELESS:
        told.append(RunBroken(why))
    else:
        told.append(SupervisorLost(why, had_begun))
    step(db, plan, ledger, before, told)
    return True


def record_broken(db: Database, folder: RunDir, run_id: str, why: str) -> None:
    """Record the end of a run that cannot go on, whatever its policy says."""
    from muster.engines.local import cgroups

    cgroups.sweep(run_id)
    try:
        _record_broken(db, folder, runs.get(db, run_id), why)
    except CorruptRecord as error:
        runs.end_corrupt(db, run_id, why if why == str(error) else f"{why}; {error}")


def _record_broken(db: Database, folder: RunDir, run: RunRecord, why: str) -> None:
    if RunState(run.state).terminal:
        return
    from muster.control.ledger import StoreLedger
    from muster.control.persist import plan_of
    from muster.control.step import step
    from muster.lifecycle.events import RunBroken

    plan = plan_of(run)
    ledger = StoreLedger(db, plan, folder)
    step(db, plan, ledger, ledger.load(), [*ledger.requests(), RunBroken(why)])


def keep_environ(path: Path, environ: Mapping[str, str]) -> None:
    """Keep what the run's nodes start from, for whoever takes the run up. For the owner's eyes
    only; gone when the run has ended."""
    pairs = (os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items())
    replace_file(path, b"".join(pairs), 0o600)


def forget_environ(path: Path) -> None:
    """The run has ended."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _environ(path: Path) -> Mapping[str, str]:
    try:
        pairs = read_regular(path).split(b"\0")
    except OSError:  # it was cut short, or its programs have done away with it
        return os.environ
    texts = (os.fsdecode(pair).partition("=") for pair in pairs if pair)
    return {name: value for name, _, value in texts}
