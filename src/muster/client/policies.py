"""Policies, groups and compartments in Python."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import asdict

from muster.api.policies import (
    PREVIEWED,
    Explanation,
    PolicyDraft,
    PolicyPreview,
    Question,
    RuleDraft,
)
from muster.client.accounts import AccountItem
from muster.client.connect import connect_policies
from muster.client.filters import since_of
from muster.client.table import Table
from muster.identity import DEFAULT_PROJECT


class Policy(AccountItem, frozen=True):
    """Statements that are attached to a compartment, and speak of it and of those below it."""

    id: str
    name: str
    compartment: str
    description: str
    statements: tuple[str, ...]
    #: From 1, one more with each change.
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str

    def _cells(self) -> Mapping[str, str]:
        return _without(super()._cells(), "ID") | {"STATEMENTS": str(len(self.statements))}


class PolicyVersion(AccountItem, frozen=True):
    """What a policy said from one change to the next."""

    version: int
    description: str
    statements: tuple[str, ...]
    changed_at: datetime
    changed_by: str

    def _cells(self) -> Mapping[str, str]:
        return {**super()._cells(), "STATEMENTS": str(len(self.statements))}


class UserGroup(AccountItem, frozen=True):
    """A group of users."""

    name: str
    description: str
    created_at: datetime
    created_by: str
    #: By name; None in lists.
    users: tuple[str, ...] | None = None


class DynamicGroup(AccountItem, frozen=True):
    """A group of runs and instances: of those that match its rule."""

    name: str
    description: str
    rule: str
    #: From 1, one more with each change.
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    #: Names of the current runs that are in it; None in lists.
    runs: tuple[str, ...] | None = None


class Compartment(AccountItem, frozen=True):
    """A compartment, which is a project."""

    name: str
    #: The compartment that it is right below; "" for `default`, which is the tenancy.
    parent: str
    description: str
    created_at: datetime
    created_by: str


def _without(cells: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: text for name, text in cells.items() if name not in names}


class Policies:
    """Policies, groups, dynamic groups and compartments of the server of the current context or,
    without one, of this machine.

    project: of the requests (default: the context's). Methods raise `muster.errors.Forbidden` for
    what the caller may not do, NotFound and InvalidInput.

    May be used in a `with` block, which closes its connections.
    """

    def __init__(self, project: str | None = None) -> None:
        self._api = connect_policies(project)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections; the next call opens them again."""
        self._api.close()

    # Policies

    def policies(self, compartment: str | None = None) -> Table[Policy]:
        """The policies of a compartment, or all that the caller may read, by name."""
        return Table(map(Policy._of, self._api.policies(compartment)))

    def policy(self, name: str, compartment: str | None = None) -> Policy:
        """A policy, by its name or id."""
        return Policy._of(self._api.policy(name, compartment))

    def create_policy(
        self,
        name: str,
        statements: Sequence[str],
        *,
        compartment: str | None = None,
        description: str = "",
    ) -> Policy:
        """Attach a policy to a compartment; default: the caller's project. Raises InvalidInput with
        everything that is wrong with its statements."""
        return Policy._of(
            self._api.create_policy(name, tuple(statements), compartment, description)
        )

    def edit_policy(
        self,
        policy: Policy,
        *,
        statements: Sequence[str] | None = None,
        description: str | None = None,
    ) -> Policy:
        """Change what is given. policy: as it was read. Raises `muster.errors.Conflict` if it has
        changed since."""
        given = None if statements is None else tuple(statements)
        changed = self._api.change_policy(policy.id, policy.version, given, description)
        return Policy._of(changed)

    def delete_policy(self, policy: Policy) -> None:
        """Delete a policy, as it was read. Raises as `edit_policy`."""
        self._api.delete_policy(policy.id, policy.version)

    def history(self, policy: Policy) -> Table[PolicyVersion]:
        """What a policy has said, newest first."""
        return Table(map(PolicyVersion._of, self._api.policy_revisions(policy.id)))

    def preview_policy(
        self,
        name: str,
        statements: Sequence[str] | None,
        *,
        compartment: str | None = None,
        since: datetime | timedelta | None = None,
    ) -> PolicyPreview:
        """The requests of the audit log that would be answered in another way if a policy had these
        statements, or were deleted (None). since: an aware datetime, or how long ago. Default: 30
        days."""
        given = None if statements is None else tuple(statements)
        return self._api.preview(PolicyDraft(name, given, compartment), _since(since))

    def preview_dynamic_group(
        self, name: str, rule: str | None, *, since: datetime | timedelta | None = None
    ) -> PolicyPreview:
        """The same, if a dynamic group had this rule or were deleted (None)."""
        return self._api.preview(RuleDraft(name, rule), _since(since))

    def explain(
        self,
        who: str,
        can: str,
        on: str,
        *,
        compartment: str | None = None,
        where: Mapping[str, str] | None = None,
    ) -> Explanation:
        """Whether somebody may do something, and why, as `muster iam explain` says it.

        who: a user, `group:NAME`, `run:RUN`, `run:PROJECT/RUN` or `any-user`. can: a verb or a
        permission. on: a type, or one resource such as `bucket:NAME`. compartment: default: the
        caller's project. where: variables of the resource.
        """
        return self._api.explain(Question(who, can, on, compartment, where or {}))

    # Groups

    def groups(self) -> Table[UserGroup]:
        """All groups but the built-in ones, by name."""
        return Table(map(UserGroup._of, self._api.groups()))

    def group(self, name: str) -> UserGroup:
        """A group with its users; also a built-in one."""
        found = self._api.group(name)
        return UserGroup._of(found.group, users=tuple(one.user for one in found.users))

    def create_group(self, name: str, description: str = "") -> UserGroup:
        """Add a group."""
        return UserGroup._of(self._api.create_group(name, description))

    def delete_group(self, name: str) -> None:
        """Delete a group without users."""
        self._api.delete_group(name)

    def add_to_group(self, group: str, user: str) -> bool:
        """Add a user to a group. False if it is in the group."""
        return self._api.add_to_group(group, user)

    def remove_from_group(self, group: str, user: str) -> bool:
        """Remove a user from a group. False if it is not in the group."""
        return self._api.remove_from_group(group, user)

    # Dynamic groups

    def dynamic_groups(self) -> Table[DynamicGroup]:
        """All dynamic groups, by name."""
        return Table(map(DynamicGroup._of, self._api.dynamic_groups()))

    def dynamic_group(self, name: str) -> DynamicGroup:
        """A dynamic group, with the current runs that match it."""
        found = self._api.dynamic_group(name)
        return DynamicGroup._of(found.group, runs=tuple(run.name for run in found.runs))

    def create_dynamic_group(self, name: str, rule: str, description: str = "") -> DynamicGroup:
        """Add a dynamic group. Raises InvalidInput with everything that is wrong with its rule."""
        return DynamicGroup._of(self._api.create_dynamic_group(name, rule, description))

    def edit_dynamic_group(
        self, group: DynamicGroup, *, rule: str | None = None, description: str | None = None
    ) -> DynamicGroup:
        """Change what is given. group: as it was read. Raises as `edit_policy`."""
        changed = self._api.change_dynamic_group(group.name, group.version, rule, description)
        return DynamicGroup._of(changed)

    def delete_dynamic_group(self, name: str) -> None:
        """Delete a dynamic group."""
        self._api.delete_dynamic_group(name)

    # Compartments

    def compartments(self) -> Table[Compartment]:
        """The compartments that the caller sees, by name."""
        return Table(map(_compartment, self._api.compartments()))

    def create_compartment(
        self, name: str, *, parent: str = DEFAULT_PROJECT, description: str = ""
    ) -> Compartment:
        """Add a compartment, which is a project, below another one."""
        return _compartment(self._api.create_compartment(name, parent, description))

    def move_compartment(self, name: str, parent: str) -> Compartment:
        """Move a compartment with those below it."""
        return _compartment(self._api.move_compartment(name, parent))

    def delete_compartment(self, name: str) -> None:
        """Delete a compartment without jobs, runs and compartments below it."""
        self._api.delete_compartment(name)


def _compartment(record: Any) -> Compartment:
    return Compartment._of(record_with_parent(record))


def record_with_parent(record: Struct) -> Any:
    """A project whose parent is named also if that is the tenancy."""
    from msgspec.structs import replace

    facts = asdict(record)
    if facts["parent"] or facts["name"] == DEFAULT_PROJECT:
        return record
    return replace(record, parent=DEFAULT_PROJECT)


def _since(given: datetime | timedelta | None) -> float:
    found = since_of(given)
    return time.time() - PREVIEWED if found is None else found
