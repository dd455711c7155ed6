"""The language of resource search (OCI: Search Query Language): what clients use of it. Pure.

query datasciencejobrun resources where (identifier = 'OCID' && lifecycleState != 'DELETED')
    sorted by timeCreated desc
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput
from msgspec import Struct

from muster.server.oci.query_text import place_of, unquoted

#: Whether a resource, as it is sent, is found.
Condition = Callable[[Mapping[str, Any]], bool]

_GRAMMAR = r"""
    query: "query"i kinds "resources"i returned? where? order?
    kinds: NAME ("," NAME)*
    returned: "return"i NAME ("," NAME)*
    where: "where"i either
    order: "sorted"i "by"i NAME DIRECTION?
    ?either: both (("||" | "or"i) both)* -> either
    ?both: one (("&&" | "and"i) one)* -> both
    ?one: "(" either ")"
        | NAME OPERATOR STRING -> comparison
    OPERATOR: "!=" | "==" | "=" | ">=" | "<=" | ">" | "<" | "contains"i
    DIRECTION: "asc"i | "desc"i
    NAME: /[A-Za-z_][A-Za-z0-9_.-]*/
    STRING: /'(\\.|[^'\\])*'/ | /"(\\.|[^"\\])*"/
    %import common.WS
    %ignore WS
"""
_LONGEST = 50_000
#: Nested parentheses: the parser and the transformer call themselves for each.
_DEEPEST = 100
_TAGS = ("freeformtags.key", "freeformtags.value")


class SearchQuery(Struct, frozen=True):
    """What is searched."""

    kinds: Sequence[str]
    """Types of resources in small letters; `all` is each of them."""
    fits: Condition
    sort: str = "timeCreated"
    descending: bool = True


def parse_query(text: str) -> SearchQuery:
    """Read a query. Raises ValueError that says where it is wrong."""
    if len(text) > _LONGEST:
        raise ValueError(f"the query has {len(text):,} characters; the most are {_LONGEST:,}")
    if text.count("(") > _DEEPEST:
        raise ValueError(f"the query is nested more than {_DEEPEST} times")
    try:
        query: SearchQuery = _Reader().transform(_parser().parse(text))
    except UnexpectedInput as error:
        raise ValueError(place_of(text, error)) from None
    return query


def _found(resource: Mapping[str, Any], name: str) -> Sequence[str]:
    """The values of a field of a resource; those of tags are many."""
    if name in _TAGS:
        tags = resource.get("freeformTags") or {}
        return [*map(str, tags if name == _TAGS[0] else tags.values())]
    for key, value in resource.items():
        if key.lower() == name and value is not None:
            return [str(value)]
    return [""]


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "=": lambda found, given: found.lower() == given.lower(),
    "==": lambda found, given: found == given,
    "!=": lambda found, given: found.lower() != given.lower(),
    "contains": lambda found, given: given.lower() in found.lower(),
    ">=": lambda found, given: found >= given,
    "<=": lambda found, given: found <= given,
    ">": lambda found, given: found > given,
    "<": lambda found, given: found < given,
}


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, start="query", parser="lalr")


class _Reader(Transformer[Token, Any]):
    """Makes a `SearchQuery` of what was parsed."""

    def query(self, parts: list[Any]) -> SearchQuery:
        kinds, *others = parts
        found: dict[str, Any] = {"fits": lambda _: True}
        for part in others:
            found |= part
        return SearchQuery(kinds, **found)

    def kinds(self, parts: list[Token]) -> Sequence[str]:
        return tuple(str(part).lower() for part in parts)

    def returned(self, _parts: list[Token]) -> Mapping[str, Any]:
        return {}  # every field is returned

    def where(self, parts: list[Condition]) -> Mapping[str, Any]:
        return {"fits": parts[0]}

    def order(self, parts: list[Token]) -> Mapping[str, Any]:
        descending = len(parts) < 2 or parts[1].lower() == "desc"
        return {"sort": str(parts[0]), "descending": descending}

    def either(self, parts: list[Condition]) -> Condition:
        return lambda resource: any(fits(resource) for fits in parts)

    def both(self, parts: list[Condition]) -> Condition:
        return lambda resource: all(fits(resource) for fits in parts)

    def comparison(self, parts: list[Token]) -> Condition:
        name, value = str(parts[0]).lower(), unquoted(parts[2])
        holds = _OPERATORS[str(parts[1]).lower()]
        return lambda resource: any(holds(found, value) for found in _found(resource, name))
