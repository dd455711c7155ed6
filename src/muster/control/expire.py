"""Runs whose time to live after their end is over (JobSet: ttlSecondsAfterFinished).

There is no daemon: the next command that opens the store forgets them.
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
    """Delete what has outlived its time."""
    for run_id in runs.expired(db, time.time()):
        forget(db, home, run_id)


def forget(db: Database, home: Home, run_id: str) -> None:
    """Delete a run that has ended: the record last, so that nothing is left behind by one who is
    killed in between."""
    remove_folder(home, run_id)
    runs.delete(db, run_id)


def remove_folder(home: Home, run_id: str) -> None:
    """Delete a run's files."""
    folder = home.run_dir(run_id).path
    logs = folder / "logs"
    # `logging.directory` has a folder for each run; a link to any other was made by a program
    if logs.is_symlink() and (target := Path(os.path.realpath(logs))).name == run_id:
        shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
