"""Groups of users (OCI: Identity API 20160918). Besides those that are stored, there is one of the
administrators, and one of the members of each project who have a role."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.caller import Role, Variables
from muster.describe.times import time_text_ms
from muster.errors import NotFound
from muster.iam.resources import variables_of_group
from muster.iam.role_statements import ADMINISTRATORS, ADMINISTRATORS_ID, group_id, group_of
from muster.identity import DEFAULT_PROJECT, id_of
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import conflict, invalid, not_found
from muster.server.oci.identity import (
    ACTIVE,
    API,
    NO_TAGS,
    Tagged,
    check_changed,
    check_description,
    check_root,
    id_in_path,
    listed,
    members,
    require_in_tenancy,
    tenancy_of,
)
from muster.server.oci.identity_records import RecordKind
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.server.oci.value_pages import value_page
from muster.service.policy_changes import new_group, with_description
from muster.service.policy_references import check_group
from muster.spec.formats.oci.model import Wire
from muster.spec.ocids import ocid, split_ocid, user_ocid
from muster.store.policy_records import GroupMember, GroupRecord

KIND, _MEMBERSHIP = "group", "groupmembership"
_ALL, _ONE = f"{API}/groups", f"{API}/groups/{{group_id}}"
_MEMBERSHIPS = f"{API}/userGroupMemberships"
_ONE_MEMBERSHIP = f"{_MEMBERSHIPS}/{{membership_id}}"


class CreateGroup(Tagged, frozen=True, kw_only=True):
    """OCI: CreateGroupDetails."""

    compartment_id: str
    name: str
    description: str


class UpdateGroup(Tagged, frozen=True, kw_only=True):
    """OCI: UpdateGroupDetails."""

    description: str | None = None


class AddUserToGroup(Wire, frozen=True, kw_only=True):
    """OCI: AddUserToGroupDetails."""

    user_id: str
    group_id: str


class _Group(Struct, frozen=True):
    """A group as it is shown."""

    id: str
    """Its OCID."""
    name: str
    description: str
    created: str | None
    users: tuple[tuple[str, str | None], ...]
    """Who is in it, and since when."""


# Groups


def create_group(request: OciRequest) -> Answer:
    """POST /groups"""
    given = request.read(CreateGroup, CreateGroup.problems)
    require_in_tenancy(request, given.compartment_id)
    user = request.principal.user
    return _GROUP.create(
        request,
        lambda made_id: new_group(made_id, given.name, check_description(given.description), user),
    )


def list_groups(request: OciRequest) -> Answer:
    """GET /groups"""
    check_root(request)
    found = sorted(_groups(request, Permission.GROUP_INSPECT), key=lambda one: one.name.lower())
    return listed(request, [_shown(request, one) for one in found])


def get_group(request: OciRequest) -> Answer:
    """GET /groups/{group_id}"""
    for group in _groups(request, request.permission):
        if group.id == request.path["group_id"]:
            parts = split_ocid(group.id)
            assert parts is not None
            try:
                return _GROUP.answer(request, request.store.policies.group(parts[1]))
            except NotFound:  # it has no record
                return Answer(encoded(_shown(request, group)))
    raise not_found()


def update_group(request: OciRequest) -> Answer:
    """PUT /groups/{group_id}"""
    before = _stored(request, request.path["group_id"])
    given = request.read(UpdateGroup, UpdateGroup.problems)
    _GROUP.check_tag(request, before)
    return _GROUP.update(
        request, before, with_description(before, check_changed(given.description))
    )


def delete_group(request: OciRequest) -> Answer:
    """DELETE /groups/{group_id}"""
    record = _stored(request, request.path["group_id"])
    _GROUP.check_tag(request, record)
    if request.store.policies.group_members(group=record.id):
        raise conflict(f"The group {record.name} has users: remove them first.")
    return _GROUP.delete(request, record, check_group)


def _groups(request: OciRequest, permission: Permission) -> Iterator[_Group]:
    """The groups that the caller may see with a permission in the tenancy: besides those, the
    caller's own, and those of projects whose members it may see."""
    accounts, policies = request.store.accounts, request.store.policies
    created = {one.name: time_text_ms(one.created_at) for one in accounts.projects()}
    sees = request.chooser(DEFAULT_PROJECT, permission)
    if sees is not None and sees(variables_of_group(ADMINISTRATORS_ID, ADMINISTRATORS)):
        since = created.get(DEFAULT_PROJECT)
        users = ((one.name, since) for one in accounts.users() if one.admin and not one.disabled)
        text = "the users who administer the server"
        yield _Group(ADMINISTRATORS_ID, ADMINISTRATORS, text, since, tuple(users))
    roles: dict[tuple[str, Role], list[str]] = {}
    for member in members(request, permission):
        roles.setdefault((member.project, member.role), []).append(member.user)
    for (project, role), names in roles.items():
        since = created.get(project)
        yield _Group(
            *(group_id(project, role), group_of(project, role)),
            *(f"members of {project} who have the role {role}", since),
            tuple((name, since) for name in names),
        )
    user = request.principal.user
    own = set[str]()
    if request.principal.is_user(user):  # its runs and hosts act as themselves
        own = {one.id for one in policies.groups_of(user)}
    in_group: dict[str, list[tuple[str, str | None]]] = {}
    for one in policies.group_members():
        in_group.setdefault(one.group, []).append((one.user, time_text_ms(one.added_at)))
    for record in policies.groups():
        if record.id in own or (sees is not None and sees(_variables(record))):
            users_of = tuple(in_group.get(record.id, ()))
            yield replace(_shown_as(record), users=users_of)


def _stored(request: OciRequest, group: str) -> GroupRecord:
    """The group with an OCID, if the caller has the permission of the route. Raises NotFound,
    Forbidden, and OciError for a group without a record."""
    record = _find(request, group)
    request.require(DEFAULT_PROJECT, request.permission, _variables(record))
    return record


def _find(request: OciRequest, group: str) -> GroupRecord:
    parts = split_ocid(group)
    if parts is None or parts[0] != KIND:
        raise not_found()
    try:
        return request.store.policies.group(parts[1])
    except NotFound:
        request.require(DEFAULT_PROJECT, request.permission)
        if group == ADMINISTRATORS_ID:
            text = f"{ADMINISTRATORS} are the users with the flag admin: `muster users change`."
            raise conflict(text) from None
        for one in request.store.accounts.projects():
            for role in Role:
                if group_id(one.name, role) == group:
                    text = f"{group_of(one.name, role)} has the members of project {one.name} with "
                    text += f"the role {role}: `muster projects members` changes them."
                    raise conflict(text) from None
        raise


def _variables(record: GroupRecord) -> Variables:
    return variables_of_group(ocid(KIND, record.id), record.name)


def _shown_as(record: GroupRecord) -> _Group:
    since = time_text_ms(record.created_at)
    return _Group(ocid(KIND, record.id), record.name, record.description, since, ())


def _shown(request: OciRequest, group: _Group) -> Mapping[str, Any]:
    return {
        "id": group.id,
        "compartmentId": tenancy_of(request),
        "name": group.name,
        "description": group.description,
        "timeCreated": group.created,
        **ACTIVE,
        **NO_TAGS,
    }


_GROUP = RecordKind(
    *("Group", "groups"),
    find=lambda store, id_: store.group(id_),
    insert=lambda store, made: store.create_group(made),
    replace=lambda store, before, after: store.change_group(before, after),
    remove=lambda store, record: store.delete_group(record),
    variables=_variables,
    shown=lambda request, record: _shown(request, _shown_as(record)),
)


# Users in groups


def add_user_to_group(request: OciRequest) -> Answer:
    """POST /userGroupMemberships"""
    given = request.read(AddUserToGroup)
    group = _stored(request, given.group_id)
    names = [one.name for one in request.store.accounts.users()]
    user = next((name for name in names if user_ocid(name) == given.user_id), None)
    if user is None:
        raise not_found()
    policies = request.store.policies
    member = GroupMember(group.id, user, time.time(), request.principal.user)
    _GROUP.act(request, "add-user", group, lambda: policies.add_user(member), user)
    (made,) = policies.group_members(group=group.id, user=user)
    since = time_text_ms(made.added_at)
    return Answer(encoded(_shown_membership(request, ocid(KIND, group.id), user, since)))


def remove_user_from_group(request: OciRequest) -> Answer:
    """DELETE /userGroupMemberships/{membership_id}"""
    group, user = _membership(request, request.permission)
    policies, record = request.store.policies, _stored(request, group.id)
    _GROUP.act(
        *(request, "remove-user", record),
        lambda: policies.remove_user(record.id, user),
        user,
    )
    return Answer(status=204)


def get_user_group_membership(request: OciRequest) -> Answer:
    """GET /userGroupMemberships/{membership_id}"""
    group, user = _membership(request, request.permission)
    return Answer(encoded(_shown_membership(request, group.id, user, dict(group.users)[user])))


def list_user_group_memberships(request: OciRequest) -> Answer:
    """GET /userGroupMemberships"""
    check_root(request)
    user, group = request.given("userId"), request.given("groupId")
    if user is None and group is None:
        raise invalid("userId or groupId has to be given")
    found = [
        _shown_membership(request, one.id, name, since)
        for one in _groups(request, Permission.GROUP_INSPECT)
        if group in (None, one.id)
        for name, since in one.users
        if user in (None, user_ocid(name))
    ]
    return value_page(request, found)


def _membership(request: OciRequest, permission: Permission) -> tuple[_Group, str]:
    """The group and the user of the membership in the path, if it is of those that `_groups` has.
    Raises OciError."""
    id_in_path(request, "membership_id", _MEMBERSHIP)
    for group in _groups(request, permission):
        for user, _ in group.users:
            if _membership_ocid(group.id, user) == request.path["membership_id"]:
                return group, user
    raise not_found()


def _membership_ocid(group: str, user: str) -> str:
    return ocid(_MEMBERSHIP, id_of(group, user_ocid(user)))


def _shown_membership(
    request: OciRequest, group: str, user: str, since: str | None
) -> Mapping[str, Any]:
    return {
        "id": _membership_ocid(group, user),
        "compartmentId": tenancy_of(request),
        "groupId": group,
        "userId": user_ocid(user),
        "timeCreated": since,
        **ACTIVE,
    }


ROUTES = (
    OciRoute("create_group", "POST", _ALL, create_group, Permission.GROUP_CREATE),
    OciRoute("list_groups", "GET", _ALL, list_groups),
    OciRoute("get_group", "GET", _ONE, get_group, Permission.GROUP_READ),
    OciRoute("update_group", "PUT", _ONE, update_group, Permission.GROUP_UPDATE),
    OciRoute("delete_group", "DELETE", _ONE, delete_group, Permission.GROUP_DELETE),
    OciRoute(
        *("add_user_to_group", "POST", _MEMBERSHIPS, add_user_to_group),
        permission=Permission.GROUP_UPDATE,
    ),
    OciRoute("list_user_group_memberships", "GET", _MEMBERSHIPS, list_user_group_memberships),
    OciRoute(
        "get_user_group_membership",
        *("GET", _ONE_MEMBERSHIP, get_user_group_membership),
        permission=Permission.GROUP_INSPECT,
    ),
    OciRoute(
        *("remove_user_from_group", "DELETE", _ONE_MEMBERSHIP, remove_user_from_group),
        permission=Permission.GROUP_UPDATE,
    ),
)
