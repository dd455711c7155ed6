"""Work requests: how long operations go on (OCI: WorkRequest). Here they are done when they are
answered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from muster.caller import Right
from muster.describe.times import time_text_ms
from muster.identity import new_id
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import conflict
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import find, listing, ocid_of, shown
from muster.server.oci.routes import OciRoute
from muster.spec.ocids import ocid
from muster.store.resource_records import ResourceRecord

KIND = "datascienceworkrequest"
_PATH, _ONE = "/20190101/workRequests", "/20190101/workRequests/{work_request_id}"
_STATES = ("ACCEPTED", "IN_PROGRESS", "FAILED", "SUCCEEDED", "CANCELING", "CANCELED")


def done(
    request: OciRequest, record: ResourceRecord, operation: str, what: str, status: int = 202
) -> Answer:
    """The answer to an operation that is done. what: what was done to the resource: DELETED."""
    now = time.time()
    resource = {
        "actionType": what,
        "entityType": record.kind.removeprefix("datascience"),
        "identifier": ocid_of(record),
        "entityUri": request.call.target.partition("/actions/")[0],
    }
    made = ResourceRecord(
        *(KIND, new_id(), record.project, operation, "SUCCEEDED"),
        *(request.principal.user, now, now),
        data={"resources": [resource]},
        parent=record.id,
    )
    request.store.resources.insert(made)
    return Answer(status=status, headers={"opc-work-request-id": ocid(KIND, made.id)})


def get_work_request(request: OciRequest) -> Answer:
    """GET /workRequests/{work_request_id}"""
    record = _find(request)
    return shown(record, shown_work_request(request, record))


def list_work_requests(request: OciRequest) -> Answer:
    """GET /workRequests"""
    wanted = request.given("operationType")

    def show(record: ResourceRecord) -> Mapping[str, Any]:
        return shown_work_request(request, record)

    return listing(request, KIND, show, parent="resourceId", states=_STATES, name=wanted)


def list_work_request_errors(request: OciRequest) -> Answer:
    """GET /workRequests/{work_request_id}/errors"""
    _find(request)
    return Answer(b"[]")


def list_work_request_logs(request: OciRequest) -> Answer:
    """GET /workRequests/{work_request_id}/logs"""
    record = _find(request)
    entry = {"message": f"{record.name} succeeded.", "timestamp": time_text_ms(record.created_at)}
    return Answer(encoded([entry]))


def cancel_work_request(request: OciRequest) -> Answer:
    """DELETE /workRequests/{work_request_id}"""
    find(request, KIND, request.path["work_request_id"], Right.DELETE)
    raise conflict("The work request has ended.")


def _find(request: OciRequest) -> ResourceRecord:
    return find(request, KIND, request.path["work_request_id"], Right.READ)


def shown_work_request(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    """A work request, as each service shows its own."""
    when = time_text_ms(record.created_at)
    return {
        "id": ocid_of(record),
        "operationType": record.name,
        "status": record.state,
        "compartmentId": request.compartments.ocid(record.project),
        "timeAccepted": when,
        "timeStarted": when,
        "timeFinished": when,
        "percentComplete": 100.0,
        "resources": record.data["resources"],
    }


ROUTES = (
    OciRoute("list_work_requests", "GET", _PATH, list_work_requests),
    OciRoute("get_work_request", "GET", _ONE, get_work_request),
    OciRoute("cancel_work_request", "DELETE", _ONE, cancel_work_request),
    OciRoute("list_work_request_errors", "GET", f"{_ONE}/errors", list_work_request_errors),
    OciRoute("list_work_request_logs", "GET", f"{_ONE}/logs", list_work_request_logs),
)
