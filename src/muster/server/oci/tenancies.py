"""The tenancy and its compartments, which are projects of Muster (OCI: Identity API 20160918)."""

from __future__ import annotations

import time
from typing import Any

from muster.describe.times import time_text_ms
from muster.errors import AlreadyExists
from muster.iam.names import check_name
from muster.identity import DEFAULT_PROJECT, id_of
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci import work_requests
from muster.server.oci.errors import invalid
from muster.server.oci.identity import (
    ACTIVE,
    API,
    NO_TAGS,
    REGION_KEY,
    Tagged,
    already_exists,
    answer,
    change,
    check_description,
    check_tag,
    check_tenancy,
    known_project,
    listed,
    repeats,
    still_used,
    tenancy_of,
)
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.service.policy_references import check_compartment
from muster.spec.formats.oci.model import Wire
from muster.spec.ocids import split_ocid
from muster.store.account_records import ProjectRecord
from muster.store.resource_records import ResourceRecord

_ALL, _ONE = f"{API}/compartments", f"{API}/compartments/{{compartment_id}}"


class CreateCompartment(Tagged, frozen=True, kw_only=True):
    """OCI: CreateCompartmentDetails."""

    compartment_id: str
    name: str
    description: str


class UpdateCompartment(Tagged, frozen=True, kw_only=True):
    """OCI: UpdateCompartmentDetails."""

    name: str | None = None
    description: str | None = None


class MoveCompartment(Wire, frozen=True, kw_only=True):
    """OCI: MoveCompartmentDetails."""

    target_compartment_id: str


def get_tenancy(request: OciRequest) -> Answer:
    """GET /tenancies/{tenancy_id}"""
    check_tenancy(request)
    shown = {
        "id": request.path["tenancy_id"],
        "name": "muster",
        "description": "The default project of this server of Muster",
        "homeRegionKey": REGION_KEY,
        **NO_TAGS,
    }
    return Answer(encoded(shown))


def get_compartment(request: OciRequest) -> Answer:
    """GET /compartments/{compartment_id}"""
    given = request.path["compartment_id"]
    project = request.store.accounts.project(known_project(request, given))
    return answer(_shown_compartment(request, project) | {"id": given}, _tag_of(project))


def list_compartments(request: OciRequest) -> Answer:
    """GET /compartments"""
    project = known_project(request, request.required("compartmentId"))
    if request.flag("compartmentIdInSubtree") and project != DEFAULT_PROJECT:
        raise invalid("compartmentIdInSubtree is possible for the tenancy only")
    if request.given("accessLevel") not in (None, "ANY", "ACCESSIBLE"):
        raise invalid("accessLevel has to be ANY or ACCESSIBLE")
    seen = {one for one, _ in request.below(project, Permission.COMPARTMENT_INSPECT)}
    parent = "" if project == DEFAULT_PROJECT else project
    whole = request.flag("compartmentIdInSubtree")
    records = [
        one
        for one in request.store.accounts.projects()
        if one.name in seen and (whole or one.parent == parent)
    ]
    return listed(request, [_shown_compartment(request, one) for one in records])


def create_compartment(request: OciRequest) -> Answer:
    """POST /compartments"""
    given = request.read(CreateCompartment, CreateCompartment.problems)
    parent = request.project_with(given.compartment_id, request.permission)
    name = check_name("project", given.name)
    description = check_description(given.description)
    now, accounts = time.time(), request.store.accounts
    above = "" if parent == DEFAULT_PROJECT else parent
    made = ProjectRecord(name, now, request.principal.user, description, above)
    try:
        change(
            *(request, parent, "projects.create", name),
            lambda: accounts.create_project(made),
        )
    except AlreadyExists as error:
        found = accounts.project(name)
        if not repeats(request, found, made):
            raise already_exists("Compartment", error) from None
    return _answer(request, name)


def update_compartment(request: OciRequest) -> Answer:
    """PUT /compartments/{compartment_id}"""
    project = _find(request)
    given = request.read(UpdateCompartment, UpdateCompartment.problems)
    check_tag(request, _tag_of(project))
    if given.name not in (None, project.name):
        raise invalid(f"name cannot be changed: runs and policies name {project.name}")
    if given.description is not None:
        description = check_description(given.description)
        change(
            *(request, project.name, "projects.change", project.name),
            lambda: request.store.accounts.change_project(project.name, description),
        )
    return _answer(request, project.name)


def delete_compartment(request: OciRequest) -> Answer:
    """DELETE /compartments/{compartment_id}"""
    project, accounts = _find(request), request.store.accounts
    check_tag(request, _tag_of(project))

    def delete() -> None:
        check_compartment(request.state.backend, request.caller(DEFAULT_PROJECT), project.name)
        accounts.delete_project(project.name)

    with still_used():  # or something is in it
        change(request, project.name, "projects.delete", project.name, delete)
    return _work_request(request, project, project.parent, "DELETE_COMPARTMENT", "DELETED")


def move_compartment(request: OciRequest) -> Answer:
    """POST /compartments/{compartment_id}/actions/moveCompartment"""
    project, given = _find(request), request.read(MoveCompartment)
    target = request.project_with(given.target_compartment_id, Permission.COMPARTMENT_CREATE)
    check_tag(request, _tag_of(project))
    change(
        *(request, project.name, "projects.move", f"{project.name} (to {target})"),
        lambda: request.store.accounts.move_project(project.name, target),
    )
    return _work_request(request, project, target, "MOVE_COMPARTMENT", "MOVED")


def _find(request: OciRequest) -> ProjectRecord:
    """The compartment in the path, if the caller has the permission of the route. Raises NotFound,
    Forbidden."""
    name = request.project_with(request.path["compartment_id"], request.permission)
    return request.store.accounts.project(name)


def _answer(request: OciRequest, name: str) -> Answer:
    project = request.store.accounts.project(name)
    return answer(_shown_compartment(request, project), _tag_of(project))


def _tag_of(project: ProjectRecord) -> str:
    return id_of("project", project.name, project.description, project.parent)


def _work_request(
    request: OciRequest, project: ProjectRecord, place: str, operation: str, what: str
) -> Answer:
    """The answer to a change of a compartment, which is done. place: the compartment of the work
    request, as that one may be gone."""
    parts = split_ocid(request.compartments.ocid(project.name))
    assert parts is not None
    record = ResourceRecord(
        *(parts[0], parts[1], place or DEFAULT_PROJECT, project.name, "ACTIVE"),
        *(project.created_by, project.created_at, project.created_at),
        data={},
    )
    return work_requests.done(request, record, operation, what, work_requests.IDENTITY_KIND)


def _parent_of(request: OciRequest, project: ProjectRecord) -> str:
    return request.compartments.ocid(project.parent) if project.parent else tenancy_of(request)


def _shown_compartment(request: OciRequest, project: ProjectRecord) -> dict[str, Any]:
    root = project.name == DEFAULT_PROJECT
    return {
        "id": request.compartments.ocid(project.name),
        "compartmentId": None if root else _parent_of(request, project),
        "name": project.name,
        "description": project.description or project.name,
        "timeCreated": time_text_ms(project.created_at),
        "isAccessible": request.allows(project.name, Permission.COMPARTMENT_INSPECT),
        **ACTIVE,
        **NO_TAGS,
    }


ROUTES = (
    OciRoute("get_tenancy", "GET", f"{API}/tenancies/{{tenancy_id}}", get_tenancy),
    OciRoute("get_compartment", "GET", _ONE, get_compartment, Permission.COMPARTMENT_INSPECT),
    OciRoute("list_compartments", "GET", _ALL, list_compartments),
    OciRoute("create_compartment", "POST", _ALL, create_compartment, Permission.COMPARTMENT_CREATE),
    OciRoute("update_compartment", "PUT", _ONE, update_compartment, Permission.COMPARTMENT_UPDATE),
    OciRoute(
        *("delete_compartment", "DELETE", _ONE, delete_compartment),
        permission=Permission.COMPARTMENT_DELETE,
    ),
    OciRoute(
        *("move_compartment", "POST", f"{_ONE}/actions/moveCompartment", move_compartment),
        permission=Permission.COMPARTMENT_MOVE,
        also=(Permission.COMPARTMENT_CREATE,),
    ),
    *work_requests.routes(
        *(API, work_requests.IDENTITY_KIND),
        *(Permission.COMPARTMENT_INSPECT, Permission.COMPARTMENT_READ),
    ),
)
