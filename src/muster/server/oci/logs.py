"""Log groups and logs (OCI: Logging Management API 20200531)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.describe.times import time_text_ms
from muster.iam.resources import LOG_DETAILS, LOG_ID, ocid_of
from muster.iam.run_checks import RunChecks
from muster.identity import new_id
from muster.permissions import Permission
from muster.server.answers import Answer
from muster.server.oci import work_requests
from muster.server.oci.actor import Actor
from muster.server.oci.errors import OciError, conflict, invalid, not_found
from muster.server.oci.listings import listing
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    adopt,
    change,
    common,
    find,
    labels,
    lookup,
    moved,
    shown,
    target_of,
)
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import Labels, LogConfiguration
from muster.spec.ocids import TENANCY, ocid
from muster.storage import custom_logs
from muster.store.resource_records import LOG, LOG_GROUP, ResourceFilter, ResourceRecord

_GROUPS, _GROUP = "/20200531/logGroups", "/20200531/logGroups/{log_group_id}"
#: What a job run's creator needs of the log or the log group that its output goes to.
_READ = Permission.LOG_GROUP_READ
_LOGS, _LOG = f"{_GROUP}/logs", f"{_GROUP}/logs/{{log_id}}"


class CreateLogGroup(Labels, frozen=True, kw_only=True):
    """OCI: CreateLogGroupDetails."""

    compartment_id: str
    display_name: str
    description: str | None = None


class UpdateLogGroup(Labels, frozen=True, kw_only=True):
    """OCI: UpdateLogGroupDetails."""

    description: str | None = None


class CreateLog(Labels, frozen=True, kw_only=True):
    """OCI: CreateLogDetails."""

    display_name: str
    log_type: str = "CUSTOM"
    is_enabled: bool | None = None
    configuration: dict[str, Any] | None = None
    retention_duration: int | None = None


class UpdateLog(Labels, frozen=True, kw_only=True):
    """OCI: UpdateLogDetails."""

    is_enabled: bool | None = None
    configuration: dict[str, Any] | None = None
    retention_duration: int | None = None


# Where job runs log


class LogPlace(Struct, frozen=True):
    """Where the output of a job run goes."""

    group: ResourceRecord
    log: ResourceRecord | None
    """None: a log is created for each job run."""

    def of_run(self, actor: Actor, run: ResourceRecord) -> dict[str, Any]:
        """What of a job run's data is its log, which is created if it is missing."""
        log = self.log
        if log is None:
            now = time.time()
            log = ResourceRecord(
                *(LOG, run.id, self.group.project, ocid(run.kind, run.id), "ACTIVE"),
                *(run.created_by, now, now),
                data={"logType": "CUSTOM", "isEnabled": True},
                parent=self.group.id,
            )
            actor.store.resources.insert(log)
        details = {"logGroupId": ocid_of(self.group), "logId": ocid_of(log)}
        return {LOG_DETAILS: details, LOG_ID: log.id}

    def why_not(self, actor: Actor, run: ResourceRecord) -> str:
        """Why a job run may not write there: it does so as itself (OCI: `use log-content`); "" if
        it may."""
        policies = actor.state.backend.policies
        place = (run.data["runProject"], run.created_by)
        checks = RunChecks(actor.store, policies, ocid_of(run), *place)
        log = actor.store.resources.get(LOG, run.data[LOG_ID])
        return checks.log(log, ocid_of(self.group))


def place_of(actor: Actor, project: str, given: LogConfiguration | None) -> LogPlace | None:
    """Where a job run logs; None if it does not. Raises OciError."""
    if given is None or not given.enable_logging:
        return None
    if given.log_id is not None:
        log = lookup(actor, LOG, given.log_id, _READ)
        if log is None:
            if given.log_group_id is None:
                raise invalid("jobLogConfigurationDetails: logId names no log that exists")
            group = _adopt_group(actor, given.log_group_id, project)
            creates = Permission.LOG_GROUP_CREATE
            log = adopt(
                *(actor, LOG, given.log_id, project),
                needs=_READ,
                creates=creates,
                parent=group.id,
            )
        actor.require(log.project, _READ, target_of(actor, log))
        return LogPlace(_group_of(actor, log), log)
    if given.log_group_id is None:
        raise invalid("jobLogConfigurationDetails needs logGroupId or logId with enableLogging")
    if not given.enable_auto_log_creation:
        raise invalid("jobLogConfigurationDetails needs logId, or enableAutoLogCreation")
    # a log is created there
    group = _adopt_group(actor, given.log_group_id, project, Permission.LOG_GROUP_CREATE)
    actor.require(group.project, _READ, target_of(actor, group))
    return LogPlace(group, None)


def _adopt_group(
    actor: Actor, text: str, project: str, needs: Permission = _READ
) -> ResourceRecord:
    creates = Permission.LOG_GROUP_CREATE
    return adopt(actor, LOG_GROUP, text, project, needs=needs, creates=creates)


def _group_of(actor: Actor, log: ResourceRecord) -> ResourceRecord:
    return actor.store.resources.get(LOG_GROUP, log.parent)


# Log groups


def create_log_group(request: OciRequest) -> Answer:
    """POST /logGroups"""
    given = request.read(CreateLogGroup)
    project = request.project_with(given.compartment_id, request.permission)
    _check_name(request, LOG_GROUP, project, "", given.display_name)
    now = time.time()
    made = ResourceRecord(
        *(LOG_GROUP, new_id(), project, given.display_name, "ACTIVE"),
        *(request.principal.user, now, now),
        data=labels(given),
    )
    request.act(
        *(project, request.permission, "oci.log-groups.create", made.name),
        lambda: request.store.resources.insert(made),
    )
    return _done(request, made, "CREATE_LOG_GROUP", "CREATED")


def _check_name(request: OciRequest, kind: str, project: str, parent: str, name: str) -> None:
    """OCI: names of log groups and logs are unique in what they are of. Raises OciError."""
    chosen = ResourceFilter(kind, project, name=name, parent=parent, limit=1)
    if request.store.resources.listing(chosen):
        raise OciError(
            409, "NotAuthorizedOrResourceAlreadyExists", f"There is a {kind} named {name!r}."
        )


def list_log_groups(request: OciRequest) -> Answer:
    """GET /logGroups"""
    return listing(request, LOG_GROUP, lambda record: _shown_group(request, record))


def get_log_group(request: OciRequest) -> Answer:
    """GET /logGroups/{log_group_id}"""
    record = _find_group(request)
    return shown(record, _shown_group(request, record))


def update_log_group(request: OciRequest) -> Answer:
    """PUT /logGroups/{log_group_id}"""
    record, given = _find_group(request), request.read(UpdateLogGroup)
    data = {**record.data, **labels(given)}
    name = given.display_name or record.name
    after = change(request, record, "oci.log-groups.update", name=name, data=data)
    # Terraform waits for a work request
    done = _done(request, after, "UPDATE_LOG_GROUP", "UPDATED")
    return shown(after, _shown_group(request, after), headers=done.headers)


def delete_log_group(request: OciRequest) -> Answer:
    """DELETE /logGroups/{log_group_id}"""
    record = _find_group(request)
    if request.store.resources.listing(_logs_in(record, limit=1)):
        raise conflict("The log group has logs; delete them first.")
    request.act(
        *(record.project, request.permission, "oci.log-groups.delete", record.name),
        lambda: request.store.resources.delete(LOG_GROUP, record.id),
        target_of(request, record),
    )
    return _done(request, record, "DELETE_LOG_GROUP", "DELETED")


def change_log_group_compartment(request: OciRequest) -> Answer:
    """POST /logGroups/{log_group_id}/actions/changeCompartment"""
    record = _find_group(request)
    logs = request.store.resources.listing(_logs_in(record))
    changes = moved(request, record, Permission.LOG_GROUP_CREATE)
    after = change(request, record, "oci.log-groups.move", **changes)
    now = time.time()
    for log in logs:  # if-match is about the group
        request.store.resources.update(log, replace(log, project=after.project, updated_at=now))
    return _done(request, record, "MOVE_LOG_GROUP", "RELATED")


def _find_group(request: OciRequest) -> ResourceRecord:
    return find(request, LOG_GROUP, request.path["log_group_id"], request.permission)


def _logs_in(group: ResourceRecord, limit: int | None = None) -> ResourceFilter:
    return ResourceFilter(LOG, group.project, parent=group.id, limit=limit)


def _shown_group(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    return _common(request, record) | {"description": record.data.get("description") or ""}


def _common(request: OciRequest, record: ResourceRecord) -> dict[str, Any]:
    """The fields of log groups and of logs."""
    made = common(request, record)
    del made["createdBy"]
    return made | {"systemTags": {}, "timeLastModified": time_text_ms(record.updated_at)}


# Logs


def create_log(request: OciRequest) -> Answer:
    """POST /logGroups/{log_group_id}/logs"""
    group, given = _find_group(request), request.read(CreateLog)
    _check_name(request, LOG, group.project, group.id, given.display_name)
    now = time.time()
    made = ResourceRecord(
        *(LOG, new_id(), group.project, given.display_name, "ACTIVE"),
        *(request.principal.user, now, now),
        data={
            **labels(given),
            "logType": given.log_type,
            "isEnabled": given.is_enabled is not False,
            "configuration": given.configuration,
            "retentionDuration": given.retention_duration,
        },
        parent=group.id,
    )
    request.act(
        *(group.project, request.permission, "oci.logs.create", made.name),
        lambda: request.store.resources.insert(made),
        target_of(request, group),
    )
    return _done(request, made, "CREATE_LOG", "CREATED")


def list_logs(request: OciRequest) -> Answer:
    """GET /logGroups/{log_group_id}/logs"""
    group = _find_group(request)
    return listing(request, LOG, lambda record: _shown_log(request, record, group), within=group)


def get_log(request: OciRequest) -> Answer:
    """GET /logGroups/{log_group_id}/logs/{log_id}"""
    record = _find_log(request)
    body = _shown_log(request, record, _group_of(request, record))
    return shown(record, {**body, "tenancyId": request.compartments.tenancy or TENANCY})


def update_log(request: OciRequest) -> Answer:
    """PUT /logGroups/{log_group_id}/logs/{log_id}"""
    record, given = _find_log(request), request.read(UpdateLog)
    given_data = {
        "isEnabled": given.is_enabled,
        "configuration": given.configuration,
        "retentionDuration": given.retention_duration,
    }
    changed = {name: value for name, value in given_data.items() if value is not None}
    data = {**record.data, **labels(given), **changed}
    name = given.display_name or record.name
    change(request, record, "oci.logs.update", name=name, data=data)
    return _done(request, record, "UPDATE_LOG", "UPDATED")


def delete_log(request: OciRequest) -> Answer:
    """DELETE /logGroups/{log_group_id}/logs/{log_id}"""
    record = _find_log(request)
    request.act(
        *(record.project, request.permission, "oci.logs.delete", record.name),
        lambda: request.store.resources.delete(LOG, record.id),
        target_of(request, record),
    )
    custom_logs.remove(request.state.backend.home, record.id)
    return _done(request, record, "DELETE_LOG", "DELETED")


def _find_log(request: OciRequest) -> ResourceRecord:
    record = find(request, LOG, request.path["log_id"], request.permission)
    if ocid_of(_group_of(request, record)) != request.path["log_group_id"]:
        raise not_found()
    return record


def _shown_log(
    request: OciRequest, record: ResourceRecord, group: ResourceRecord
) -> Mapping[str, Any]:
    data = record.data
    return _common(request, record) | {
        "logGroupId": ocid_of(group),
        "logType": data.get("logType") or "CUSTOM",
        "isEnabled": data.get("isEnabled") is not False,
        "configuration": data.get("configuration"),
        "retentionDuration": data.get("retentionDuration") or 30,
    }


def _done(request: OciRequest, record: ResourceRecord, operation: str, what: str) -> Answer:
    kind = work_requests.LOGGING_KIND
    return work_requests.done(request, record, operation, what, kind)


#: Logs are managed with their groups (OCI).
_INSPECTS, _CREATES = Permission.LOG_GROUP_INSPECT, Permission.LOG_GROUP_CREATE
_UPDATES, _DELETES = Permission.LOG_GROUP_UPDATE, Permission.LOG_GROUP_DELETE
ROUTES = (
    OciRoute("create_log_group", "POST", _GROUPS, create_log_group, _CREATES),
    OciRoute("list_log_groups", "GET", _GROUPS, list_log_groups, _INSPECTS),
    OciRoute("get_log_group", "GET", _GROUP, get_log_group, _READ),
    OciRoute("update_log_group", "PUT", _GROUP, update_log_group, _UPDATES),
    OciRoute("delete_log_group", "DELETE", _GROUP, delete_log_group, _DELETES),
    OciRoute(
        "change_log_group_compartment",
        *("POST", f"{_GROUP}/actions/changeCompartment", change_log_group_compartment),
        permission=_DELETES,
        also=(_CREATES,),
    ),
    OciRoute("create_log", "POST", _LOGS, create_log, _CREATES),
    OciRoute("list_logs", "GET", _LOGS, list_logs, _INSPECTS),
    OciRoute("get_log", "GET", _LOG, get_log, _READ),
    OciRoute("update_log", "PUT", _LOG, update_log, _UPDATES),
    OciRoute("delete_log", "DELETE", _LOG, delete_log, _DELETES),
    *work_requests.routes("/20200531", work_requests.LOGGING_KIND, _INSPECTS, _READ),
)
