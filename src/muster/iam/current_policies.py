"""The policies of a store, compiled for decisions, and read again when they have changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING

from muster.caller import Role
from muster.errors import InvalidInput
from muster.iam.policies.conditions import folded
from muster.iam.policies.decisions import (
    Access,
    Compartment,
    DynamicGroup,
    Group,
    Policies,
    Policy,
    Requester,
)
from muster.iam.policies.parsing import parse_rule, parse_statement
from muster.iam.policies.statements import Statement
from muster.iam.role_statements import (
    ADMINISTRATORS,
    ADMINISTRATORS_ID,
    administrators,
    group_id,
    group_of,
    policy_of,
)
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Decision, Permission, StatementRef
from muster.spec.ocids import compartment_ocid, ocid, user_ocid

if TYPE_CHECKING:
    from muster.store.base import Store
    from muster.store.policy_records import DynamicGroupRecord, PolicyRecord, PolicyState

#: Seconds after which it is looked whether another process has changed them.
_EVERY = 1.0
#: Statements that are not parsed again.
_MOST_STATEMENTS = 50_000
#: Answers of each kind that are remembered.
_MOST_REMEMBERED = 10_000


class CompiledPolicies:
    """All that decides, as it was at one moment. Threads may share it."""

    def __init__(self, state: PolicyState, aliases: Mapping[str, str], region: str) -> None:
        """aliases: further OCIDs of projects. region: of requests; "" if they have none."""
        self.generation = state.generation
        self._compartments = tuple(_compartments(state, aliases))
        self._groups = tuple(_groups(state))
        self._region = region
        rules = (rule for one in state.dynamic_groups for rule in _dynamic_group(one))
        policies = (administrators(), *map(_policy, state.policies))
        self.policies = Policies(
            policies, self._compartments, self._groups, tuple(rules), self._region
        )
        """Those that are stored, and that of the administrators."""
        self._names = {folded(one.name): one.name for one in self._compartments}
        self._roles: dict[str, dict[str, Role]] = {}
        for member in state.members:
            self._roles.setdefault(member.user, {})[member.project] = member.role
        names = {one.id: ocid("group", one.id) for one in state.groups}
        self._groups_of: dict[str, set[str]] = {}
        for one in state.group_members:
            self._groups_of.setdefault(one.user, set()).add(names[one.group])
        self._administrators = state.administrators
        self._lock = Lock()
        self._of_roles: dict[str, Policies] = {}
        self._reached: dict[tuple[Requester, str, int], bool] = {}

    def name_of(self, project: str) -> str:
        """The name of a project as it is written; as given if there is none."""
        return self._names.get(folded(project), project)

    def user(self, name: str) -> Requester:
        """A user as who asks."""
        groups = self._groups_of.get(name, set()) | {
            group_id(project, role) for project, role in self._roles.get(name, {}).items()
        }
        if name in self._administrators:
            groups |= {ADMINISTRATORS_ID}
        return Requester(user_ocid(name), name, frozenset(groups))

    def allowing(self, access: Access) -> StatementRef | None:
        """A statement that allows something; None if none does."""
        for policies in self._of(access.requester):
            if (statement := policies.allowing(access)) is not None:
                return statement
        return None

    def decide(self, access: Access, project: str | None = None) -> Decision:
        """Whether something is allowed, with the statement that allows it or would. project: its
        name as the requester has written it."""
        if (statement := self.allowing(access)) is not None:
            return Decision(True, statement)
        # who may do nothing there does not learn that it exists, nor what it is below
        known = self.reaches(access.requester, access.compartment)
        place = None if known or project is None else project
        return Decision(False, None, str(self.policies.missing(access, place) or ""))

    def choosers(self, access: Access) -> list[Callable[[Mapping[str, str]], bool]]:
        """Which resources of a compartment are allowed: those that one of these allows."""
        given = (access.requester, access.permission, access.compartment, access.operation)
        found = (one.chooser(*given, access.now) for one in self._of(access.requester))
        return [one for one in found if one is not None]

    def reaches(self, requester: Requester, project: str) -> bool:
        """Whether somebody may do anything at all in a project."""
        key = (requester, project, int(time.time()) // 60)  # conditions may be about the time
        found = self._reached.get(key) if project in self.policies.compartments else False
        if found is None:
            asked = (Access(requester, one, project, now=time.time()) for one in Permission)
            found = any(self.choosers(access) for access in asked)
            with self._lock:
                if len(self._reached) >= _MOST_REMEMBERED:
                    self._reached.clear()
                self._reached[key] = found
        return found

    def about(
        self, requester: Requester, reads: Callable[[str], bool] = lambda _place: True
    ) -> Policies:
        """All policies that may be about somebody as one index, for explanations. reads: whether
        those of a compartment are wanted."""
        of_roles = (
            policy_of(one.name, role)
            for one in self._compartments
            for role in Role
            if group_id(one.name, role) in requester.groups
        )
        every = (*of_roles, *self.policies.policies)
        return self._index(one for one in every if reads(one.compartment))

    def replacing(self, name: str, new: Policy) -> Policies:
        """The policies as they would be with another one. name: of the one that it replaces in its
        compartment, if there is one."""
        old = (folded(name), new.compartment)
        kept = (one for one in self.policies.policies if (folded(one.name), one.compartment) != old)
        return self._index([*kept, new])

    def _index(self, policies: Iterable[Policy]) -> Policies:
        dynamic = self.policies.dynamic_groups
        return Policies(policies, self._compartments, self._groups, dynamic, self._region)

    def _of(self, requester: Requester) -> tuple[Policies, ...]:
        """The policies that may allow something to somebody: those of roles are many, and each user
        has few of them."""
        roles = self._roles.get(requester.name)
        if not roles:
            return (self.policies,)
        own = self._of_roles.get(requester.name)
        if own is None:
            policies = [policy_of(project, role) for project, role in roles.items()]
            own = Policies(policies, self._compartments, self._groups, region=self._region)
            with self._lock:
                if len(self._of_roles) >= _MOST_REMEMBERED:
                    self._of_roles.clear()
                self._of_roles[requester.name] = own
        return (own, self.policies)


class CurrentPolicies:
    """See the module. Threads may share it."""

    def __init__(
        self,
        store: Callable[[], Store],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds on a clock that is never set."""
        self._store, self._clock = store, clock
        self._aliases: Mapping[str, str] = {}
        self._region = ""
        self._lock = Lock()
        self._compiled: CompiledPolicies | None = None
        self._checked_at = 0.0
        #: The last change by this process, and the last one that was looked at.
        self._change = self._seen = object()

    def configure(self, aliases: Mapping[str, str], region: str) -> None:
        """What a server knows of OCI's names; see `CompiledPolicies`."""
        with self._lock:
            self._aliases, self._region = aliases, region
            self._compiled = None

    def get(self) -> CompiledPolicies:
        """The policies: those of a second ago, or, while others are being compiled, those before.
        What this process has changed decides at once. Raises StoreError."""
        now, found = self._clock(), self._compiled
        is_changed = self._seen is not self._change
        if found is not None and not is_changed and now < self._checked_at + _EVERY:
            return found
        if not self._lock.acquire(blocking=found is None or is_changed):
            assert found is not None
            return found
        try:
            change = self._change
            found, policies = self._compiled, self._store().policies
            if found is None or found.generation != policies.generation():
                found = CompiledPolicies(policies.load(), self._aliases, self._region)
                self._compiled = found
            self._checked_at, self._seen = now, change  # from before the look
            return found
        finally:
            self._lock.release()

    def compiled(self, state: PolicyState) -> CompiledPolicies:
        """Policies as they would be with a state."""
        return CompiledPolicies(state, self._aliases, self._region)

    def changed(self) -> None:
        """Look at the store at the next decision: this process has changed something."""
        self._change = object()


def _compartments(state: PolicyState, aliases: Mapping[str, str]) -> list[Compartment]:
    further: dict[str, list[str]] = {}
    for text, project in aliases.items():
        further.setdefault(project, []).append(text)
    return [
        Compartment(
            project.name,
            compartment_ocid(project.name),
            "" if project.name == DEFAULT_PROJECT else project.parent or DEFAULT_PROJECT,
            tuple(further.get(project.name, ())),
        )
        for project in state.projects
    ]


def _groups(state: PolicyState) -> list[Group]:
    of_roles = [
        Group(group_of(project.name, role), group_id(project.name, role))
        for project in state.projects
        for role in Role
    ]
    stored = [Group(one.name, ocid("group", one.id)) for one in state.groups]
    return [Group(ADMINISTRATORS, ADMINISTRATORS_ID), *of_roles, *stored]


def _dynamic_group(record: DynamicGroupRecord) -> Iterator[DynamicGroup]:
    try:
        yield DynamicGroup(record.name, ocid("dynamicgroup", record.id), parse_rule(record.rule))
    except InvalidInput as error:  # stored by another version of Muster
        _LOG.warning("dynamic group %s is empty: %s", record.name, error)


@lru_cache(_MOST_STATEMENTS)
def _parsed(text: str) -> Statement:
    """A statement. Most are the same as before a change."""
    return parse_statement(text)


def _policy(record: PolicyRecord) -> Policy:
    statements = []
    for text in record.statements:
        try:
            statements.append(_parsed(text))
        except InvalidInput as error:  # stored by another version of Muster
            _LOG.warning("policy %s: a statement has no effect: %s", record.name, error)
    return Policy(record.name, record.compartment, tuple(statements))


_LOG = logging.getLogger(__name__)
