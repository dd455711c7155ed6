"""Jobs and runs of a caller's project that it may read: whoever starts from one gets to know what
is in it, and runs its code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from muster.caller import Caller, NotPermitted
from muster.errors import NotFound
from muster.permissions import Decision, Permission
from muster.service import resources

if TYPE_CHECKING:
    from muster.iam.resources import Resource
    from muster.service.context import Context
    from muster.store.base import Store
    from muster.store.records import JobRecord, RunRecord, RunSummary

R = TypeVar("R")


def require_of(
    caller: Caller,
    permission: Permission,
    what: str,
    find: Callable[[], R],
    resource_of: Callable[[R], Resource],
) -> tuple[R, Decision]:
    """A record for which a caller has a permission, and why it has it. what: continues "may not".
    find: raises NotFound. Raises NotPermitted, also for what does not exist, to whoever has the
    permission for no resource of the project."""
    own = False
    try:
        record = find()
        on = resource_of(record)
        own = on.created_by == caller.user  # who knows of it
        return record, require(caller, permission, what, on)
    except (NotFound, NotPermitted):
        if not own:
            caller.require_some(permission, what)
        raise


def require(caller: Caller, permission: Permission, what: str, on: Resource) -> Decision:
    """As `Caller.require`, for a resource that was found."""
    return caller.require(permission, what, on.variables, created_by=on.created_by)


def readable_job(context: Context, text: str) -> JobRecord:
    """The Job of the project with this name or id. Raises NotFound, NotPermitted."""
    find = partial(context.store.jobs.find, context.project, text)

    def look(job: JobRecord) -> Resource:
        return resources.of_job(context.caller, context.store, job)

    return require_of(context.caller, Permission.JOB_READ, "see jobs", find, look)[0]


def readable_run(context: Context, text: str) -> RunRecord:
    """As `readable_job`, for a run."""
    runs = context.store.runs

    def find() -> RunRecord:
        return runs.get(runs.find_id(context.project, text))

    def look(run: RunRecord) -> Resource:
        return resources.of_run(context.caller, context.store, run)

    return require_of(context.caller, Permission.JOB_RUN_READ, "see runs", find, look)[0]


def why_no_output(caller: Caller, store: Store, run: RunRecord | RunSummary) -> str:
    """Why a caller may not read what a run has written; "" if it may."""
    on = resources.of_output(caller, store, run)
    try:
        require(caller, Permission.LOG_CONTENT_READ, "see output", on)
    except NotPermitted as error:
        return str(error)
    return ""


def may_read(context: Context, job: JobRecord) -> bool:
    """Whether the caller may read a Job."""
    on = resources.of_job(context.caller, context.store, job)
    allows = context.caller.allows
    return allows(Permission.JOB_READ, on.variables, created_by=on.created_by)
