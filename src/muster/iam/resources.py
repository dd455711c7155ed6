"""What decisions know of a resource: by which name, who has created it, and its variables. Pure.

Both APIs get them here, so that a statement means the same to both. What a run, a Job or the output
of a run is in the OCI API is given with it: the job run, the job or the log has the tags, and the
OCID that people know. OCI: names are compared without regard to capitals; what a variable stands
for is in the reference of each service's policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.caller import CREATED_BY, Variables
from muster.identity import id_of
from muster.spec.ocids import ocid, secret_ocid, split_ocid, user_ocid
from muster.store.resource_records import (
    JOB,
    JOB_RUN,
    LOG,
    LOG_GROUP,
    PROJECT,
    RULE,
    SCHEDULE,
    ResourceRecord,
)

if TYPE_CHECKING:
    from muster.store.notification_records import NotificationRecord
    from muster.store.object_records import BucketRecord
    from muster.store.records import JobRecord, RunRecord, RunSummary
    from muster.store.schedule_records import ScheduleRecord

#: The variable that has the OCID of a resource, by kind.
_IDS = {
    JOB: "target.job.id",
    JOB_RUN: "target.job-run.id",
    PROJECT: "target.project.id",
    SCHEDULE: "target.schedule.id",
    RULE: "target.rule.id",
    LOG_GROUP: "target.loggroup.id",
    LOG: "target.log.id",
}
#: The one that has its name, by kind.
_NAMES = {JOB: "target.job.name"}
#: Of a resource's data: its OCID, if clients know it from OCI.
FOREIGN = "ocid"
#: How many resources may have the same OCID of OCI, each of people who do not see the others.
_MOST_ADOPTED = 16
#: Of a job run's data: the OCIDs of its log and log group, as clients see them (OCI:
#: JobRunLogDetails), and the id of the log.
LOG_DETAILS, LOG_ID = "logDetails", "log"


class Resource(Struct, frozen=True):
    """See the module."""

    id: str
    name: str
    """In the audit log."""
    created_by: str
    variables: Variables
    """See `iam.policies.vocabulary`."""


# Resources of Muster's own API


def resource_of_run(run: RunSummary | RunRecord, job_run: ResourceRecord | None = None) -> Resource:
    """A run as what a permission is needed for. job_run: what it is in the OCI API, if that has
    created it."""
    if job_run is None:
        variables = _variables(JOB_RUN, ocid(JOB_RUN, run.id), "", run.created_by)
        return Resource(run.id, run.name, run.created_by, variables)
    return Resource(run.id, run.name, job_run.created_by, variables_of(job_run))


def resource_of_output(
    run: RunSummary | RunRecord,
    job_run: ResourceRecord | None = None,
    log: ResourceRecord | None = None,
) -> Resource:
    """What a run has written, as what a permission is needed for. job_run: as of
    `resource_of_run`. log: where its output goes in the OCI API; None if nowhere, or if the log
    was deleted."""
    details = {} if job_run is None else job_run.data.get(LOG_DETAILS) or {}
    if not details:
        return resource_of_run(run, job_run)
    group = str(details["logGroupId"])
    if log is not None:
        return Resource(run.id, run.name, log.created_by, variables_of(log, group))
    variables = _variables(LOG, str(details["logId"]), "", run.created_by, group=group)
    return Resource(run.id, run.name, run.created_by, variables)


def resource_of_job(job: JobRecord, oci_job: ResourceRecord | None = None) -> Resource:
    """A Job as what a permission is needed for. oci_job: the job of the OCI API that it is
    recorded for, if there still is one."""
    if oci_job is not None:
        return Resource(job.id, job.handle, oci_job.created_by, variables_of(oci_job))
    name = job.display_name or job.name
    variables = _variables(JOB, job.oci_job or ocid(JOB, job.id), name, job.created_by)
    return Resource(job.id, job.handle, job.created_by, variables)


def resource_of_schedule(schedule: ScheduleRecord) -> Resource:
    """A schedule as what a permission is needed for."""
    return _resource(SCHEDULE, schedule)


def resource_of_notification(notification: NotificationRecord) -> Resource:
    """A notification as what a permission is needed for: as a rule of OCI."""
    return _resource(RULE, notification)


def _resource(kind: str, record: ScheduleRecord | NotificationRecord) -> Resource:
    variables = _variables(kind, ocid(kind, record.id), record.name, record.created_by)
    return Resource(record.id, record.name, record.created_by, variables)


# Resources of the OCI API


def ocid_of(record: ResourceRecord) -> str:
    """The OCID of a resource."""
    return str(record.data.get(FOREIGN) or ocid(record.kind, record.id))


def ids_of(text: str) -> tuple[str, ...]:
    """The ids that the resource with an OCID may have. One of OCI may have been adopted by several
    people who do not see what the others have: nobody keeps another from using it."""
    kind, identifier = split_ocid(text) or ("", "")
    others = range(1, _MOST_ADOPTED if is_foreign(text) else 1)
    return (identifier, *(id_of(kind, text, str(number)) for number in others))


def is_foreign(text: str) -> bool:
    """Whether an OCID is of OCI, and not of Muster."""
    return text.split(".")[2] != "muster"


def variables_of(record: ResourceRecord, group: str | None = None) -> Variables:
    """Those of a resource. group: the OCID of the log group, for a log."""
    given = (record.kind, ocid_of(record), record.name, record.created_by)
    return _variables(*given, _tags(record.data), group)


def variables_of_new(kind: str, name: str) -> Variables:
    """Those of a resource that is about to be created: it has no OCID, tags or creator yet."""
    return {_NAMES[kind]: name} if kind in _NAMES else {}


# What both have


def variables_of_bucket(bucket: BucketRecord, object_name: str | None = None) -> Variables:
    """Those of a bucket, or of an object in it."""
    found = {
        CREATED_BY: user_ocid(bucket.created_by),
        **_tags(bucket.settings),
        **variables_of_new_bucket(bucket.name),
    }
    return found if object_name is None else {**found, "target.object.name": object_name}


def variables_of_new_bucket(name: str) -> Variables:
    """Those of a bucket that is about to be created."""
    return {"target.bucket.name": name}


def variables_of_metrics(namespace: str) -> Variables:
    """Those of the metrics of a namespace."""
    return {"target.metrics.namespace": namespace}


def variables_of_repository(name: str) -> Variables:
    """Those of a repository of images. name: see `images.reference.repository_name`."""
    return {"target.repo.name": name}


def variables_of_secret(project: str, name: str) -> Variables:
    """Those of a secret, also of one that is about to be created: its OCID follows from its
    name."""
    return {"target.secret.name": name, "target.secret.id": secret_ocid(project, name)}


def variables_of_user(name: str) -> Variables:
    """Those of a user."""
    return {"target.user.id": user_ocid(name), "target.user.name": name}


def variables_of_group(group: str, name: str) -> Variables:
    """Those of a group of users. group: its OCID."""
    return {"target.group.id": group, "target.group.name": name}


def _variables(
    kind: str,
    ocid: str,
    name: str,
    created_by: str,
    tags: Mapping[str, str] | None = None,
    group: str | None = None,
) -> Variables:
    """Those of a resource of a kind. tags: see `_tags`. group: the OCID of a log's group."""
    found = {CREATED_BY: user_ocid(created_by), **(tags or {})}
    if kind in _IDS:
        found[_IDS[kind]] = ocid
    if group is not None:
        found[_IDS[LOG_GROUP]] = group
    return {**found, **variables_of_new(kind, name)}


def _tags(data: Mapping[str, Any]) -> Mapping[str, str]:
    """The variables that are defined tags. data: what a resource has."""
    given: Mapping[str, Mapping[str, Any]] = data.get("definedTags") or {}
    if not given:
        return {}
    from muster.iam.policies.vocabulary import tag_variable  # few resources have tags

    return {
        tag_variable(namespace, key): str(value)
        for namespace, values in given.items()
        for key, value in values.items()
    }
