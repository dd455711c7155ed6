"""Policies (OCI: Identity API 20160918). Each is attached to a compartment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.describe.times import time_text_ms
from muster.permissions import Permission
from muster.server.answers import Answer
from muster.server.oci.identity import (
    ACTIVE,
    API,
    NO_TAGS,
    Tagged,
    check_changed,
    check_description,
    id_in_path,
    listed,
)
from muster.server.oci.identity_records import RecordKind
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.service.policy_changes import new_policy, with_description, with_statements
from muster.spec.ocids import ocid
from muster.store.policy_records import PolicyRecord

KIND = "policy"
_ALL, _ONE = f"{API}/policies", f"{API}/policies/{{policy_id}}"


class _Dated(Tagged, frozen=True, kw_only=True):
    """What can be given to policies besides."""

    version_date: str | None = None
    """As of when verbs are meant. Refused: they give what they give now. OCI: null and "" mean just
    that; the `oci` CLI wants one of them with each change of the statements."""

    def problems(self) -> list[str]:
        """What is wrong with it, for `OciRequest.read`."""
        text = "versionDate cannot be set here, since verbs give what they give now; leave it empty"
        return [*super().problems(), *([text] if self.version_date else [])]


class CreatePolicy(_Dated, frozen=True, kw_only=True):
    """OCI: CreatePolicyDetails."""

    compartment_id: str
    name: str
    statements: list[str]
    description: str


class UpdatePolicy(_Dated, frozen=True, kw_only=True):
    """OCI: UpdatePolicyDetails."""

    description: str | None = None
    statements: list[str] | None = None


def create_policy(request: OciRequest) -> Answer:
    """POST /policies"""
    given = request.read(CreatePolicy, CreatePolicy.problems)
    project = request.project_with(given.compartment_id, request.permission)
    user = request.principal.user
    return _POLICY.create(
        request,
        lambda made_id: new_policy(
            made_id,
            given.name,
            project,
            check_description(given.description),
            given.statements,
            user,
        ),
    )


def list_policies(request: OciRequest) -> Answer:
    """GET /policies"""
    given = request.required("compartmentId")
    project = request.project_with(given, request.permission)
    found = request.store.policies.policies(project)
    return listed(request, [_shown(request, one) for one in found])


def get_policy(request: OciRequest) -> Answer:
    """GET /policies/{policy_id}"""
    return _POLICY.answer(request, _find(request))


def update_policy(request: OciRequest) -> Answer:
    """PUT /policies/{policy_id}"""
    before = _find(request)
    given = request.read(UpdatePolicy, UpdatePolicy.problems)
    _POLICY.check_tag(request, before)
    after = with_description(
        with_statements(before, given.statements), check_changed(given.description)
    )
    return _POLICY.update(request, before, after)


def delete_policy(request: OciRequest) -> Answer:
    """DELETE /policies/{policy_id}"""
    record = _find(request)
    _POLICY.check_tag(request, record)
    return _POLICY.delete(request, record)


def _find(request: OciRequest) -> PolicyRecord:
    """The policy in the path, if the caller has a permission where it is attached. Raises NotFound,
    OciError."""
    record = request.store.policies.policy(id_in_path(request, "policy_id", KIND))
    request.require(record.compartment, request.permission)
    return record


def _shown(request: OciRequest, record: PolicyRecord) -> Mapping[str, Any]:
    return {
        "id": ocid(KIND, record.id),
        "compartmentId": request.compartments.ocid(record.compartment),
        "name": record.name,
        "description": record.description,
        "statements": record.statements,
        "timeCreated": time_text_ms(record.created_at),
        "versionDate": None,
        **ACTIVE,
        **NO_TAGS,
    }


_POLICY = RecordKind(
    *("Policy", "policies"),
    find=lambda store, id_: store.policy(id_),
    insert=lambda store, made: store.create_policy(made),
    replace=lambda store, before, after: store.change_policy(before, after),
    remove=lambda store, record: store.delete_policy(record),
    project=lambda record: record.compartment,
    shown=_shown,
)

ROUTES = (
    OciRoute("create_policy", "POST", _ALL, create_policy, Permission.POLICY_CREATE),
    OciRoute("list_policies", "GET", _ALL, list_policies, Permission.POLICY_READ),
    OciRoute("get_policy", "GET", _ONE, get_policy, Permission.POLICY_READ),
    OciRoute("update_policy", "PUT", _ONE, update_policy, Permission.POLICY_UPDATE),
    OciRoute("delete_policy", "DELETE", _ONE, delete_policy, Permission.POLICY_DELETE),
)
