"""What the methods of `EmbeddedAPI` share: who calls, and checks of what they are called with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from muster.caller import Caller, always, local_caller
from muster.errors import InvalidInput, NotFound
from muster.iam.resources import (
    Resource,
    variables_of_new,
)
from muster.identity import is_id
from muster.permissions import Decision, Permission
from muster.service.backend import Backend
from muster.service.context import Context
from muster.service.recovery import recover_at_times
from muster.storage.home import Home, default_home
from muster.storage.owners import account_of_run
from muster.store.names import no_job_error, no_run_error
from muster.store.records import JobRecord, RunSummary
from muster.store.resource_records import JOB
from muster.submission import Submission, of_this_process

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.control.launcher import Launcher
    from muster.service.audit import Origin
    from muster.store.account_records import AuditEntry
    from muster.store.base import Store
    from muster.store.notification_records import NotificationRecord
    from muster.store.schedule_records import ScheduleRecord

R = TypeVar("R")


class CallerChecks:
    """What the methods of a caller share: the context of its requests, and the checks."""

    def __init__(
        self,
        home: Home | None = None,
        launcher: Launcher | None = None,
        caller: Caller | None = None,
        *,
        submission: Submission | None = None,
        backend: Backend | None = None,
        origin: Origin | None = None,
    ) -> None:
        """home: MUSTER_HOME (default: the environment's). caller: default: the user of this
        process. submission: default: that of this process, as it is at each request. backend: one
        that callers share, instead of one of its own. origin: where the request comes from, for the
        audit log; None: from the user of this process, and nothing is recorded there."""
        backend = backend or Backend(home or default_home(), launcher)
        self._backend = backend
        self._caller = caller or local_caller()
        self._submission = submission
        self._origin = origin

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
        """Recover runs without a supervisor and delete expired ones, every few seconds."""
        recover_at_times(self._backend)

    @contextmanager
    def _audited(
        self,
        action: str,
        object_of: Callable[[], str],
        check: Callable[[], Decision | None],
        *,
        changes: bool,
    ) -> Iterator[None]:
        """Check, and record in the audit log what is refused and, if it changes anything, what is
        done in the block. object_of: what it is done to."""
        if self._origin is None:
            check()
            yield
            return
        from muster.service.audit import audited

        reads = None if changes else self._backend.reads
        with audited(
            self.store.audit, lambda: self._entry(action, object_of()), check, reads=reads
        ):
            yield

    def _entry(self, action: str, object: str) -> AuditEntry:
        """The entry of the audit log for what the caller is about to do."""
        from muster.service.audit import entry_of

        caller, origin = self._caller, self._origin
        assert origin is not None
        return entry_of(caller, origin, time.time(), action, object, project=caller.project)

    def _check_run(self, run_id: str) -> RunSummary:
        """The run. Raises NotFound if it is not of the caller's project."""
        run = self.store.runs.summary(run_id)
        if run.project != self._caller.project:
            raise no_run_error(run_id)
        return run

    def _check_not_the_servers(self, run: RunSummary, what: str) -> None:
        """Raises Forbidden if the run's nodes are the server's own user, whose rights on the
        machine no role of a project gives."""
        if not self.context.submission.separate_owners:
            return
        if account_of_run(self.home.run_dir(run.id)) is None:
            text = f"{what} of {run.name}, which runs as the server's own user,"
            self._caller.require(Permission.SERVER_MANAGE, text)

    def _visible(
        self,
        permission: Permission,
        resources_of: Callable[[Caller, Store, Sequence[R]], Sequence[Resource]],
        page: Callable[[R | None], list[R]],
        limit: int | None,
    ) -> list[R]:
        """The first records of the caller's project for which it has a permission, at most as many
        as the limit. page: at most as many records, from the beginning (None) or after one."""
        chosen = self._caller.chooser(permission)
        found: list[R] = []
        last = None
        while True:
            records = page(last)
            if chosen is always:
                return records
            on = resources_of(self._caller, self.store, records)
            pairs = zip(records, on, strict=True)
            found += (record for record, one in pairs if chosen(one.variables))
            if limit is None or len(records) < limit or len(found) >= limit:
                return found[:limit]
            last = records[-1]

    def _own_job(self, job_id: str) -> JobRecord:
        """Raises NotFound if the Job is not of the caller's project."""
        return self.store.jobs.find(self._caller.project, job_id)

    def _own_schedule(self, text: str) -> ScheduleRecord:
        """The schedule with this name or id. Raises NotFound if it is not of the caller's
        project."""
        return self.store.schedules.find(self._caller.project, text)

    def _own_notification(self, text: str) -> NotificationRecord:
        """As `_own_schedule`, for a notification."""
        return self.store.notifications.find(self._caller.project, text)

    def _check_project(self, job: JobRecord) -> None:
        """Raises NotFound if a Job that a caller passes is of another project. If it lies about
        that, the store refuses it."""
        if job.project != self._caller.project:
            raise no_job_error(job.id)

    def _require_new_job(self, job: JobRecord) -> Decision | None:
        """Why the caller may create a Job that is recorded with a run or a schedule; None if that
        is not asked: the job of the OCI API was created before. Raises NotPermitted."""
        if self.context.submission.oci_job:
            return None
        on = variables_of_new(JOB, job.display_name or job.name)
        return self._caller.require(Permission.JOB_CREATE, "create jobs", on)

    def _check_new_job(self, job: JobRecord) -> None:
        """As `_require_new_job`, and record in the audit log that a Job is created besides. What is
        refused is recorded with what it is created for."""
        decision = self._require_new_job(job)
        if decision is not None and self._origin is not None:
            from muster.service.audit import decided

            self.store.audit.append(decided(self._entry("jobs.create", job.name), decision))

    def _check_new_run(self, prepared: PreparedRun) -> None:
        """Raises InvalidInput if a prepared run was started before or its id is none, NotFound if
        its Job is of another project, NotPermitted if the caller may not create its Job."""
        self._check_project(prepared.job)
        if not is_id(prepared.plan.run_id):  # it names a folder
            raise InvalidInput(f"not the id of a run: {prepared.plan.run_id!r}")
        with suppress(NotFound):
            self.store.runs.summary(prepared.plan.run_id)
            raise InvalidInput("this prepared run was started already: prepare another one")
        if prepared.new_job:
            self._check_new_job(prepared.job)
