"""Who asks: every use case knows its caller, and checks what the caller may do."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from muster.errors import Forbidden
from muster.identity import DEFAULT_PROJECT, user_name


class Right(StrEnum):
    """What a caller may do in its project."""

    READ = "read"
    """See jobs, runs, output and files."""
    SUBMIT = "submit"
    """Create jobs and schedules, start runs, and cancel, suspend, resume and scale them."""
    ENTER = "enter"
    """Run commands inside nodes, copy files into them, and connect to their ports."""
    DELETE = "delete"
    """Delete jobs, runs and unused files."""
    OPERATE = "operate"
    """Do the above with the runs and schedules of others, where the right to do it is there, as
    well."""
    SET_SECRETS = "set-secrets"
    """Set and delete the project's secrets."""
    MANAGE = "manage"
    """Change the project's members and the tokens of its service accounts, and read its audit
    log."""
    ADMINISTER = "administer"
    """Change users and projects, and everything in all projects. No role has it: a user is an
    administrator or not."""


ALL_RIGHTS = frozenset(Right)


class Role(StrEnum):
    """What a member is in a project. `iam.roles` has the rights of each."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    MAINTAINER = "maintainer"
    ADMIN = "admin"


class Caller(Struct, frozen=True):
    """Who asks for something, in which project."""

    user: str
    project: str = DEFAULT_PROJECT
    rights: frozenset[Right] = ALL_RIGHTS
    #: The id of the token that the caller showed; "" for the user of this process.
    token_id: str = ""
    #: What the user may do in the project, but not with this token.
    withheld: frozenset[Right] = frozenset()

    def require(self, right: Right, what: str) -> None:
        """Raises Forbidden if the caller lacks a right. what: continues "may not"."""
        if right not in self.rights:
            raise Forbidden(
                f"{self.user} may not {what} in project {self.project}: {self._lacks(right)}"
            )

    def require_for_run(self, owner: str, right: Right, what: str) -> None:
        """As `require`, for what changes or enters a run. owner: the user who started it."""
        self.require(right, what)
        if owner != self.user and Right.OPERATE not in self.rights:
            raise Forbidden(
                f"{self.user} may not {what} of others in project {self.project}, such as this one "
                f"of {owner or 'an unknown user'}: {self._lacks(Right.OPERATE)}"
            )

    def _lacks(self, right: Right) -> str:
        if right in self.withheld:
            return (
                f"the token {self.token_id} does not give the right to {right}, which "
                f"{self.user} has; use another token"
            )
        return f"the right to {right} is missing; ask who manages the project"


def local_caller() -> Caller:
    """The user of this process, who may do everything in the one project of this machine."""
    return Caller(user_name())
