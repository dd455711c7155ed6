"""Users, projects, tokens, secrets and the audit log in Python."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Self, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, fields

from muster.api.accounts import TOKEN_LIFETIME, UserChange
from muster.caller import Role
from muster.client.connect import connect_accounts
from muster.client.filters import age_of, duration_of, since_of
from muster.client.item import Item
from muster.client.table import Table
from muster.describe.times import minute, moment
from muster.errors import InvalidInput, Problem
from muster.permissions import Right
from muster.spec.wording import alternatives
from muster.store.account_records import AuditFilter, UserKind, UserRecord

_Name = TypeVar("_Name", Right, Role)


class AccountItem(Struct, Item, frozen=True):
    """What lists of accounts have in common."""

    @classmethod
    def _of(cls, record: Struct, **more: Any) -> Self:
        """The item with the values of a record. more: values of further fields."""
        known = {field.name for field in fields(cls)}
        found = asdict(record).items()
        return cls(**{name: _value(name, given) for name, given in found if name in known}, **more)

    def _facts(self) -> Mapping[str, Any]:
        return asdict(self)

    def _cells(self) -> Mapping[str, str]:
        found = self._facts().items()
        return {name.replace("_", " ").upper(): _text(given) for name, given in found}


def _value(name: str, given: Any) -> Any:
    if given is not None and (name == "time" or name.endswith("_at")):
        return moment(given)
    if isinstance(given, frozenset):
        return tuple(sorted(map(str, given)))
    return str(given) if isinstance(given, (UserKind, Role)) else given


def _text(given: Any) -> str:
    if given is None or isinstance(given, datetime):
        return minute(given)
    if isinstance(given, bool):
        return "yes" if given else "no"
    return ", ".join(given) if isinstance(given, tuple) else str(given) or "-"


class User(AccountItem, frozen=True):
    """A person or a service account. Users are disabled and never deleted."""

    name: str
    #: `person` or `service`.
    kind: str
    created_at: datetime
    created_by: str
    display_name: str
    #: Where the person logs in, and who the person is there; "" if nowhere.
    issuer: str
    subject: str
    #: Whether the user administers the server: may do everything in all projects.
    admin: bool
    disabled: bool


class Project(AccountItem, frozen=True):
    """What its members have in common: jobs, runs, secrets."""

    name: str
    created_at: datetime
    created_by: str
    description: str
    #: The project that it is right below; "" for `default`, which is the root, and for itself.
    parent: str


class Member(AccountItem, frozen=True):
    """A user's role in a project."""

    project: str
    user: str
    #: `viewer`, `submitter`, `maintainer` or `admin`.
    role: str
    #: Whether it follows from the user's groups at the issuer, and goes with them.
    from_groups: bool


class Token(AccountItem, frozen=True):
    """A token, without its text."""

    id: str
    #: What it is for, such as the program or machine that uses it.
    name: str
    user: str
    created_at: datetime
    created_by: str
    #: The only project where it can be used; None: all of the user's.
    project: str | None
    #: What it may be used for; None: everything that its user may do.
    scopes: tuple[str, ...] | None
    expires_at: datetime | None
    #: Written at most once a minute.
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewToken(Token, frozen=True):
    """A token that was just created."""

    #: What a program shows to the server. It is not stored, and cannot be read again.
    text: str

    def __repr__(self) -> str:
        return f"<NewToken {self.id} of {self.user}>"  # never the text

    def _facts(self) -> Mapping[str, Any]:
        return {name: given for name, given in asdict(self).items() if name != "text"}


class Secret(AccountItem, frozen=True):
    """A secret of a project, without its value."""

    name: str
    #: From 1, one more with each value.
    version: int
    set_by: str
    set_at: datetime


class AuditEntry(AccountItem, frozen=True):
    """Who did what, when, from where, and whether it was allowed."""

    #: Grows from entry to entry.
    seq: int
    time: datetime
    #: "" if the caller is not known.
    user: str
    #: What it was: `runs.start`, `users.create`.
    action: str
    #: The name or id of what it was done to.
    object: str
    project: str
    allowed: bool
    #: Why it was refused or failed; "" if it was done.
    why: str
    #: "" for the server's machine, as `address`.
    token_id: str
    address: str
    request_id: str
    #: What the caller needed: `DATA_SCIENCE_JOB_RUN_CREATE`; "" if no policy decided it.
    permission: str
    #: What allowed it: a policy, and the number of its statement, as `job-runs#2`.
    statement: str
    #: What conditions of policies could know of the object.
    attributes: Mapping[str, str]
    #: The id of the run that asked; "" if a user did.
    run: str


class Caller(AccountItem, frozen=True):
    """Who calls, and what that user may do."""

    user: str
    project: str
    #: In this project.
    rights: tuple[str, ...]
    #: Project -> role, where the user is a member.
    roles: Mapping[str, str]


class Accounts:
    """Users, projects, tokens, secrets and the audit log of the server of the current context or,
    without one, of this machine.

    project: whose secrets and audit entries (default: the context's). Methods raise
    `muster.errors.Forbidden` for what the caller may not do, NotFound and InvalidInput.

    May be used in a `with` block, which closes its connections.
    """

    def __init__(self, project: str | None = None) -> None:
        self._api = connect_accounts(project)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections; the next call opens them again."""
        self._api.close()

    def whoami(self) -> Caller:
        """Who calls."""
        found = self._api.whoami()
        roles = {member.project: str(member.role) for member in found.projects}
        return Caller(found.user, found.project, tuple(map(str, found.rights)), roles)

    # Users

    def users(self) -> Table[User]:
        """All users, by name. For administrators."""
        return Table(map(User._of, self._api.users()))

    def user(self, name: str) -> User:
        """A user. For administrators, and oneself."""
        return User._of(self._api.user(name))

    def add_user(
        self,
        name: str,
        *,
        service: bool = False,
        admin: bool = False,
        display_name: str = "",
        issuer: str = "",
        subject: str = "",
    ) -> User:
        """Add a person, or a service account, which is for a program. For administrators."""
        kind = UserKind.SERVICE if service else UserKind.PERSON
        user = UserRecord(
            *(name, kind, 0.0),  # the server sets when
            display_name=display_name,
            issuer=issuer,
            subject=subject,
            admin=admin,
        )
        return User._of(self._api.create_user(user))

    def change_user(
        self,
        name: str,
        *,
        display_name: str | None = None,
        admin: bool | None = None,
        disabled: bool | None = None,
        issuer: str | None = None,
        subject: str | None = None,
    ) -> User:
        """Change what is given. A disabled user's tokens do not work. For administrators."""
        change = UserChange(display_name, admin, disabled, issuer, subject)
        return User._of(self._api.change_user(name, change))

    # Projects

    def projects(self) -> Table[Project]:
        """The projects where the caller is a member, by name; for administrators, all."""
        return Table(map(Project._of, self._api.projects()))

    def add_project(self, name: str, description: str = "") -> Project:
        """Add a project. For administrators."""
        return Project._of(self._api.create_project(name, description))

    def change_project(self, name: str, description: str) -> Project:
        """Describe a project. For its admins."""
        return Project._of(self._api.change_project(name, description))

    def delete_project(self, name: str) -> None:
        """Delete a project without jobs and runs. For administrators."""
        self._api.delete_project(name)

    def members(self, project: str) -> Table[Member]:
        """The members of a project, by name."""
        return Table(map(Member._of, self._api.members(project)))

    def set_member(
        self, project: str, user: str, role: Literal["viewer", "submitter", "maintainer", "admin"]
    ) -> Member:
        """Add a member, or change its role. For the project's admins."""
        return Member._of(self._api.set_member(project, user, _named(Role, "role", role)))

    def remove_member(self, project: str, user: str) -> bool:
        """Remove a member; its runs continue. For the project's admins, and for oneself. False if
        it is none."""
        return self._api.remove_member(project, user)

    # Tokens

    def tokens(self, *, user: str | None = None, project: str | None = None) -> Table[Token]:
        """Tokens, newest first, with expired and revoked ones. user: default: the caller. project:
        those that can be used in this project only, of all users."""
        return Table(map(Token._of, self._api.tokens(user=user, project=project)))

    def create_token(
        self,
        name: str,
        *,
        user: str | None = None,
        project: str | None = None,
        scopes: Collection[str] | None = None,
        expires_after: float | str | timedelta | UnsetType | None = UNSET,
    ) -> NewToken:
        """Create a token; its `text` is what programs show to the server.

        name: what it is for. user: default: the caller. project: the only one where it can be
        used. scopes: `read`, `submit`, ...; None: everything that its user may do. expires_after:
        `12h`, `30d`, seconds or a timedelta; None: never; default: 90 days.
        """
        if expires_after is UNSET:
            expires_after = TOKEN_LIFETIME
        if isinstance(expires_after, timedelta):
            expires_after = expires_after.total_seconds()
        lasts = None if expires_after is None else duration_of("expires_after", expires_after)
        made = self._api.create_token(
            name,
            user=user,
            project=project,
            scopes=None if scopes is None else [_named(Right, "scopes", one) for one in scopes],
            expires_at=None if lasts is None else time.time() + lasts,
        )
        return NewToken._of(made.record, text=made.text)

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a token; a server forgets it within 5 seconds. False if it was revoked already."""
        return self._api.revoke_token(token_id)

    # Secrets

    def secrets(self) -> Table[Secret]:
        """The secrets of the project, by name, without their values."""
        return Table(map(Secret._of, self._api.secrets()))

    def set_secret(self, name: str, value: str) -> Secret:
        """Store a secret, or replace its value: `${secret.NAME}` stands for it in jobs. Runs that
        have started keep the former one."""
        return Secret._of(self._api.set_secret(name, value))

    def delete_secret(self, name: str) -> None:
        """Delete a secret. Runs that have started keep it."""
        self._api.delete_secret(name)

    # Audit log

    def audit(
        self,
        *,
        user: str | None = None,
        action: str | None = None,
        object: str | None = None,
        project: str | None = None,
        allowed: bool | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        permission: str | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> Table[AuditEntry]:
        """Entries of the audit log, newest first. For administrators, and for admins of a project.

        action: `runs.start`, or `runs` for all on runs. since, until: an aware datetime, or how
        long ago. permission: what the caller needed. before: the `seq` of the last entry, for the
        next page. after: likewise, oldest first. limit: at most 10,000.
        """
        chosen = AuditFilter(
            *(user, action, object, project, allowed, since_of(since), since_of(until)),
            permission=permission,
            before=before,
            after=after,
            limit=limit,
        )
        return Table(map(AuditEntry._of, self._api.audit(chosen)))

    def prune_audit(self, older_than: str | timedelta) -> int:
        """Delete entries older than this: `365d`. Returns their number. For administrators."""
        if isinstance(older_than, timedelta):
            return self._api.prune_audit(time.time() - older_than.total_seconds())
        return self._api.prune_audit(time.time() - age_of("older_than", older_than))


def _named(kind: type[_Name], field: str, name: str) -> _Name:
    """The right or role with a name. Raises InvalidInput."""
    try:
        return kind(name)
    except ValueError:
        hint = f"write {alternatives([str(one) for one in kind])}"
        raise InvalidInput(Problem(field, f"there is no {name!r}", hint)) from None
