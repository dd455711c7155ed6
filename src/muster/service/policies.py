"""`PoliciesAPI` in this process: checks who calls, records what is done, and does it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from muster.api.policies import (
    DynamicGroupDetails,
    Explanation,
    GroupDetails,
    MatchingRun,
    PolicyDraft,
    PolicyPreview,
    Question,
    RuleDraft,
)
from muster.caller import NO_VARIABLES, Variables
from muster.errors import Conflict, InvalidInput, NotFound, Problem
from muster.iam.names import check_name, check_text
from muster.iam.policies.statements import Location
from muster.iam.resources import variables_of_group
from muster.identity import DEFAULT_PROJECT, new_id
from muster.permissions import Decision, Permission
from muster.service.policy_changes import (
    changed_by,
    check_policy,
    check_rule,
    new_dynamic_group,
    new_group,
    new_policy,
    with_description,
    with_rule,
    with_statements,
)
from muster.service.policy_references import check_compartment, check_dynamic_group, check_group
from muster.service.recorded_calls import RecordedCalls
from muster.spec.ocids import ocid
from muster.store.account_records import ProjectRecord
from muster.store.names import not_found_error
from muster.store.policy_records import (
    DynamicGroupRecord,
    GroupMember,
    GroupRecord,
    PolicyRecord,
    PolicyRevision,
)

if TYPE_CHECKING:
    from muster.iam.policies.findings import Finding
    from muster.store.protocols.policies import Policies

T = TypeVar("T")
#: The root compartment, as statements call it.
_TENANCY = "tenancy"


class EmbeddedPolicies(RecordedCalls):
    """See `PoliciesAPI`, which documents the methods. Threads may share an object."""

    @property
    def _policies(self) -> Policies:
        return self._backend.store.policies

    # Who may do it

    def _may(self, compartment: str, permission: Permission) -> bool:
        return self._caller.allows(permission, project=compartment)

    def _change(
        self,
        action: str,
        object: str,
        compartment: str,
        permissions: Sequence[tuple[str, Permission]],
        what: str,
        do: Callable[[], T],
        on: Variables = NO_VARIABLES,
    ) -> T:
        """As `_act`. permissions: each with the compartment where the caller needs it. what:
        continues "may not". on: what is known of the resource."""

        def check() -> Decision:
            require = self._caller.require
            first, *_ = [require(one, what, on, project=place) for place, one in permissions]
            return first

        return self._act(action, object, check, do, project=compartment)

    def _named(self, given: str) -> str:
        """The name of a compartment. given: the same, `tenancy`, or a path from the tenancy such as
        `research:vision`; what is none that the caller sees is returned as it is."""
        names = given.split(":")
        if len(names) == 1 and given.lower() != _TENANCY:
            return given
        with suppress(NotFound):  # a compartment may be called so
            return self._backend.store.accounts.project(given).name
        policies = self._backend.policies.get().policies
        location = Location(tuple(names) if len(names) > 1 else ())
        found = policies.resolve(location, policies.root)
        # whoever does not see a compartment does not learn from a path that it exists
        return found if found and self._may(found, Permission.COMPARTMENT_INSPECT) else given

    def _place(self, given: str | None) -> str:
        """The same; None: the caller's project."""
        return self._caller.project if given is None else self._named(given)

    def _compartment(self, name: str) -> str:
        """The name of a compartment as it is written. Raises NotFound."""
        try:
            return self._backend.store.accounts.project(name).name
        except NotFound:
            every = (one.name for one in self._backend.store.accounts.projects())
            seen = [one for one in every if self._may(one, Permission.COMPARTMENT_INSPECT)]
            command = "muster iam compartments list"
            raise not_found_error("compartment", name, seen, command) from None

    # Policies

    def policies(self, compartment: str | None = None) -> list[PolicyRecord]:
        if compartment is not None:
            compartment = self._named(compartment)
            self._read(compartment, Permission.POLICY_READ, "see policies")
            return self._policies.policies(self._compartment(compartment))
        may = cache(lambda place: self._may(place, Permission.POLICY_READ))
        found = [one for one in self._policies.policies() if may(one.compartment)]
        if not found:
            self._read(self._caller.project, Permission.POLICY_READ, "see policies")
        return found

    def policy(self, name: str, compartment: str | None = None) -> PolicyRecord:
        lower = name.lower()
        found = [one for one in self.policies(compartment) if lower in (one.name.lower(), one.id)]
        if not found:
            where = f" in compartment {compartment}" if compartment else ""
            hint = "`muster iam policies list` lists them"
            raise NotFound(Problem("", f"there is no policy {name!r}{where}", hint))
        found = [one for one in found if one.id == lower] or found
        if len(found) > 1:
            places = ", ".join(one.compartment for one in found)
            text = f"{len(found)} compartments have a policy {name!r}: {places}"
            raise InvalidInput(Problem("compartment", text, "name one of them"))
        return found[0]

    def create_policy(
        self,
        name: str,
        statements: Sequence[str],
        compartment: str | None = None,
        description: str = "",
    ) -> PolicyRecord:
        at = self._place(compartment)

        def do() -> PolicyRecord:
            place, by = self._compartment(at), self._caller.user
            made = new_policy(new_id(), name, place, description, statements, by)
            self._policies.create_policy(made)
            return self._policies.policy(made.id)

        needed = [(at, Permission.POLICY_CREATE)]
        return self._change("policies.create", name, at, needed, "write policies", do)

    def change_policy(
        self,
        policy_id: str,
        version: int,
        statements: Sequence[str] | None = None,
        description: str | None = None,
    ) -> PolicyRecord:
        before = self.policy(policy_id)

        def do() -> PolicyRecord:
            _check_version("policy", before.name, before.version, version)
            after = with_description(with_statements(before, statements), description)
            if after == before:
                return before
            return self._policies.change_policy(before, changed_by(after, self._caller.user))

        place = before.compartment
        needed = [(place, Permission.POLICY_UPDATE)]
        return self._change("policies.change", before.name, place, needed, "change policies", do)

    def delete_policy(self, policy_id: str, version: int) -> None:
        found = self.policy(policy_id)

        def do() -> None:
            _check_version("policy", found.name, found.version, version)
            self._policies.delete_policy(found)

        place = found.compartment
        needed = [(place, Permission.POLICY_DELETE)]
        self._change("policies.delete", found.name, place, needed, "delete policies", do)

    def policy_revisions(self, policy_id: str) -> list[PolicyRevision]:
        return self._policies.revisions(self.policy(policy_id).id)

    def check_statements(
        self,
        statements: Sequence[str],
        compartment: str | None = None,
        name: str = "",
        source: str = "",
    ) -> list[Finding]:
        from muster.service.policy_questions import findings_of

        at = self._place(compartment)
        self._read(at, Permission.POLICY_READ, "see policies")
        place = self._compartment(at)
        return findings_of(self._backend, self._caller, place, statements, name, source)

    def preview(self, draft: PolicyDraft | RuleDraft, since: float) -> PolicyPreview:
        from muster.service.policy_preview import preview

        if isinstance(draft, PolicyDraft):
            place = self._place(draft.compartment)
            permission = Permission.POLICY_READ
        else:
            place, permission = DEFAULT_PROJECT, Permission.DYNAMIC_GROUP_READ
        self._read(place, permission, "preview changes")
        self._read(place, Permission.AUDIT_READ, "preview changes by the audit log")
        if isinstance(draft, PolicyDraft):
            draft = replace(draft, compartment=self._compartment(place))
            if draft.statements is not None:
                check_policy(draft.name, draft.statements, self._compartment(place))
        elif draft.rule is not None:
            check_rule(draft.rule)
        else:
            check_dynamic_group(self._backend, self._caller, draft.name)
        return preview(self._backend, draft, since, self._caller)

    def explain(self, question: Question) -> Explanation:
        from muster.service.policy_questions import explain

        place = self._place(question.compartment)
        if question.who.lower() != self._caller.user.lower():
            self._read(place, Permission.POLICY_READ, "ask what others may do")
        elif place.lower() != self._caller.project.lower():
            self._read(place, Permission.COMPARTMENT_INSPECT, "ask what is allowed")
        place = self._compartment(place)
        if ":" in question.on:  # it says what the resource is, and who has created it
            self._read(place, Permission.POLICY_READ, "ask about one resource")
        return explain(self._backend, question, place, self._caller)

    # Groups

    def _in_tenancy(
        self,
        action: str,
        object: str,
        permission: Permission,
        what: str,
        do: Callable[[], T],
        on: Variables = NO_VARIABLES,
    ) -> T:
        """Change a group or dynamic group."""
        needed = [(DEFAULT_PROJECT, permission)]
        return self._change(action, object, "", needed, what, do, on)

    def _group_variables(self, name: str) -> Variables:
        """What conditions can know of a group. One that does not exist has a name, and no OCID."""
        with suppress(NotFound):
            found = self._policies.group_named(name)
            return variables_of_group(ocid("group", found.id), found.name)
        return {"target.group.name": name}

    def groups(self) -> list[GroupRecord]:
        found, inspect = self._policies.groups(), Permission.GROUP_INSPECT
        if self._may(DEFAULT_PROJECT, inspect):
            self._read(DEFAULT_PROJECT, inspect, "see groups")
            return found
        on = {one.id: variables_of_group(ocid("group", one.id), one.name) for one in found}
        seen = [
            one
            for one in found
            if self._caller.allows(inspect, on[one.id], project=DEFAULT_PROJECT)
        ]
        self._read(DEFAULT_PROJECT, inspect, "see groups", on[seen[0].id] if seen else NO_VARIABLES)
        return seen

    def group(self, name: str) -> GroupDetails:
        from muster.service.policy_questions import built_in_group

        on = self._group_variables(name)
        self._read(DEFAULT_PROJECT, Permission.GROUP_READ, "see groups", on)
        users = built_in_group(self._policies.load(), name)
        if users is not None:
            found = GroupRecord("", name, "built in", 0, 0.0, "", 0.0, "")
            return GroupDetails(found, tuple(GroupMember("", one, 0.0, "") for one in users))
        group = self._policies.group_named(name)
        return GroupDetails(group, tuple(self._policies.group_members(group=group.id)))

    def create_group(self, name: str, description: str = "") -> GroupRecord:
        def do() -> GroupRecord:
            made = new_group(new_id(), name, description, self._caller.user)
            self._policies.create_group(made)
            return self._policies.group(made.id)

        permission = Permission.GROUP_CREATE
        on = self._group_variables(name)
        return self._in_tenancy("groups.create", name, permission, "create groups", do, on)

    def delete_group(self, name: str) -> None:
        def do() -> None:
            group = self._policies.group_named(name)
            check_group(self._backend, self._caller, group.name)
            self._policies.delete_group(group)

        permission, on = Permission.GROUP_DELETE, self._group_variables(name)
        self._in_tenancy("groups.delete", name, permission, "delete groups", do, on)

    def add_to_group(self, group: str, user: str) -> bool:
        def do() -> bool:
            self._check_not_built_in(group, user, joins=True)
            found = self._policies.group_named(group)
            account = self._backend.store.accounts.user(user)
            member = GroupMember(found.id, account.name, time.time(), self._caller.user)
            return self._policies.add_user(member)

        what, object = "change the users of groups", f"{group} ({user})"
        permission, on = Permission.GROUP_UPDATE, self._group_variables(group)
        return self._in_tenancy("groups.add-user", object, permission, what, do, on)

    def remove_from_group(self, group: str, user: str) -> bool:
        def do() -> bool:
            self._check_not_built_in(group, user, joins=False)
            return self._policies.remove_user(self._policies.group_named(group).id, user)

        what, object = "change the users of groups", f"{group} ({user})"
        permission, on = Permission.GROUP_UPDATE, self._group_variables(group)
        return self._in_tenancy("groups.remove-user", object, permission, what, do, on)

    def _check_not_built_in(self, group: str, user: str, *, joins: bool) -> None:
        """Raises InvalidInput for a group that has the administrators or members of a project."""
        from muster.service.policy_questions import built_in

        state = self._policies.load()
        found = built_in(state, group)
        if found is None:
            return
        if isinstance(found, str):
            command = f"muster users change {user} --{'admin' if joins else 'no-admin'}"
        else:
            project, role = found
            command = f"muster projects remove-member {project} {user}"
            if joins:
                command = f"muster projects add-member {project} {user} --role {role}"
        raise InvalidInput(Problem("", f"group {group} is built in", f"`{command}`"))

    # Dynamic groups

    def dynamic_groups(self) -> list[DynamicGroupRecord]:
        self._read(DEFAULT_PROJECT, Permission.DYNAMIC_GROUP_INSPECT, "see dynamic groups")
        return self._policies.dynamic_groups()

    def dynamic_group(self, name: str) -> DynamicGroupDetails:
        from muster.service.policy_questions import runs_in

        self._read(DEFAULT_PROJECT, Permission.DYNAMIC_GROUP_READ, "see dynamic groups")
        found = self._policies.dynamic_group_named(name)
        may = cache(lambda place: self._may(place, Permission.JOB_RUN_INSPECT))
        live = [one for one in self._backend.store.runs.live() if may(one.project)]
        matching = runs_in(self._backend.policies.get(), found, live)
        return DynamicGroupDetails(
            found,
            tuple(
                MatchingRun(one.id, one.name, one.project, one.state, one.created_by)
                for one in matching
            ),
        )

    def create_dynamic_group(
        self, name: str, rule: str, description: str = ""
    ) -> DynamicGroupRecord:
        def do() -> DynamicGroupRecord:
            made = new_dynamic_group(new_id(), name, description, rule, self._caller.user)
            self._policies.create_dynamic_group(made)
            return self._policies.dynamic_group(made.id)

        permission = Permission.DYNAMIC_GROUP_CREATE
        what = "create dynamic groups"
        return self._in_tenancy("dynamic-groups.create", name, permission, what, do)

    def change_dynamic_group(
        self, name: str, version: int, rule: str | None = None, description: str | None = None
    ) -> DynamicGroupRecord:
        def do() -> DynamicGroupRecord:
            before = self._policies.dynamic_group_named(name)
            _check_version("dynamic group", before.name, before.version, version)
            after = with_description(with_rule(before, rule), description)
            after = changed_by(after, self._caller.user)
            return self._policies.change_dynamic_group(before, after)

        permission = Permission.DYNAMIC_GROUP_UPDATE
        what = "change dynamic groups"
        return self._in_tenancy("dynamic-groups.change", name, permission, what, do)

    def delete_dynamic_group(self, name: str) -> None:
        def do() -> None:
            group = self._policies.dynamic_group_named(name)
            check_dynamic_group(self._backend, self._caller, group.name)
            self._policies.delete_dynamic_group(group)

        permission = Permission.DYNAMIC_GROUP_DELETE
        what = "delete dynamic groups"
        self._in_tenancy("dynamic-groups.delete", name, permission, what, do)

    # Compartments

    def compartments(self) -> list[ProjectRecord]:
        every = self._backend.store.accounts.projects()
        found = [one for one in every if self._may(one.name, Permission.COMPARTMENT_INSPECT)]
        if not found:
            self._read(self._caller.project, Permission.COMPARTMENT_INSPECT, "see compartments")
        return found

    def create_compartment(
        self, name: str, parent: str = DEFAULT_PROJECT, description: str = ""
    ) -> ProjectRecord:
        accounts = self._backend.store.accounts
        parent = self._named(parent)

        def do() -> ProjectRecord:
            check_name("project", name)
            check_text("description", description)
            now, by = time.time(), self._caller.user
            above = _stored_parent(self._compartment(parent))
            accounts.create_project(ProjectRecord(name, now, by, description, above))
            return accounts.project(name)

        needed = [(parent, Permission.COMPARTMENT_CREATE)]
        return self._change("projects.create", name, name, needed, "create compartments", do)

    def move_compartment(self, name: str, parent: str) -> ProjectRecord:
        name, parent = self._named(name), self._named(parent)

        def do() -> ProjectRecord:
            above = _stored_parent(self._compartment(parent))
            return self._backend.store.accounts.move_project(self._compartment(name), above)

        needed = [(name, Permission.COMPARTMENT_MOVE), (parent, Permission.COMPARTMENT_CREATE)]
        object = f"{name} (to {parent})"
        return self._change("projects.move", object, name, needed, "move compartments", do)

    def delete_compartment(self, name: str) -> None:
        name = self._named(name)

        def do() -> None:
            found = self._compartment(name)
            check_compartment(self._backend, self._caller, found)
            self._backend.store.accounts.delete_project(found)

        needed = [(name, Permission.COMPARTMENT_DELETE)]
        self._change("projects.delete", name, name, needed, "delete compartments", do)


def _stored_parent(name: str) -> str:
    """A parent as `ProjectRecord` has it."""
    return "" if name.lower() == DEFAULT_PROJECT else name


def _check_version(kind: str, name: str, now: int, based_on: int) -> None:
    if based_on > now:
        text = f"{kind} {name} has no version {based_on}: its newest one is version {now}"
        raise InvalidInput(Problem("version", text))
    if now != based_on:
        text = (
            f"{kind} {name} has version {now} now, and this change is based on version {based_on}"
        )
        raise Conflict(f"{text}: look at it again, and repeat the change")
