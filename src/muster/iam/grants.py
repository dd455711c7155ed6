"""Who may give rights to whom. Nobody gives more rights than they have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from muster.caller import Caller, Right, Role
from muster.errors import Forbidden
from muster.iam.roles import RIGHTS, limited, rights_in

if TYPE_CHECKING:
    from muster.store.account_records import TokenRecord, UserRecord


def check_in_project(caller: Caller, project: str, right: Right, what: str) -> None:
    """Raises Forbidden unless the caller has a right in a project. what: continues "may not"."""
    if Right.ADMINISTER in caller.rights:
        return
    if project.lower() != caller.project.lower():
        raise Forbidden(
            f"{caller.user} may not {what} in project {project}: this request is made in project "
            f"{caller.project}; choose the other one, if you are a member"
        )
    caller.require(right, what)


def check_role(caller: Caller, project: str, *roles: Role | None) -> None:
    """Raises Forbidden unless the caller may give or take these roles in a project. None: of one
    that is not a member."""
    check_in_project(caller, project, Right.MANAGE, "change members")
    for role in roles:
        if role is not None and (lacking := RIGHTS[role] - caller.rights):
            named = ", ".join(sorted(lacking))
            raise Forbidden(
                f"{caller.user} may not give or take the role {role} in project {project}: the "
                f"caller's own rights there do not include {named}"
            )


def check_new_token(
    caller: Caller,
    shown: TokenRecord | None,
    user: UserRecord,
    roles: Mapping[str, Role],
    token: TokenRecord,
) -> None:
    """Raises Forbidden unless the caller may create a token.

    shown: the token that the caller shows; None for the user of this process. user: whose token it
    is to be. roles: that user's, by project.
    """
    if user.name == caller.user and shown is not None:
        _check_limits(shown, token)
        return
    given = _rights_given(user, roles, token)
    check_others_token(caller, user, token.project, "create")
    if lacking := given - caller.rights:
        raise Forbidden(
            f"{caller.user} may not create this token: it would give rights that the caller lacks: "
            f"{', '.join(sorted(lacking))}; limit it by scopes"
        )


def check_others_token(caller: Caller, user: UserRecord, project: str | None, verb: str) -> None:
    """Raises Forbidden unless the caller may create or revoke tokens of another user. verb: which
    of both. project: the one that the token is limited to."""
    from muster.store.account_records import UserKind

    if Right.ADMINISTER in caller.rights:
        return
    if user.kind == UserKind.SERVICE and project is not None:
        check_in_project(caller, project, Right.MANAGE, f"{verb} tokens of service accounts")
        return
    raise Forbidden(
        f"{caller.user} may not {verb} a token of {user.name}: only administrators of the server "
        "may, or admins of a project for service accounts, if the token is limited to the project"
    )


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


def _rights_given(
    user: UserRecord, roles: Mapping[str, Role], token: TokenRecord
) -> frozenset[Right]:
    """All rights that a token gives, in any project."""
    one = token.project is not None
    where = [roles.get(token.project or "")] if one else [*roles.values(), None]
    own = frozenset().union(*(rights_in(role, administrator=user.admin) for role in where))
    return limited(own, token.scopes, one_project=one)
