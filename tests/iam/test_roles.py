"""What each role may do."""

from __future__ import annotations

from itertools import pairwise

import pytest

from muster.caller import ALL_RIGHTS, Right, Role
from muster.iam.roles import RIGHTS, limited, rights_in

#: Right -> the roles that have it.
TABLE = {
    Right.READ: "viewer submitter maintainer admin",
    Right.SUBMIT: "submitter maintainer admin",
    Right.ENTER: "submitter maintainer admin",
    Right.DELETE: "maintainer admin",
    Right.OPERATE: "maintainer admin",
    Right.SET_SECRETS: "maintainer admin",
    Right.MANAGE: "admin",
    Right.ADMINISTER: "",
}


@pytest.mark.parametrize("right", Right)
def test_the_rights_of_roles(right: Right) -> None:
    assert [role for role in Role if right in rights_in(role)] == TABLE[right].split()


def test_each_role_has_the_rights_of_the_one_before() -> None:
    assert all(RIGHTS[lower] < RIGHTS[higher] for lower, higher in pairwise(Role))


def test_others_have_none_and_administrators_all() -> None:
    assert rights_in(None) == frozenset()
    assert rights_in(None, administrator=True) == ALL_RIGHTS
    assert rights_in(Role.VIEWER, administrator=True) == ALL_RIGHTS


@pytest.mark.parametrize("role", [*Role, None])
@pytest.mark.parametrize("scopes", [None, [], [Right.READ], [Right.MANAGE, Right.READ], [*Right]])
@pytest.mark.parametrize("one_project", [True, False])
def test_a_token_never_gives_more_than_its_user_has(
    role: Role | None, scopes: list[Right] | None, one_project: bool
) -> None:
    for administrator in (True, False):
        own = rights_in(role, administrator=administrator)
        given = limited(own, scopes, one_project=one_project)
        assert given <= own
        assert scopes is None or given <= {*scopes}
        assert not (one_project and Right.ADMINISTER in given)
