"""What a change of a policy or dynamic group would change: which requests of the audit log it would
answer in another way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.api.policies import ChangedAnswer, PolicyDraft, PolicyPreview, RuleDraft
from muster.caller import Caller
from muster.errors import NotFound
from muster.iam.authority import requester_of, run_requester
from muster.iam.policies.decisions import JOB_RUN, Access, Requester
from muster.iam.principals import INSTANCE
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Permission
from muster.service.audit import OPERATION
from muster.service.policy_view import reader_of
from muster.spec.ocids import ocid
from muster.store.account_records import AuditEntry, AuditFilter

if TYPE_CHECKING:
    from muster.iam.current_policies import CompiledPolicies
    from muster.service.backend import Backend
    from muster.store.base import Store
    from muster.store.policy_records import PolicyState

#: Entries of the audit log that are read at a time.
_PAGE = 10_000


class _Request(Struct, frozen=True):
    """What was asked for, as policies decide it."""

    who: str
    access: Access


def preview(
    backend: Backend, draft: PolicyDraft | RuleDraft, since: float, caller: Caller
) -> PolicyPreview:
    """See `PoliciesAPI.preview`."""
    may = cache(lambda place: caller.allows(Permission.AUDIT_READ, project=place))
    reads = cache(reader_of(caller))
    store = backend.store
    state = store.policies.load()
    before = backend.policies.compiled(state)
    after = backend.policies.compiled(_with(state, draft))
    requester_of = _Requesters(store, before).of
    answers: dict[_Key, ChangedAnswer] = {}
    examined = 0
    for entry in _entries(store, since):
        place = entry.project or DEFAULT_PROJECT
        if entry.permission not in _PERMISSIONS or not may(place):
            continue
        if entry.token_id.startswith(INSTANCE):  # the log does not say which host it was
            continue
        examined += 1
        who, requester = requester_of(entry)
        permission = Permission(entry.permission)
        on = dict(entry.attributes)
        operation = on.pop(OPERATION, "")
        access = Access(requester, permission, place, on, operation, entry.time)
        first, then = before.allowing(access), after.allowing(access)
        allowed = then is not None
        if allowed == (first is not None):
            continue
        key = (who, permission, place, allowed)
        found = answers.get(key)
        if found is None:
            statement = then or first
            if statement is not None and not reads(statement.compartment):
                statement = None
            answers[key] = ChangedAnswer(
                *(who, permission, place, allowed, statement, 1, entry.time)
            )
        else:
            answers[key] = replace(found, requests=found.requests + 1)
    return PolicyPreview(examined, tuple(answers.values()))


_Key = tuple[str, Permission, str, bool]
_PERMISSIONS = frozenset(map(str, Permission))


def _with(state: PolicyState, draft: PolicyDraft | RuleDraft) -> PolicyState:
    """The state with a policy or dynamic group as it would be."""
    from muster.store.policy_records import DynamicGroupRecord, PolicyRecord

    lower = draft.name.lower()
    if isinstance(draft, PolicyDraft):
        place = draft.compartment or DEFAULT_PROJECT
        policies = [
            one for one in state.policies if (one.name.lower(), one.compartment) != (lower, place)
        ]
        if draft.statements is not None:
            new = PolicyRecord("", draft.name, place, "", draft.statements, 0, 0.0, "", 0.0, "")
            policies.append(new)
        return replace(state, policies=tuple(policies))
    old = next((one for one in state.dynamic_groups if one.name.lower() == lower), None)
    groups = [one for one in state.dynamic_groups if one is not old]
    if draft.rule is not None:
        new_id = draft.name if old is None else old.id
        group = DynamicGroupRecord(new_id, draft.name, "", draft.rule, 0, 0.0, "", 0.0, "")
        groups.append(group)
    return replace(state, dynamic_groups=tuple(groups))


def _entries(store: Store, since: float) -> Iterator[AuditEntry]:
    """Entries of the audit log since a time, newest first."""
    before = None
    while page := store.audit.listing(AuditFilter(since=since, before=before, limit=_PAGE)):
        yield from page
        before = page[-1].seq


class _Requesters:
    """Who made the requests of the audit log, as they are now."""

    def __init__(self, store: Store, policies: CompiledPolicies) -> None:
        self._store, self._policies = store, policies
        self._known: dict[str, Requester] = {}

    def of(self, entry: AuditEntry) -> tuple[str, Requester]:
        """What it is called, and the requester."""
        who = f"run:{entry.run}" if entry.run else entry.user
        found = self._known.get(who)
        if found is None:
            found = self._run(entry) if entry.run else self._policies.user(entry.user)
            self._known[who] = found
        return who, found

    def _run(self, entry: AuditEntry) -> Requester:
        try:
            return requester_of(self._store.runs.summary(entry.run))
        except NotFound:  # it was deleted
            return run_requester(ocid(JOB_RUN, entry.run), entry.project, entry.user)
