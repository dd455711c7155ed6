"""The query languages of the OCI API: whatever is given is read, or refused with a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.server.oci import log_query, metric_query, search_query
from muster.server.oci.metric_statistics import STATISTICS
from muster.storage.metric_points import Point

LANGUAGES: dict[str, Callable[[str], Any]] = {
    "logs": log_query.parse_query,
    "metrics": metric_query.parse_query,
    "resources": search_query.parse_query,
}
VALID = {
    "logs": "search \"a/b/c\" | where source = '*x' and (data.a != 'DEBUG' or data.b in (1, 2)) "
    "| sort by datetime desc | limit 10",
    "metrics": 'Cpu[1m]{a = "b", c =~ "d*|e" || f in ("g")}.groupBy(a, c).percentile(0.9) > 80',
    "resources": "query all resources where (a = 'b' && c != 'd') sorted by timeCreated asc",
}


words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda word: word.lower() not in ("not", "in", "true", "false", "null", "contains")
)
fields = st.one_of(
    st.sampled_from(["logContent", "source", "datetime", "logContent.time"]),
    words.map(lambda word: f"data.{word}"),
)
quoted = st.text(st.characters(exclude_characters="'\"\\\\", exclude_categories=["Cs"]), max_size=8)


def conditions(
    both: str, either: str, quote: str, names: st.SearchStrategy[str] = words
) -> st.SearchStrategy[str]:
    """Conditions of a language. both, either, quote: how it writes "and", "or" and texts. names: of
    fields."""
    one = st.builds(
        lambda word, sign, text: f"{word} {sign} {quote}{text}{quote}",
        *(names, st.sampled_from(["=", "!="]), quoted),
    )
    return st.recursive(
        one,
        lambda inner: st.builds(
            lambda parts, sign: f"({f' {sign} '.join(parts)})",
            *(st.lists(inner, min_size=1, max_size=3), st.sampled_from([both, either])),
        ),
        max_leaves=8,
    )


QUERIES = {
    "logs": st.builds(
        lambda fits, sort, limit: f'SEARCH "a/b" | WHERE {fits} | sort by {sort} | limit {limit}',
        *(conditions("AND", "or", "'", fields), fields, st.integers(0, 1000)),
    ),
    "metrics": st.builds(
        lambda name, minutes, fits, group, statistic: (
            f"m{name}[{minutes}m]{{{fits}}}.groupBy({group}).{statistic}()"
        ),
        *(words, st.integers(1, 60), conditions("&&", "||", '"'), words),
        st.sampled_from(sorted(STATISTICS)),
    ),
    "resources": st.builds(
        lambda kind, fits: f"query {kind} resources where {fits} sorted by timeCreated desc",
        *(words, conditions("&&", "or", "'")),
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
@settings(deadline=None)
@given(data=st.data())
def test_a_query_as_clients_write_it_is_read(language: str, data: st.DataObject) -> None:
    use(LANGUAGES[language](data.draw(QUERIES[language])))


def use(query: Any) -> None:
    """What a query makes of an entry."""
    if isinstance(query, log_query.LogQuery):
        query.fits({"source": "x", "data": {"level": "INFO", "message": None}, "a": 1})
        query.fits({})
    elif isinstance(query, metric_query.MetricQuery):
        points = [Point(query.name, {"a": "b"}, at, at) for at in (1.0, 2.0, 61.0)]
        for stream in metric_query.streams(query, points):
            metric_query.values(query, stream, 0.0, 100.0, 60.0)
    else:
        query.fits({"identifier": "x", "freeformTags": {"a": "b"}, "timeCreated": None})


@pytest.mark.parametrize("language", LANGUAGES)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_any_text_is_read_or_refused(language: str, data: st.DataObject) -> None:
    parse, valid = LANGUAGES[language], VALID[language]
    use(parse(valid))
    at, length = data.draw(st.integers(0, len(valid))), data.draw(st.integers(0, 20))
    text = valid[:at] + data.draw(st.text(max_size=10)) + valid[at + length :]
    for changed in (text, data.draw(st.text(max_size=50))):
        try:
            query = parse(changed)
        except ValueError as error:
            assert str(error)
        else:
            use(query)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("text", ["", "(" * 5000, "x" * 60_000, "\0", "'" * 9999])
def test_a_text_that_is_too_much_is_refused(language: str, text: str) -> None:
    with pytest.raises(ValueError, match="the query"):
        LANGUAGES[language](text)


def points(*given: tuple[float, float]) -> list[Point]:
    return [Point("m", {"r": "0"}, at, value) for at, value in given]


@pytest.mark.parametrize(
    ("statistic", "value"),
    [
        ("mean()", 4.0),
        ("avg()", 4.0),
        ("sum()", 12.0),
        ("count()", 3),
        ("min()", 1.0),
        ("max()", 8.0),
        ("first()", 3.0),
        ("last()", 1.0),
        ("increment()", 5.0),
        ("rate()", 0.25),
        ("percentile(0.5)", 3.0),
        ("percentile(0.99)", 8.0),
        ("mean() > 3", 4.0),
        ("mean() in (4, 5)", 4.0),
        ("mean() not in (5, 6)", 4.0),
        ("mean() == 4", 4.0),
    ],
)
def test_statistics(statistic: str, value: float) -> None:
    query = metric_query.parse_query(f"m[1m].{statistic}")
    (stream,) = metric_query.streams(query, points((10, 3.0), (20, 8.0), (30, 1.0)))
    assert metric_query.values(query, stream, 0, 60, 60) == [(60.0, value)]


@pytest.mark.parametrize("statistic", ["mean() > 4", "mean() not in (3, 5)", "mean() != 4"])
def test_values_that_do_not_fit_are_left_out(statistic: str) -> None:
    query = metric_query.parse_query(f"m[1m].{statistic}")
    (stream,) = metric_query.streams(query, points((10, 3.0), (20, 8.0), (30, 1.0)))
    assert metric_query.values(query, stream, 0, 60, 60) == []


def test_one_point_has_no_rate() -> None:
    query = metric_query.parse_query("m[1m].rate()")
    (stream,) = metric_query.streams(query, points((10, 3.0)))
    assert metric_query.values(query, stream, 0, 60, 60) == []


@given(
    times=st.lists(st.integers(0, 600), max_size=30),
    interval=st.sampled_from([60, 120, 300]),
    start=st.integers(0, 300),
)
def test_each_point_is_counted_in_one_interval(times: list[int], interval: int, start: int) -> None:
    query = metric_query.parse_query(f"m[{interval // 60}m].count()")
    given_points = [point for point in points(*((at, 1.0) for at in times)) if point.time >= start]
    for stream in metric_query.streams(query, given_points):
        found = metric_query.values(query, stream, start, 600, interval)
        assert sum(count for _, count in found) == len(given_points)
        for end, count in found:
            assert end % interval == 0
            inside = [point for point in given_points if end - interval < point.time <= end]
            assert count == len(inside)
