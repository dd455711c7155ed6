"""The contract between Muster and those who say who may do what: policies, groups, compartments.

A `PoliciesAPI` works for one caller, as an `AccountsAPI` does, and raises the same errors:
Forbidden if the caller lacks the permission in the compartment that is concerned, NotFound,
InvalidInput, Conflict, StoreError. Each change is in the audit log, also if it was refused. Groups
and dynamic groups belong to the tenancy, which is the project `default`; compartments are projects.
Names are case-insensitive. A compartment that is None is the caller's project.

OCI: whoever may write policies in a compartment may write any statement about it and those below
it, also one that allows more than the writer may do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from muster.iam.policies.findings import Finding
from muster.permissions import Permission, StatementRef
from muster.store.account_records import ProjectRecord
from muster.store.policy_records import (
    DynamicGroupRecord,
    GroupMember,
    GroupRecord,
    PolicyRecord,
    PolicyRevision,
)

#: Seconds of the audit log that a preview looks at by default: 30 days.
PREVIEWED = 30 * 86400.0


class GroupDetails(Struct, frozen=True):
    """A group and its users."""

    group: GroupRecord
    """Of `Administrators` and `PROJECT-ROLE`: without id, and version 0."""
    users: tuple[GroupMember, ...] = ()
    """By name."""


class MatchingRun(Struct, frozen=True):
    """A run that has not ended and is in a dynamic group."""

    id: str
    name: str
    project: str
    state: str
    created_by: str


class DynamicGroupDetails(Struct, frozen=True):
    """A dynamic group, and what is in it now."""

    group: DynamicGroupRecord
    runs: tuple[MatchingRun, ...] = ()
    """Of the compartments where the caller sees runs; the newest first."""


class PolicyDraft(Struct, frozen=True, tag="policy"):
    """A policy as it would be."""

    name: str
    statements: tuple[str, ...] | None
    """None: it would be deleted."""
    compartment: str | None = None
    """None: the caller's project."""


class RuleDraft(Struct, frozen=True, tag="dynamic-group"):
    """A dynamic group as it would be."""

    name: str
    rule: str | None
    """None: it would be deleted."""


class ChangedAnswer(Struct, frozen=True):
    """What a change would allow or refuse of what has been asked for."""

    who: str
    """A user, or `run:ID`."""
    permission: Permission
    compartment: str
    allowed: bool
    """After the change."""
    statement: StatementRef | None
    """The one that allows it after the change or, if it is refused then, has allowed it before;
    None if the caller may not read its policy."""
    requests: int
    last_at: float
    """Epoch seconds."""


class PolicyPreview(Struct, frozen=True):
    """The requests of the audit log that a change would answer in another way."""

    examined: int
    """Requests that were looked at."""
    changed: tuple[ChangedAnswer, ...] = ()
    """Each requester, permission and compartment once; the newest first."""


class Question(Struct, frozen=True):
    """Whether somebody may do something."""

    who: str
    """A user, `group:NAME`, `any-user`, or `run:RUN`, as `run:COMPARTMENT/RUN` if the run is not in
    the compartment that is asked about."""
    can: str
    """A verb, or the name of a permission."""
    on: str
    """A type of resources, such as `data-science-jobs`; or one resource, such as `job:NAME`, whose
    compartment and variables are looked up."""
    compartment: str | None = None
    """None: the caller's project."""
    where: Mapping[str, str] = {}
    """Variables of the resource, such as {"target.bucket.name": "data"}."""


class NearMiss(Struct, frozen=True):
    """A statement that does not allow something, and why not."""

    statement: StatementRef
    reason: str


class PermissionAnswer(Struct, frozen=True):
    """Whether somebody has one permission."""

    permission: Permission
    allowed: bool
    statement: StatementRef | None = None
    """The one that allows it; None if the caller may not read its policy, and asks about somebody
    else."""
    near_misses: tuple[NearMiss, ...] = ()
    """If it is refused: statements that nearly allow it, of the policies that the caller may
    read."""
    missing: str = ""
    """If it is refused: a statement that would allow it, for a policy of the tenancy."""


class Explanation(Struct, frozen=True):
    """The answer to a question."""

    who: str
    compartment: str
    attributes: Mapping[str, str]
    """The variables of the resource."""
    answers: tuple[PermissionAnswer, ...]
    """One for each permission that was asked about."""

    @property
    def allowed(self) -> bool:
        """Whether all of them are allowed."""
        return all(one.allowed for one in self.answers)


class PoliciesAPI(Protocol):
    """See the module."""

    def close(self) -> None:
        """Close connections; the next call opens them again."""
        ...

    # Policies

    def policies(self, compartment: str | None = None) -> list[PolicyRecord]:
        """The policies of a compartment, or of all compartments where the caller may read them, by
        name."""
        ...

    def policy(self, name: str, compartment: str | None = None) -> PolicyRecord:
        """A policy, by its name or id. compartment: needed if several have one of this name."""
        ...

    def create_policy(
        self,
        name: str,
        statements: Sequence[str],
        compartment: str | None = None,
        description: str = "",
    ) -> PolicyRecord:
        """Attach a policy to a compartment. Raises InvalidInput with everything that is wrong with
        its statements, AlreadyExists."""
        ...

    def change_policy(
        self,
        policy_id: str,
        version: int,
        statements: Sequence[str] | None = None,
        description: str | None = None,
    ) -> PolicyRecord:
        """Change what is given. version: the one that the change is based on. Raises Conflict if
        the policy has another one now; InvalidInput as `create_policy`."""
        ...

    def delete_policy(self, policy_id: str, version: int) -> None:
        """Delete a policy with its revisions. Raises Conflict as `change_policy`."""
        ...

    def policy_revisions(self, policy_id: str) -> list[PolicyRevision]:
        """What a policy has said, newest first."""
        ...

    def check_statements(
        self,
        statements: Sequence[str],
        compartment: str | None = None,
        name: str = "",
        source: str = "",
    ) -> list[Finding]:
        """What is wrong with statements, if they were attached to a compartment: errors, and names
        and conditions that match nothing. What the caller may not inspect, such as the groups of
        the tenancy, looks as if it did not exist. Line N is statement N. name: of the policy that
        they replace, if there is one. source: what findings call them."""
        ...

    def preview(self, draft: PolicyDraft | RuleDraft, since: float) -> PolicyPreview:
        """What a change would allow or refuse of the requests in the audit log, of the compartments
        whose entries the caller may read: those that change something, and those that were refused.
        since: epoch seconds. Raises InvalidInput for statements that cannot be read."""
        ...

    def explain(self, question: Question) -> Explanation:
        """Whether somebody may do something, and why. Everybody may ask about themselves. Raises
        InvalidInput for words that cannot be read, NotFound for resources that do not exist."""
        ...

    # Groups

    def groups(self) -> list[GroupRecord]:
        """All groups but the built-in ones, by name."""
        ...

    def group(self, name: str) -> GroupDetails:
        """A group and its users; also a built-in one."""
        ...

    def create_group(self, name: str, description: str = "") -> GroupRecord:
        """Add a group. Raises InvalidInput, AlreadyExists."""
        ...

    def delete_group(self, name: str) -> None:
        """Delete a group without users. Raises InvalidInput."""
        ...

    def add_to_group(self, group: str, user: str) -> bool:
        """Add a user to a group. False if it is in the group."""
        ...

    def remove_from_group(self, group: str, user: str) -> bool:
        """Remove a user from a group. False if it is not in the group."""
        ...

    # Dynamic groups

    def dynamic_groups(self) -> list[DynamicGroupRecord]:
        """All dynamic groups, by name."""
        ...

    def dynamic_group(self, name: str) -> DynamicGroupDetails:
        """A dynamic group, and the current runs that match it."""
        ...

    def create_dynamic_group(
        self, name: str, rule: str, description: str = ""
    ) -> DynamicGroupRecord:
        """Add a dynamic group. Raises InvalidInput with everything that is wrong with its rule,
        AlreadyExists."""
        ...

    def change_dynamic_group(
        self, name: str, version: int, rule: str | None = None, description: str | None = None
    ) -> DynamicGroupRecord:
        """Change what is given. version: as for `change_policy`."""
        ...

    def delete_dynamic_group(self, name: str) -> None:
        """Delete a dynamic group."""
        ...

    # Compartments

    def compartments(self) -> list[ProjectRecord]:
        """The compartments that the caller sees, by name."""
        ...

    def create_compartment(
        self, name: str, parent: str = "default", description: str = ""
    ) -> ProjectRecord:
        """Add a compartment below another one: a project. Raises InvalidInput."""
        ...

    def move_compartment(self, name: str, parent: str) -> ProjectRecord:
        """Move a compartment, with those below it. Raises InvalidInput for a parent that is below
        it, and for `default`."""
        ...

    def delete_compartment(self, name: str) -> None:
        """Delete a compartment without jobs, runs and compartments below it. Raises
        InvalidInput."""
        ...
