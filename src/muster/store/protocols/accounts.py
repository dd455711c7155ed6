"""Users, projects, their members, and tokens. Names are case-insensitive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.caller import Role
    from muster.store.account_records import (
        Credential,
        MemberRecord,
        ProjectRecord,
        TokenRecord,
        UserRecord,
    )


class Accounts(Protocol):
    """See the module."""

    def create_first(self, user: UserRecord, token: TokenRecord, digest: bytes) -> bool:
        """Add the first user, with a token. False if there is a user already: of several processes
        that start at once, one adds it."""
        ...

    def create_user(self, user: UserRecord) -> None:
        """Add a user. Raises AlreadyExists if its name is taken, InvalidInput if its subject at its
        issuer is."""
        ...

    def change_user(self, name: str, changes: Mapping[str, Any]) -> UserRecord:
        """Change `display_name`, `admin`, `disabled`, or `issuer` and `subject`. Raises NotFound,
        and InvalidInput if no person would be left who administers the server and is not disabled,
        or the subject is another user's."""
        ...

    def user(self, name: str) -> UserRecord:
        """The user with this name. Raises NotFound."""
        ...

    def user_of_subject(self, issuer: str, subject: str) -> UserRecord | None:
        """The user whom an issuer knows by this subject; None if there is none."""
        ...

    def users(self) -> list[UserRecord]:
        """All users, by name."""
        ...

    def create_project(self, project: ProjectRecord) -> None:
        """Add a project, below its parent. Raises NotFound if there is no such parent,
        AlreadyExists if there is a project with this name, and InvalidInput if there is a group as
        its members with a role are called."""
        ...

    def change_project(self, name: str, description: str) -> ProjectRecord:
        """Describe a project. Raises NotFound."""
        ...

    def move_project(self, name: str, parent: str) -> ProjectRecord:
        """Move a project with those below it. parent: "" for the root, `default`. Raises NotFound,
        and InvalidInput for the root itself, or if the parent is the project or below it."""
        ...

    def delete_project(self, name: str) -> None:
        """Delete a project with its members, tokens, secrets and policies. Raises NotFound, and
        InvalidInput if it has Jobs or runs, also deleted ones, or projects below it, or is the
        default one."""
        ...

    def project(self, name: str) -> ProjectRecord:
        """The project with this name. Raises NotFound."""
        ...

    def projects(self) -> list[ProjectRecord]:
        """All projects, by name. `default` is there from the start."""
        ...

    def set_member(self, member: MemberRecord) -> None:
        """Add a member, or change its role. Raises NotFound if there is no such project or user."""
        ...

    def set_group_roles(self, user: str, roles: Mapping[str, Role]) -> None:
        """Replace what follows from a user's groups (`MemberRecord.from_groups`) by these roles,
        by project. Where the user is a member in another way, that stays; projects that do not
        exist are left out."""
        ...

    def remove_member(self, project: str, user: str) -> bool:
        """Remove a member, and revoke nothing: its tokens give no rights in the project any more.
        False if it is none."""
        ...

    def members(self, *, project: str | None = None, user: str | None = None) -> list[MemberRecord]:
        """The members of a project, or the projects of a user, by name."""
        ...

    def create_token(self, token: TokenRecord, digest: bytes) -> None:
        """Add a token. digest: of its secret. Raises NotFound if there is no such user or
        project."""
        ...

    def token(self, token_id: str) -> TokenRecord:
        """The token with this id. Raises NotFound."""
        ...

    def tokens(self, *, user: str | None = None, project: str | None = None) -> list[TokenRecord]:
        """Tokens, newest first, with those that are expired or revoked. project: those that can be
        used in this project only."""
        ...

    def revoke_token(self, token_id: str, now: float) -> bool:
        """Revoke a token. False if it is revoked already. Raises NotFound."""
        ...

    def use_token(self, token_id: str, now: float) -> None:
        """Note when a token was used last."""
        ...

    def credential(self, token_id: str) -> Credential | None:
        """What is known of who shows this token; None if there is no such token."""
        ...
