"""Delete what is unused: old runs, code that no Job has, environments, and what killed processes
have left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from muster.api.answers import Pruned
from muster.control import run_lock
from muster.control.expire import NotDeleted, delete_run, describe, remove_folder
from muster.control.retention import collect_code, old_runs, unused_code
from muster.file_locks import check_locks
from muster.service.context import Context
from muster.storage import environments
from muster.storage.artifact_lock import try_exclusive
from muster.storage.code_trees import objects
from muster.storage.config import Retention, read_config
from muster.storage.disk_use import DiskUse, disk_use, entries_of
from muster.storage.environments import Installed
from muster.storage.home import Home
from muster.storage.owners import Shared, shared_by_runs
from muster.storage.temporary_folder import remove_abandoned
from muster.store.records import RunFilter, RunSummary
from muster.unix_account import acting_as

_DAY = 86400.0
#: Without options and configuration, runs stay this long after their end.
DEFAULT = Retention(older_than=7 * _DAY)
#: Environments stay this long after their last use, unless another time is given.
UNUSED = 30 * _DAY
#: A folder of a run without a record may be that of a run that is just being submitted.
_SUBMITTING = 3600.0


class Candidates(Struct, frozen=True):
    """What can be deleted, with the bytes that this frees."""

    runs: Sequence[RunSummary]
    runs_size: int
    #: Stored code that no Job has.
    code: Sequence[Path]
    code_size: int
    environments: Sequence[tuple[Shared, Installed]]
    environments_size: int
    #: Files of killed processes, folders of runs without a record, and old digests.
    leftovers: Sequence[Path]
    leftovers_size: int

    @property
    def size(self) -> int:
        """Bytes in all."""
        sizes = (self.runs_size, self.code_size, self.environments_size, self.leftovers_size)
        return sum(sizes)


def retention_of(home: Home, keep: int | None, older_than: float | None) -> Retention:
    """The given retention; if none is given, that of the configuration, else `DEFAULT`. Raises
    InvalidInput if the configuration is wrong."""
    if keep is None and older_than is None:
        return read_config(home).retention or DEFAULT
    return Retention(keep, older_than)


def candidates(context: Context, retention: Retention) -> Candidates:
    """What `prune` would delete now."""
    store, home = context.store, context.home
    now = time.time()
    old = old_runs(store, home, retention, context.project)
    code = unused_code(store, home)
    age = UNUSED if retention.older_than is None else retention.older_than
    unused = [*_unused_environments(home, now - age)]
    left = [*_leftovers(context, now)]
    return Candidates(
        runs=old,
        runs_size=disk_use(*(path for run in old for path in run_files(home, run.id))),
        code=code,
        code_size=_code_size(code),
        environments=unused,
        environments_size=sum(one.size for _, one in unused),
        leftovers=left,
        leftovers_size=disk_use(*left),
    )


def prune(context: Context, retention: Retention, *, dry_run: bool = False) -> Pruned:
    """Delete old runs of the caller's project, and what no project needs. Safe while runs start:
    their code is locked or has a Job. Raises NoLocks where locks are not to be relied on, and
    InvalidInput where MUSTER_HOME is read-only."""
    found = candidates(context, retention)
    if dry_run:
        return _report(found, [one for _, one in found.environments], dry_run=True)
    store, home = context.store, context.home
    home.check_writable()
    failures = [*_delete_runs(context, found.runs), *_delete_leftovers(home, found.leftovers)]
    removed = []
    for shared, one in found.environments:
        with acting_as(shared.account):
            why = remove_environment(shared.home, one.key)
            left = disk_use(shared.home.environments / one.key) if why else 0
        if why is None:
            removed.append(one)
        elif why:
            failures.append(_Failure(one.path, left, f"environment {one.key}: {why}"))
    remove_abandoned(home.checkouts)
    if collect_code(store, home):
        return _report(found, removed, failures)
    kept = "stored code was kept: another process is storing code; prune again later"
    found = replace(found, code=(), code_size=0)
    return _report(found, removed, failures, kept=(kept,))


def unused_environments(found: Sequence[Installed], since: float) -> list[Installed]:
    """Those that no process uses and that are incomplete, or were last used before `since`."""
    return [one for one in found if not one.busy and (not one.ready or (one.used or 0) < since)]


def _unused_environments(home: Home, since: float) -> Iterator[tuple[Shared, Installed]]:
    for shared in shared_by_runs(home):
        with acting_as(shared.account):
            try:
                found = environments.list_installed(shared.home)
            except OSError:
                if shared.account is None:
                    raise
                continue  # the owner has closed the folder
        yield from ((shared, one) for one in unused_environments(found, since))


def remove_environment(home: Home, key: str) -> str | None:
    """Remove an environment. Returns None, or why it could not be removed: "" = it is in use.
    Raises NoLocks."""
    check_locks(home.root)
    try:
        return None if environments.remove(home, key) else ""
    except OSError as error:
        return describe(error)


class _Failure(NamedTuple):
    """Something that could not be deleted."""

    #: The id of a run, or the path of an environment or a leftover.
    key: str
    #: Bytes that are left of it.
    left: int
    why: str


def _delete_runs(context: Context, found: Sequence[RunSummary]) -> Iterator[_Failure]:
    for run in found:
        try:
            delete_run(context.store, context.home, run.id)
        except NotDeleted as error:
            yield _Failure(run.id, disk_use(*run_files(context.home, run.id)), str(error))


def _delete_leftovers(home: Home, found: Sequence[Path]) -> Iterator[_Failure]:
    for path in found:
        if path.parent == home.runs:
            if error := remove_folder(home, path.name):
                yield _Failure(str(path), disk_use(path), describe(error))
        elif path.parent == home.digests:
            path.unlink(missing_ok=True)


def _report(
    found: Candidates,
    removed: Sequence[Installed],
    failures: Sequence[_Failure] = (),
    *,
    dry_run: bool = False,
    kept: tuple[str, ...] = (),
) -> Pruned:
    failed = {one.key for one in failures}
    known = failed | {one.path for one in removed}
    in_use = [one for _, one in found.environments if one.path not in known]
    left = sum(one.size for one in in_use) + sum(one.left for one in failures)
    return Pruned(
        dry_run=dry_run,
        runs=tuple(run.name for run in found.runs if run.id not in failed),
        code=len(found.code),
        environments=tuple(one.key for one in removed),
        leftovers=sum(str(path) not in failed for path in found.leftovers),
        freed=max(found.size - left, 0),
        kept=(*kept, *(f"environment {one.key} is in use now" for one in in_use)),
        failed=tuple(one.why for one in failures),
    )


def run_files(home: Home, run_id: str) -> list[Path]:
    """The folders of a run: its own and, with `logging.directory`, that of its logs."""
    folder = home.run_dir(run_id).path
    logs = folder / "logs"
    if logs.is_symlink() and logs.resolve().name == run_id:
        return [folder, logs.resolve()]
    return [folder]


def _code_size(code: Sequence[Path]) -> int:
    use = DiskUse()
    for one in code:
        use.add(one)
    return use.freed(other_names=1)  # that of `artifacts/objects`, which is deleted as well


def _leftovers(context: Context, now: float) -> Iterator[Path]:
    store, home = context.store, context.home
    if home.artifacts.is_dir():
        with try_exclusive(home) as alone:
            if alone:  # otherwise some of these are being written
                yield from home.artifacts.glob(".part-*")
                yield from (Path(path) for path, links, _ in objects(home) if links == 1)
    # those of a folder that has not changed since are computed again
    yield from (one for one in entries_of(home.digests) if now - one.lstat().st_mtime > UNUSED)
    known = {run.id for run in store.runs.listing(None, RunFilter())}
    for folder in entries_of(home.runs):
        old = now - folder.lstat().st_mtime > _SUBMITTING
        if (
            folder.name not in known
            and old
            and not run_lock.is_held(home.run_dir(folder.name).lock)
        ):
            yield folder
