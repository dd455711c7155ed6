"""Who asks: every use case knows its caller, and checks what the caller may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, TypeAlias

from msgspec import Struct

from muster.errors import Forbidden
from muster.identity import DEFAULT_PROJECT, user_name
from muster.permissions import Decision, Permission, Right, StatementRef, right_of
from muster.spec.ocids import user_ocid

ALL_RIGHTS = frozenset(Right)
#: Of a resource: the values of its variables, such as {"target.bucket.name": "data"}.
Variables: TypeAlias = Mapping[str, str]
NO_VARIABLES: Variables = MappingProxyType({})
#: Whether a resource is chosen, by its variables.
Chooser: TypeAlias = Callable[[Variables], bool]
#: The variable that says who has created a resource: the OCID of a user.
CREATED_BY = "target.resource.createdBy"
#: People with a permission are said to have the right that it stands for.
_STANDS_FOR: Mapping[Right, Permission] = {
    Right.READ: Permission.JOB_RUN_READ,
    Right.SUBMIT: Permission.JOB_RUN_CREATE,
    Right.ENTER: Permission.NODE_ENTER,
    Right.DELETE: Permission.JOB_RUN_DELETE,
    Right.SET_SECRETS: Permission.SECRET_UPDATE,
    Right.MANAGE: Permission.MEMBER_UPDATE,
    Right.ADMINISTER: Permission.SERVER_MANAGE,
}


def always(on: Variables) -> bool:
    """A `Chooser` of everything."""
    return True


def never(on: Variables) -> bool:
    """A `Chooser` of nothing."""
    return False


class Role(StrEnum):
    """What a member is in a project. `iam.role_statements` has what each may do."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    MAINTAINER = "maintainer"
    ADMIN = "admin"


class Authority(Protocol):
    """What somebody may do."""

    @property
    def operation(self) -> str:
        """OCI's name of the operation that is asked for; "" in Muster's own API."""
        ...

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        """Whether they have a permission for a resource in a project."""
        ...

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        """As `allows`, with the statement that allows it, or the one that is missing, which takes
        some time to find."""
        ...

    def chooser(self, permission: Permission, project: str) -> Chooser | None:
        """For which resources of a project they have a permission; None: for none at all. It is
        `always` if variables do not matter."""
        ...

    def reaches(self, project: str) -> bool:
        """Whether they may do anything at all in a project."""
        ...


class _Everything:
    """The authority of the user of a machine to what is there."""

    operation = ""

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        return True

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        return _ALLOWED

    def chooser(self, permission: Permission, project: str) -> Chooser:
        return always

    def reaches(self, project: str) -> bool:
        return True


class Only:
    """The authority to use some permissions, for what was decided already in another way."""

    operation = ""

    def __init__(self, *permissions: Permission, statement: StatementRef | None = None) -> None:
        """statement: what has decided, for the audit log."""
        self._permissions, self._statement = frozenset(permissions), statement

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        """See `Authority.allows`."""
        return permission in self._permissions

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        """See `Authority.decide`."""
        allowed = permission in self._permissions
        return Decision(allowed, self._statement if allowed else None)

    def chooser(self, permission: Permission, project: str) -> Chooser | None:
        """See `Authority.chooser`."""
        return always if permission in self._permissions else None

    def reaches(self, project: str) -> bool:
        """See `Authority.reaches`."""
        return True


class _Nothing:
    """The authority of somebody who is not known."""

    operation = ""

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        return False

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        return _DENIED

    def chooser(self, permission: Permission, project: str) -> None:
        return None

    def reaches(self, project: str) -> bool:
        return False


EVERYTHING: Authority = _Everything()
NOTHING: Authority = _Nothing()
_ALLOWED, _DENIED = Decision(True), Decision(False)


class NotPermitted(Forbidden):
    """Somebody lacks a permission."""

    def __init__(self, text: str, permission: Permission, on: Variables) -> None:
        super().__init__(text)
        self.permission, self.on = permission, on


class Caller(Struct, frozen=True):
    """Who asks for something, in which project."""

    user: str
    project: str = DEFAULT_PROJECT
    authority: Authority = EVERYTHING
    #: The id of the token that the caller showed; "" for the user of this process.
    token_id: str = ""
    #: What may be done with the token, of what the user may do.
    scopes: frozenset[Right] = ALL_RIGHTS
    #: The run that asks, which the user has started; "" if the user asks.
    run_id: str = ""
    #: Whether the token is limited to the project.
    only_here: bool = False
    #: What asks in the user's name, as sentences call it, such as `job run train-1` or `host n1`;
    #: "" if the user asks.
    acting: str = ""

    @property
    def rights(self) -> frozenset[Right]:
        """What the caller may do in the project, for people. Decisions are made by permissions."""
        found = {
            right
            for right, permission in _STANDS_FOR.items()
            if self.allows(permission, created_by=self.user)
        }
        if self.allows(Permission.JOB_RUN_UPDATE, created_by=""):
            found.add(Right.OPERATE)
        return frozenset(found)

    def allows(
        self,
        permission: Permission,
        on: Variables = NO_VARIABLES,
        *,
        created_by: str | None = None,
        project: str | None = None,
    ) -> bool:
        """Whether the caller has a permission. See `require`."""
        place = self.project if project is None else project
        if self._withheld(permission, place, created_by) is not None:
            return False
        return self.authority.allows(permission, place, _with(created_by, on))

    def require(
        self,
        permission: Permission,
        what: str,
        on: Variables = NO_VARIABLES,
        *,
        created_by: str | None = None,
        project: str | None = None,
    ) -> Decision:
        """Why the caller has a permission. Raises NotPermitted if it has not.

        what: continues "may not". on: what is known of the resource. created_by: the user who has
        created it; None: nobody, or it is created now. project: where, if not in the caller's.
        """
        place = self.project if project is None else project
        on = _with(created_by, on)
        decision = self.authority.decide(permission, place, on)
        withheld = self._withheld(permission, place, created_by)
        if decision.allowed and withheld is None:
            return Decision(True, decision.statement, permission=permission, on=on)
        if right_of(permission, place) is Right.ADMINISTER and not decision.allowed:
            why = _of_administrators(permission, decision)
            if self.acting:
                why = _acting_lacks(permission, decision.missing)
            text = f"{self.acting or self.user} may not {what}: {why}"
            raise NotPermitted(text, permission, on)
        where = f"in project {place}"
        if created_by not in (None, self.user) and (
            withheld is Right.OPERATE
            or self.authority.allows(permission, place, _with(self.user, on))
        ):
            where = f"of others {where}, such as this one of {created_by or 'an unknown user'}"
        why = _takes(permission, decision.missing)
        if self.acting:
            why = _acting_lacks(permission, decision.missing)
        if withheld is not None and decision.allowed:
            why = f"{self._limit(withheld)}; use another token"
        text = f"{self.acting or self.user} may not {what} {where}: {why}"
        raise NotPermitted(text, permission, on)

    def _limit(self, withheld: Right) -> str:
        """How the token is limited so that it does not give a right that its user has."""
        if withheld in self.scopes:
            return f"the token {self.token_id} is for project {self.project} only"
        return f"the token {self.token_id} does not have the scope {withheld}"

    def require_some(self, permission: Permission, what: str) -> Decision | None:
        """As `require`, for a resource that is not known yet: raises NotPermitted if the caller has
        the permission for no resource of the project. None: for some, and not for all."""
        if self.allows(permission):
            return self.require(permission, what)
        if self.chooser(permission) is not never:
            return None
        return self.require(permission, what)

    def chooser(self, permission: Permission) -> Chooser:
        """For which resources of the project the caller has a permission."""
        chosen = self.authority.chooser(permission, self.project)
        withheld = self._withheld(permission, self.project, None)
        return never if chosen is None or withheld else chosen

    def _withheld(
        self, permission: Permission, project: str, created_by: str | None
    ) -> Right | None:
        """The right that the token does not give; None if it gives what is needed."""
        right = right_of(permission, project)
        if right not in self.scopes or (self.only_here and project != self.project):
            return right
        of_others = created_by is not None and created_by != self.user
        if of_others and right is not Right.READ and Right.OPERATE not in self.scopes:
            return Right.OPERATE
        return None


def _with(created_by: str | None, on: Variables) -> Variables:
    return on if created_by is None else {**on, CREATED_BY: user_ocid(created_by)}


def _of_administrators(permission: Permission, decision: Decision) -> str:
    text = f"this takes {permission}, which the administrators of the server have"
    missing = decision.missing
    return f"{text}; ask one of them for this statement: {missing}" if missing else text


def _takes(permission: Permission, missing: str) -> str:
    text = f"this takes {permission}; ask an admin of the project for a role that includes it"
    return f"{text}, or for this statement: {missing}" if missing else text


def _acting_lacks(permission: Permission, missing: str) -> str:
    """As `_takes`, of a run or a host, to which no role gives anything."""
    text = f"{permission} is missing"
    if missing.startswith("Allow dynamic-group "):
        return f"{text}; its dynamic group needs: {missing}"
    if not missing:
        return f"{text}; no dynamic group that it is in has it"
    return f"{text}, and it is in no dynamic group; a policy needs: {missing}"


def local_caller() -> Caller:
    """The user of this process, who may do everything in the one project of this machine."""
    return Caller(user_name())
