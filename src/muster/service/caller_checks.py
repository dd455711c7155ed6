"""Who may call a method of `EmbeddedAPI`: checked, and recorded in the audit log, before it does
anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from muster.caller import Caller, Right, local_caller
from muster.errors import InvalidInput, NotFound
from muster.identity import is_id
from muster.service.as_owner import as_owner
from muster.service.backend import Backend
from muster.service.context import Context
from muster.service.recovery import recover_at_times
from muster.storage.home import Home, default_home
from muster.storage.owners import account_of_run
from muster.store.names import no_job_error, no_run_error
from muster.store.records import JobRecord, RunSummary
from muster.submission import Submission, of_this_process

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.control.launcher import Launcher
    from muster.service.audit import Origin
    from muster.store.account_records import AuditEntry
    from muster.store.base import Store
    from muster.store.notification_records import NotificationRecord
    from muster.store.schedule_records import ScheduleRecord

M = TypeVar("M", bound=Callable[..., Any])


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
        check: Callable[[], None],
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

        def entry() -> AuditEntry:
            from muster.service.audit import entry_of

            assert self._origin is not None
            return entry_of(
                *(self._caller, self._origin, time.time(), action, object_of()),
                project=self._caller.project,
            )

        with audited(self.store.audit, entry, check, changes=changes):
            yield

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
            self._caller.require(Right.ADMINISTER, text)

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

    def _check_new_run(self, prepared: PreparedRun) -> None:
        """Raises InvalidInput if a prepared run was started before or its id is none, NotFound if
        its Job is of another project."""
        self._check_project(prepared.job)
        if not is_id(prepared.plan.run_id):  # it names a folder
            raise InvalidInput(f"not the id of a run: {prepared.plan.run_id!r}")
        with suppress(NotFound):
            self.store.runs.summary(prepared.plan.run_id)
            raise InvalidInput("this prepared run was started already: prepare another one")


def requires(right: Right, what: str, *, action: str = "") -> Callable[[M], M]:
    """Check the caller's right before a method. what: what the method does, for the error. action:
    what it is called in the audit log, if it changes anything: its first parameter."""

    def decorate(method: M) -> M:
        @wraps(method)
        def checked(self: CallerChecks, *args: Any, **named: Any) -> Any:
            def check() -> None:
                self._caller.require(right, what)

            def object_of() -> str:
                from muster.service.audit import name_of

                return name_of(args[0] if args else next(iter(named.values()), None))

            name = action or f"api.{method.__name__}"
            with self._audited(name, object_of, check, changes=bool(action)):
                return method(self, *args, **named)

        return cast("M", checked)

    return decorate


def of_run(
    right: Right, what: str, *, action: str = "", anyones: bool = False, in_node: bool = False
) -> Callable[[M], M]:
    """As `requires`, for a method of one run: also check that the run is of the caller's project
    and, unless it is only read, that the caller may change runs of its owner. What the method does
    is done as the owner (`service.as_owner`). anyones: it is only read, whatever the right.
    in_node: the further parameters are the rank of a node and what is done there, which the audit
    log has, too."""

    def decorate(method: M) -> M:
        @wraps(method)
        def checked(self: CallerChecks, run_id: str, *args: Any, **named: Any) -> Any:
            def check() -> None:
                self._caller.require(right, what)
                self.recover()
                run = self._check_run(run_id)
                if right != Right.READ and not anyones:
                    self._caller.require_for_run(run.created_by, right, what)
                if right == Right.ENTER:
                    self._check_not_the_servers(run, what)

            def object_of() -> str:
                name = run_id
                with suppress(NotFound):
                    name = self._check_run(run_id).name
                return f"{name}:{args[0]} {args[1]}".rstrip() if in_node else name

            name = action or f"runs.{method.__name__}"
            with self._audited(name, object_of, check, changes=bool(action)):
                folder = self.home.run_dir(run_id)
                return as_owner(folder, partial(method, self, run_id, *args, **named))

        return cast("M", checked)

    return decorate


def of_creator(
    find: Callable[[CallerChecks, str], tuple[str, str]], right: Right, what: str, *, action: str
) -> Callable[[M], M]:
    """As `requires`, for a method that changes what somebody has created: also check that the
    caller may change what is of its creator. find: its name, and who has created it."""

    def decorate(method: M) -> M:
        @wraps(method)
        def checked(self: CallerChecks, *args: Any, **named: Any) -> Any:
            text: str = args[0] if args else next(iter(named.values()))

            def check() -> None:
                self._caller.require(right, what)
                self._caller.require_for_run(find(self, text)[1], right, what)

            def object_of() -> str:
                try:
                    return find(self, text)[0]
                except NotFound:
                    return text

            with self._audited(action, object_of, check, changes=True):
                return method(self, *args, **named)

        return cast("M", checked)

    return decorate


def job_of(api: CallerChecks, text: str) -> tuple[str, str]:
    found = api.store.jobs.find(api.context.project, text)
    return found.handle, found.created_by


def schedule_of(api: CallerChecks, text: str) -> tuple[str, str]:
    found = api.store.schedules.find(api.context.project, text)
    return found.name, found.created_by


def notification_of(api: CallerChecks, text: str) -> tuple[str, str]:
    found = api.store.notifications.find(api.context.project, text)
    return found.name, found.created_by
