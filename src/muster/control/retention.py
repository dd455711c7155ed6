"""Which ended runs are deleted because of their age and number, and the code that no Job has."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from muster.control import run_lock
from muster.control.expire import NotDeleted, delete_run
from muster.lifecycle.states import TERMINAL
from muster.storage import uploads
from muster.storage.artifact_lock import sweep, try_exclusive
from muster.storage.code_trees import remove_artifact, remove_unlinked
from muster.storage.config import Retention, read_config
from muster.storage.disk_use import entries_of
from muster.storage.home import Home
from muster.store.records import RunFilter, RunSummary

if TYPE_CHECKING:
    from muster.store.base import Store

#: Seconds for which a run that has ended stays in any case, unless a user deletes it: commands may
#: still show its end.
_SHOWN = 60.0


def surplus(ended: Sequence[RunSummary], retention: Retention, now: float) -> Iterator[RunSummary]:
    """The ended runs that do not stay. ended: newest first."""
    for run in ended[retention.keep or 0 :]:
        if now - (run.finished_at or run.created_at) >= (retention.older_than or 0):
            yield run


def old_runs(
    store: Store, home: Home, retention: Retention, project: str | None = None
) -> list[RunSummary]:
    """The ended runs that do not stay, without those whose supervisor is still ending. project:
    None for all."""
    ended = store.runs.listing(project, RunFilter(states=TERMINAL))
    found = surplus(ended, retention, time.time())
    return [run for run in found if not run_lock.is_held(home.run_dir(run.id).lock)]


def apply_retention(store: Store, home: Home) -> None:
    """Delete the runs that do not stay by the retention in the configuration, if it has one.

    Raises InvalidInput if the configuration is wrong, NotDeleted, StoreError.
    """
    retention = read_config(home).retention
    if retention is None:
        return
    chosen = Retention(retention.keep, max(retention.older_than or 0.0, _SHOWN))
    failures = []
    for run in old_runs(store, home, chosen):
        try:
            delete_run(store, home, run.id)
        except NotDeleted as error:  # this one stays
            failures.append(error)
    if failures:
        raise failures[0]


def unused_code(store: Store, home: Home) -> list[Path]:
    """The stored code that no Job has, and that was not uploaded lately for one. Exact only while
    no process stores code."""
    used = store.jobs.artifacts_in_use() | uploads.claimed(home, time.time())
    folders = (folder for folder in entries_of(home.artifacts) if len(folder.name) == 2)
    return [code for folder in folders for code in entries_of(folder) if code.name not in used]


def collect_code(store: Store, home: Home) -> bool:
    """Delete the code that no Job has, and what killed processes left of code they were storing.
    False if nothing was deleted because another process is storing code."""
    with try_exclusive(home) as alone:
        if alone:
            sweep(home.artifacts)
            for code in unused_code(store, home):
                remove_artifact(home, code.name, shared=False)
            remove_unlinked(home)
        return alone
