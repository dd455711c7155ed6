"""Whether conditions hold. Pure.

A condition is prepared once for a permission (`prepared`), may be specialised for what is known of
a request (`specialised`), and is then compiled to a function of the remaining variables. It fails
closed: a comparison with a variable that the request does not have is false, `!=` and `not in`, too
(OCI: "Variables that Aren't Applicable to a Request Result in a Declined Request"). Case does not
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from string import ascii_lowercase, ascii_uppercase
from typing import TypeAlias

from muster.iam.policies.statements import (
    All,
    Any,
    Comparison,
    Condition,
    Operator,
    Value,
    ValueKind,
)
from muster.iam.policies.vocabulary import ResourceType, of_type
from muster.permissions import Permission

#: Variables and their values in small letters (`folded`). Most have one value; the groups of a
#: user, and the OCIDs of a compartment, may be several: one has to equal what they are compared to.
#: A variable with none is one that the request does not have.
Values: TypeAlias = Mapping[str, tuple[str, ...]]
Test: TypeAlias = Callable[[Values], bool]

TIMESTAMP = "request.utc-timestamp"
TIME_OF_DAY = f"{TIMESTAMP}.time-of-day"
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NEGATIVE = (Operator.DIFFERENT, Operator.NOT_IN)
_ORDERED = (Operator.BEFORE, Operator.AFTER, Operator.BETWEEN)
_CLOCK = "%H:%M:%Sz"
_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_DATE = "%Y-%m-%dT%H:%M:%Sz"


def folded(text: str) -> str:
    """A text as it is compared: without regard to the case of ASCII letters. Others stay as they
    are, since what stores tell apart has to be told apart here."""
    return text.lower() if text.isascii() else text.translate(_ASCII_LOWER)


def prepared(
    condition: Condition | None, permission: Permission, resource: ResourceType
) -> bool | Condition:
    """The condition for one permission: with the names of `Access.attributes`, texts as they are
    compared, and without what the permission decides. Right sides that are known first are on the
    right. resource: the type that the permission is of."""
    if condition is None:
        return True
    values = {"request.permission": (folded(permission),)}
    named = _each(condition, lambda one: _named(one, resource))
    return specialised(named, values, values.__contains__)


def specialised(
    condition: bool | Condition, values: Values, is_known: Callable[[str], bool]
) -> bool | Condition:
    """What remains of a condition when some variables are known. is_known: whether a variable is;
    one that is known but not in `values` is one that the request does not have."""
    return _each(condition, lambda one: _specialised(one, values, is_known))


def compiled(condition: bool | Condition) -> Test:
    """A function that says whether a prepared condition holds."""
    if isinstance(condition, bool):
        return lambda _values: condition
    if isinstance(condition, Comparison):
        return _compiled(condition)
    tests = [compiled(one) for one in condition.conditions]
    if isinstance(condition, All):
        return lambda values: all(test(values) for test in tests)
    return lambda values: any(test(values) for test in tests)


def holds(condition: bool | Condition, values: Values) -> bool:
    """Whether a prepared condition holds."""
    return compiled(condition)(values)


def times(now: float) -> dict[str, tuple[str, ...]]:
    """The variables about the time of a request. now: epoch seconds."""
    at = datetime.fromtimestamp(int(now), UTC)
    return {
        TIMESTAMP: (folded(at.strftime(_DATE)),),
        f"{TIMESTAMP}.month-of-year": (str(at.month),),
        f"{TIMESTAMP}.day-of-month": (str(at.day),),
        f"{TIMESTAMP}.day-of-week": (DAYS[at.weekday()],),
        TIME_OF_DAY: (at.strftime(_CLOCK),),
    }


def normal_time(variable: str, text: str) -> str:
    """A text that is compared with a variable about time, as `times` has it. Raises ValueError with
    what is expected (OCI: ISO 8601, in UTC, with or without seconds)."""
    if variable == TIMESTAMP:
        return folded(_date(text).astimezone(UTC).strftime(_DATE))
    if variable == TIME_OF_DAY:
        bare = text.strip().upper().removesuffix("Z")
        if bare in ("24:00", "24:00:00"):
            return "24:00:00z"  # after all others
        for form in ("%H:%M:%S", "%H:%M"):
            try:
                return datetime.strptime(bare, form).strftime(_CLOCK)
            except ValueError:
                continue
        raise ValueError("a time of the day in UTC is like '17:30:00Z'")
    last = 12 if variable.endswith("month-of-year") else 31
    if variable.endswith("day-of-week"):
        if folded(text) not in DAYS:
            raise ValueError("a day of the week is one of 'monday' to 'sunday'")
        return folded(text)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= last):
        what = "month" if last == 12 else "day of the month"
        raise ValueError(f"a {what} is a number from '1' to '{last}'")
    return str(int(text))


def _date(text: str) -> datetime:
    plain = text.strip().upper()
    if plain.endswith("Z") and "T" not in plain:
        plain = plain.removesuffix("Z")  # OCI: '2020-04-01Z'
    try:
        found = datetime.fromisoformat(plain)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("a time is like '2026-04-01T15:00:00Z' or '2026-04-01'") from None
    return found


def _each(
    condition: bool | Condition, change: Callable[[Comparison], bool | Condition]
) -> bool | Condition:
    """The condition with all comparisons changed, as short as possible."""
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, Comparison):
        return change(condition)
    kind = type(condition)
    neutral = kind is All
    kept: list[Condition] = []
    for one in condition.conditions:
        changed = _each(one, change)
        if isinstance(changed, bool):
            if changed is not neutral:
                return changed
        else:
            kept += changed.conditions if isinstance(changed, kind) else (changed,)
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


def _named(one: Comparison, resource: ResourceType) -> bool | Condition:
    """The comparison with the names that requests for a type have, and texts in small letters."""
    variable = of_type(one.variable, resource)
    if variable is None:
        return False
    values = []
    for value in one.values:
        if value.kind is ValueKind.VARIABLE:
            name = of_type(value.text, resource)
            if name is None:
                return False
            values.append(Value(name, ValueKind.VARIABLE))
        else:
            values.append(Value(_comparable(variable, value), value.kind))
    first = values[0] if values else None
    if (
        first is not None
        and first.kind is ValueKind.VARIABLE
        and one.operator in (Operator.EQUAL, Operator.DIFFERENT)
        and _is_known_first(variable)
        and not _is_known_first(first.text)
    ):
        right = Value(variable, ValueKind.VARIABLE)
        return Comparison(first.text, one.operator, (right,))
    return Comparison(variable, one.operator, tuple(values))


def _is_known_first(variable: str) -> bool:
    """Whether a variable is the same for all resources of a compartment."""
    return variable.startswith(("request.", "target.compartment."))


def _comparable(variable: str, value: Value) -> str:
    if variable.startswith(TIMESTAMP) and value.kind is ValueKind.TEXT:
        try:
            return normal_time(variable, value.text)
        except ValueError:
            return folded(value.text)  # never equal; `parsing` refuses it
    return folded(value.text)


def _specialised(
    one: Comparison, values: Values, is_known: Callable[[str], bool]
) -> bool | Condition:
    if is_known(one.variable) and not values.get(one.variable):
        return False
    right: list[Value] = []
    decided = is_known(one.variable)
    for value in one.values:
        if value.kind is not ValueKind.VARIABLE or not is_known(value.text):
            decided = decided and value.kind is not ValueKind.VARIABLE
            right.append(value)
            continue
        if not (found := values.get(value.text)):
            return False
        right += map(Value, found)
    operator = one.operator
    if len(right) > len(one.values):  # a variable with several values
        operator = Operator.NOT_IN if operator in _NEGATIVE else Operator.IN
    changed = Comparison(one.variable, operator, tuple(right))
    if decided:
        return _compiled(changed)(values)
    if is_known(one.variable) and operator not in _ORDERED and operator is not Operator.EXISTS:
        return _swapped(changed, values)
    return changed


def _swapped(one: Comparison, values: Values) -> bool | Condition:
    """A comparison whose left side is known, and its right side in part, about the variables on its
    right side. Each of them has to be there."""
    left = tuple(map(Value, values[one.variable]))
    others = tuple(each for each in one.values if each.kind is ValueKind.VARIABLE)
    known = tuple(each for each in one.values if each.kind is not ValueKind.VARIABLE)
    equal = bool(known) and _compiled(Comparison(one.variable, Operator.IN, known))(values)
    if one.operator in _NEGATIVE:
        differ = tuple(Comparison(each.text, Operator.NOT_IN, left) for each in others)
        return not equal and _all(differ)
    exist = tuple(Comparison(each.text, Operator.EXISTS, ()) for each in others)
    if equal:
        return _all(exist)
    fit = tuple(Comparison(each.text, Operator.IN, left) for each in others)
    return fit[0] if len(fit) == 1 else All((*exist, Any(fit)))


def _all(conditions: tuple[Condition, ...]) -> Condition:
    return conditions[0] if len(conditions) == 1 else All(conditions)


def _compiled(one: Comparison) -> Test:
    variable, operator = one.variable, one.operator
    if operator is Operator.EXISTS:
        return lambda values: bool(values.get(variable))
    if operator in _ORDERED:
        return _ordered(variable, operator, [value.text for value in one.values])
    fits = _fitting(one.values)
    negative = operator in _NEGATIVE
    others = [value.text for value in one.values if value.kind is ValueKind.VARIABLE]
    if not others:

        def test(values: Values) -> bool:
            found = values.get(variable)
            if not found:
                return False
            return (fits(found[0]) if len(found) == 1 else any(map(fits, found))) is not negative

        return test

    def test_with_variables(values: Values) -> bool:
        found = values.get(variable)
        if not found:
            return False
        equal = any(map(fits, found))
        for name in others:
            right = values.get(name)
            if not right:
                return False
            equal = equal or any(one in right for one in found)
        return equal is not negative

    return test_with_variables


def _fitting(values: Sequence[Value]) -> Callable[[str], bool]:
    """Whether a text equals one of the texts, or fits one of the patterns."""
    texts = frozenset(value.text for value in values if value.kind is ValueKind.TEXT)
    patterns = [pattern(value.text) for value in values if value.kind is ValueKind.PATTERN]
    if not patterns:
        return texts.__contains__
    if len(patterns) == 1 and not texts:
        return patterns[0]
    return lambda text: text in texts or any(fits(text) for fits in patterns)


def pattern(text: str) -> Callable[[str], bool]:
    """Whether a text fits a pattern: `x*`, `*x`, `*x*` or `x`."""
    part = text.strip("*")
    first, last = text.startswith("*"), text.endswith("*")
    if first and last:
        return lambda found: part in found
    if first:
        return lambda found: found.endswith(part)
    return (lambda found: found.startswith(part)) if last else (lambda found: found == part)


def _ordered(variable: str, operator: Operator, bounds: Sequence[str]) -> Test:
    start, end = bounds[0], bounds[-1]

    def test(values: Values) -> bool:
        found = values.get(variable)
        if not found:
            return False
        at = found[0]
        if operator is Operator.BEFORE:
            return at < start
        if operator is Operator.AFTER:
            return at > start
        if start > end and variable == TIME_OF_DAY:  # over midnight
            return at >= start or at <= end
        return start <= at <= end

    return test
