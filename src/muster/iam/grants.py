"""Who may give rights to whom. Nobody gives more than they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.caller import ALL_RIGHTS, Authority, Caller, Role, always, never
from muster.errors import Forbidden
from muster.identity import DEFAULT_PROJECT
from muster.permissions import RIGHT_OF, Permission, Right, right_of

if TYPE_CHECKING:
    from muster.store.account_records import TokenRecord, UserRecord

#: Roles that give rights over what others have created.
_OVER_OTHERS = (Role.MAINTAINER, Role.ADMIN)


def check_role(caller: Caller, project: str, *roles: Role | None) -> None:
    """Raises Forbidden unless the caller may give or take these roles in a project. None: of one
    that is not a member."""
    caller.require(Permission.MEMBER_UPDATE, "change members", project=project)
    for role in roles:
        if role is not None and (lacking := _lacking(caller, project, role)):
            raise Forbidden(
                f"{caller.user} may not give or take the role {role} in project {project}: the "
                f"caller's own rights there do not include {', '.join(sorted(lacking))}"
            )


def _lacking(caller: Caller, project: str, role: Role) -> set[Right]:
    """What a role gives and the caller does not have."""
    from muster.iam.role_statements import policy_of

    try:
        statements = policy_of(project, role).statements
    except ValueError:  # a statement cannot have this name, and so no project has it
        return set()
    of, own = "" if role in _OVER_OTHERS else caller.user, caller.user
    given = frozenset().union(*(one.gives for one in statements))
    return {
        Right.OPERATE if caller.allows(one, created_by=own, project=project) else RIGHT_OF[one]
        for one in given
        if not caller.allows(one, created_by=of, project=project)
    }


def check_new_token(
    caller: Caller,
    shown: TokenRecord | None,
    user: UserRecord,
    authority: Authority,
    token: TokenRecord,
    projects: Sequence[str],
) -> None:
    """Raises Forbidden unless the caller may create a token.

    shown: the token that the caller shows; None for the user of this process. user: whose token it
    is to be. authority: what that user may do. projects: all of them.
    """
    if user.name == caller.user and shown is not None:
        _check_limits(shown, token)
        return
    check_others_token(caller, user, token.project, "create")
    scopes = ALL_RIGHTS if token.scopes is None else token.scopes
    if token.project is not None:
        scopes -= {Right.ADMINISTER}
    lacking = set[Right]()
    for place in projects if token.project is None else (token.project,):
        given = Caller(user.name, place, authority, scopes=scopes)
        lacking |= _lacking_of(caller, given)
    if token.project is None:  # those that the user may get later
        lacking |= scopes - caller.scopes
    if lacking:
        raise Forbidden(
            f"{caller.user} may not create this token: it would give rights that the caller lacks: "
            f"{', '.join(sorted(lacking))}; limit it by scopes"
        )


def check_acts_as(
    caller: Caller, user: UserRecord, authority: Authority, projects: Sequence[str], what: str
) -> None:
    """Raises Forbidden if somebody could do more by acting as a user: with a key or login of the
    user. authority: what the user may do. projects: all of them. what: continues "may not"."""
    if user.admin:
        caller.require(
            Permission.SERVER_MANAGE, f"{what} of administrators", project=DEFAULT_PROJECT
        )
    lacking = set[Right]()
    for place in projects:
        lacking |= _lacking_of(caller, Caller(user.name, place, authority))
    if lacking:
        raise Forbidden(
            f"{caller.user} may not {what} of {user.name}: it would give rights that the caller "
            f"lacks: {', '.join(sorted(lacking))}"
        )


def _lacking_of(caller: Caller, given: Caller) -> set[Right]:
    """What another caller may do in its project and this one may not, also with some resources
    only."""
    there = replace(caller, project=given.project)
    elsewhere = caller.only_here and caller.project != given.project
    found = {
        right_of(one, given.project)
        for one in Permission
        if (elsewhere or there.chooser(one) is not always) and given.chooser(one) is not never
    }
    withheld = given.scopes - caller.scopes
    return found | (withheld & given.rights if withheld else frozenset())


def check_others_token(caller: Caller, user: UserRecord, project: str | None, verb: str) -> None:
    """Raises Forbidden unless the caller may create or revoke tokens of another user. verb: which
    of both. project: the one that the token is limited to."""
    from muster.store.account_records import UserKind

    if caller.allows(_over(user), project=DEFAULT_PROJECT):
        return
    if user.kind == UserKind.SERVICE and project is not None:
        permission = Permission.TOKEN_CREATE if verb == "create" else Permission.TOKEN_DELETE
        caller.require(permission, f"{verb} tokens of service accounts", project=project)
        return
    raise Forbidden(
        f"{caller.user} may not {verb} a token of {user.name}: only administrators of the server "
        "may, or admins of a project for service accounts, if the token is limited to the project"
    )


def _over(user: UserRecord) -> Permission:
    """What it takes to give somebody what a user may do."""
    return Permission.SERVER_MANAGE if user.admin else Permission.USER_UPDATE


def _check_limits(shown: TokenRecord, token: TokenRecord) -> None:
    """A token creates no token of the same user that may do more."""
    if shown.project is not None and token.project != shown.project:
        raise Forbidden(
            f"the token {shown.id} is limited to project {shown.project}, and can only create "
            f"tokens that are as well"
        )
    if shown.scopes is None:
        return
    if token.scopes is None or token.scopes - shown.scopes:
        raise Forbidden(
            f"the token {shown.id} is limited to the scopes {', '.join(sorted(shown.scopes))}, and "
            "can only create tokens that are as well"
        )
