"""What keeps a group or a compartment from being deleted: statements and rules that name it, since
another one of its name would get what they give (decision 0083), and hosts in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from muster.caller import Caller, Role
from muster.describe.words import named
from muster.errors import InvalidInput, Problem
from muster.iam.policies.conditions import folded
from muster.iam.policies.decisions import Resolved
from muster.iam.policies.statements import SubjectKind, ValueKind, comparisons
from muster.iam.role_statements import group_id, group_of
from muster.permissions import Permission
from muster.service.policy_view import reader_of
from muster.spec.ocids import compartment_ocid
from muster.storage.instances import instances

if TYPE_CHECKING:
    from muster.iam.policies.decisions import Policies
    from muster.iam.policies.statements import Condition
    from muster.service.backend import Backend

#: Places that are listed.
_MOST = 5


def check_group(backend: Backend, caller: Caller, name: str) -> None:
    """Raises InvalidInput if statements name a group of users. Its OCID may be named: another group
    has another one."""
    _check(backend, caller, f"group {name}", lambda one: _names_group(one, {name}))


def check_dynamic_group(backend: Backend, caller: Caller, name: str) -> None:
    """As `check_group`, for a dynamic group."""

    def names(one: Resolved) -> bool:
        subject = one.statement.subject
        return subject.kind is SubjectKind.DYNAMIC_GROUP and _has(subject.names, {name})

    _check(backend, caller, f"dynamic group {name}", names)


def check_compartment(backend: Backend, caller: Caller, name: str) -> None:
    """Raises InvalidInput if statements of other compartments, or rules of dynamic groups, name a
    compartment or a group of its roles. Their OCIDs follow from its name."""
    hosts = [one.name for one in instances(backend.home) if one.project == name]
    if hosts:
        text = f"compartment {name} cannot be deleted: it has the hosts {named(hosts, _MOST)}"
        hint = f"`muster server instance remove {hosts[0]}`"
        raise InvalidInput(Problem("", text, hint))
    own_id = compartment_ocid(name)
    compartments = {name, own_id}
    groups = {f(name, role) for f in (group_of, group_id) for role in Role}

    def names(one: Resolved) -> bool:
        if one.attached == name:  # the policy is deleted with it
            return False
        statement = one.statement
        return (
            one.compartment == name
            or _has(statement.location.path, {name})
            or _has((statement.location.id,), {own_id})
            or _names_group(one, groups)
            or _compares(statement.condition, groups, _OF_GROUPS)
            or _compares(statement.condition, compartments, _OF_COMPARTMENTS)
        )

    _check(
        *(backend, caller, f"compartment {name}", names),
        lambda condition: _compares(condition, compartments, _OF_COMPARTMENTS),
    )


def _names_group(one: Resolved, names: set[str]) -> bool:
    subject = one.statement.subject
    is_subject = subject.kind is SubjectKind.GROUP and _has((*subject.names, *subject.ids), names)
    return is_subject or _compares(one.statement.condition, names, _OF_GROUPS)


def _compares(condition: Condition | None, texts: set[str], variables: tuple[str, ...]) -> bool:
    """Whether a condition compares a variable with one of some texts. variables: what the names of
    those that count begin with."""
    return any(
        _has((value.text for value in one.values if value.kind is ValueKind.TEXT), texts)
        for one in comparisons(condition)
        if one.variable.startswith(variables)
    )


#: The beginnings of variables that are names or OCIDs of groups, and of compartments.
_OF_GROUPS = ("target.group.", "request.groups.")
_OF_COMPARTMENTS = (
    *("target.compartment.", "request.principal.compartment."),
    *("resource.compartment.", "instance.compartment."),
)


def _has(names: Iterable[str], some: set[str]) -> bool:
    return not {folded(one) for one in names}.isdisjoint(map(folded, some))


def _check(
    backend: Backend,
    caller: Caller,
    what: str,
    names: Callable[[Resolved], bool],
    names_in_rule: Callable[[Condition], bool] = lambda _condition: False,
) -> None:
    state = backend.store.policies.load()
    policies = backend.policies.compiled(state).policies
    found = [*_places(policies, caller, names, names_in_rule)]
    if not found:
        return
    told = [one for one in found if one]
    hidden = len(found) - len(told)
    listed = named(told, _MOST) if told else ""
    if hidden:
        listed += f"{' and ' if told else ''}{hidden} that you may not see"
    text = f"{what} cannot be deleted: it is still named in {listed}"
    hint = "change these first: they would apply to whatever is given this name next"
    raise InvalidInput(Problem("", text, hint))


def _places(
    policies: Policies,
    caller: Caller,
    names: Callable[[Resolved], bool],
    names_in_rule: Callable[[Condition], bool],
) -> Iterator[str]:
    """Where something is named; "" for what the caller may not read."""
    reads = reader_of(caller)
    for one in policies.statements:
        if names(one):
            yield one.ref.place if reads(one.ref.compartment) else ""
    for group in policies.dynamic_groups:
        if names_in_rule(group.rule.condition):
            sees = caller.allows(Permission.DYNAMIC_GROUP_READ, project=policies.root)
            yield f"dynamic group {group.name}" if sees else ""
