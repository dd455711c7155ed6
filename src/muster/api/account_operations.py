"""The HTTP operation of each method of `AccountsAPI`, as `operations` has those of `MusterAPI`."""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.operations import Operation

_USER, _PROJECT = "/users/{name}", "/projects/{name}"
_MEMBERS = "/projects/{project}/members"

#: Method of `AccountsAPI` -> its operation.
ACCOUNT_OPERATIONS: Mapping[str, Operation] = {
    "whoami": Operation("GET", "/whoami"),
    "users": Operation("GET", "/users"),
    "user": Operation("GET", _USER),
    "create_user": Operation("POST", "/users", ("user",)),
    "change_user": Operation("PATCH", _USER, ("change",)),
    "projects": Operation("GET", "/projects"),
    "create_project": Operation("POST", "/projects", ("name", "description")),
    "change_project": Operation("PATCH", _PROJECT, ("description",)),
    "delete_project": Operation("DELETE", _PROJECT),
    "members": Operation("GET", _MEMBERS),
    "set_member": Operation("PUT", f"{_MEMBERS}/{{user}}", ("role",)),
    "remove_member": Operation("DELETE", f"{_MEMBERS}/{{user}}"),
    "tokens": Operation("GET", "/tokens"),
    "create_token": Operation(
        "POST", "/tokens", ("name", "user", "project", "scopes", "expires_at")
    ),
    "revoke_token": Operation("DELETE", "/tokens/{token_id}"),
    "oci": Operation("GET", "/oci"),
    "keys": Operation("GET", f"{_USER}/keys"),
    "add_key": Operation("POST", f"{_USER}/keys", ("pem", "title")),
    "create_session": Operation("POST", "/session-tokens", ("pem",)),
    "delete_key": Operation("DELETE", "/keys/{fingerprint}"),
    "secrets": Operation("GET", "/secrets"),
    "set_secret": Operation("PUT", "/secrets/{name}", ("value",)),
    "delete_secret": Operation("DELETE", "/secrets/{name}"),
    "audit": Operation("GET", "/audit"),
    "prune_audit": Operation("POST", "/audit/prune", ("before",)),
}
