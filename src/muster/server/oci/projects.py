"""Data Science projects: what jobs and job runs are of (OCI: Project)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from muster.caller import Right
from muster.server.answers import Answer
from muster.server.oci import work_requests
from muster.server.oci.errors import conflict
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    change,
    check_match,
    common,
    create,
    default_name,
    find,
    labels,
    listing,
    new_project,
    shown,
)
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import CreateProject, UpdateProject
from muster.store.resource_records import ResourceFilter, ResourceRecord

KIND = "datascienceproject"
_PATH, _ONE = "/20190101/projects", "/20190101/projects/{project_id}"
_STATES = ("ACTIVE", "DELETING", "DELETED")


def create_project(request: OciRequest) -> Answer:
    """POST /projects"""
    given = request.read(CreateProject)
    project = request.project_with(given.compartment_id, Right.SUBMIT)
    name, now = given.display_name or default_name("datascienceproject"), time.time()

    def record(identifier: str) -> ResourceRecord:
        return ResourceRecord(
            *(KIND, identifier, project, name, "ACTIVE", request.principal.user, now, now),
            data=labels(given),
        )

    made, _ = create(request, record, KIND, "oci.projects.create")
    return shown(made, _shown(request, made))


def list_projects(request: OciRequest) -> Answer:
    """GET /projects"""
    return listing(request, KIND, lambda record: _shown(request, record), states=_STATES)


def get_project(request: OciRequest) -> Answer:
    """GET /projects/{project_id}"""
    record = _find(request, Right.READ)
    return shown(record, _shown(request, record))


def update_project(request: OciRequest) -> Answer:
    """PUT /projects/{project_id}"""
    record, given = _find(request, Right.SUBMIT), request.read(UpdateProject)
    data = {**record.data, **labels(given)}
    name = given.display_name or record.name
    after = change(request, record, Right.SUBMIT, "oci.projects.update", name=name, data=data)
    return shown(after, _shown(request, after))


def delete_project(request: OciRequest) -> Answer:
    """DELETE /projects/{project_id}"""
    record = _find(request, Right.DELETE)
    check_match(request, record)
    jobs = ResourceFilter("datasciencejob", record.project, parent=record.id, states=("ACTIVE",))
    if request.store.resources.listing(jobs):
        raise conflict("The project has jobs; delete them first.")
    if record.state != "DELETED":
        change(request, record, Right.DELETE, "oci.projects.delete", state="DELETED")
    return work_requests.done(request, record, "PROJECT_DELETE", "DELETED")


def change_project_compartment(request: OciRequest) -> Answer:
    """POST /projects/{project_id}/actions/changeCompartment"""
    record = _find(request, Right.DELETE)
    target = new_project(request)
    change(request, record, Right.DELETE, "oci.projects.move", project=target)
    return Answer(status=204)


def _find(request: OciRequest, right: Right) -> ResourceRecord:
    return find(request, KIND, request.path["project_id"], right)


def _shown(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    description = record.data.get("description") or ""
    return common(request, record) | {"description": description, "systemTags": {}}


ROUTES = (
    OciRoute("create_project", "POST", _PATH, create_project),
    OciRoute("list_projects", "GET", _PATH, list_projects),
    OciRoute("get_project", "GET", _ONE, get_project),
    OciRoute("update_project", "PUT", _ONE, update_project),
    OciRoute("delete_project", "DELETE", _ONE, delete_project),
    OciRoute(
        "change_project_compartment",
        *("POST", f"{_ONE}/actions/changeCompartment", change_project_compartment),
    ),
)
