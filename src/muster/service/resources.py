"""Resources of a caller's project as decisions know them, with what they are in the OCI API.

Nothing is looked up for a caller who may do everything: decisions about it need no variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from muster.caller import EVERYTHING, Caller
from muster.iam.resources import (
    LOG_ID,
    Resource,
    ocid_of,
    resource_of_job,
    resource_of_notification,
    resource_of_output,
    resource_of_run,
    resource_of_schedule,
)
from muster.spec.ocids import split_ocid
from muster.store.resource_records import JOB, JOB_RUN, LOG

if TYPE_CHECKING:
    from muster.store.base import Store
    from muster.store.notification_records import NotificationRecord
    from muster.store.records import JobRecord, RunRecord, RunSummary
    from muster.store.resource_records import ResourceRecord
    from muster.store.schedule_records import ScheduleRecord


def of_runs(caller: Caller, store: Store, runs: Sequence[RunSummary | RunRecord]) -> list[Resource]:
    """Runs, in their order."""
    found = {} if caller.authority is EVERYTHING else job_runs(store, runs)
    return [resource_of_run(run, found.get(run.id)) for run in runs]


def of_run(caller: Caller, store: Store, run: RunSummary | RunRecord) -> Resource:
    """One run."""
    return of_runs(caller, store, (run,))[0]


def of_output(caller: Caller, store: Store, run: RunSummary | RunRecord) -> Resource:
    """What a run has written."""
    if caller.authority is EVERYTHING:
        return resource_of_run(run)
    return output_of(store, run)


def of_jobs(caller: Caller, store: Store, jobs: Sequence[JobRecord]) -> list[Resource]:
    """Jobs, in their order."""
    found = {} if caller.authority is EVERYTHING else oci_jobs(store, jobs)
    return [resource_of_job(job, found.get(job.oci_job)) for job in jobs]


def of_job(caller: Caller, store: Store, job: JobRecord) -> Resource:
    """One Job."""
    return of_jobs(caller, store, (job,))[0]


def of_schedules(
    caller: Caller, store: Store, schedules: Sequence[ScheduleRecord]
) -> list[Resource]:
    """Schedules, in their order. Those of the OCI API are others."""
    return [*map(resource_of_schedule, schedules)]


def of_notifications(
    caller: Caller, store: Store, notifications: Sequence[NotificationRecord]
) -> list[Resource]:
    """Notifications, in their order. The rules of the OCI API are others."""
    return [*map(resource_of_notification, notifications)]


def job_runs(store: Store, runs: Iterable[RunSummary | RunRecord]) -> dict[str, ResourceRecord]:
    """What runs are in the OCI API, by their ids; those that it has not created are left out."""
    return store.resources.some(JOB_RUN, [run.id for run in runs])


def oci_jobs(store: Store, jobs: Iterable[JobRecord]) -> dict[str, ResourceRecord]:
    """The jobs of the OCI API that Jobs are recorded for, by their OCIDs."""
    parts = {job.oci_job: split_ocid(job.oci_job) for job in jobs if job.oci_job}
    ids = [one[1] for one in parts.values() if one is not None]
    found = store.resources.some(JOB, ids) if ids else {}
    return {ocid_of(one): one for one in found.values()}


def output_of(store: Store, run: RunSummary | RunRecord) -> Resource:
    """What a run has written, whoever asks."""
    job_run = job_runs(store, (run,)).get(run.id)
    log_id = None if job_run is None else job_run.data.get(LOG_ID)
    log = None if log_id is None else store.resources.some(LOG, (log_id,)).get(log_id)
    return resource_of_output(run, job_run, log)
