"""What users, groups, policies, compartments and regions have in common (OCI: Identity API
20160918)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from muster.caller import NO_VARIABLES, Variables
from muster.errors import AlreadyExists, InvalidInput, NotFound
from muster.iam.names import check_text
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Permission
from muster.server.answers import Answer, encoded, matches
from muster.server.oci.errors import OciError, conflict, invalid, not_found
from muster.server.oci.request import OciRequest
from muster.server.oci.value_pages import value_page
from muster.spec.formats.oci.model import DefinedTags, Tags, Wire
from muster.spec.ocids import TENANCY, split_ocid
from muster.store.account_records import MemberRecord, ProjectRecord, UserRecord

T = TypeVar("T")
N = TypeVar("N", ProjectRecord, UserRecord)

API = "/20160918"
#: The key of the only region (OCI: three letters).
REGION_KEY = "MST"
NO_TAGS: Mapping[str, Any] = {"freeformTags": {}, "definedTags": {}}
ACTIVE: Mapping[str, Any] = {"lifecycleState": "ACTIVE", "inactiveStatus": None}
#: Seconds for which a request can be repeated (OCI: retry tokens expire after 24 hours).
_RETRY_TOKEN_LIFETIME = 86400.0
_LONGEST_DESCRIPTION = 400
#: Fields of a record that differ if it is created by the same request once more.
_OF_THE_MOMENT = frozenset({"version", "created_at", "created_by", "updated_at", "updated_by"})


class Tagged(Wire, frozen=True, kw_only=True):
    """What can be given to all of them. Tags are not kept, and refused: policies ask for them."""

    freeform_tags: Tags | None = None
    defined_tags: DefinedTags | None = None

    def problems(self) -> list[str]:
        """What is wrong with it, for `OciRequest.read`."""
        given = (("freeformTags", self.freeform_tags), ("definedTags", self.defined_tags))
        return [f"{name} cannot be set here; leave it out" for name, tags in given if tags]


def check_description(text: str) -> str:
    """A description (OCI: up to 400 characters; it has to be there, and may be empty). Raises
    InvalidInput, OciError."""
    if len(text) > _LONGEST_DESCRIPTION:
        raise invalid(
            f"description has {len(text):,} characters, {_LONGEST_DESCRIPTION} are allowed"
        )
    return check_text("description", text)


def check_changed(text: str | None) -> str | None:
    """As `check_description`, of a change; None: it stays. Raises InvalidInput, OciError."""
    return None if text is None else check_description(text)


def tenancy_of(request: OciRequest) -> str:
    """The OCID of the tenancy: the one that clients know from OCI, if there is one."""
    return request.compartments.tenancy or TENANCY


def members(request: OciRequest, permission: Permission) -> list[MemberRecord]:
    """The members of the projects whose members the caller may see; of all with a permission in
    the tenancy."""
    found = request.store.accounts.members()
    if request.allows(DEFAULT_PROJECT, permission):
        return found
    visible = request.visible(Permission.MEMBER_INSPECT)
    seen = {project for project, sees in visible if sees(NO_VARIABLES)}  # members have none
    return [member for member in found if member.project in seen]


def check_root(request: OciRequest) -> None:
    """Raises OciError unless the compartment is the tenancy, which users and groups are of."""
    if request.project_of(request.required("compartmentId")) != DEFAULT_PROJECT:
        raise not_found()


def require_in_tenancy(request: OciRequest, compartment: str) -> None:
    """Raises NotFound, OciError, Forbidden unless a compartment is the tenancy, where users and
    groups are, and the caller has the permission of the route there."""
    if request.project_with(compartment, request.permission) != DEFAULT_PROJECT:
        raise not_found()


def check_tenancy(request: OciRequest) -> None:
    """Raises OciError unless the path names the tenancy."""
    if request.project_of(request.path["tenancy_id"]) != DEFAULT_PROJECT:
        raise not_found()


def known_project(request: OciRequest, compartment: str) -> str:
    """The project that is a compartment, which the caller may see: all know that there is the
    tenancy. Raises NotFound, Forbidden."""
    project = request.project_of(compartment)
    if project == DEFAULT_PROJECT:
        request.answer_everybody()
    else:
        request.require(project, Permission.COMPARTMENT_INSPECT)
    return project


def known_compartment(request: OciRequest) -> str:
    """The compartment of the query, which the caller may see. Raises NotFound, OciError."""
    given = request.required("compartmentId")
    known_project(request, given)
    return given


def change(
    request: OciRequest,
    project: str,
    action: str,
    object: str,
    do: Callable[[], T],
    on: Variables = NO_VARIABLES,
) -> T:
    """As `OciRequest.act` with the permission of the route, for what decisions depend on: they see
    it at once."""
    made = request.act(project, request.permission, action, object, do, on)
    request.state.backend.policies_changed()
    return made


@contextmanager
def still_used() -> Iterator[None]:
    """Answer that something cannot be deleted as it is, such as a group that statements name, with
    a conflict."""
    try:
        yield
    except NotFound:
        raise
    except InvalidInput as error:
        raise conflict(str(error)) from None


def id_in_path(request: OciRequest, parameter: str, kind: str) -> str:
    """The last part of the OCID in the path. Raises OciError unless it is of this kind."""
    parts = split_ocid(request.path[parameter])
    if parts is None or parts[0] != kind:
        raise not_found()
    return parts[1]


def repeats(request: OciRequest, found: N, made: N) -> bool:
    """Whether a request that finds a project or user with the name of the one that it makes was
    sent before, by its retry token: their ids are their names, so that no token can be kept."""
    recent = made.created_at - found.created_at < _RETRY_TOKEN_LIFETIME
    known = recent and request.header("opc-retry-token") != ""
    return known and found.created_by == made.created_by and content(found) == content(made)


def content(record: Struct) -> Mapping[str, Any]:
    """What a request gives to a record that it creates."""
    return {name: one for name, one in asdict(record).items() if name not in _OF_THE_MOMENT}


def already_exists(kind: str, error: AlreadyExists) -> OciError:
    """What clients are told of a name that is taken. kind: as in OCI's codes."""
    return OciError(409, f"{kind}AlreadyExists", str(error))


def check_tag(request: OciRequest, tag: str) -> None:
    """Raises OciError unless the header if-match, if there is one, names this entity tag."""
    given = request.header("if-match")
    if given and not matches(given.replace('"', ""), tag):
        raise OciError(412, "NoEtagMatch", "The resource has changed since it was read.")


def answer(body: Mapping[str, Any], tag: str) -> Answer:
    """A resource as it is sent, with its entity tag."""
    return Answer(encoded(body), headers={"etag": tag})


def listed(request: OciRequest, values: Sequence[Mapping[str, Any]]) -> Answer:
    """The page of a list that the request is for, by its filters and in its order: by default as it
    is (OCI: by time the newest first, by name in alphabetical order). Raises OciError."""
    name, state = request.given("name"), request.given("lifecycleState")
    found = [
        one
        for one in values
        if name in (None, one["name"]) and state in (None, one["lifecycleState"])
    ]
    by, order = request.given("sortBy"), request.given("sortOrder")
    if by not in (None, "TIMECREATED", "NAME"):
        raise invalid("sortBy has to be TIMECREATED or NAME")
    if order not in (None, "ASC", "DESC"):
        raise invalid("sortOrder has to be ASC or DESC")
    if by == "NAME":
        found.sort(key=lambda one: str(one["name"]).lower(), reverse=order == "DESC")
    elif by == "TIMECREATED":
        found.sort(key=lambda one: str(one["timeCreated"]), reverse=order != "ASC")
    elif order == "DESC":
        found.reverse()
    return value_page(request, found)
