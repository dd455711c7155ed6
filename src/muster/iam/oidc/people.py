"""Who an ID token is about: the user's name, and roles by groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from muster.caller import Role
from muster.errors import InvalidInput, NotAuthenticated
from muster.escapes import visible_line
from muster.iam.names import check_name
from muster.iam.oidc.settings import GroupRole, OidcSettings

_ORDER = [*Role]
#: Characters of a display name.
_LONGEST = 200


class Person(Struct, frozen=True):
    """What an issuer says of somebody who has logged in."""

    issuer: str
    #: Identifies the person at the issuer, for good.
    subject: str
    name: str
    display_name: str
    #: By project, as follows from groups.
    roles: Mapping[str, Role]


def person_of(claims: Mapping[str, Any], settings: OidcSettings) -> Person:
    """The person whom verified claims are about. Raises NotAuthenticated if they have no name that
    can be one of a user."""
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or not name:
        raise NotAuthenticated(
            f"the ID token has no claim {settings.name_claim}, which names the user here; the "
            f"server's oidc.toml may choose another name_claim; there are: "
            f"{', '.join(sorted(map(str, claims)))}"
        )
    if settings.name_claim == "email" and claims.get("email_verified") is not True:
        raise NotAuthenticated("the issuer has not verified the address of this person")
    try:
        check_name("user", name)
    except InvalidInput as error:
        raise NotAuthenticated(f"the claim {settings.name_claim}: {error}") from None
    display = claims.get("name")
    return Person(
        issuer=settings.issuer,
        subject=claims["sub"],
        name=name,
        display_name=visible_line(display)[:_LONGEST] if isinstance(display, str) else "",
        roles=roles_of(claims.get(settings.groups_claim), settings.roles),
    )


def roles_of(groups: Any, rules: Iterable[GroupRole]) -> dict[str, Role]:
    """The highest role in each project that follows from groups. groups: the claim, which may be
    one name or a list."""
    given = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    found: dict[str, Role] = {}
    for rule in rules:
        if rule.group in given:
            before = found.get(rule.project, rule.role)
            found[rule.project] = max(before, rule.role, key=_ORDER.index)
    return found
