"""The HTTP operation of each method of `PoliciesAPI`, as `account_operations` has those of
`AccountsAPI`."""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.operations import Operation

_POLICY, _GROUP = "/policies/{policy_id}", "/groups/{name}"
_DYNAMIC_GROUP, _COMPARTMENT = "/dynamic-groups/{name}", "/compartments/{name}"
_USER = "/groups/{group}/users/{user}"

#: Method of `PoliciesAPI` -> its operation.
POLICY_OPERATIONS: Mapping[str, Operation] = {
    "policies": Operation("GET", "/policies"),
    "policy": Operation("GET", "/policies/{name}"),
    "create_policy": Operation(
        "POST", "/policies", ("name", "compartment", "statements", "description")
    ),
    "change_policy": Operation("PATCH", _POLICY, ("version", "statements", "description")),
    "delete_policy": Operation("DELETE", _POLICY),
    "policy_revisions": Operation("GET", f"{_POLICY}/revisions"),
    "check_statements": Operation(
        "POST", "/statements/check", ("statements", "compartment", "name", "source")
    ),
    "preview": Operation("POST", "/access/preview", ("draft", "since")),
    "explain": Operation("POST", "/access/explain", ("question",)),
    "groups": Operation("GET", "/groups"),
    "group": Operation("GET", _GROUP),
    "create_group": Operation("POST", "/groups", ("name", "description")),
    "delete_group": Operation("DELETE", _GROUP),
    "add_to_group": Operation("PUT", _USER),
    "remove_from_group": Operation("DELETE", _USER),
    "dynamic_groups": Operation("GET", "/dynamic-groups"),
    "dynamic_group": Operation("GET", _DYNAMIC_GROUP),
    "create_dynamic_group": Operation("POST", "/dynamic-groups", ("name", "rule", "description")),
    "change_dynamic_group": Operation("PATCH", _DYNAMIC_GROUP, ("version", "rule", "description")),
    "delete_dynamic_group": Operation("DELETE", _DYNAMIC_GROUP),
    "compartments": Operation("GET", "/compartments"),
    "create_compartment": Operation("POST", "/compartments", ("name", "parent", "description")),
    "move_compartment": Operation("POST", f"{_COMPARTMENT}/move", ("parent",)),
    "delete_compartment": Operation("DELETE", _COMPARTMENT),
}
