"""What the policy of a new database gives to runs."""

from __future__ import annotations

import pytest

from muster.caller import Role
from muster.iam.policies.decisions import (
    JOB_RUN,
    Access,
    Compartment,
    Group,
    Policies,
    Policy,
    Requester,
)
from muster.iam.policies.parsing import parse_policy
from muster.iam.role_statements import group_id, group_of, policy_of
from muster.permissions import RIGHT_OF, Permission, Right
from muster.spec.ocids import user_ocid
from muster.store import default_policy

#: What reads and submits, but is not for runs: it would outlast them, or gives nothing that they
#: need.
WITHHELD = {
    *(Permission.SCHEDULE_UPDATE, Permission.SCHEDULE_CREATE, Permission.SCHEDULE_DELETE),
    *(Permission.EVENT_RULE_UPDATE, Permission.EVENT_RULE_CREATE),
    *(Permission.EVENT_RULE_DELETE, Permission.PAR_MANAGE, Permission.POLICY_READ),
}
#: Also of the user's other runs and those of other users.
OF_ANYBODY = {
    *(Permission.JOB_RUN_INSPECT, Permission.JOB_RUN_READ, Permission.JOB_RUN_CREATE),
}
RUN = Requester(
    "ocid1.datasciencejobrun.x..1", type=JOB_RUN, compartment="vision", created_by=user_ocid("ana")
)


COMPARTMENTS = (
    Compartment("default", "ocid1.tenancy.x..0"),
    Compartment("vision", "ocid1.compartment.x..1", "default"),
    Compartment("cameras", "ocid1.compartment.x..2", "vision"),
)


def compiled() -> Policies:
    parsed = parse_policy("\n".join(default_policy.STATEMENTS), default_policy.NAME)
    assert parsed.findings == ()
    return Policies([Policy(default_policy.NAME, "default", parsed.statements)], COMPARTMENTS)


def given(
    requester: Requester, compartment: str, created_by: str, policies: Policies | None = None
) -> set[Permission]:
    on = {"target.resource.createdBy": user_ocid(created_by)}
    policies = policies or compiled()
    return {one for one in Permission if policies.allows(Access(requester, one, compartment, on))}


def test_a_run_may_read_and_submit() -> None:
    wanted = {one for one, right in RIGHT_OF.items() if right in (Right.READ, Right.SUBMIT)}
    assert given(RUN, "vision", "ana") == wanted - WITHHELD


def test_a_run_changes_nothing_of_others() -> None:
    lacking = given(RUN, "vision", "ana") - given(RUN, "vision", "bo")
    assert lacking == {Permission.JOB_RUN_UPDATE, Permission.JOB_UPDATE, Permission.PROJECT_UPDATE}
    assert given(RUN, "vision", "bo") >= OF_ANYBODY


@pytest.mark.parametrize("creator", ["ana", "bo"])
def test_a_run_has_nothing_that_its_user_lacks_as_a_submitter(creator: str) -> None:
    group = Group(group_of("vision", Role.SUBMITTER), group_id("vision", Role.SUBMITTER))
    submitter = Requester(user_ocid("ana"), "ana", groups=frozenset({group.id}))
    role = Policies([policy_of("vision", Role.SUBMITTER)], COMPARTMENTS, [group])
    assert given(RUN, "vision", creator) <= given(submitter, "vision", creator, role)


@pytest.mark.parametrize("compartment", ["default", "cameras"])
def test_a_run_may_do_nothing_elsewhere(compartment: str) -> None:
    assert given(RUN, compartment, "ana") == set()


def test_the_policy_gives_users_nothing() -> None:
    assert given(Requester(user_ocid("ana"), "ana"), "vision", "ana") == set()


def test_texts_in_sql() -> None:
    assert default_policy.sql_text("it's") == "'it''s'"
