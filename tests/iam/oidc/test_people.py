"""Who verified claims are about."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.caller import Role
from muster.errors import NotAuthenticated
from muster.iam.oidc.people import Person, person_of, roles_of
from muster.iam.oidc.settings import GroupRole, OidcSettings

RULES = (
    GroupRole("all", "default", Role.VIEWER),
    GroupRole("leads", "default", Role.ADMIN),
    GroupRole("ml", "default", Role.SUBMITTER),
    GroupRole("ml", "vision", Role.MAINTAINER),
)
SETTINGS = OidcSettings("https://id", "muster", roles=RULES)
CLAIMS = {"sub": "7", "preferred_username": "ana", "name": "Ana", "groups": ["ml", "other"]}


def test_a_person() -> None:
    roles = {"default": Role.SUBMITTER, "vision": Role.MAINTAINER}
    assert person_of(CLAIMS, SETTINGS) == Person("https://id", "7", "ana", "Ana", roles)
    other = replace(SETTINGS, name_claim="email", groups_claim="teams")
    claims = {"sub": "7", "email": "ana@example.org", "email_verified": True, "teams": "all"}
    found = person_of(claims, other)
    assert (found.name, found.display_name) == ("ana@example.org", "")
    assert found.roles == {"default": Role.VIEWER}


@pytest.mark.parametrize(
    ("groups", "roles"),
    [
        (["all"], {"default": Role.VIEWER}),
        (["leads", "all"], {"default": Role.ADMIN}),
        (["all", "leads", "ml"], {"default": Role.ADMIN, "vision": Role.MAINTAINER}),
        ("ml", {"default": Role.SUBMITTER, "vision": Role.MAINTAINER}),
        (["ML"], {}),
        ([{"name": "ml"}], {}),
        ([], {}),
        (None, {}),
        (5, {}),
        ({"ml": 1}, {}),
    ],
)
def test_the_highest_role_counts(groups: Any, roles: dict[str, Role]) -> None:
    assert roles_of(groups, RULES) == roles


@pytest.mark.parametrize(
    ("claims", "settings", "error"),
    [
        ({"sub": "7"}, {}, "no claim preferred_username, .*there are: sub"),
        ({"preferred_username": 5}, {}, "no claim preferred_username"),
        ({"preferred_username": "ana lopez"}, {}, "preferred_username: 'ana lopez' is not a valid"),
        ({"email": "a@b"}, {"name_claim": "email"}, "has not verified the address"),
        (
            {"email": "a@b", "email_verified": "true"},
            {"name_claim": "email"},
            "has not verified the address",
        ),
    ],
)
def test_a_person_without_a_name(
    claims: dict[str, Any], settings: dict[str, Any], error: str
) -> None:
    with pytest.raises(NotAuthenticated, match=error):
        person_of({"sub": "7", **claims}, replace(SETTINGS, **settings))
