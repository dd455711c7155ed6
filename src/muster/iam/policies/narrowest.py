"""The narrowest statement that gives permissions: what `suggesting` suggests, and what a refusal
names. Both are the same text, so that a statement that was left out is recognized. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.caller import CREATED_BY
from muster.iam.policies.statements import (
    All,
    Any,
    Comparison,
    Condition,
    Location,
    Operator,
    Statement,
    Subject,
    Value,
    ValueKind,
)
from muster.iam.policies.vocabulary import (
    TYPE_OF,
    VERB_OF,
    VERBS,
    ResourceType,
    Verb,
)
from muster.permissions import Permission

#: Only what the caller has created.
OWN = Comparison(CREATED_BY, Operator.EQUAL, (Value("request.user.id", ValueKind.VARIABLE),))


def narrowest(
    subject: Subject,
    location: Location,
    permissions: Sequence[Permission],
    only: Sequence[Comparison] = (),
    *,
    own: bool = False,
) -> Statement:
    """A statement with the smallest verb that gives permissions, all of one type. only: what the
    resource is known by. own: whether users need them for what they create alone; what they create
    they may also change and delete then."""
    resource = TYPE_OF[permissions[0]]
    verb = max((VERB_OF[one] for one in permissions), key=VERBS.index)
    conditions: list[Condition] = list(only)
    creates = next((one for one in permissions if one.endswith("_CREATE")), None)
    if own and creates:
        conditions.append(Any((_permission(creates), OWN)))
    elif own:
        conditions.append(OWN)
    elif verb is Verb.MANAGE and _gives_too_much(resource, creates, only):
        conditions.append(_permission(permissions[-1]))
    condition = All(tuple(conditions)) if len(conditions) > 1 else next(iter(conditions), None)
    return Statement(subject, location, verb, resource.name, condition=condition)


def _gives_too_much(
    resource: ResourceType, creates: Permission | None, only: Sequence[Comparison]
) -> bool:
    """Whether `manage` is more than should be given. Who creates something may also delete it,
    unless it would be what others have created."""
    of_others = has_creators(resource) or any(_is_resource(one) for one in only)
    return len(resource.adds[Verb.MANAGE]) > 1 and (creates is None or of_others)


def _is_resource(one: Comparison) -> bool:
    """Whether a comparison names one resource that is there."""
    return one.variable.startswith("target.") and one.variable.endswith(".id")


def has_creators(resource: ResourceType) -> bool:
    """Whether users own what they have created of a type."""
    return any(name.endswith(".createdBy") for name in resource.variables)


def _permission(permission: Permission) -> Comparison:
    return Comparison("request.permission", Operator.EQUAL, (Value(permission),))
