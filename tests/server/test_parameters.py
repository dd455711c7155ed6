"""Read the parameters of requests: tables, and anything that a client may send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.interface import MusterAPI
from muster.api.operations import OPERATIONS
from muster.errors import InvalidInput
from muster.server.parameters import Parameters, number_of, parse_query, read_number
from muster.store.records import NodeFilter, RunFilter


def parameters(name: str) -> Parameters:
    return Parameters(OPERATIONS[name], getattr(MusterAPI, name))


def problems(
    name: str, query: str = "", body: bytes = b"", path: dict[str, str] | None = None
) -> list[str]:
    found = parameters(name)
    with pytest.raises(InvalidInput) as caught:
        found.read(path or dict.fromkeys(found.path, "a"), query, body)
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        ("runs", "limit=2&before=7", {"chosen": RunFilter(limit=2, before=7)}),
        ("runs", "", {"chosen": RunFilter()}),
        ("runs", "tags=a=1&tags=b", {"chosen": RunFilter(tags={"a": "1", "b": None})}),
        ("runs", "states=QUEUED&states=FAILED", {"chosen": RunFilter(states=["QUEUED", "FAILED"])}),
        ("nodes", "ranks=", {"chosen": NodeFilter(ranks=[])}),
        ("nodes", "started=true", {"chosen": NodeFilter(started=True)}),
        ("jobs", "deleted=1", {"deleted": True}),
        ("events", "after=3", {"after": 3}),
    ],
)
def test_queries(name: str, query: str, expected: dict[str, Any]) -> None:
    found = parameters(name)
    read = found.read(dict.fromkeys(found.path, "a"), query, b"")
    assert {key: value for key, value in read.items() if key not in found.path} == expected


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        ("runs", "limt=2", ["limt: unknown parameter"]),
        ("runs", "limit=2&limit=3", ["limit: is given more than once"]),
        ("runs", "limit=two", ["limit: expected `int | null`, got `str`"]),
        ("runs", "limit=-2", ["limit: must be at least 0, not -2"]),
        ("runs", "limit=9223372036854775808", ["limit: 9223372036854775808 is too large"]),
        ("runs", "since=nan", ["since: nan is not between -253402300799 and 253402300799"]),
        ("runs", "since=1e300", ["since: 1e+300 is not between -253402300799 and 253402300799"]),
        ("output", "rank=0", ["path: is missing"]),
    ],
)
def test_problems_of_queries(name: str, query: str, expected: list[str]) -> None:
    assert problems(name, query) == expected


def test_all_problems_of_a_query_at_once() -> None:
    assert len(problems("runs", "limit=x&since=y&other=1&before=z")) == 4


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "object missing required field `group`"),
        (b"[]", "expected `object`, got `array`"),
        (b'{"group": "a"}', "object missing required field `replicas`"),
        (b'{"group": "a", "replicas": "2"}', "expected `int`, got `str`"),
        (b'{"group": "a", "replicas": 2, "x": 1}', "object contains unknown field `x`"),
        (b'{"group": "a", "replicas": 1e99}', "expected `int`, got `float`"),
        (b'{"group":', "the body is not JSON: Input data was truncated"),
        (b'{"group": "\xff", "replicas": 2}', "the body is not"),
        (b'{"group": "a", "replicas": 1} {}', "the body is not JSON"),
        (b"[" * 100_000, ""),
    ],
)
def test_problems_of_bodies(body: bytes, expected: str) -> None:
    (found,) = problems("scale", body=body)
    assert expected in found


@given(query=st.text() | st.binary().map(lambda data: data.decode("latin-1")), body=st.binary())
def test_nothing_else_than_invalid_input_is_raised(query: str, body: bytes) -> None:
    for name in ("runs", "nodes", "jobs", "log", "scale", "replica_table", "prune", "resume"):
        found = parameters(name)
        try:
            found.read(dict.fromkeys(found.path, query), query, body)
        except InvalidInput as error:
            assert error.problems


@given(
    names=st.lists(
        st.sampled_from(["limit", "before", "since", "tags", "states", "job"]), max_size=6
    ),
    text=st.text(),
)
def test_values_of_any_text(names: list[str], text: str) -> None:
    from urllib.parse import quote

    query = "&".join(f"{name}={quote(text, errors='replace')}" for name in names)
    try:
        parameters("runs").read({}, query, b"")
    except InvalidInput as error:
        assert error.problems


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.0", "1e3", "\u0661", "\u00b2", "9" * 5000, "101", " 1"]
)
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not a number from 0 to 100"):
        number_of(text, "rank", 100)


def test_numbers() -> None:
    assert [number_of(text, "rank", 100) for text in ("0", "7", "100", "007")] == [0, 7, 100, 7]
    assert read_number("a=1&b=2", "b", 5) == 2
    assert read_number("a=1", "b", 5) is None
    with pytest.raises(InvalidInput, match="b: is given more than once"):
        read_number("b=1&b=2", "b", 5)


def test_a_query_has_a_limited_number_of_parameters() -> None:
    assert len(parse_query("&".join(["a=1"] * 10_000))["a"]) == 10_000
    with pytest.raises(InvalidInput, match=r"the query has more than 10,000 parameters"):
        parse_query("&".join(["a=1"] * 10_001))
