"""What is odd about policies that can be read: statements that never match, that say what others
say, or that allow more than they seem to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from muster.iam.policies.conditions import (
    TIME_OF_DAY,
    folded,
    pattern,
    prepared,
)
from muster.iam.policies.decisions import Policies, Resolved
from muster.iam.policies.findings import Finding, Severity
from muster.iam.policies.statements import (
    All,
    Any,
    Comparison,
    Condition,
    Location,
    Operator,
    Subject,
    SubjectKind,
    ValueKind,
    comparisons,
    in_quotes,
    quoted,
)
from muster.iam.policies.vocabulary import TENANCY_ONLY, TYPE_OF, exists, of_type
from muster.spec.wording import close_to

#: Variables that say who asks.
_OF_REQUESTER = ("request.principal.", "request.user.", "request.groups.")
#: Variables that may have several values at once, or several names for one.
_SEVERAL = ("request.groups.id", "target.compartment.id")

#: What does not exist looks the same as what the reader may not see.
_OR_HIDDEN = ", or you may not see it"


class _Oddity(NamedTuple):
    sentence: str
    #: The part of the statement that it is about; "" for all of it.
    part: str = ""
    #: What to write in place of the part.
    fix: str = ""
    hint: str = ""
    severity: Severity = Severity.WARNING


def lint(policies: Policies, only: Iterable[str] | None = None) -> tuple[Finding, ...]:
    """What is odd about policies. Each finding's line is the number of the statement. only: the
    names of the policies to look at; None: all of them."""
    wanted = None if only is None else set(only)
    findings: list[Finding] = []
    conditions = [_conjuncts(one.statement.condition) for one in policies.statements]
    for at, one in enumerate(policies.statements):
        if wanted is not None and one.ref.policy not in wanted:
            continue
        never = [
            *(*_subject(policies, one), *_location(policies, one)),
            *(*_tenancy_only(policies, one), *_condition(one)),
        ]
        oddities = never or [*_implied(policies, at, conditions), *_broad(one)]
        findings += (_finding(one, oddity) for oddity in oddities)
    return tuple(findings)


def _finding(one: Resolved, oddity: _Oddity) -> Finding:
    text = one.ref.text
    at = folded(text).find(folded(oddity.part)) if oddity.part else 0
    # letters whose small form is longer would move the place
    exact = at >= 0 and folded(text[at : at + len(oddity.part)]) == folded(oddity.part)
    start, length = (at, len(oddity.part)) if exact and oddity.part else (0, len(text))
    fixed = ""
    if oddity.fix and exact:
        fixed = f"{text[:start]}{oddity.fix}{text[start + length :]}"
    return Finding(
        oddity.severity,
        one.ref.policy,
        one.ref.number,
        start + 1,
        length,
        oddity.sentence,
        text,
        fixed or oddity.hint,
        bool(fixed),
    )


# -- statements that never match -------------------------------------------------------------------


def _subject(policies: Policies, one: Resolved) -> Iterator[_Oddity]:
    subject = one.statement.subject
    if subject.kind is SubjectKind.SERVICE:
        sentence = "Muster's own services need no statement: it has no effect"
        yield _Oddity(sentence, str(subject), hint="leave it out")
        return
    dynamic = subject.kind is SubjectKind.DYNAMIC_GROUP
    known = policies.dynamic_groups if dynamic else policies.groups
    names = [group.name for group in known]
    ids = {folded(group.id) for group in known}
    kind = "dynamic group" if dynamic else "group"
    for name in subject.names:
        if folded(name) not in map(folded, names):
            meant = next(iter(close_to(name, names, 1, 0.7)), "")
            fix = quoted(meant) if meant else ""
            hint = f"create the {kind} first"
            yield _Oddity(f"there is no {kind} {name}{_OR_HIDDEN}", name, fix, hint)
    for identifier in subject.ids:
        if folded(identifier) not in ids:
            sentence = f"there is no {kind} with the OCID {identifier}{_OR_HIDDEN}"
            yield _Oddity(sentence, identifier)


def _location(policies: Policies, one: Resolved) -> Iterator[_Oddity]:
    if one.compartment is not None:
        return
    location, attached = one.statement.location, one.attached
    below = [name for name in policies.compartments if attached in policies.above(name)]
    if location.id:
        sentence = f"there is no compartment with this OCID in {attached}{_OR_HIDDEN}"
        yield _Oddity(
            sentence, location.id, hint="a policy is about its compartment and those below"
        )
    elif not location.path:
        sentence = f"a policy of {attached} cannot speak about the tenancy"
        fix = str(Location((attached,)))
        yield _Oddity(sentence, "tenancy", fix, severity=Severity.ERROR)  # as in OCI
    else:
        last = location.path[-1]
        meant = next((name for name in below if folded(name) == folded(last)), "")
        meant = meant or next(iter(close_to(last, below, 1, 0.7)), "")
        path = ":".join(location.path)
        fix = ""
        if meant:
            above = policies.above(meant)
            inner = above[: above.index(attached)]
            fix = quoted(":".join(reversed(inner)) or attached)
        hint = "name a compartment by its path from the policy's, such as a:b"
        yield _Oddity(f"{attached} has no compartment {path}{_OR_HIDDEN}", path, fix, hint)


def _tenancy_only(policies: Policies, one: Resolved) -> Iterator[_Oddity]:
    resource = one.statement.resource
    if resource in TENANCY_ONLY and one.compartment not in (None, policies.root):
        sentence = f"{resource} are the tenancy's: the statement has no effect"
        yield _Oddity(sentence, resource, hint="say `in tenancy`, in a policy of the tenancy")


def _condition(one: Resolved) -> Iterator[_Oddity]:
    if not one.gives:
        yield _Oddity("it gives no permission that Muster has: it has no effect")
        return
    condition = one.statement.condition
    if condition is None:
        return
    types = {TYPE_OF[each].name: TYPE_OF[each] for each in one.gives}.values()
    lacking = {
        name: None
        for comparison in comparisons(condition)
        for name in _names(comparison)
        if exists(name) and not any(of_type(name, each) for each in types)
    }
    what = one.statement.resource or "these permissions"
    for name in lacking:
        yield _Oddity(f"requests for {what} have no {name}: the comparison is false", name)
    if lacking:
        return
    if not any(_can_hold(prepared(condition, each, TYPE_OF[each])) for each in one.gives):
        sentence = "the condition never holds: it contradicts itself, or what the statement gives"
        yield _Oddity(sentence, str(condition) if str(condition) in one.ref.text else "")


def _names(one: Comparison) -> Iterator[str]:
    yield one.variable
    yield from (value.text for value in one.values if value.kind is ValueKind.VARIABLE)


def _can_hold(condition: bool | Condition) -> bool:
    """Whether there may be a request for which a prepared condition holds."""
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, Any):
        return any(map(_can_hold, condition.conditions))
    together = condition.conditions if isinstance(condition, All) else (condition,)
    single = [one for one in together if isinstance(one, Comparison)]
    if not all(_can_hold(one) for one in together if not isinstance(one, Comparison)):
        return False
    variables = {one.variable for one in single} - set(_SEVERAL)
    return all(_agree([one for one in single if one.variable == name]) for name in variables)


def _agree(several: list[Comparison]) -> bool:
    """Whether one value may fulfil comparisons of one variable, as far as texts, patterns and times
    tell."""
    several = [
        one for one in several if all(value.kind is not ValueKind.VARIABLE for value in one.values)
    ]
    texts: set[str] | None = None
    for one in several:
        if _is_positive(one) and all(value.kind is ValueKind.TEXT for value in one.values):
            found = {value.text for value in one.values}
            texts = found if texts is None else texts & found
    if texts is not None:
        return any(all(_fulfils(text, one) for one in several) for text in texts)
    patterns = [one.values[0].text for one in several if _is_positive(one) and len(one.values) == 1]
    starts = [text[:-1] for text in patterns if text.endswith("*") and text[0] != "*"]
    ends = [text[1:] for text in patterns if text.startswith("*") and text[-1] != "*"]
    if any(not max(starts, key=len).startswith(start) for start in starts):
        return False
    if any(not max(ends, key=len).endswith(end) for end in ends):
        return False
    return _times_agree(several)


def _is_positive(one: Comparison) -> bool:
    return one.operator in (Operator.EQUAL, Operator.IN)


def _fulfils(text: str, one: Comparison) -> bool:
    if one.operator in (Operator.BEFORE, Operator.AFTER, Operator.BETWEEN):
        return True
    equal = any(
        pattern(value.text)(text) if value.kind is ValueKind.PATTERN else value.text == text
        for value in one.values
    )
    return equal is _is_positive(one)


def _times_agree(several: list[Comparison]) -> bool:
    """Whether there is a time between all bounds. Those over midnight are left out."""
    first, last = "", "~"  # before and after all times
    for one in several:
        bounds = [value.text for value in one.values]
        if one.operator is Operator.AFTER:
            first = max(first, bounds[0])
        elif one.operator is Operator.BEFORE:
            last = min(last, bounds[0])
        elif one.operator is Operator.BETWEEN:
            if one.variable == TIME_OF_DAY and bounds[0] > bounds[1]:
                continue
            first, last = max(first, bounds[0]), min(last, bounds[1])
    return first <= last


# -- statements that match too little or too much --------------------------------------------------


def _implied(
    policies: Policies, at: int, conditions: Sequence[frozenset[str]]
) -> Iterator[_Oddity]:
    """Another statement that allows everything that one allows. at: the place of the one.
    conditions: of all statements, as `_conjuncts`."""
    one = policies.statements[at]
    above = policies.above(one.compartment or policies.root)
    for place, other in enumerate(policies.statements):
        if (
            place != at
            and other.compartment in above
            and other.gives >= one.gives
            and _covers(other.statement.subject, other.subjects, one)
            and conditions[place] <= conditions[at]
        ):
            if place > at and conditions[place] == conditions[at] and _is_same(one, other):
                continue  # of two that say the same, the second one is superfluous
            sentence = f"{other.ref.place} allows all of it: {other.ref.text}"
            yield _Oddity(sentence, hint="leave it out")
            return


def _covers(subject: Subject, subjects: frozenset[str], one: Resolved) -> bool:
    """Whether a subject is at least everybody whom a statement is about."""
    if subject.kind is SubjectKind.ANY_USER:
        return True
    if subject.kind is SubjectKind.ANY_GROUP:
        return one.statement.subject.kind in (SubjectKind.ANY_GROUP, SubjectKind.GROUP)
    return one.subjects <= subjects


def _is_same(one: Resolved, other: Resolved) -> bool:
    """Whether two statements say the same, but for their conditions."""
    return (
        one.subjects == other.subjects
        and one.gives == other.gives
        and one.compartment == other.compartment
    )


def _conjuncts(condition: Condition | None) -> frozenset[str]:
    """The conditions that all have to hold."""
    if condition is None:
        return frozenset()
    if isinstance(condition, All):
        return frozenset().union(*map(_conjuncts, condition.conditions))
    return frozenset({folded(str(condition))})


def _broad(one: Resolved) -> Iterator[_Oddity]:
    if one.statement.subject.kind is not SubjectKind.ANY_USER:
        return
    condition = one.statement.condition
    if condition is None or not _names_requester(condition):
        sentence = "any-user is everybody: each user, run and instance"
        hint = f"add a condition such as request.principal.type = {in_quotes('datasciencejobrun')}"
        yield _Oddity(sentence, "any-user", hint=hint)


def _names_requester(condition: Condition) -> bool:
    """Whether a condition holds for some requesters only."""
    if isinstance(condition, Comparison):
        about = any(name.startswith(_OF_REQUESTER) for name in _names(condition))
        return about and _is_positive(condition)
    some = map(_names_requester, condition.conditions)
    return any(some) if isinstance(condition, All) else all(some)
