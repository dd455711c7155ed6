"""Lists of objects beside an obvious model that looks at every name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.store.object_listing import ListQuery, after_all_with, list_page, seen_only
from muster.store.object_records import ObjectRange, ObjectRecord

#: Few characters, so that names share prefixes; the others are at the edges of the order.
ALPHABET = "a/b0\1\x7f\ud7ff\ue000\U0010ffff"
NAMES = st.text(ALPHABET, min_size=1, max_size=5)


def record(name: str) -> ObjectRecord:
    return ObjectRecord("b", name, "e", "c", 1, "", 0.0, 0.0, {}, {})


class Bucket:
    """Objects in a list."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.reads = sorted(names), 0

    def read(self, chosen: ObjectRange) -> list[ObjectRecord]:
        self.reads += 1
        end = chosen.end
        found = [n for n in self.names if n >= chosen.start and (end is None or n < end)]
        return [record(name) for name in found[: chosen.limit]]


def expected(names: set[str], query: ListQuery) -> tuple[list[str], list[str]]:
    """All that a query finds, on however many pages."""
    objects, prefixes = [], []
    for name in sorted(names):
        if not name.startswith(query.prefix) or name < query.start:
            continue
        if query.end is not None and name >= query.end:
            continue
        head, delimiter, _ = name[len(query.prefix) :].partition(query.delimiter or "\0")
        if query.delimiter and delimiter:
            folder = query.prefix + head + delimiter
            if folder not in prefixes:
                prefixes.append(folder)
        else:
            objects.append(name)
    return objects, prefixes


@given(
    names=st.sets(NAMES, max_size=20),
    prefix=st.one_of(st.just(""), st.text(ALPHABET, max_size=3)),
    start=st.one_of(st.just(""), NAMES),
    end=st.one_of(st.none(), NAMES),
    delimiter=st.sampled_from(["", "/"]),
    limit=st.integers(1, 5),
)
def test_the_pages_are_what_the_model_finds(
    names: set[str], prefix: str, start: str, end: str | None, delimiter: str, limit: int
) -> None:
    query = ListQuery("b", prefix, start, end, delimiter, limit)
    bucket = Bucket(names)
    objects: list[str] = []
    prefixes: list[str] = []
    where: str | None = start
    while where is not None:
        page = list_page(bucket.read, ListQuery("b", prefix, where, end, delimiter, limit))
        count = len(page.objects) + len(page.prefixes)
        assert count <= limit
        assert page.next_start is None or (count == limit and page.next_start > where)
        objects += [one.name for one in page.objects]
        prefixes += page.prefixes
        where = page.next_start
    assert (objects, prefixes) == expected(names, query)


@given(
    names=st.sets(NAMES, max_size=30),
    hidden=st.sets(NAMES, max_size=30),
    delimiter=st.sampled_from(["", "/"]),
    limit=st.integers(1, 5),
)
def test_what_is_not_seen_is_as_if_it_were_not_there(
    names: set[str], hidden: set[str], delimiter: str, limit: int
) -> None:
    query = ListQuery("b", delimiter=delimiter, limit=limit)
    read = seen_only(Bucket(names | hidden).read, lambda one: one.name not in hidden)
    assert list_page(read, query) == list_page(Bucket(names - hidden).read, query)


def test_what_is_below_a_prefix_is_skipped() -> None:
    bucket = Bucket({f"big/{number:06}" for number in range(5000)} | {"end"})
    page = list_page(bucket.read, ListQuery("b", delimiter="/", limit=10))
    assert ([one.name for one in page.objects], page.prefixes) == (["end"], ["big/"])
    assert bucket.reads == 2


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("", None),
        ("a", "b"),
        ("a/", "a0"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("\ud7ff", "\ue000"),
    ],
)
def test_the_first_name_after_a_prefix(prefix: str, after: str | None) -> None:
    assert after_all_with(prefix) == after
