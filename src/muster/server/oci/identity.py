"""Who there is, and where: users, their keys, groups, compartments, regions (OCI: Identity API
20160918).

A compartment is a project of Muster, a group has the members of a project who have a role. There is
one region, with one availability domain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.caller import Right, Role
from muster.describe.times import time_text_ms
from muster.errors import InvalidInput
from muster.identity import DEFAULT_PROJECT, id_of
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import OciError, invalid, not_found
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.server.oci.value_pages import value_page
from muster.service.accounts import EmbeddedAccounts
from muster.spec.formats.oci.model import Wire
from muster.spec.ocids import TENANCY, ocid, user_ocid
from muster.store.account_records import MemberRecord, ProjectRecord, PublicKeyRecord, UserRecord

_API = "/20160918"
_USER, _KEYS = f"{_API}/users/{{user_id}}", f"{_API}/users/{{user_id}}/apiKeys"
#: Characters of a region's key (OCI).
_REGION_KEY = "MST"
_DOMAIN, _FAULT_DOMAINS = "AD-1", ("FAULT-DOMAIN-1", "FAULT-DOMAIN-2", "FAULT-DOMAIN-3")
_NO_TAGS: Mapping[str, Any] = {"freeformTags": {}, "definedTags": {}}
_ACTIVE: Mapping[str, Any] = {"lifecycleState": "ACTIVE", "inactiveStatus": None}


class CreateApiKey(Wire, frozen=True, kw_only=True):
    """OCI: CreateApiKeyDetails."""

    key: str


class _Group(Struct, frozen=True):
    """The members of a project who have a role."""

    project: str
    role: Role

    @property
    def id(self) -> str:
        """Its OCID."""
        return ocid("group", id_of("group", self.project, self.role))


# Users


def get_user(request: OciRequest) -> Answer:
    """GET /users/{user_id}"""
    return Answer(encoded(_shown_user(request, _find_user(request))))


def list_users(request: OciRequest) -> Answer:
    """GET /users"""
    _check_root(request)
    name = request.given("name")
    users = [user for user in _visible_users(request) if name in (None, user.name)]
    return value_page(request, [_shown_user(request, user) for user in users])


def _visible_users(request: OciRequest) -> list[UserRecord]:
    """The caller, and those who are members of the caller's projects; for administrators all."""
    users, principal = request.store.accounts.users(), request.principal
    if principal.admin:
        return users
    seen = {member.user for member in _members(request)} | {principal.user}
    return [user for user in users if user.name in seen]


def _members(request: OciRequest) -> list[MemberRecord]:
    """The members of the projects that the caller may see."""
    sees = request.principal.sees
    return [member for member in request.store.accounts.members() if sees(member.project)]


def _find_user(request: OciRequest) -> UserRecord:
    """The user in the path. Raises OciError."""
    given = request.path["user_id"]
    if given == _signed_as(request):
        return request.store.accounts.user(request.principal.user)
    found = [user for user in _visible_users(request) if user_ocid(user.name) == given]
    if not found:
        raise not_found()
    return found[0]


def _signed_as(request: OciRequest) -> str | None:
    """The OCID by which the caller calls itself in the key's id: one of OCI, maybe."""
    found = re.search(r'keyId="[^/"]*/([^/"]*)/', request.header("authorization"))
    return None if found is None else found[1]


def _shown_user(request: OciRequest, user: UserRecord) -> Mapping[str, Any]:
    return {
        "id": user_ocid(user.name),
        "compartmentId": _tenancy(request),
        "name": user.name,
        "description": user.display_name or user.name,
        "timeCreated": time_text_ms(user.created_at),
        "lifecycleState": "INACTIVE" if user.disabled else "ACTIVE",
        "inactiveStatus": 1 if user.disabled else None,
        "isMfaActivated": False,
        "capabilities": {
            "canUseConsolePassword": False,
            "canUseApiKeys": True,
            "canUseAuthTokens": False,
            "canUseSmtpCredentials": False,
            "canUseDbCredentials": False,
            "canUseCustomerSecretKeys": False,
            "canUseOAuth2ClientCredentials": False,
        },
        **_NO_TAGS,
    }


# Keys


def list_api_keys(request: OciRequest) -> Answer:
    """GET /users/{user_id}/apiKeys"""
    user = _find_user(request)
    keys = _accounts(request).keys(user.name)
    return Answer(encoded([_shown_key(request, key) for key in keys]))


def upload_api_key(request: OciRequest) -> Answer:
    """POST /users/{user_id}/apiKeys"""
    user, given = _find_user(request), request.read(CreateApiKey)
    try:
        key = _accounts(request).add_key(user.name, given.key)
    except InvalidInput as error:
        if "already" in str(error):
            raise OciError(409, "ApiKeyAlreadyExists", str(error)) from None
        raise
    return Answer(encoded(_shown_key(request, key)))


def delete_api_key(request: OciRequest) -> Answer:
    """DELETE /users/{user_id}/apiKeys/{fingerprint}"""
    user, fingerprint = _find_user(request), request.path["fingerprint"]
    accounts = _accounts(request)
    if fingerprint not in [key.fingerprint for key in accounts.keys(user.name)]:
        raise not_found()
    accounts.delete_key(fingerprint)
    return Answer(status=204)


def _accounts(request: OciRequest) -> EmbeddedAccounts:
    caller = request.caller(DEFAULT_PROJECT)
    return EmbeddedAccounts(request.state.backend, caller, request.call.origin)


def _shown_key(request: OciRequest, key: PublicKeyRecord) -> Mapping[str, Any]:
    user = user_ocid(key.user)
    return {
        "keyId": f"{_tenancy(request)}/{user}/{key.fingerprint}",
        "keyValue": key.pem,
        "fingerprint": key.fingerprint,
        "userId": user,
        "timeCreated": time_text_ms(key.created_at),
        **_ACTIVE,
    }


# Groups


def list_groups(request: OciRequest) -> Answer:
    """GET /groups"""
    _check_root(request)
    name = request.given("name")
    shown = [_shown_group(request, group) for group in _groups(request)]
    return value_page(request, [one for one in shown if name in (None, one["name"])])


def get_group(request: OciRequest) -> Answer:
    """GET /groups/{group_id}"""
    for group in _groups(request):
        if group.id == request.path["group_id"]:
            return Answer(encoded(_shown_group(request, group)))
    raise not_found()


def list_user_group_memberships(request: OciRequest) -> Answer:
    """GET /userGroupMemberships"""
    _check_root(request)
    user, group = request.given("userId"), request.given("groupId")
    if user is None and group is None:
        raise invalid("userId or groupId has to be given")
    shown = [_shown_membership(request, member) for member in _members(request)]
    found = [
        one for one in shown if user in (None, one["userId"]) and group in (None, one["groupId"])
    ]
    return value_page(request, found)


def _groups(request: OciRequest) -> Iterator[_Group]:
    """The groups of the projects that the caller may see, each once, by their names."""
    found = {(member.project, member.role) for member in _members(request)}
    for project, role in sorted(found):
        yield _Group(project, role)


def _shown_group(request: OciRequest, group: _Group) -> Mapping[str, Any]:
    return {
        "id": group.id,
        "compartmentId": _tenancy(request),
        "name": f"{group.project}-{group.role}",
        "description": f"members of {group.project} who have the role {group.role}",
        "timeCreated": time_text_ms(request.store.accounts.project(group.project).created_at),
        **_ACTIVE,
        **_NO_TAGS,
    }


def _shown_membership(request: OciRequest, member: MemberRecord) -> Mapping[str, Any]:
    group, user = _Group(member.project, member.role).id, user_ocid(member.user)
    return {
        "id": ocid("groupmembership", id_of(group, user)),
        "compartmentId": _tenancy(request),
        "groupId": group,
        "userId": user,
        "timeCreated": time_text_ms(request.store.accounts.project(member.project).created_at),
        **_ACTIVE,
    }


# Compartments


def get_tenancy(request: OciRequest) -> Answer:
    """GET /tenancies/{tenancy_id}"""
    _check_tenancy(request)
    shown = {
        "id": request.path["tenancy_id"],
        "name": "muster",
        "description": "The default project of this server of Muster",
        "homeRegionKey": _REGION_KEY,
        **_NO_TAGS,
    }
    return Answer(encoded(shown))


def get_compartment(request: OciRequest) -> Answer:
    """GET /compartments/{compartment_id}"""
    given = request.path["compartment_id"]
    name = request.project_of(given)
    if name != DEFAULT_PROJECT:  # all callers know that there is the tenancy
        request.require(name, Right.READ)
    project = request.store.accounts.project(name)
    return Answer(encoded(_shown_compartment(request, project) | {"id": given}))


def list_compartments(request: OciRequest) -> Answer:
    """GET /compartments"""
    project = request.project_of(request.required("compartmentId"))
    if project != DEFAULT_PROJECT:
        request.require(project, Right.READ)
    if request.flag("compartmentIdInSubtree") and project != DEFAULT_PROJECT:
        raise invalid("compartmentIdInSubtree is possible for the tenancy only")
    if request.given("accessLevel") not in (None, "ANY", "ACCESSIBLE"):
        raise invalid("accessLevel has to be ANY or ACCESSIBLE")
    below, name = request.below(project), request.given("name")
    if request.given("lifecycleState") not in (None, "ACTIVE"):
        below = []
    records = [one for one in request.store.accounts.projects() if one.name in below]
    shown = [_shown_compartment(request, one) for one in records if name in (None, one.name)]
    return value_page(request, shown)


def _shown_compartment(request: OciRequest, project: ProjectRecord) -> dict[str, Any]:
    root = project.name == DEFAULT_PROJECT
    return {
        "id": request.compartments.ocid(project.name),
        "compartmentId": None if root else _tenancy(request),
        "name": project.name,
        "description": project.description or project.name,
        "timeCreated": time_text_ms(project.created_at),
        "isAccessible": request.principal.sees(project.name),
        **_ACTIVE,
        **_NO_TAGS,
    }


def _tenancy(request: OciRequest) -> str:
    return request.compartments.tenancy or TENANCY


def _check_root(request: OciRequest) -> None:
    """Raises OciError unless the compartment is the tenancy, which users and groups are of."""
    if request.project_of(request.required("compartmentId")) != DEFAULT_PROJECT:
        raise not_found()


def _check_tenancy(request: OciRequest) -> None:
    if request.project_of(request.path["tenancy_id"]) != DEFAULT_PROJECT:
        raise not_found()


# Regions


def list_region_subscriptions(request: OciRequest) -> Answer:
    """GET /tenancies/{tenancy_id}/regionSubscriptions"""
    _check_tenancy(request)
    region = {
        "regionKey": _REGION_KEY,
        "regionName": _region(request),
        "status": "READY",
        "isHomeRegion": True,
    }
    return Answer(encoded([region]))


def list_regions(request: OciRequest) -> Answer:
    """GET /regions"""
    return Answer(encoded([{"key": _REGION_KEY, "name": _region(request)}]))


def _region(request: OciRequest) -> str:
    """The region that the client has in its configuration: the services are below it."""
    host = request.header("host")
    return host.removeprefix("identity.") if host.startswith("identity.") else "muster"


def list_availability_domains(request: OciRequest) -> Answer:
    """GET /availabilityDomains"""
    compartment = _known_compartment(request)
    domain = {
        "name": _DOMAIN,
        "id": ocid("availabilitydomain", id_of(_DOMAIN)),
        "compartmentId": compartment,
    }
    return Answer(encoded([domain]))


def list_fault_domains(request: OciRequest) -> Answer:
    """GET /faultDomains"""
    compartment = _known_compartment(request)
    if request.required("availabilityDomain") != _DOMAIN:
        raise not_found()
    domains = [
        {
            "name": name,
            "id": ocid("faultdomain", id_of(name)),
            "compartmentId": compartment,
            "availabilityDomain": _DOMAIN,
        }
        for name in _FAULT_DOMAINS
    ]
    return Answer(encoded(domains))


def _known_compartment(request: OciRequest) -> str:
    """The compartment of the query, which the caller may see. Raises OciError."""
    given = request.required("compartmentId")
    project = request.project_of(given)
    if project != DEFAULT_PROJECT:
        request.require(project, Right.READ)
    return given


ROUTES = (
    OciRoute("get_user", "GET", _USER, get_user),
    OciRoute("list_users", "GET", f"{_API}/users", list_users),
    OciRoute("list_api_keys", "GET", _KEYS, list_api_keys),
    OciRoute("upload_api_key", "POST", _KEYS, upload_api_key),
    OciRoute("delete_api_key", "DELETE", f"{_KEYS}/{{fingerprint}}", delete_api_key),
    OciRoute("list_groups", "GET", f"{_API}/groups", list_groups),
    OciRoute("get_group", "GET", f"{_API}/groups/{{group_id}}", get_group),
    OciRoute(
        "list_user_group_memberships",
        *("GET", f"{_API}/userGroupMemberships", list_user_group_memberships),
    ),
    OciRoute("get_tenancy", "GET", f"{_API}/tenancies/{{tenancy_id}}", get_tenancy),
    OciRoute("get_compartment", "GET", f"{_API}/compartments/{{compartment_id}}", get_compartment),
    OciRoute("list_compartments", "GET", f"{_API}/compartments", list_compartments),
    OciRoute(
        "list_region_subscriptions",
        "GET",
        f"{_API}/tenancies/{{tenancy_id}}/regionSubscriptions",
        list_region_subscriptions,
    ),
    OciRoute("list_regions", "GET", f"{_API}/regions", list_regions),
    OciRoute(
        "list_availability_domains",
        *("GET", f"{_API}/availabilityDomains", list_availability_domains),
    ),
    OciRoute("list_fault_domains", "GET", f"{_API}/faultDomains", list_fault_domains),
)
