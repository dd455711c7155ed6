"""What callers of tests may do, without a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.caller import ALL_RIGHTS, CREATED_BY, Caller, Chooser, Role, Variables, always
from muster.permissions import RIGHT_OF, Decision, Permission, Right
from muster.spec.ocids import user_ocid

_VIEWER = frozenset({Right.READ})
_SUBMITTER = _VIEWER | {Right.SUBMIT, Right.ENTER}
_MAINTAINER = _SUBMITTER | {Right.DELETE, Right.OPERATE, Right.SET_SECRETS}
#: What the members of a project may do there.
RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.VIEWER: _VIEWER,
    Role.SUBMITTER: _SUBMITTER,
    Role.MAINTAINER: _MAINTAINER,
    Role.ADMIN: _MAINTAINER | {Right.MANAGE},
}


class Rights:
    """An authority by the rights in each project."""

    operation = ""

    def __init__(self, user: str, rights: Mapping[str, Iterable[Right]]) -> None:
        self.user = user
        self.rights = {project: frozenset(some) for project, some in rights.items()}

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        """See `Authority.allows`."""
        return self.decide(permission, project, on).allowed

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        """See `Authority.decide`."""
        right, own = RIGHT_OF[permission], self._in(project)
        creator = on.get(CREATED_BY)
        of_others = creator not in (None, user_ocid(self.user)) and right is not Right.READ
        return Decision(right in own and (not of_others or Right.OPERATE in own))

    def chooser(self, permission: Permission, project: str) -> Chooser | None:
        """See `Authority.chooser`."""
        return always if RIGHT_OF[permission] in self._in(project) else None

    def reaches(self, project: str) -> bool:
        """See `Authority.reaches`."""
        return bool(self._in(project))

    def _in(self, project: str) -> frozenset[Right]:
        return self.rights.get(project, frozenset())


class OwnOnly:
    """An authority for what a user has created, and to create, as by `any {request.permission =
    /*_CREATE/, target.resource.createdBy = request.user.id}`."""

    operation = ""

    def __init__(self, user: str) -> None:
        self._own = user_ocid(user)

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        """See `Authority.allows`."""
        return self.decide(permission, project, on).allowed

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        """See `Authority.decide`."""
        return Decision(permission.endswith("_CREATE") or on.get(CREATED_BY) == self._own)

    def chooser(self, permission: Permission, project: str) -> Chooser | None:
        """See `Authority.chooser`."""
        return lambda on: self.decide(permission, project, on).allowed

    def reaches(self, project: str) -> bool:
        """See `Authority.reaches`."""
        return True


def caller_with(
    user: str, project: str = "default", rights: Iterable[Right] = ALL_RIGHTS, token_id: str = ""
) -> Caller:
    """A caller who has these rights in its project."""
    return Caller(user, project, Rights(user, {project: rights}), token_id)
