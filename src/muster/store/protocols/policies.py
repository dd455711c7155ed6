"""Policies, groups of users, and dynamic groups. Names are case-insensitive.

What is changed is given as it was read, and as it is to be: who changes what another one has
changed meanwhile gets a Conflict. The store counts the versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.policy_records import (
        DynamicGroupRecord,
        GroupMember,
        GroupRecord,
        PolicyRecord,
        PolicyRevision,
        PolicyState,
    )


class Policies(Protocol):
    """See the module."""

    # Policies

    def create_policy(self, policy: PolicyRecord) -> None:
        """Add a policy, as version 1. Raises NotFound if there is no such compartment,
        AlreadyExists if the compartment has one with this name."""
        ...

    def change_policy(self, before: PolicyRecord, after: PolicyRecord) -> PolicyRecord:
        """Change the description and the statements. Raises Conflict, NotFound."""
        ...

    def delete_policy(self, policy: PolicyRecord) -> None:
        """Delete a policy with its revisions. Raises Conflict, NotFound."""
        ...

    def policy(self, policy_id: str) -> PolicyRecord:
        """The policy with this id. Raises NotFound."""
        ...

    def policy_named(self, compartment: str, name: str) -> PolicyRecord:
        """The policy of a compartment with this name. Raises NotFound."""
        ...

    def policies(self, compartment: str | None = None) -> list[PolicyRecord]:
        """The policies that are attached to a compartment, or all, by name. `job-runs` of
        `default` is there from the start."""
        ...

    def revisions(self, policy_id: str) -> list[PolicyRevision]:
        """What a policy has said, newest first. Raises NotFound."""
        ...

    # Groups

    def create_group(self, group: GroupRecord) -> None:
        """Add a group, as version 1. Raises AlreadyExists if there is a group or dynamic group with
        this name, and InvalidInput for the name of a group that has no record: `Administrators`,
        and PROJECT-ROLE of a project."""
        ...

    def change_group(self, before: GroupRecord, after: GroupRecord) -> GroupRecord:
        """Change the description. Raises Conflict, NotFound."""
        ...

    def delete_group(self, group: GroupRecord) -> None:
        """Delete a group without users. Raises Conflict, NotFound, InvalidInput."""
        ...

    def group(self, group_id: str) -> GroupRecord:
        """The group with this id. Raises NotFound."""
        ...

    def group_named(self, name: str) -> GroupRecord:
        """The group with this name. Raises NotFound."""
        ...

    def groups(self) -> list[GroupRecord]:
        """All groups that have a record, by name."""
        ...

    def groups_of(self, user: str) -> list[GroupRecord]:
        """The groups of a user that have a record, by name."""
        ...

    def add_user(self, member: GroupMember) -> bool:
        """Add a user to a group. False if it is in the group. Raises NotFound if there is no such
        group or user."""
        ...

    def remove_user(self, group_id: str, user: str) -> bool:
        """Remove a user from a group. False if it is not in the group."""
        ...

    def group_members(
        self, *, group: str | None = None, user: str | None = None
    ) -> list[GroupMember]:
        """The users of a group, by its id, or the groups of a user."""
        ...

    # Dynamic groups

    def create_dynamic_group(self, group: DynamicGroupRecord) -> None:
        """As `create_group`."""
        ...

    def change_dynamic_group(
        self, before: DynamicGroupRecord, after: DynamicGroupRecord
    ) -> DynamicGroupRecord:
        """Change the description and the rule. Raises Conflict, NotFound."""
        ...

    def delete_dynamic_group(self, group: DynamicGroupRecord) -> None:
        """Delete a dynamic group. Raises Conflict, NotFound."""
        ...

    def dynamic_group(self, group_id: str) -> DynamicGroupRecord:
        """The dynamic group with this id. Raises NotFound."""
        ...

    def dynamic_group_named(self, name: str) -> DynamicGroupRecord:
        """The dynamic group with this name. Raises NotFound."""
        ...

    def dynamic_groups(self) -> list[DynamicGroupRecord]:
        """All dynamic groups, by name."""
        ...

    # Decisions

    def generation(self) -> int:
        """A number that every change of what `load` returns increases: of policies, groups, dynamic
        groups, users and members of groups and projects, projects and their parents, and of who is
        an administrator or disabled."""
        ...

    def load(self) -> PolicyState:
        """All that decisions need, as it was at one moment."""
        ...
