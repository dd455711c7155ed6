"""What a policy says: statements as values, and as text again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from muster.iam.policies.vocabulary import ALL_RESOURCES, Verb, permissions_of
from muster.permissions import Permission

#: Words of the language: names that equal one are written in quotes.
KEYWORDS = frozenset(
    (
        *("allow", "deny", "define", "endorse", "admit", "to", "in", "where", "id"),
        *("all", "any", "not", "before", "after", "between", "and"),
        *("group", "dynamic-group", "any-user", "any-group", "service", "tenancy", "compartment"),
    )
)
#: What needs no quotes.
WORD = r"\w[\w.@+/:~%-]*"
#: Every permission's name is one.
_PERMISSIONS = frozenset(Permission)


class SubjectKind(StrEnum):
    """Who a statement is about."""

    GROUP = "group"
    DYNAMIC_GROUP = "dynamic-group"
    ANY_USER = "any-user"
    """Users, runs and instances."""
    ANY_GROUP = "any-group"
    """Users who are in some group."""
    SERVICE = "service"


class Subject(Struct, frozen=True):
    """Who a statement is about."""

    kind: SubjectKind
    names: tuple[str, ...] = ()
    """Of groups, dynamic groups or services; case does not matter."""
    ids: tuple[str, ...] = ()
    """Of groups or dynamic groups."""

    def __str__(self) -> str:
        # what is before a slash would be a domain
        names = (in_quotes(one) if "/" in one else quoted(one) for one in self.names)
        members = (*names, *(f"id {quoted(one)}" for one in self.ids))
        return f"{self.kind} {', '.join(members)}".strip()


class Location(Struct, frozen=True):
    """Where: a compartment and those below it. With neither path nor id: the tenancy."""

    path: tuple[str, ...] = ()
    """Names, relative to the compartment that the policy is attached to."""
    id: str = ""

    def __str__(self) -> str:
        if self.id:
            return f"compartment id {quoted(self.id)}"
        return f"compartment {quoted(':'.join(self.path))}" if self.path else "tenancy"


class Operator(StrEnum):
    """How a comparison compares."""

    EQUAL = "="
    DIFFERENT = "!="
    IN = "in"
    NOT_IN = "not in"
    BEFORE = "before"
    AFTER = "after"
    BETWEEN = "between"
    """Both ends are included."""
    EXISTS = "exists"
    """In rules of dynamic groups: the variable alone."""


class ValueKind(StrEnum):
    """What the right side of a comparison is."""

    TEXT = "text"
    PATTERN = "pattern"
    """A text with `*` as its first or last character, or both, for any characters."""
    VARIABLE = "variable"


class Value(Struct, frozen=True):
    """The right side of a comparison."""

    text: str
    kind: ValueKind = ValueKind.TEXT

    def __str__(self) -> str:
        if self.kind is ValueKind.PATTERN:
            return f"/{self.text}/"
        return self.text if self.kind is ValueKind.VARIABLE else in_quotes(self.text)


class Comparison(Struct, frozen=True):
    """A variable and what it is compared with."""

    variable: str
    """As in `vocabulary`."""
    operator: Operator
    values: tuple[Value, ...]
    """One; IN and NOT_IN: one or more; BETWEEN: two; EXISTS: none."""

    def __str__(self) -> str:
        if self.operator is Operator.EXISTS:
            return self.variable
        if self.operator in (Operator.IN, Operator.NOT_IN):
            right = f"({', '.join(map(str, self.values))})"
        else:
            right = " and ".join(map(str, self.values))
        return f"{self.variable} {self.operator} {right}"


class All(Struct, frozen=True):
    """Holds if all of its conditions do."""

    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"all {{{', '.join(map(str, self.conditions))}}}"


class Any(Struct, frozen=True):
    """Holds if one of its conditions does."""

    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"any {{{', '.join(map(str, self.conditions))}}}"


Condition: TypeAlias = Comparison | All | Any


class Statement(Struct, frozen=True):
    """`Allow SUBJECT to VERB RESOURCE in LOCATION where CONDITION`. As text: the same in the
    language's own form; `text` is how it was written."""

    subject: Subject
    location: Location
    verb: Verb | None = None
    """None: the statement names permissions."""
    resource: str = ""
    """A type or a family of `vocabulary`, or one of OCI's that Muster does not have."""
    permissions: tuple[str, ...] = ()
    """Names of permissions, in place of verb and resource."""
    condition: Condition | None = None
    text: str = ""

    def __str__(self) -> str:
        if self.verb is None:
            what = f"{{{', '.join(self.permissions)}}}"
        else:
            what = f"{self.verb} {self.resource}"
        where = "" if self.condition is None else f" where {self.condition}"
        return f"Allow {self.subject} to {what} in {self.location}{where}"

    @property
    def gives(self) -> frozenset[Permission]:
        """The permissions that it gives, if its condition holds."""
        if self.verb is not None:
            return permissions_of(self.verb, self.resource)
        return frozenset(Permission(one) for one in self.permissions if one in _PERMISSIONS)


#: Statements of one policy (OCI: 50, in limits of a tenancy that can be raised).
MOST_STATEMENTS = 500


class MatchingRule(Struct, frozen=True):
    """Which runs and instances are in a dynamic group."""

    condition: Condition
    text: str = ""

    def __str__(self) -> str:
        return str(self.condition)


def comparisons(condition: Condition | None) -> Iterator[Comparison]:
    """All comparisons of a condition, in the order of the text."""
    if isinstance(condition, Comparison):
        yield condition
    elif condition is not None:
        for one in condition.conditions:
            yield from comparisons(one)


def quoted(name: str) -> str:
    """A name as statements have it: in quotes if it would not be read as a name otherwise."""
    plain = re.fullmatch(WORD, name) and name.lower() not in KEYWORDS
    return name if plain else in_quotes(name)


def in_quotes(text: str) -> str:
    """A text in quotes. Raises ValueError for one that no statement can have: with both kinds of
    quotes, or with characters that cannot be printed, such as newlines."""
    if not text.isprintable() or ("'" in text and '"' in text):
        raise ValueError(f"no statement can have the text {text!r}")
    return f'"{text}"' if "'" in text else f"'{text}'"


#: All permissions there are.
EVERYTHING = permissions_of(Verb.MANAGE, ALL_RESOURCES)
