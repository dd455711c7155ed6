"""Delete runs whose time to live after their end is over (JobSet: ttlSecondsAfterFinished).

Muster has no daemon: the next command that opens the store deletes them.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from muster.control import run_lock
from muster.control.clean_up import clean_up_soon
from muster.errors import EngineError, MusterError, StoreFull
from muster.escapes import visible_line
from muster.node.files import try_remove_tree
from muster.storage.home import Home
from muster.storage.liveness import wait_for_process
from muster.storage.owners import account_of_run
from muster.unix_account import acting_as, as_root

if TYPE_CHECKING:
    from muster.store.base import Store


class NotDeleted(MusterError):  # noqa: N818
    """Some files or nodes of a run cannot be removed. Its record stays, so that it can be deleted
    again."""


def expire(store: Store, home: Home) -> None:
    """Delete the expired runs. One whose files cannot be deleted is left to the next command:
    `muster rm` and `muster prune` say why."""
    for run_id in store.runs.expired(time.time()):
        with suppress(NotDeleted):
            delete_run(store, home, run_id, soon=True)


def delete_run(store: Store, home: Home, run_id: str, *, soon: bool = False) -> None:
    """Delete a run that has ended. Its record is deleted last: if the process is killed before
    that, the run can be deleted again. soon: in a command that is about something else. Raises
    NotDeleted, StoreError."""
    from muster.engines.registry import find_engine

    with suppress(StoreFull):  # deleting frees space
        store.runs.check_writable(run_id)
    run = store.runs.summary(run_id)
    engine = find_engine(run.engine, home)
    if engine is not None and engine.left_behind(run_id):
        try:
            if soon:
                clean_up_soon(engine, run_id)
            else:
                engine.clean_up(run_id)
        except EngineError as left:
            raise NotDeleted(f"{run.name} is not deleted: {left}") from None
    path = home.run_dir(run_id).lock
    supervisor = run_lock.last_holder(path) if run_lock.is_held(path) else None
    error = remove_folder(home, run_id)
    if error and supervisor is not None:
        # its record says that it has ended, but is wrong; without its folder, the run ends now
        wait_for_process(supervisor, run_lock.EXIT_TIMEOUT)
        error = remove_folder(home, run_id)
    if error:
        raise NotDeleted(f"{run.name} is not deleted: {describe(error)}")
    store.runs.delete(run_id)


def remove_folder(home: Home, run_id: str) -> OSError | None:
    """Delete a run's files. Returns why some of them stay; None if none does."""
    folder = home.run_dir(run_id).path
    account = account_of_run(home.run_dir(run_id))
    if account is not None:
        with acting_as(account):  # what its programs have made, which may change meanwhile
            for entry in os.listdir(folder):
                if os.path.isdir(folder / entry):
                    try_remove_tree(str(folder / entry))
        return _remove_rest(str(folder))
    logs = folder / "logs"
    # with `logging.directory`, `logs` links to a folder with the run's id; any other link was made
    # by a program
    target = Path(os.path.realpath(logs))
    # the logs first: without the link, nothing would show where the rest of them is
    if logs.is_symlink() and target.name == run_id and (error := try_remove_tree(str(target))):
        return error
    return try_remove_tree(str(folder))


@as_root()
def _remove_rest(folder: str) -> OSError | None:
    """Delete the folder of an account's run, in which nothing is left but files."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                os.unlink(entry.path)
        os.rmdir(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


def describe(error: OSError) -> str:
    """Why a file cannot be deleted, and what to do."""
    hint = "remove it as its owner or as root, then try again"
    return visible_line(f"cannot remove {error.filename}: {error.strerror} ({hint})")
