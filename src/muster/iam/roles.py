"""What each role may do in its project. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.caller import ALL_RIGHTS, Right, Role

_VIEWER = frozenset({Right.READ})
_SUBMITTER = _VIEWER | {Right.SUBMIT, Right.ENTER}
_MAINTAINER = _SUBMITTER | {Right.DELETE, Right.OPERATE, Right.SET_SECRETS}
_ADMIN = _MAINTAINER | {Right.MANAGE}

#: Each role has the rights of the one before.
RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.VIEWER: _VIEWER,
    Role.SUBMITTER: _SUBMITTER,
    Role.MAINTAINER: _MAINTAINER,
    Role.ADMIN: _ADMIN,
}


def rights_in(role: Role | None, *, administrator: bool = False) -> frozenset[Right]:
    """The rights of a user in a project. role: None for one that is not a member."""
    if administrator:
        return ALL_RIGHTS
    return frozenset() if role is None else RIGHTS[role]


def limited(
    rights: frozenset[Right], scopes: Iterable[Right] | None, *, one_project: bool
) -> frozenset[Right]:
    """The rights that a token gives of those of its user. scopes: None for all. one_project: the
    token is limited to a project, so that it cannot be used to administer the server."""
    kept = rights if scopes is None else rights & frozenset(scopes)
    return kept - {Right.ADMINISTER} if one_project else kept
