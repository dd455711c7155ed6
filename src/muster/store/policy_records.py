"""Records of policies, of the groups that they name, and of what their decisions need."""

from __future__ import annotations

from msgspec import Struct

from muster.store.account_records import MemberRecord, ProjectRecord
from muster.store.records import Moment


class PolicyRecord(Struct, frozen=True):
    """A policy: statements that are attached to a compartment, and speak of it and of those below
    it."""

    id: str
    """The last part of its OCID."""
    name: str
    """Unique in its compartment, also without regard to capitals, and never changed."""
    compartment: str
    """The project that it is attached to, never changed; `default` is the tenancy."""
    description: str
    statements: tuple[str, ...]
    """As they were written; `iam.policies.parsing` reads them."""
    version: int
    """From 1, one more with each change."""
    created_at: Moment
    created_by: str
    updated_at: Moment
    updated_by: str


class PolicyRevision(Struct, frozen=True):
    """What a policy said from one change to the next. It is deleted with its policy."""

    policy: str
    """The id of its policy."""
    version: int
    description: str
    statements: tuple[str, ...]
    changed_at: Moment
    changed_by: str


class GroupRecord(Struct, frozen=True):
    """A group of users. `Administrators`, and the members of a project who have a role
    (`PROJECT-ROLE`), are groups without a record."""

    id: str
    """The last part of its OCID."""
    name: str
    """Unique among all groups and dynamic groups, also without regard to capitals, and never
    changed."""
    description: str
    version: int
    """From 1, one more with each change. Its users do not count."""
    created_at: Moment
    created_by: str
    updated_at: Moment
    updated_by: str


class DynamicGroupRecord(Struct, frozen=True):
    """A group of runs and instances: of those that match its rule."""

    id: str
    """The last part of its OCID."""
    name: str
    """As `GroupRecord.name`."""
    description: str
    rule: str
    """As it was written; `iam.policies.parsing` reads it."""
    version: int
    """From 1, one more with each change."""
    created_at: Moment
    created_by: str
    updated_at: Moment
    updated_by: str


class GroupMember(Struct, frozen=True):
    """A user in a group."""

    group: str
    """The id of the group."""
    user: str
    added_at: Moment
    added_by: str


class PolicyState(Struct, frozen=True):
    """All that the decisions of policies need, as it was at one moment."""

    generation: int
    """See `Policies.generation`."""
    policies: tuple[PolicyRecord, ...]
    groups: tuple[GroupRecord, ...]
    group_members: tuple[GroupMember, ...]
    dynamic_groups: tuple[DynamicGroupRecord, ...]
    projects: tuple[ProjectRecord, ...]
    """With their parents."""
    members: tuple[MemberRecord, ...]
    """Of the projects."""
    administrators: frozenset[str]
    """The users who administer the server and are not disabled."""
