"""Why something is not allowed: the statements that nearly allow it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from muster.iam.policies.conditions import Values, holds, prepared
from muster.iam.policies.decisions import Access, Policies, Resolved
from muster.iam.policies.statements import (
    All,
    Comparison,
    Condition,
    Operator,
    SubjectKind,
    Value,
    ValueKind,
)
from muster.iam.policies.vocabulary import TYPE_OF, VERB_OF, of_type
from muster.permissions import StatementRef

#: Statements that are listed.
_MOST = 10


class Reason(StrEnum):
    """What of a statement does not fit."""

    VERB = "verb"
    COMPARTMENT = "compartment"
    CONDITION = "condition"
    SUBJECT = "subject"


#: The most telling first.
_ORDER = tuple(Reason)


class NearMiss(Struct, frozen=True):
    """A statement that would allow something, but for one thing."""

    statement: StatementRef
    reason: Reason
    sentence: str


def near_misses(policies: Policies, access: Access) -> tuple[NearMiss, ...]:
    """The statements that nearly allow something, the nearest first, at most 10."""
    values = policies.values(access)
    near = [
        one for each in policies.statements if (one := _near_miss(policies, each, access, values))
    ]
    near.sort(key=lambda one: _ORDER.index(one.reason))
    return tuple(near[:_MOST])


def _near_miss(
    policies: Policies, one: Resolved, access: Access, values: Values
) -> NearMiss | None:
    """A statement of which one thing does not fit; None if more does not, or nothing."""
    wrong: dict[Reason, str] = {}
    permission, resource = access.permission, TYPE_OF[access.permission]
    if permission not in one.gives:
        sentence = _other_verb(one, access)
        if not sentence:
            return None
        wrong[Reason.VERB] = sentence
    if one.compartment not in policies.above(access.compartment):
        about = f"is about {one.statement.location}"
        if one.compartment is None:
            about += f", which the policy of {one.attached} cannot speak about"
        wrong[Reason.COMPARTMENT] = f"{about}; the request is about {access.compartment}"
    if one.subjects.isdisjoint(policies.subjects(access.requester)):
        who = access.requester.name or access.requester.id
        wrong[Reason.SUBJECT] = _not_subject(one, who)
    if len(wrong) > 1:
        return None
    condition = one.statement.condition
    if not holds(prepared(condition, permission, resource), values) and condition is not None:
        wrong[Reason.CONDITION] = "; ".join(_reasons(condition, access, values))
    if len(wrong) != 1:
        return None
    ((reason, sentence),) = wrong.items()
    return NearMiss(one.ref, reason, sentence)


def _not_subject(one: Resolved, who: str) -> str:
    """That somebody is not whom a statement is about."""
    subject = one.statement.subject
    if subject.kind is SubjectKind.SERVICE:
        return f"is about {subject}, a service of OCI, and has no effect here"
    if not one.subjects:  # whoever asks may not see it
        return f"there is no {subject}, or you may not see it"
    groups = (SubjectKind.GROUP, SubjectKind.DYNAMIC_GROUP)
    if subject.kind in groups and len(subject.names) + len(subject.ids) == 1:
        return f"{who} is not in {subject}"
    return f"is about {subject}, and {who} is none of them"


def _other_verb(one: Resolved, access: Access) -> str:
    """What a statement gives of the type that is asked for; "" if nothing."""
    resource = TYPE_OF[access.permission]
    given = one.gives.intersection(
        permission for each in resource.adds.values() for permission in each
    )
    if not given:
        return ""
    needed = VERB_OF[access.permission]
    if one.statement.verb is None:
        return f"gives {', '.join(sorted(given))}, needs {access.permission}"
    return f"gives {one.statement.verb} {resource.name}, needs {needed}"


def _reasons(condition: Condition, access: Access, values: Values) -> Iterator[str]:
    """Why a condition does not hold."""
    if isinstance(condition, Comparison):
        yield _reason(condition, access, values)
        return
    resource = TYPE_OF[access.permission]
    parts = [
        " and ".join(_reasons(one, access, values))
        for one in condition.conditions
        if not holds(prepared(one, access.permission, resource), values)
    ]
    if isinstance(condition, All) or len(parts) == 1:
        yield from parts
    else:
        yield f"one of these would do: {', or '.join(parts)}"


def _reason(one: Comparison, access: Access, values: Values) -> str:
    found = _found(one.variable, access, values)
    if found is None:
        return f"the request has no {one.variable}"
    wanted = []
    for value in one.values:
        if value.kind is ValueKind.VARIABLE:
            other = _found(value.text, access, values)
            if other is None:
                return f"the request has no {value.text}"
            wanted.append(f"{value.text}, which is {other}")
        else:
            wanted.append(str(value))
    return f"{one.variable} is {found}, the statement wants {_wanted(one, wanted)}"


def _wanted(one: Comparison, wanted: list[str]) -> str:
    last = wanted[-1] if wanted else ""
    if one.operator is Operator.BETWEEN:
        return f"a time from {wanted[0]} to {last}"
    if one.operator in (Operator.BEFORE, Operator.AFTER):
        return f"a time {one.operator} {last}"
    several = last if len(wanted) == 1 else f"one of {', '.join(wanted)}"
    return f"anything but {several}" if one.operator in _NEGATIVE else several


_NEGATIVE = (Operator.DIFFERENT, Operator.NOT_IN)


def _found(variable: str, access: Access, values: Values) -> str | None:
    """The value of a variable, as people read it; None if the request has none."""
    name = of_type(variable, TYPE_OF[access.permission])
    if name is None:
        return None
    if name == "request.permission":
        return str(Value(access.permission))
    if name in access.attributes and name in values and not name.startswith("target.compartment."):
        return str(Value(access.attributes[name]))
    return " and ".join(str(Value(value)) for value in values.get(name, ())) or None
