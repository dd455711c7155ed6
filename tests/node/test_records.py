"""Reading records, with the types of their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from muster.node import greeting, launch_message, messages, records
from muster.node.records import InvalidRecord, read, shown

Named = Mapping[str, Any]


class Inner(NamedTuple):
    number: int
    text: str = "default"


class Every(NamedTuple):
    """Has every form of annotation."""

    integer: int = 0
    number: float = 0.0
    string: str = ""
    flag: bool = False
    anything: Any = None
    inner: Inner = Inner(0)
    maybe: int | None = None
    maybe_number: float | None = None
    maybe_inner: Inner | None = None
    integers: Sequence[int] = ()
    inners: Sequence[Inner] = ()
    holes: Sequence[int | None] = ()
    rows: Sequence[Sequence[int]] = ()
    strings: Mapping[str, str] = {}
    numbers: Mapping[str, float] = {}
    named: Named = {}  # noqa: RUF012
    maybe_named: Named | None = None
    maybe_integers: Sequence[int] | None = None


RIGHT: list[tuple[str, Any]] = [
    ("integer", -1),
    ("number", 1.5),
    ("number", 2),
    ("number", -1.7976931348623157e308),
    ("string", ""),
    ("flag", True),
    *(("anything", value) for value in (None, 1, 1.5, "x", True, [None], {"a": [1]})),
    ("maybe", None),
    ("maybe", 3),
    ("maybe_number", None),
    ("maybe_number", 0.5),
    ("maybe_inner", None),
    ("integers", []),
    ("integers", [1, 2]),
    ("holes", [1, None]),
    ("rows", [[], [1, 2]]),
    ("strings", {"A": "b"}),
    ("numbers", {"A": 1, "B": 1.5}),
    ("named", {"A": [1]}),
    ("maybe_named", None),
    ("maybe_named", {}),
    ("maybe_integers", None),
]


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_values_of_the_right_type(name: str, value: Any) -> None:
    assert read(Every, {name: value}) == Every(**{name: value})


def test_records_in_records() -> None:
    data = {"inner": {"number": 1}, "maybe_inner": {"number": 2, "text": "x"}}
    assert read(Every, data) == Every(inner=Inner(1), maybe_inner=Inner(2, "x"))
    assert read(Every, {"inners": [{"number": 3}]}).inners == [Inner(3)]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("integer", True, "Every: integer must be an integer, not True"),
        ("integer", 1.0, "Every: integer must be an integer, not 1.0"),
        ("integer", "1", "Every: integer must be an integer, not '1'"),
        ("integer", None, "Every: integer must be an integer, not None"),
        ("number", True, "Every: number must be a number, not True"),
        ("number", "1.5", "Every: number must be a number, not '1.5'"),
        ("number", float("nan"), "Every: number must be finite, not nan"),
        ("number", float("-inf"), "Every: number must be finite, not -inf"),
        ("string", 1, "Every: string must be a string, not 1"),
        ("flag", 1, "Every: flag must be true or false, not 1"),
        ("inner", [], "Every: inner must be an object, not []"),
        ("inner", {"number": "x"}, "Inner: number must be an integer, not 'x'"),
        ("maybe", "x", "Every: maybe must be an integer or null, not 'x'"),
        ("maybe_number", float("inf"), "Every: maybe_number must be finite, not inf"),
        ("maybe_inner", 0, "Every: maybe_inner must be an object or null, not 0"),
        ("integers", {}, "Every: integers must be a list, not {}"),
        ("integers", "12", "Every: integers must be a list, not '12'"),
        ("integers", [1, True], "Every: integers[1] must be an integer, not True"),
        ("inners", [{"number": 1}, 2], "Every: inners[1] must be an object, not 2"),
        ("holes", [None, ""], "Every: holes[1] must be an integer or null, not ''"),
        ("rows", [[1], [2, ""]], "Every: rows[1][1] must be an integer, not ''"),
        ("strings", [], "Every: strings must be an object, not []"),
        ("strings", {"A": "b", "B": 1}, "Every: strings['B'] must be a string, not 1"),
        ("numbers", {"A": float("nan")}, "Every: numbers['A'] must be finite, not nan"),
        ("named", [], "Every: named must be an object, not []"),
        ("maybe_integers", 1, "Every: maybe_integers must be a list or null, not 1"),
        ("other", 1, "Every: unknown other"),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: Any, text: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        read(Every, {name: value})
    assert str(caught.value) == text


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_numbers_that_are_not_finite_are_refused(text: str) -> None:
    """Python's parser reads all of them."""
    with pytest.raises(InvalidRecord, match=r"^Every: number must be finite, not "):
        read(Every, json.loads(f'{{"number": {text}}}'))


def test_all_missing_and_unknown_fields_are_named() -> None:
    with pytest.raises(InvalidRecord, match=r"^Inner: number is missing, unknown a, unknown b$"):
        read(Inner, {"b": 1, "a": 2})


@pytest.mark.parametrize("data", [None, 5, "x", [], [1]])
def test_what_is_no_object_is_refused(data: Any) -> None:
    with pytest.raises(InvalidRecord, match=r"^Inner must be an object, not "):
        read(Inner, data)


def test_values_are_shortened() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "x" * 100_000, list(range(100_000)), {"k" * 100_000: 1}, 10**1000):
        assert len(shown(value)) < 300
        with pytest.raises(InvalidRecord) as caught:
            read(Inner, {"number": 1, "text": [value]})
        assert len(str(caught.value)) < 300
    while deep:  # not by recursion
        deep = deep[0]


def test_long_names_are_shortened() -> None:
    with pytest.raises(InvalidRecord) as caught:
        read(Inner, {"number": 1, "x" * 100_000: 1})
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidRecord) as caught:
        read(Every, {"strings": {"x" * 100_000: 1}})
    assert len(str(caught.value)) < 300


class Tupled(NamedTuple):
    field: tuple[int, ...]


class Either(NamedTuple):
    field: int | str


class Misspelled(NamedTuple):
    field: Missing  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("record", [Tupled, Either, Misspelled])
def test_annotations_of_another_form_are_refused(record: Any) -> None:
    with pytest.raises(TypeError, match="fields of records cannot be of type "):
        read(record, {"field": 1})


def test_every_record_of_the_node_package_can_be_read() -> None:
    found = [
        value
        for module in (messages, launch_message, greeting)
        for value in vars(module).values()
        if isinstance(value, type) and hasattr(value, "_fields")
    ]
    assert len(found) > 20
    for record in found:
        assert records._forms(record).keys() == set(record._fields)
