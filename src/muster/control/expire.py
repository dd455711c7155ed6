"""Runs whose time to live after their end is over (JobSet: ttlSecondsAfterFinished).

There is no daemon: the next command that opens the store forgets them.
"""

from __future__ import annotations

import shutil
import time

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
    folder = home.run_dir(run_id).path
    logs = folder / "logs"
    if logs.is_symlink():  # `logging.directory`
        shutil.rmtree(logs.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    runs.delete(db, run_id)
