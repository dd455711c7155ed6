"""The language of log search (OCI: Logging Query Language): the parts that clients use. Pure.

    search "COMPARTMENT/GROUP/LOG", ... | where source = '*ID' and data.level != 'DEBUG'
        | sort by datetime desc | limit 100

Fields are those of an entry, with or without `logContent.` before them; `logContent` is all of it,
as JSON. `*` in a text stands for any characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError
from msgspec import Struct

from muster.server.oci.query_text import place_of, unquoted
from muster.spec.wildcards import matcher
from muster.spec.wording import short

#: What an entry is asked; whether it fits.
Condition = Callable[[Mapping[str, Any]], bool]

_GRAMMAR = r"""
    query: "search"i scope ("," scope)* ("|" stage)*
    scope: STRING
    ?stage: "where"i condition          -> where
          | "sort"i "by"i key ("," key)* -> sort
          | ("limit"i | "head"i) COUNT   -> limit
          | "select"i field ("," field)* -> select
          | "count"i                     -> count
    key: field ORDER?
    ?condition: both ("or"i both)*       -> any_of
    ?both: negation ("and"i negation)*   -> all_of
    ?negation: "not"i negation           -> none_of
             | "(" condition ")"
             | comparison
    comparison: field OPERATOR value
              | field "not"i "in"i "(" value ("," value)* ")" -> not_among
              | field "in"i "(" value ("," value)* ")"        -> among
    field: NAME | QUOTED_NAME
    ?value: STRING -> text | NUMBER -> number | "true"i -> true | "false"i -> false
          | "null"i -> null
    ORDER: "asc"i | "desc"i
    OPERATOR: "!=" | "<=" | ">=" | "=~" | "=" | "<" | ">"
    NAME: /[A-Za-z_@][A-Za-z0-9_\-]*(\.[A-Za-z0-9_@\-]+)*/
    QUOTED_NAME: /`[^`\n]+`/
    STRING: /'(\\.|[^'\\])*'/ | /"(\\.|[^"\\])*"/
    COUNT: /[0-9]{1,9}/
    NUMBER: /-?[0-9]+(\.[0-9]+)?/
    %import common.WS
    %ignore WS
"""
_LONGEST = 10_000
#: The fields of entries; `data` and `oracle` have fields of their own.
_FIELDS = ("data", "datetime", "id", "oracle", "source", "specversion", "subject", "time", "type")
_WHOLE = "logContent"
#: Nested parentheses: the parser and the transformer call themselves for each.
_DEEPEST = 100


class LogQuery(Struct, frozen=True):
    """What is searched."""

    scopes: Sequence[str]
    """Each `COMPARTMENT`, `COMPARTMENT/GROUP` or `COMPARTMENT/GROUP/LOG`."""
    conditions: Sequence[Condition] = ()
    """All of them have to hold."""
    sources: Sequence[str] = ()
    """Texts, with `*`, that the source of each entry equals; none: it may be any."""
    sort: Sequence[tuple[str, bool]] = ()
    """Fields to sort by, and whether the largest comes first."""
    limit: int | None = None
    select: Sequence[str] = ()
    """Fields to return; none: all."""
    count: bool = False
    """Return the number of entries instead of them."""

    def fits(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry is found."""
        return all(condition(entry) for condition in self.conditions)


class _Stage(Struct, frozen=True):
    changes: Mapping[str, Any]


class _Where(Struct, frozen=True):
    condition: Condition
    #: A text that `source` equals if the condition holds; None: not known.
    source: str | None = None


def parse_query(text: str) -> LogQuery:
    """Read a query. Raises ValueError that says where it is wrong."""
    if len(text) > _LONGEST:
        raise ValueError(f"the query has {len(text):,} characters; the most are {_LONGEST:,}")
    if text.count("(") > _DEEPEST or len(re.findall(r"\bnot\b", text, re.I)) > _DEEPEST:
        raise ValueError(f"the query is nested more than {_DEEPEST} times")
    try:
        stages = _Reader().transform(_parser().parse(text))
    except UnexpectedInput as error:
        raise ValueError(place_of(text, error)) from None
    except VisitError as error:
        raise ValueError(str(error.orig_exc)) from None
    query: LogQuery = stages
    return query


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, start="query", parser="lalr")


class _Reader(Transformer[Token, Any]):
    """Makes a `LogQuery` of what was parsed."""

    def query(self, parts: list[Any]) -> LogQuery:
        scopes = [part for part in parts if isinstance(part, str)]
        found: dict[str, Any] = {}
        conditions, sources = [], []
        for part in parts:
            if isinstance(part, _Where):
                conditions.append(part.condition)
                sources += [] if part.source is None else [part.source]
            elif isinstance(part, _Stage):
                found |= part.changes
        return LogQuery(scopes, conditions, sources, **found)

    def scope(self, parts: list[Token]) -> str:
        return unquoted(parts[0])

    def where(self, parts: list[_Where]) -> _Where:
        return parts[0]

    def sort(self, parts: list[tuple[str, bool]]) -> _Stage:
        return _Stage({"sort": tuple(parts)})

    def key(self, parts: list[Any]) -> tuple[str, bool]:
        return parts[0], len(parts) > 1 and str(parts[1]).lower() == "desc"

    def limit(self, parts: list[Token]) -> _Stage:
        return _Stage({"limit": int(parts[0])})

    def select(self, parts: list[str]) -> _Stage:
        return _Stage({"select": tuple(parts)})

    def count(self, _parts: list[Any]) -> _Stage:
        return _Stage({"count": True})

    def any_of(self, parts: list[_Where]) -> _Where:
        conditions = [part.condition for part in parts]
        return _Where(lambda entry: any(holds(entry) for holds in conditions))

    def all_of(self, parts: list[_Where]) -> _Where:
        conditions = [part.condition for part in parts]
        source = next((part.source for part in parts if part.source is not None), None)
        return _Where(lambda entry: all(holds(entry) for holds in conditions), source)

    def none_of(self, parts: list[_Where]) -> _Where:
        condition = parts[0].condition
        return _Where(lambda entry: not condition(entry))

    def comparison(self, parts: list[Any]) -> _Where:
        field, operator, value = parts[0], str(parts[1]), parts[2]
        compare = _comparison(operator, value)
        source = value if field == "source" and operator == "=" else None
        return _Where(
            lambda entry: compare(field_of(entry, field)),
            source if isinstance(source, str) else None,
        )

    def among(self, parts: list[Any]) -> _Where:
        field, tests = parts[0], [_comparison("=", value) for value in parts[1:]]
        return _Where(lambda entry: any(test(field_of(entry, field)) for test in tests))

    def not_among(self, parts: list[Any]) -> _Where:
        condition = self.among(parts).condition
        return _Where(lambda entry: not condition(entry))

    def field(self, parts: list[Token]) -> str:
        name = str(parts[0]).strip("`").removeprefix(f"{_WHOLE}.")
        if name != _WHOLE and name.partition(".")[0] not in _FIELDS:
            known = ", ".join(_FIELDS)
            raise ValueError(
                f"the query cannot be read at character {(parts[0].start_pos or 0) + 1}: there is "
                f"no field {short(name)}; there are {known}, and fields of data such as data.level"
            )
        return name

    def text(self, parts: list[Token]) -> str:
        return unquoted(parts[0])

    def number(self, parts: list[Token]) -> float:
        return float(parts[0])

    def true(self, _parts: list[Any]) -> bool:
        return True

    def false(self, _parts: list[Any]) -> bool:
        return False

    def null(self, _parts: list[Any]) -> None:
        return None


def field_of(entry: Mapping[str, Any], path: str) -> Any:
    """The value of a field, such as `data.message`; None if an entry lacks it."""
    if path == _WHOLE:
        return msgspec.json.encode(entry).decode()
    value: Any = entry
    rest = path
    while rest:
        if not isinstance(value, Mapping):
            return None
        if rest in value:  # a name may have dots
            return value[rest]
        name, _, rest = rest.partition(".")
        value = value.get(name)
    return value


def _comparison(operator: str, value: Any) -> Callable[[Any], bool]:
    if operator == "!=":
        equal = _comparison("=", value)
        return lambda found: not equal(found)
    if operator == "=~" or (operator == "=" and isinstance(value, str) and "*" in value):
        fits = matcher(str(value))
        return lambda found: found is not None and fits(str(found))
    if operator == "=":
        return lambda found: _equal(found, value)
    return lambda found: _ordered(operator, found, value)


def _equal(found: Any, value: Any) -> bool:
    if isinstance(value, float) and not isinstance(found, bool):
        try:
            return float(found) == value
        except (TypeError, ValueError):
            return False
    return bool(found == value) if isinstance(found, type(value)) else str(found) == str(value)


def _ordered(operator: str, found: Any, value: Any) -> bool:
    if found is None:
        return False
    try:
        if isinstance(value, str):
            one, other = str(found), value
            return _holds(operator, (one > other) - (one < other))
        number = float(found)
        return _holds(operator, (number > value) - (number < value))
    except (TypeError, ValueError):
        return False


def _holds(operator: str, sign: int) -> bool:
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]
