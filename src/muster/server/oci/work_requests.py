"""Work requests: how long operations go on (OCI: WorkRequest). Here they are done when they are
answered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from muster.describe.times import time_text_ms
from muster.iam.resources import ocid_of
from muster.identity import new_id
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import conflict
from muster.server.oci.listings import listing
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import compartment_of, find, shown
from muster.server.oci.routes import OciRoute
from muster.spec.ocids import ocid
from muster.store.resource_records import ResourceRecord

KIND = "datascienceworkrequest"
#: Those of the service Logging, whose clients do not know the operations of others.
LOGGING_KIND = "logworkrequest"
#: Those of the service Identity.
IDENTITY_KIND = "identityworkrequest"
_API, _PATH = "/20190101", "/workRequests"
_ONE = f"{_PATH}/{{work_request_id}}"
_STATES = {
    KIND: ("ACCEPTED", "IN_PROGRESS", "FAILED", "SUCCEEDED", "CANCELING", "CANCELED"),
    IDENTITY_KIND: ("ACCEPTED", "IN_PROGRESS", "FAILED", "SUCCEEDED", "CANCELING", "CANCELED"),
    LOGGING_KIND: ("ACCEPTED", "IN_PROGRESS", "FAILED", "SUCCEEDED", "CANCELLING", "CANCELED"),
}


def done(
    request: OciRequest, record: ResourceRecord, operation: str, what: str, kind: str = KIND
) -> Answer:
    """The answer to an operation that is done. what: what was done to the resource: DELETED. kind:
    of the work request."""
    now = time.time()
    resource = {
        "actionType": what,
        "entityType": record.kind.removeprefix("datascience"),
        "identifier": ocid_of(record),
        "entityUri": request.call.target.partition("/actions/")[0],
    }
    made = ResourceRecord(
        *(kind, new_id(), record.project, operation, "SUCCEEDED"),
        *(request.principal.user, now, now),
        data={"resources": [resource], "compartmentId": compartment_of(request, record)},
        parent=record.id,
    )
    request.store.resources.insert(made)
    return Answer(status=202, headers={"opc-work-request-id": ocid(kind, made.id)})


def get_work_request(request: OciRequest, kind: str) -> Answer:
    """GET /workRequests/{work_request_id}"""
    record = _find(request, kind)
    body = shown_work_request(request, record)
    if kind == IDENTITY_KIND:
        body = {**body, "logs": [_entry(record)]}
    return shown(record, body)


def list_work_requests(request: OciRequest, kind: str) -> Answer:
    """GET /workRequests"""
    wanted = request.given("operationType")

    def show(record: ResourceRecord) -> Mapping[str, Any]:
        return shown_work_request(request, record)

    return listing(request, kind, show, parent="resourceId", states=_STATES[kind], name=wanted)


def list_work_request_errors(request: OciRequest, kind: str) -> Answer:
    """GET /workRequests/{work_request_id}/errors"""
    _find(request, kind)
    return Answer(b"[]")


def list_work_request_logs(request: OciRequest, kind: str) -> Answer:
    """GET /workRequests/{work_request_id}/logs"""
    return Answer(encoded([_entry(_find(request, kind))]))


def _entry(record: ResourceRecord) -> Mapping[str, Any]:
    """What the log of a work request has."""
    return {"message": f"{record.name} succeeded.", "timestamp": time_text_ms(record.created_at)}


def cancel_work_request(request: OciRequest) -> Answer:
    """DELETE /workRequests/{work_request_id}"""
    _find(request, KIND)
    raise conflict("The work request has ended.")


def _find(request: OciRequest, kind: str) -> ResourceRecord:
    return find(request, kind, request.path["work_request_id"], request.permission)


def shown_work_request(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    """A work request, as each service shows its own."""
    when = time_text_ms(record.created_at)
    return {
        "id": ocid_of(record),
        "operationType": record.name,
        "status": record.state,
        "compartmentId": compartment_of(request, record),
        "timeAccepted": when,
        "timeStarted": when,
        "timeFinished": when,
        "percentComplete": 100.0,
        "resources": record.data["resources"],
        **({"errors": []} if record.kind == IDENTITY_KIND else {}),
    }


def routes(api: str, kind: str, inspects: Permission, reads: Permission) -> tuple[OciRoute, ...]:
    """Those that read the work requests of a service. api: how its paths begin. inspects, reads:
    what is needed to list them, and to see one."""
    path, one = f"{api}{_PATH}", f"{api}{_ONE}"
    listed, got = partial(list_work_requests, kind=kind), partial(get_work_request, kind=kind)
    errors = partial(list_work_request_errors, kind=kind)
    logs = partial(list_work_request_logs, kind=kind)
    return (
        OciRoute("list_work_requests", "GET", path, listed, inspects),
        OciRoute("get_work_request", "GET", one, got, reads),
        OciRoute("list_work_request_errors", "GET", f"{one}/errors", errors, reads),
        OciRoute("list_work_request_logs", "GET", f"{one}/logs", logs, reads),
    )


ROUTES = (
    *routes(_API, KIND, Permission.WORK_REQUEST_INSPECT, Permission.WORK_REQUEST_READ),
    OciRoute(
        *("cancel_work_request", "DELETE", f"{_API}{_ONE}", cancel_work_request),
        permission=Permission.WORK_REQUEST_DELETE,
    ),
)
