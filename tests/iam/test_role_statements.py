"""What each role may do: the statements give what the table of rights says."""

from __future__ import annotations

from itertools import pairwise

import pytest

from muster.caller import Caller, Role
from muster.iam.current_policies import CompiledPolicies
from muster.iam.policies.decisions import Access
from muster.iam.policies.parsing import parse_policy
from muster.iam.role_statements import policy_of
from muster.permissions import RIGHT_OF, Permission, Right
from muster.spec.ocids import user_ocid
from muster.store.account_records import MemberRecord, ProjectRecord
from muster.store.policy_records import PolicyState
from support.authorities import RIGHTS, Rights

#: Permissions for what a caller may have created, which others need the right to operate for.
CREATED = tuple(
    one
    for one in Permission
    if one.startswith(("DATA_SCIENCE_", "EVENTRULE_")) and not one.endswith("_CREATE")
)
PROJECTS = ("default", "vision", "detail")


def compiled(role: Role, project: str = "vision") -> CompiledPolicies:
    """Policies of a server where `ana` has a role in a project; `detail` is below `vision`."""
    projects = (
        *(ProjectRecord("default", 0.0), ProjectRecord("vision", 0.0)),
        ProjectRecord("detail", 0.0, parent="vision"),
    )
    members = (MemberRecord(project, "ana", role),)
    state = PolicyState(1, (), (), (), (), projects, members, frozenset())
    return CompiledPolicies(state, {}, "")


def allows(policies: CompiledPolicies, permission: Permission, project: str, owner: str) -> bool:
    on = {"target.resource.createdBy": user_ocid(owner)}
    return policies.decide(Access(policies.user("ana"), permission, project, on)).allowed


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("owner", ["ana", "ben"])
def test_a_role_gives_the_permissions_of_its_rights(role: Role, owner: str) -> None:
    policies = compiled(role)
    expected = Caller("ana", "vision", Rights("ana", {"vision": RIGHTS[role]}))
    wrong = [
        permission
        for permission in Permission
        for by in [owner if permission in CREATED else None]
        if allows(policies, permission, "vision", owner)
        != expected.allows(permission, created_by=by)
    ]
    assert wrong == []


@pytest.mark.parametrize("role", Role)
def test_a_role_gives_nothing_elsewhere(role: Role) -> None:
    for own in PROJECTS:
        policies = compiled(role, own)
        elsewhere = [project for project in PROJECTS if project != own]
        assert not any(
            allows(policies, permission, project, "ana")
            for permission in Permission
            for project in elsewhere
        )
        assert [policies.reaches(policies.user("ana"), one) for one in elsewhere] == [False, False]


def test_who_manages_the_root_writes_no_policies() -> None:
    policies = compiled(Role.ADMIN, "default")
    lacking = {
        one
        for one in Permission
        if RIGHT_OF[one] is not Right.ADMINISTER and not allows(policies, one, "default", "ben")
    }
    changes = (Permission.POLICY_UPDATE, Permission.POLICY_CREATE, Permission.POLICY_DELETE)
    assert lacking == {*changes}


def test_each_role_has_the_statements_of_the_one_before() -> None:
    for lower, higher in pairwise(Role):
        below, above = (policy_of("vision", one).statements for one in (lower, higher))
        assert len(below) < len(above)
        assert [one.gives for one in above[: len(below)]] == [one.gives for one in below]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("project", ["default", "vision"])
def test_statements_of_roles_are_statements(role: Role, project: str) -> None:
    statements = policy_of(project, role).statements
    parsed = parse_policy("\n".join(one.text for one in statements), "role")
    assert [str(one) for one in parsed.statements] == [str(one) for one in statements]
    assert parsed.findings == ()
