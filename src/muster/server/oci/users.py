"""Users and their keys (OCI: Identity API 20160918)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from muster.api.accounts import UserChange
from muster.describe.times import time_text_ms
from muster.errors import AlreadyExists
from muster.iam.resources import variables_of_user
from muster.iam.signatures import parse_authorization
from muster.identity import DEFAULT_PROJECT, id_of
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import OciError, conflict, not_found
from muster.server.oci.identity import (
    ACTIVE,
    API,
    NO_TAGS,
    Tagged,
    already_exists,
    answer,
    check_description,
    check_root,
    check_tag,
    listed,
    members,
    repeats,
    require_in_tenancy,
    tenancy_of,
)
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import Wire
from muster.spec.ocids import user_ocid
from muster.store.account_records import PublicKeyRecord, UserKind, UserRecord

_USERS = f"{API}/users"
_USER, _KEYS = f"{API}/users/{{user_id}}", f"{API}/users/{{user_id}}/apiKeys"


class CreateApiKey(Wire, frozen=True, kw_only=True):
    """OCI: CreateApiKeyDetails."""

    key: str


class CreateUser(Tagged, frozen=True, kw_only=True):
    """OCI: CreateUserDetails. No mail is sent to anybody: the address is not kept."""

    compartment_id: str
    name: str
    description: str
    email: str | None = None


class UpdateUser(Tagged, frozen=True, kw_only=True):
    """OCI: UpdateUserDetails."""

    description: str | None = None
    email: str | None = None


class UpdateState(Wire, frozen=True, kw_only=True):
    """OCI: UpdateStateDetails, where only False is possible."""

    blocked: bool | None = None


# Users


def get_user(request: OciRequest) -> Answer:
    """GET /users/{user_id}"""
    user = _named(request)
    if user is not None and user.name not in _seen(request, request.permission):
        user = None
    if user is None:
        raise not_found()
    return _answer(request, user)


def list_users(request: OciRequest) -> Answer:
    """GET /users"""
    check_root(request)
    seen, found = _seen(request, Permission.USER_INSPECT), request.store.accounts.users()
    return listed(request, [_shown_user(request, one) for one in found if one.name in seen])


def _seen(request: OciRequest, permission: Permission) -> set[str]:
    """The names of the users whom the caller may see: itself, the members of the projects whose
    members it may see, and those for whom it has a permission in the tenancy."""
    names = {one.name for one in request.store.accounts.users()}
    seen = {request.principal.user} | {one.user for one in members(request, permission)}
    sees = request.chooser(DEFAULT_PROJECT, permission)
    return seen if sees is None else seen | {one for one in names if sees(variables_of_user(one))}


def _named(request: OciRequest) -> UserRecord | None:
    """The user in the path, whoever asks; None if there is none."""
    given = request.path["user_id"]
    if given == _signed_as(request):
        return request.store.accounts.user(request.principal.user)
    users = request.store.accounts.users()
    return next((user for user in users if user_ocid(user.name) == given), None)


def _own_or_allowed(request: OciRequest) -> UserRecord:
    """The user in the path, if that is who asks, or the caller has the permission that the route
    needs for users. Raises OciError, Forbidden."""
    user = _named(request)
    if user is None:
        raise not_found()
    if not request.principal.is_user(user.name):
        request.require(DEFAULT_PROJECT, request.permission, variables_of_user(user.name))
    return user


def _signed_as(request: OciRequest) -> str | None:
    """The OCID by which the caller calls itself in the key's id: one of OCI, maybe."""
    parts = parse_authorization(request.header("authorization")).key_id.split("/")
    return parts[1] if len(parts) > 2 else None


def _shown_user(request: OciRequest, user: UserRecord) -> Mapping[str, Any]:
    return {
        "id": user_ocid(user.name),
        "compartmentId": tenancy_of(request),
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
        **NO_TAGS,
    }


def create_user(request: OciRequest) -> Answer:
    """POST /users"""
    given = request.read(CreateUser, CreateUser.problems)
    require_in_tenancy(request, given.compartment_id)
    description = check_description(given.description)
    made = UserRecord(
        *(given.name, UserKind.PERSON, time.time(), request.principal.user, description)
    )
    try:
        user = request.accounts(DEFAULT_PROJECT).create_user(made)
    except AlreadyExists as error:
        user = request.store.accounts.user(given.name)
        if not repeats(request, user, made):
            raise already_exists("User", error) from None
    return _answer(request, user)


def update_user(request: OciRequest) -> Answer:
    """PUT /users/{user_id}"""
    user, given = _find(request), request.read(UpdateUser, UpdateUser.problems)
    check_tag(request, _tag_of(user))
    if given.description is not None:
        description = check_description(given.description)
        change = UserChange(display_name=description)
        user = request.accounts(DEFAULT_PROJECT).change_user(user.name, change)
    return _answer(request, user)


def update_user_state(request: OciRequest) -> Answer:
    """PUT /users/{user_id}/state"""
    user, given = _find(request), request.read(UpdateState)
    check_tag(request, _tag_of(user))
    if given.blocked is not None:
        change = UserChange(disabled=given.blocked)
        user = request.accounts(DEFAULT_PROJECT).change_user(user.name, change)
    return _answer(request, user)


def delete_user(request: OciRequest) -> Answer:
    """DELETE /users/{user_id}"""
    user = _find(request)
    raise conflict(
        f"Users are never deleted, as runs and the audit log name {user.name}. Set the state "
        "blocked instead: the user can do nothing then."
    )


def _find(request: OciRequest) -> UserRecord:
    """The user in the path, if the caller has the permission of the route. Raises OciError,
    Forbidden."""
    user = _named(request)
    if user is None:
        raise not_found()
    request.require(DEFAULT_PROJECT, request.permission, variables_of_user(user.name))
    return user


def _tag_of(user: UserRecord) -> str:
    return id_of("user", user.name, user.display_name, str(user.disabled))


def _answer(request: OciRequest, user: UserRecord) -> Answer:
    return answer(_shown_user(request, user), _tag_of(user))


# Keys


def list_api_keys(request: OciRequest) -> Answer:
    """GET /users/{user_id}/apiKeys"""
    user = _own_or_allowed(request)
    keys = request.accounts(DEFAULT_PROJECT).keys(user.name)
    return Answer(encoded([_shown_key(request, key) for key in keys]))


def upload_api_key(request: OciRequest) -> Answer:
    """POST /users/{user_id}/apiKeys"""
    user, given = _own_or_allowed(request), request.read(CreateApiKey)
    try:
        key = request.accounts(DEFAULT_PROJECT).add_key(user.name, given.key)
    except AlreadyExists as error:
        raise OciError(409, "ApiKeyAlreadyExists", str(error)) from None
    return Answer(encoded(_shown_key(request, key)))


def delete_api_key(request: OciRequest) -> Answer:
    """DELETE /users/{user_id}/apiKeys/{fingerprint}"""
    user, fingerprint = _own_or_allowed(request), request.path["fingerprint"]
    if fingerprint not in [key.fingerprint for key in request.store.keys.listing(user.name)]:
        raise not_found()
    request.accounts(DEFAULT_PROJECT).delete_key(fingerprint)
    return Answer(status=204)


def _shown_key(request: OciRequest, key: PublicKeyRecord) -> Mapping[str, Any]:
    user = user_ocid(key.user)
    return {
        "keyId": f"{tenancy_of(request)}/{user}/{key.fingerprint}",
        "keyValue": key.pem,
        "fingerprint": key.fingerprint,
        "userId": user,
        "timeCreated": time_text_ms(key.created_at),
        **ACTIVE,
    }


ROUTES = (
    OciRoute("create_user", "POST", _USERS, create_user, Permission.USER_CREATE),
    OciRoute("get_user", "GET", _USER, get_user, Permission.USER_READ),
    OciRoute("list_users", "GET", _USERS, list_users),
    OciRoute("update_user", "PUT", _USER, update_user, Permission.USER_UPDATE),
    OciRoute(
        *("update_user_state", "PUT", f"{_USER}/state", update_user_state),
        permission=Permission.USER_UPDATE,
    ),
    OciRoute("delete_user", "DELETE", _USER, delete_user, Permission.USER_DELETE),
    OciRoute("list_api_keys", "GET", _KEYS, list_api_keys, Permission.USER_READ),
    OciRoute("upload_api_key", "POST", _KEYS, upload_api_key, Permission.USER_UPDATE),
    OciRoute(
        *("delete_api_key", "DELETE", f"{_KEYS}/{{fingerprint}}", delete_api_key),
        permission=Permission.USER_UPDATE,
    ),
)
