"""The use cases of Muster on this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from muster.caller import Caller, local_caller
from muster.lifecycle.states import RunState
from muster.service.backend import Backend
from muster.service.context import Context
from muster.service.recovery import recover_once
from muster.storage.home import Home, default_home
from muster.store.base import Store
from muster.store.records import (
    EventRecord,
    JobEventRecord,
    JobRecord,
    NodeRecord,
    RunFilter,
    RunRecord,
    RunSummary,
)
from muster.submission import Submission, of_this_process

if TYPE_CHECKING:
    from muster.control.launcher import Launcher
    from muster.describe.stacks import ThreadStack
    from muster.engines.base import RunningNode
    from muster.errors import Problem
    from muster.service.disk import DiskItem
    from muster.service.follow import Follower
    from muster.service.jobs import PreparedJob
    from muster.service.prepare import PreparedResume, PreparedRun
    from muster.service.prune import Pruned
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.spec.reader import ParsedSpec
    from muster.storage.usage import Counters


class Service:
    """Muster on this machine, for one MUSTER_HOME.

    Methods that find or change runs first recover the runs whose supervisor was killed
    (`recover`). Modules of the use cases are imported when they are used.
    """

    def __init__(
        self,
        home: Home | None = None,
        launcher: Launcher | None = None,
        caller: Caller | None = None,
        submission: Submission | None = None,
    ) -> None:
        """caller: default: the user of this process. submission: default: of this process, as it is
        at each request."""
        self._backend = Backend(home or default_home(), launcher)
        self._caller = caller or local_caller()
        self._submission = submission

    @property
    def context(self) -> Context:
        """The context of one request."""
        return Context(self._backend, self._caller, self._submission or of_this_process())

    @property
    def home(self) -> Home:
        """MUSTER_HOME."""
        return self._backend.home

    @property
    def store(self) -> Store:
        """The database, opened at the first access."""
        return self._backend.store

    def recover(self) -> None:
        """Recover runs without a supervisor and delete expired ones, at the first call."""
        if not self._backend.recovered:
            recover_once(self.context)

    def close(self) -> None:
        """Close the database and the launcher of supervisors. Runs continue."""
        self._backend.close()

    # Jobs

    def job(self, text: str) -> JobRecord:
        """The Job with this name, name@version, display name, id or id prefix.

        Raises NotFound, or InvalidInput if several match.
        """
        self.recover()
        return self.store.jobs.find(self._caller.project, text)

    def jobs(
        self, *, deleted: bool = False, tags: Mapping[str, str | None] | None = None
    ) -> list[JobRecord]:
        """Jobs, newest first. See `store.jobs.listing`."""
        self.recover()
        return self.store.jobs.listing(self._caller.project, deleted=deleted, tags=tags)

    def job_events(self, job_id: str, after: int = 0) -> list[JobEventRecord]:
        """The Job's event log after entry number `after`."""
        return self.store.jobs.events(job_id, after)

    def prepare_job(self, spec: JobSpec, *, always_new: bool = False) -> PreparedJob:
        """Store the code of a Job and find the Job with this content. See `jobs.prepare`."""
        from muster.service.jobs import prepare

        self.recover()
        return prepare(self.context, spec, always_new=always_new)

    def spec_of(self, record: JobRecord | RunRecord) -> JobSpec:
        """The spec of a Job or a run, with its secrets. See `service.stored_spec`."""
        from muster.service.stored_spec import spec_of

        return spec_of(self.home, record)

    def copy_job(self, job: JobRecord) -> JobRecord:
        """A new Job with the content of another, not recorded yet. See `service.jobs.copy`."""
        from muster.service.jobs import copy

        job.check_active()
        return copy(self.context, job)

    def create_job(self, job: JobRecord) -> JobRecord:
        """Record a prepared Job. See `service.jobs.create`."""
        from muster.service.jobs import create

        return create(self.context, job)

    def discard(self, job: JobRecord) -> None:
        """Delete the code of a Job that is not recorded. See `service.jobs.discard`."""
        from muster.service.jobs import discard

        discard(self.context, job)

    def delete_unused_job(self, job_id: str) -> None:
        """Delete a Job and its event log unless it has runs."""
        self.store.jobs.delete_unused(job_id)

    def edit_job(self, text: str, changes: Sequence[str]) -> JobRecord:
        """Change settings of a Job (`PATH=VALUE`). See `service.jobs.edit`."""
        from muster.service.jobs import edit

        job = self.job(text)
        edit(self.context, job, changes)
        return self.job(job.id)

    def check_deletable(self, found: Sequence[JobRecord]) -> None:
        """Raises InvalidInput with every run of these Jobs that has not ended."""
        self.recover()
        self.store.jobs.check_ended([job.id for job in found])

    def delete_job(self, job_id: str) -> JobRecord:
        """Mark a Job deleted, and delete its code. See `service.jobs.delete`."""
        from muster.service.jobs import delete

        delete(self.context, self.job(job_id))
        return self.job(job_id)

    # Start runs

    def prepare_run(
        self,
        job: JobRecord,
        overrides: RunOverrides,
        *,
        spec: JobSpec | None = None,
        new_job: bool = False,
        notes: Sequence[str] = (),
    ) -> PreparedRun:
        """Resolve, check and plan a run. See `service.prepare.prepare_run`.

        new_job: the Job is not recorded yet; its code is deleted if the run is refused.
        """
        from muster.errors import MusterError
        from muster.service.prepare import prepare_run

        job.check_active()
        try:
            return prepare_run(
                self.context, job, overrides, spec=spec, new_job=new_job, notes=notes
            )
        except MusterError:
            if new_job:
                self.discard(job)
            raise

    def review(
        self, written: ParsedSpec, changes: Changes, found: Sequence[Problem] = ()
    ) -> list[Problem]:
        """All problems of a run that cannot start. See `service.review.review`."""
        from muster.service.review import review

        return review(self.context, written, changes, found)

    def start(
        self,
        prepared: PreparedRun,
        environ: Mapping[str, str] | None = None,
        *,
        queue: bool = True,
    ) -> RunRecord:
        """Start a prepared run. See `service.start.start`."""
        from muster.service.start import start

        self.recover()
        return start(self.context, prepared, environ, queue=queue)

    def start_function(self, prepared: PreparedRun, arguments: bytes) -> RunRecord:
        """Start a prepared run of a function. See `service.start.start_function`."""
        from muster.service.start import start_function

        self.recover()
        return start_function(self.context, prepared, arguments)

    # Find runs

    def run(self, text: str) -> RunRecord:
        """The run with this name, id or id prefix, or `last`. Raises NotFound."""
        self.recover()
        return self.store.runs.find(self._caller.project, text)

    def find_run(self, text: str) -> RunSummary:
        """As `run`, for a run whose record may be corrupt. Raises NotFound."""
        self.recover()
        return self.store.runs.summary(self.store.runs.find_id(self._caller.project, text))

    def runs(self, **filters: Any) -> list[RunSummary]:
        """Summaries of runs, newest first, read in one query.

        filters: `states`; `job`, a name (all versions) or an id; `since`, epoch seconds; `tags`,
        with None for any value; `limit`.
        """
        self.recover()
        found = self.store.runs.listing(self._caller.project, RunFilter(**filters))
        queued = [run for run in found if run.state == RunState.QUEUED]
        if not queued:
            return found
        from muster.service.run_details import waiting_for

        texts = waiting_for(self.home, *queued)
        details = {run.id: text for run, text in zip(queued, texts, strict=True)}
        return [replace(run, details=details.get(run.id, run.details)) for run in found]

    def run_records(self, **filters: Any) -> list[RunRecord]:
        """As `runs`, with all that is stored of each run. Raises CorruptRecord."""
        self.recover()
        return self.store.runs.records(self._caller.project, RunFilter(**filters))

    def nodes(self, run_id: str) -> list[NodeRecord]:
        """The run's nodes, in rank order."""
        return list(self.store.runs.nodes(run_id))

    def restarts(self, run_id: str) -> int:
        """The number of restarts after failures, of nodes, replicas and the whole run."""
        return self.store.events.count(run_id, "restart")

    def events(self, run_id: str, after: int = 0) -> list[EventRecord]:
        """The run's event log after entry number `after`."""
        return self.store.events.since(run_id, after)

    # Change runs

    def cancel(self, run_id: str, why: str = "canceled by user", *, force: bool = False) -> None:
        """Request the run's end. See `service.requests.cancel`."""
        from muster.service.requests import cancel

        self.recover()
        cancel(self.context, run_id, why, force=force)

    def suspend(self, run_id: str, why: str = "suspended by user") -> RunRecord:
        """Request the run's suspension. See `service.requests.suspend`."""
        from muster.service.requests import suspend

        self.recover()
        return suspend(self.context, run_id, why)

    def resume(
        self,
        run_id: str,
        overrides: RunOverrides | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunRecord:
        """Resume a suspended run. See `service.requests.resume`."""
        from muster.service.requests import resume

        self.recover()
        return resume(self.context, run_id, overrides, environ)

    def prepare_resume(
        self, run: RunRecord, overrides: RunOverrides | None, *, spec: JobSpec | None = None
    ) -> PreparedResume | None:
        """Check that a run can be resumed. See `service.requests.prepare_resume`."""
        from muster.service.requests import prepare_resume

        return prepare_resume(self.context, run, overrides, spec)

    def scale(self, run_id: str, group: str, replicas: int, why: str = "by user") -> RunRecord:
        """Request another number of replicas of a group. See `service.requests.scale`."""
        from muster.service.requests import scale

        self.recover()
        return scale(self.context, run_id, group, replicas, why)

    def delete(self, run_id: str) -> None:
        """Delete a run. See `service.delete.delete`."""
        from muster.service.delete import delete

        self.recover()
        delete(self.context, run_id)

    # Look into runs

    def running_node(self, run_id: str, rank: int | None) -> RunningNode:
        """A node of a run in progress; its only one if rank is None. See `service.inside`."""
        from muster.service.inside import running_node

        self.recover()
        run = self.store.runs.summary(run_id)
        return running_node(self.context, run, self.nodes(run_id), rank)

    def supervisor_of(self, run_id: str) -> int:
        """The pid of the process that drives a run in progress. See `service.inside`."""
        from muster.service.inside import supervisor_of

        self.recover()
        return supervisor_of(self.context, self.store.runs.summary(run_id))

    def counters(self, run_id: str) -> dict[int, Counters]:
        """What the nodes of a run in progress use now, by rank. See `Engine.counters`."""
        from muster.service.inside import counters

        self.recover()
        return counters(self.context, self.store.runs.summary(run_id))

    def stacks(self, run_id: str, ranks: Collection[int]) -> tuple[list[ThreadStack], list[str]]:
        """The stacks of a run's Python threads. See `Engine.stacks`."""
        from muster.service.inside import stacks

        self.recover()
        return stacks(self.context, self.store.runs.summary(run_id), self.nodes(run_id), ranks)

    # Disk

    def disk(self) -> tuple[DiskItem, ...]:
        """What takes how much disk. See `service.disk.measure`."""
        from muster.service.disk import measure

        self.recover()
        return measure(self.context)

    def prune(self, keep: int | None, older_than: float | None, *, dry_run: bool = False) -> Pruned:
        """Delete what is not needed. See `service.prune`."""
        from muster.service.prune import prune, retention_of

        self.recover()
        retention = retention_of(self.home, keep, older_than)
        return prune(self.context, retention, dry_run=dry_run)

    # Wait for runs

    def wait(self, run_id: str, timeout: float | None = None, **shown: Any) -> RunRecord:
        """The run, once it has ended or is suspended. See `wait_until_at_rest`."""
        self.wait_until_at_rest(run_id, timeout, **shown)
        return self.store.runs.get(run_id)

    def wait_until_at_rest(
        self, run_id: str, timeout: float | None = None, **shown: Any
    ) -> RunSummary:
        """Wait for a run. See `service.wait.wait_until_at_rest`."""
        from muster.service.wait import wait_until_at_rest

        self.recover()
        return wait_until_at_rest(self.context, run_id, timeout, **shown)

    async def wait_async(self, run_id: str, timeout: float | None = None) -> RunRecord:
        """As `wait`, in an event loop of asyncio."""
        from muster.service.event_loop import wait_until_at_rest

        self.recover()
        await wait_until_at_rest(self.context, run_id, timeout)
        return self.store.runs.get(run_id)

    def follow(self, run_id: str) -> Follower:
        """Waits for changes of the run's files, for callers that show them. To be closed."""
        from muster.service.follow import follow

        self.recover()
        return follow(self.context, run_id)

    def warn_of_space(self) -> None:
        """Warn (LowSpace) if the disk is full, once."""
        self._backend.warn_of_space()
