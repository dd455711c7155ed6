"""Dynamic groups: of the runs and instances that match a rule (OCI: Identity API 20160918)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.describe.times import time_text_ms
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Permission
from muster.server.answers import Answer
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
    require_in_tenancy,
    tenancy_of,
)
from muster.server.oci.identity_records import RecordKind
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.service.policy_changes import new_dynamic_group, with_description, with_rule
from muster.service.policy_references import check_dynamic_group
from muster.spec.ocids import ocid
from muster.store.policy_records import DynamicGroupRecord

KIND = "dynamicgroup"
_ALL, _ONE = f"{API}/dynamicGroups", f"{API}/dynamicGroups/{{dynamic_group_id}}"


class CreateDynamicGroup(Tagged, frozen=True, kw_only=True):
    """OCI: CreateDynamicGroupDetails."""

    compartment_id: str
    name: str
    matching_rule: str
    description: str


class UpdateDynamicGroup(Tagged, frozen=True, kw_only=True):
    """OCI: UpdateDynamicGroupDetails."""

    description: str | None = None
    matching_rule: str | None = None


def create_dynamic_group(request: OciRequest) -> Answer:
    """POST /dynamicGroups"""
    given = request.read(CreateDynamicGroup, CreateDynamicGroup.problems)
    require_in_tenancy(request, given.compartment_id)
    user = request.principal.user
    return _DYNAMIC_GROUP.create(
        request,
        lambda made_id: new_dynamic_group(
            made_id, given.name, check_description(given.description), given.matching_rule, user
        ),
    )


def list_dynamic_groups(request: OciRequest) -> Answer:
    """GET /dynamicGroups"""
    check_root(request)
    request.require(DEFAULT_PROJECT, request.permission)
    found = request.store.policies.dynamic_groups()
    return listed(request, [_shown(request, one) for one in found])


def get_dynamic_group(request: OciRequest) -> Answer:
    """GET /dynamicGroups/{dynamic_group_id}"""
    return _DYNAMIC_GROUP.answer(request, _find(request))


def update_dynamic_group(request: OciRequest) -> Answer:
    """PUT /dynamicGroups/{dynamic_group_id}"""
    before = _find(request)
    given = request.read(UpdateDynamicGroup, UpdateDynamicGroup.problems)
    _DYNAMIC_GROUP.check_tag(request, before)
    after = with_description(
        with_rule(before, given.matching_rule), check_changed(given.description)
    )
    return _DYNAMIC_GROUP.update(request, before, after)


def delete_dynamic_group(request: OciRequest) -> Answer:
    """DELETE /dynamicGroups/{dynamic_group_id}"""
    record = _find(request)
    _DYNAMIC_GROUP.check_tag(request, record)
    return _DYNAMIC_GROUP.delete(request, record, check_dynamic_group)


def _find(request: OciRequest) -> DynamicGroupRecord:
    """The dynamic group in the path, if the caller has a permission. Raises NotFound, OciError."""
    request.require(DEFAULT_PROJECT, request.permission)
    return request.store.policies.dynamic_group(id_in_path(request, "dynamic_group_id", KIND))


def _shown(request: OciRequest, record: DynamicGroupRecord) -> Mapping[str, Any]:
    return {
        "id": ocid(KIND, record.id),
        "compartmentId": tenancy_of(request),
        "name": record.name,
        "description": record.description,
        "matchingRule": record.rule,
        "timeCreated": time_text_ms(record.created_at),
        **ACTIVE,
        **NO_TAGS,
    }


_DYNAMIC_GROUP = RecordKind(
    *("DynamicGroup", "dynamic-groups"),
    find=lambda store, id_: store.dynamic_group(id_),
    insert=lambda store, made: store.create_dynamic_group(made),
    replace=lambda store, before, after: store.change_dynamic_group(before, after),
    remove=lambda store, record: store.delete_dynamic_group(record),
    shown=_shown,
)

ROUTES = (
    OciRoute(
        "create_dynamic_group", "POST", _ALL, create_dynamic_group, Permission.DYNAMIC_GROUP_CREATE
    ),
    OciRoute(
        "list_dynamic_groups", "GET", _ALL, list_dynamic_groups, Permission.DYNAMIC_GROUP_INSPECT
    ),
    OciRoute("get_dynamic_group", "GET", _ONE, get_dynamic_group, Permission.DYNAMIC_GROUP_READ),
    OciRoute(
        "update_dynamic_group", "PUT", _ONE, update_dynamic_group, Permission.DYNAMIC_GROUP_UPDATE
    ),
    OciRoute(
        "delete_dynamic_group",
        "DELETE",
        _ONE,
        delete_dynamic_group,
        Permission.DYNAMIC_GROUP_DELETE,
    ),
)
