"""Answers questions about policies: what somebody may do and why, what is wrong with statements,
and who is in a group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.api.policies import (
    Explanation,
    NearMiss,
    PermissionAnswer,
    Question,
)
from muster.caller import NO_VARIABLES, Caller, Role, Variables
from muster.errors import InvalidInput, NotFound, Problem
from muster.iam.authority import requester_of
from muster.iam.policies.decisions import Access, Policies, Policy, Requester
from muster.iam.policies.statements import All, Condition, Statement, comparisons
from muster.iam.policies.vocabulary import (
    VERBS,
    Verb,
    canonical,
    exists,
    permissions_of,
    types_of,
    variables,
)
from muster.iam.role_statements import ADMINISTRATORS, group_of
from muster.permissions import Permission
from muster.service.policy_targets import Target, target_of
from muster.service.policy_view import reader_of, seen_by, sees_user
from muster.spec.ocids import ocid, user_ocid
from muster.spec.wording import alternatives, close_to, short, suggestion

if TYPE_CHECKING:
    from muster.iam.current_policies import CompiledPolicies
    from muster.iam.policies.findings import Finding
    from muster.service.backend import Backend
    from muster.store.base import Store
    from muster.store.policy_records import DynamicGroupRecord, PolicyState
    from muster.store.records import RunSummary

_PAGE_OF_VARIABLES = "https://muster-jobs.github.io/muster/policies/"
_PERMISSIONS = frozenset(map(str, Permission))


# Dynamic groups


def runs_in(
    policies: CompiledPolicies, group: DynamicGroupRecord, runs: Iterable[RunSummary]
) -> list[RunSummary]:
    """Those of some runs that are in a dynamic group."""
    name = f"dynamic-group {ocid('dynamicgroup', group.id)}".lower()
    return [one for one in runs if name in policies.policies.subjects(requester_of(one))]


# Groups


def built_in_group(state: PolicyState, name: str) -> list[str] | None:
    """The users of a built-in group, by name; None if there is no such group."""
    found = built_in(state, name)
    if found is None:
        return None
    if isinstance(found, str):
        return sorted(state.administrators)
    return sorted(one.user for one in state.members if (one.project, one.role) == found)


def built_in(state: PolicyState, name: str) -> str | tuple[str, Role] | None:
    """What a built-in group stands for: a role in a project, or `ADMINISTRATORS`; None if there is
    no such group."""
    lower = name.lower()
    if lower == ADMINISTRATORS.lower():
        return ADMINISTRATORS
    for project in state.projects:
        for role in Role:
            if lower == group_of(project.name, role).lower():
                return project.name, role
    return None


# Explanations


class _Asked(Struct, frozen=True):
    """What answers a question, and what of it may be told."""

    store: Store
    state: PolicyState
    compiled: CompiledPolicies
    """All of it."""
    view: CompiledPolicies
    """What the caller may inspect."""
    caller: Caller
    compartment: str


def explain(backend: Backend, question: Question, compartment: str, caller: Caller) -> Explanation:
    """See `PoliciesAPI.explain`. compartment: the question's, or its default. Raises InvalidInput
    with everything that is wrong with the question."""
    state = backend.store.policies.load()
    asked = _Asked(
        *(backend.store, state, backend.policies.get()),
        *(backend.policies.compiled(seen_by(state, caller)), caller, compartment),
    )
    problems: list[Problem] = []
    where = _variables(question.where, problems)
    requester = _requester(asked, question.who, problems)

    def may(compartment: str, permission: Permission, on: Variables = NO_VARIABLES) -> bool:
        return caller.allows(permission, on, project=compartment)

    target = target_of(asked.store, asked.compiled, question.on, compartment, may, problems)
    permissions = _permissions(question.can, target, problems)
    if problems or requester is None or target is None:
        raise InvalidInput(*problems)
    attributes = {**target.attributes, **where}
    reads, now = reader_of(caller), time.time()
    policies, view = asked.compiled.about(requester), asked.view.about(requester, reads)
    answers = []
    for one in permissions:
        access = Access(requester, one, target.compartment, attributes, now=now)
        answer = _answer(policies, view, access, of_caller=_is_of(caller, requester))
        if not answer.allowed:
            missing = view.missing(access)
            if missing is not None and question.can.lower() in VERBS:
                missing = _with_verb(missing, Verb(question.can.lower()), target.resource)
            answer = replace(answer, missing=str(missing or ""))
        if not reads(compartment):
            answer = replace(answer, near_misses=())
        answers.append(answer)
    return Explanation(question.who, target.compartment, attributes, tuple(answers))


def _is_of(caller: Caller, requester: Requester) -> bool:
    """Whether a caller asks about itself."""
    return requester.id == user_ocid(caller.user)


def _variables(given: Mapping[str, str], problems: list[Problem]) -> dict[str, str]:
    found = {}
    for name, value in given.items():
        variable = canonical(name)
        if variable is None or not exists(variable):
            text = f"there is no variable {short(name)}"
            hint = suggestion(name, variables()) or f"see {_PAGE_OF_VARIABLES}"
            problems.append(Problem("where", text, hint))
        elif not variable.startswith("target.") or variable.startswith("target.compartment."):
            text = f"{variable} is known without it: it follows from who asks, or where"
            problems.append(Problem("where", text, "leave it out"))
        else:
            found[variable] = value
    return found


def _requester(asked: _Asked, who: str, problems: list[Problem]) -> Requester | None:
    kind, colon, name = who.partition(":")
    if who == "any-user":
        return Requester("", who)
    if colon and kind == "group":
        groups = asked.view.policies.groups
        found = [one.id for one in groups if one.name.lower() == name.lower()]
        if found:
            return Requester("", who, frozenset(found))
        text = f"there is no group {short(name)}, or you may not see it"
        problems.append(Problem("as", text, "`muster iam groups list` lists them"))
        return None
    if colon and kind == "run":
        place, slash, run = name.rpartition("/")
        place = place if slash else asked.compartment
        if asked.caller.allows(Permission.JOB_RUN_READ, project=place):
            with suppress(NotFound):
                runs = asked.store.runs
                return requester_of(runs.summary(runs.find_id(place, run)))
        hint = "`muster ps` lists them; name another compartment: run:COMPARTMENT/RUN"
        text = f"compartment {place} has no run {short(run)}, or you may not see it"
        problems.append(Problem("as", text, hint))
        return None
    if colon:
        hint = "write a user, group:NAME, run:RUN or any-user"
        problems.append(Problem("as", f"{short(who)} is nobody who can ask", hint))
        return None
    if sees_user(asked.state, asked.caller, who):
        with suppress(NotFound):
            return asked.compiled.user(asked.store.accounts.user(who).name)
    text = f"there is no user {short(who)}, or you may not see them"
    problems.append(Problem("as", text, "`muster users list` lists them"))
    return None


def _permissions(can: str, target: Target | None, problems: list[Problem]) -> list[Permission]:
    if can.upper() in _PERMISSIONS:
        return [Permission(can.upper())]
    if can.lower() not in VERBS:
        close = close_to(can, [*VERBS, *_PERMISSIONS], 1, 0.8)
        hint = f"did you mean {close[0]}?" if close else _given_text(target)
        problems.append(Problem("can", f"{short(can)} is neither a verb nor a permission", hint))
        return []
    if target is None:
        return []
    found = permissions_of(Verb(can.lower()), target.resource)
    if not found:
        text = f"`{can} {target.resource}` gives no permission"
        problems.append(Problem("can", text, _given_text(target)))
    return [one for one in Permission if one in found]


def _given_text(target: Target | None) -> str:
    """What may be asked for, of a type or family; None: of any."""
    types = () if target is None else types_of(target.resource)
    if target is None or len(types) != 1:
        return f"write {alternatives(list(VERBS))}, or a permission"
    adds = [f"{verb} ({', '.join(found)})" for verb, found in types[0].adds.items() if found]
    return f"{target.resource} has {', '.join(adds)}"


def _answer(
    policies: Policies, view: Policies, access: Access, *, of_caller: bool
) -> PermissionAnswer:
    """What policies decide, with the statements that may be shown. of_caller: whether the caller
    asks about itself: it is told the statement that allows something."""
    from muster.iam.policies.near_misses import near_misses

    statement = policies.allowing(access)
    if statement is not None:
        told = statement if of_caller else view.allowing(access)
        return PermissionAnswer(access.permission, True, told)
    misses = tuple(NearMiss(one.statement, one.sentence) for one in near_misses(view, access))
    return PermissionAnswer(access.permission, False, None, misses)


def _with_verb(statement: Statement, verb: Verb, resource: str) -> Statement:
    """A statement that gives one permission, for a verb and all that it gives."""
    parts = statement.condition
    kept = parts.conditions if isinstance(parts, All) else () if parts is None else (parts,)
    kept = tuple(one for one in kept if not _is_of_permission(one))
    condition = All(kept) if len(kept) > 1 else next(iter(kept), None)
    return replace(statement, verb=verb, resource=resource, condition=condition)


def _is_of_permission(condition: Condition) -> bool:
    """Whether a condition is about the permission that is asked for."""
    return any(one.variable == "request.permission" for one in comparisons(condition))


# Statements


def findings_of(
    backend: Backend,
    caller: Caller,
    compartment: str,
    statements: Sequence[str],
    name: str,
    source: str,
) -> list[Finding]:
    """What is wrong with statements that are to be attached to a compartment, as far as the caller
    may know. name: of the policy that they replace, if there is one. source: what findings call
    them."""
    from muster.iam.policies.linting import lint
    from muster.iam.policies.parsing import parse_statements

    parsed = parse_statements(statements, source)
    view = backend.policies.compiled(seen_by(backend.store.policies.load(), caller))
    label = source or name or "statements"
    while label in (one.name for one in view.policies.policies):
        label += "'"
    new = Policy(label, compartment, parsed.statements)
    odd = lint(view.replacing(name, new), {label})
    return [*parsed.findings, *(replace(one, source=source) for one in odd)]
