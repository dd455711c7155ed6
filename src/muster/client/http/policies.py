"""`PoliciesAPI` of a server, over HTTP. Each method is one request (`api.policy_operations`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from muster.api.policies import (
    DynamicGroupDetails,
    Explanation,
    GroupDetails,
    PolicyDraft,
    PolicyPreview,
    Question,
    RuleDraft,
)
from muster.api.policy_operations import POLICY_OPERATIONS
from muster.client.contexts import Address
from muster.client.http.connection import Connection
from muster.iam.policies.findings import Finding
from muster.store.account_records import ProjectRecord
from muster.store.policy_records import (
    DynamicGroupRecord,
    GroupRecord,
    PolicyRecord,
    PolicyRevision,
)

T = TypeVar("T")


class HttpPolicies:
    """See `PoliciesAPI`, which documents the methods. Threads may share an object."""

    def __init__(self, address: Address) -> None:
        self.connection = Connection(address)

    def _call(self, name: str, answer: type[T], /, **given: object) -> T:
        """Request an operation. answer: the type of what it answers. given: all parameters of the
        method."""
        made: T = self.connection.call(POLICY_OPERATIONS[name], given, answer)
        return made

    def close(self) -> None:
        self.connection.close()

    def policies(self, compartment: str | None = None) -> list[PolicyRecord]:
        return self._call("policies", list[PolicyRecord], compartment=compartment)

    def policy(self, name: str, compartment: str | None = None) -> PolicyRecord:
        return self._call("policy", PolicyRecord, name=name, compartment=compartment)

    def create_policy(
        self,
        name: str,
        statements: Sequence[str],
        compartment: str | None = None,
        description: str = "",
    ) -> PolicyRecord:
        return self._call(
            "create_policy",
            PolicyRecord,
            name=name,
            compartment=compartment,
            statements=statements,
            description=description,
        )

    def change_policy(
        self,
        policy_id: str,
        version: int,
        statements: Sequence[str] | None = None,
        description: str | None = None,
    ) -> PolicyRecord:
        return self._call(
            "change_policy",
            PolicyRecord,
            policy_id=policy_id,
            version=version,
            statements=statements,
            description=description,
        )

    def delete_policy(self, policy_id: str, version: int) -> None:
        self._call("delete_policy", type(None), policy_id=policy_id, version=version)

    def policy_revisions(self, policy_id: str) -> list[PolicyRevision]:
        return self._call("policy_revisions", list[PolicyRevision], policy_id=policy_id)

    def check_statements(
        self,
        statements: Sequence[str],
        compartment: str | None = None,
        name: str = "",
        source: str = "",
    ) -> list[Finding]:
        return self._call(
            "check_statements",
            list[Finding],
            statements=statements,
            compartment=compartment,
            name=name,
            source=source,
        )

    def preview(self, draft: PolicyDraft | RuleDraft, since: float) -> PolicyPreview:
        return self._call("preview", PolicyPreview, draft=draft, since=since)

    def explain(self, question: Question) -> Explanation:
        return self._call("explain", Explanation, question=question)

    def groups(self) -> list[GroupRecord]:
        return self._call("groups", list[GroupRecord])

    def group(self, name: str) -> GroupDetails:
        return self._call("group", GroupDetails, name=name)

    def create_group(self, name: str, description: str = "") -> GroupRecord:
        return self._call("create_group", GroupRecord, name=name, description=description)

    def delete_group(self, name: str) -> None:
        self._call("delete_group", type(None), name=name)

    def add_to_group(self, group: str, user: str) -> bool:
        return self._call("add_to_group", bool, group=group, user=user)

    def remove_from_group(self, group: str, user: str) -> bool:
        return self._call("remove_from_group", bool, group=group, user=user)

    def dynamic_groups(self) -> list[DynamicGroupRecord]:
        return self._call("dynamic_groups", list[DynamicGroupRecord])

    def dynamic_group(self, name: str) -> DynamicGroupDetails:
        return self._call("dynamic_group", DynamicGroupDetails, name=name)

    def create_dynamic_group(
        self, name: str, rule: str, description: str = ""
    ) -> DynamicGroupRecord:
        return self._call(
            "create_dynamic_group",
            DynamicGroupRecord,
            name=name,
            rule=rule,
            description=description,
        )

    def change_dynamic_group(
        self, name: str, version: int, rule: str | None = None, description: str | None = None
    ) -> DynamicGroupRecord:
        return self._call(
            "change_dynamic_group",
            DynamicGroupRecord,
            name=name,
            version=version,
            rule=rule,
            description=description,
        )

    def delete_dynamic_group(self, name: str) -> None:
        self._call("delete_dynamic_group", type(None), name=name)

    def compartments(self) -> list[ProjectRecord]:
        return self._call("compartments", list[ProjectRecord])

    def create_compartment(
        self, name: str, parent: str = "default", description: str = ""
    ) -> ProjectRecord:
        return self._call(
            "create_compartment", ProjectRecord, name=name, parent=parent, description=description
        )

    def move_compartment(self, name: str, parent: str) -> ProjectRecord:
        return self._call("move_compartment", ProjectRecord, name=name, parent=parent)

    def delete_compartment(self, name: str) -> None:
        self._call("delete_compartment", type(None), name=name)
