"""Many conditions, of which one has to hold: found without trying each of them. Pure.

Each condition is filed under one of its comparisons with a text or a pattern: the one that fewest
others share. Only those whose comparison holds are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from muster.iam.policies.conditions import Test, Values, compiled, folded
from muster.iam.policies.statements import (
    All,
    Any,
    Comparison,
    Condition,
    Operator,
    ValueKind,
    comparisons,
)

T = TypeVar("T")


#: What `_Key.part` is for a text that is anywhere in the value.
_ANYWHERE = 0
#: Texts that are looked for one by one; more are looked for at once.
_FEW = 8


#: What is filed under a value: what else has to hold, and what is returned.
_Lookup: TypeAlias = Callable[[str], Iterable[tuple[Test | None, T]]]


class _Key(NamedTuple):
    """What is looked up."""

    variable: str
    #: How much of the value: None for all of it, N for its first N characters, -N for its last.
    part: int | None
    text: str


class Alternatives(Generic[T]):
    """Conditions, each with what is returned if it holds. Immutable; threads may share it."""

    def __init__(self, several: Iterable[tuple[bool | Condition, T]]) -> None:
        """several: prepared conditions (`conditions.prepared`)."""
        self.always: T | None = None
        """Of a condition that holds always; None if there is none."""
        parts: list[tuple[Condition, T]] = []
        for condition, result in several:
            if condition is True and self.always is None:
                self.always = result
            elif not isinstance(condition, bool):
                parts += ((one, result) for one in _any_of(condition))
        self.variables = frozenset(
            name for condition, _ in parts for one in comparisons(condition) for name in _names(one)
        )
        """All variables of the conditions."""
        count = Counter(key for condition, _ in parts for keys in _keys(condition) for key in keys)
        filed: dict[tuple[str, int | None], dict[str, list[tuple[Test | None, T]]]] = {}
        self._others: list[tuple[Test, T]] = []
        for condition, result in parts:
            ways = [(max(count[key] for key in keys), keys) for keys in _keys(condition)]
            if not ways:
                self._others.append((compiled(condition), result))
                continue
            keys = min(ways, key=itemgetter(0))[1]
            rest = _rest(condition, keys)
            test = None if rest is None else compiled(rest)
            for key in keys:
                of_part = filed.setdefault((key.variable, key.part), {})
                of_part.setdefault(key.text, []).append((test, result))
        lookups: dict[str, list[_Lookup[T]]] = {}
        for (variable, part), by_text in filed.items():
            lookups.setdefault(variable, []).append(_lookup(part, by_text))
        self._filed = [*lookups.items()]

    def __bool__(self) -> bool:
        return bool(self.always is not None or self._filed or self._others)

    def find(self, values: Values) -> T | None:
        """What a condition that holds returns; None if none does."""
        if self.always is not None:
            return self.always
        for variable, lookups in self._filed:
            for value in values.get(variable, ()):
                for lookup in lookups:
                    for test, result in lookup(value):
                        if test is None or test(values):
                            return result
        for other, result in self._others:
            if other(values):
                return result
        return None

    def holds(self, attributes: Mapping[str, str]) -> bool:
        """Whether a condition holds. attributes: variables with one value each, in any case. Faster
        than `find`: only what is needed is folded."""
        if self.always is not None:
            return True
        values: Values | None = None
        for variable, lookups in self._filed:
            value = attributes.get(variable)
            if value is None:
                continue
            folded_value = folded(value)
            for lookup in lookups:
                for test, _ in lookup(folded_value):
                    if test is None:
                        return True
                    values = self._folded(attributes) if values is None else values
                    if test(values):
                        return True
        if not self._others:
            return False
        values = self._folded(attributes) if values is None else values
        return any(other(values) for other, _ in self._others)

    def _folded(self, attributes: Mapping[str, str]) -> Values:
        return {
            name: (folded(value),) for name, value in attributes.items() if name in self.variables
        }


def _lookup(part: int | None, by_text: Mapping[str, Sequence[tuple[Test | None, T]]]) -> _Lookup[T]:
    """What is filed under a part of a value."""
    if part is None:
        return lambda value: by_text.get(value, ())
    if part > 0:
        return lambda value: by_text.get(value[:part], ())
    if part < 0:
        return lambda value: by_text.get(value[part:], ())
    contained = _contained(tuple(by_text))
    return lambda value: chain.from_iterable(by_text[text] for text in contained(value))


def _contained(texts: Sequence[str]) -> Callable[[str], Iterable[str]]:
    """Those of the texts that are in a value."""
    if len(texts) <= _FEW:
        return lambda value: (text for text in texts if text in value)
    import re2

    options = re2.Options()
    options.max_mem = 256 << 20
    options.log_errors = False
    several = re2.Set.SearchSet(options)
    for text in texts:
        several.Add(re2.escape(text))
    several.Compile()

    def contained(value: str) -> Iterable[str]:
        try:
            return (texts[at] for at in several.Match(value) or ())
        except UnicodeEncodeError:  # half of a surrogate pair
            return (text for text in texts if text in value)

    return contained


def _any_of(condition: Condition) -> Iterator[Condition]:
    if isinstance(condition, Any):
        for one in condition.conditions:
            yield from _any_of(one)
    else:
        yield condition


def _names(one: Comparison) -> Iterator[str]:
    yield one.variable
    yield from (value.text for value in one.values if value.kind is ValueKind.VARIABLE)


def _all_of(condition: Condition) -> tuple[Condition, ...]:
    return condition.conditions if isinstance(condition, All) else (condition,)


def _keys(condition: Condition) -> Iterator[tuple[_Key, ...]]:
    """The ways to file a condition; each is one or more keys, of which one has to fit."""
    for one in _all_of(condition):
        if isinstance(one, Comparison) and (keys := _keys_of(one)):
            yield keys


def _keys_of(one: Comparison) -> tuple[_Key, ...]:
    if one.operator not in (Operator.EQUAL, Operator.IN):
        return ()
    keys = []
    for value in one.values:
        part, text = None, value.text
        if value.kind is ValueKind.PATTERN:
            first, last = text.startswith("*"), text.endswith("*")
            text = text.strip("*")
            if not text:
                return ()
            part = len(text) if last else -len(text) if first else None
            part = _ANYWHERE if first and last else part
        elif value.kind is ValueKind.VARIABLE:
            return ()
        keys.append(_Key(one.variable, part, text))
    return tuple(dict.fromkeys(keys))


def _rest(condition: Condition, keys: tuple[_Key, ...]) -> Condition | None:
    """What else has to hold when one of the keys fits."""
    left = list(_all_of(condition))
    left.remove(next(one for one in left if isinstance(one, Comparison) and _keys_of(one) == keys))
    if not left:
        return None
    return left[0] if len(left) == 1 else All(tuple(left))
