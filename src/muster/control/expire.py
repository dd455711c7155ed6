"""Delete runs whose time to live after their end is over (JobSet: ttlSecondsAfterFinished).

Muster has no daemon: the next command that opens the store deletes them.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from muster.storage.home import Home
from muster.store import runs
from muster.store.database import Database


def expire(db: Database, home: Home) -> None:
    """Delete the expired runs."""
    for run_id in runs.expired(db, time.time()):
        delete_run(db, home, run_id)


def delete_run(db: Database, home: Home, run_id: str) -> None:
    """Delete a run that has ended. Its record is deleted last: if the process is killed before
    that, the run can be deleted again."""
    remove_folder(home, run_id)
    runs.delete(db, run_id)


def remove_folder(home: Home, run_id: str) -> None:
    """Delete a run's files."""
    folder = home.run_dir(run_id).path
    logs = folder / "logs"
    # with `logging.directory`, `logs` links to a folder with the run's id; any other link was made
    # by a program
    if logs.is_symlink() and (target := Path(os.path.realpath(logs))).name == run_id:
        shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
