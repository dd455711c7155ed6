"""Data Science projects: what jobs and job runs are of (OCI: Project)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from muster.permissions import Permission
from muster.server.answers import Answer
from muster.server.oci import work_requests
from muster.server.oci.actor import Actor
from muster.server.oci.errors import conflict, not_found
from muster.server.oci.listings import listing
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    adopt,
    change,
    check_match,
    common,
    create,
    default_name,
    find,
    labels,
    moved,
    shown,
)
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import CreateProject, UpdateProject
from muster.store.resource_records import JOB, PROJECT, ResourceFilter, ResourceRecord

KIND = PROJECT
_PATH, _ONE = "/20190101/projects", "/20190101/projects/{project_id}"
_STATES = ("ACTIVE", "DELETING", "DELETED")


def project_for(actor: Actor, text: str, compartment: str) -> ResourceRecord:
    """The project with an OCID, for what is created in a compartment, a project of Muster. Raises
    NotFound, OciError."""
    needs, creates = Permission.PROJECT_READ, Permission.PROJECT_CREATE
    found = adopt(actor, KIND, text, compartment, needs=needs, creates=creates)
    if found.state != "ACTIVE":
        raise not_found()
    return found


def create_project(request: OciRequest) -> Answer:
    """POST /projects"""
    given = request.read(CreateProject)
    project = request.project_with(given.compartment_id, request.permission)
    name, now = given.display_name or default_name("datascienceproject"), time.time()

    def record(identifier: str) -> ResourceRecord:
        return ResourceRecord(
            *(KIND, identifier, project, name, "ACTIVE", request.principal.user, now, now),
            data=labels(given),
        )

    made, _ = create(request, record, KIND, request.permission, "oci.projects.create")
    return shown(made, _shown(request, made))


def list_projects(request: OciRequest) -> Answer:
    """GET /projects"""
    return listing(request, KIND, lambda record: _shown(request, record), states=_STATES)


def get_project(request: OciRequest) -> Answer:
    """GET /projects/{project_id}"""
    record = _find(request)
    return shown(record, _shown(request, record))


def update_project(request: OciRequest) -> Answer:
    """PUT /projects/{project_id}"""
    record, given = _find(request), request.read(UpdateProject)
    data = {**record.data, **labels(given)}
    name = given.display_name or record.name
    after = change(request, record, "oci.projects.update", name=name, data=data)
    return shown(after, _shown(request, after))


def delete_project(request: OciRequest) -> Answer:
    """DELETE /projects/{project_id}"""
    record = _find(request)
    check_match(request, record)
    # a job may be in another compartment than its project
    jobs = ResourceFilter(JOB, None, parent=record.id, states=("ACTIVE",), limit=1)
    if request.store.resources.listing(jobs):
        raise conflict("The project has jobs; delete them first.")
    if record.state != "DELETED":
        change(request, record, "oci.projects.delete", state="DELETED")
    return work_requests.done(request, record, "PROJECT_DELETE", "DELETED")


def change_project_compartment(request: OciRequest) -> Answer:
    """POST /projects/{project_id}/actions/changeCompartment"""
    record = _find(request)
    change(
        request, record, "oci.projects.move", **moved(request, record, Permission.PROJECT_CREATE)
    )
    return Answer(status=204)


def _find(request: OciRequest) -> ResourceRecord:
    return find(request, KIND, request.path["project_id"], request.permission)


def _shown(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    description = record.data.get("description") or ""
    return common(request, record) | {"description": description, "systemTags": {}}


ROUTES = (
    OciRoute("create_project", "POST", _PATH, create_project, Permission.PROJECT_CREATE),
    OciRoute("list_projects", "GET", _PATH, list_projects, Permission.PROJECT_INSPECT),
    OciRoute("get_project", "GET", _ONE, get_project, Permission.PROJECT_READ),
    OciRoute("update_project", "PUT", _ONE, update_project, Permission.PROJECT_UPDATE),
    OciRoute("delete_project", "DELETE", _ONE, delete_project, Permission.PROJECT_DELETE),
    OciRoute(
        "change_project_compartment",
        *("POST", f"{_ONE}/actions/changeCompartment", change_project_compartment),
        permission=Permission.PROJECT_MOVE,
        also=(Permission.PROJECT_CREATE,),
    ),
)
