"""Parameter sets that are listed one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spec.parameter_rows import (
    count_rows,
    lines_of,
    names_in,
    pack_rows,
    row_at,
    rows_text,
)
from muster.spec.wording import Refused, SeveralRefused


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(st.text(), min_size=n, max_size=n))))
def test_any_values_can_be_written_and_read(rows: list[list[str]]) -> None:
    names = ["a", "b", "c", "d"][: len(rows[0]) if rows else 1]
    text = pack_rows(names, rows)
    assert names_in(text) == tuple(names)
    assert [row_at(line) for line in lines_of(text)] == rows
    assert count_rows(text) == len(rows)


def test_a_list_of_sets() -> None:
    text = rows_text([{"lr": 0.1, "name": "x"}, {"name": True, "lr": 1}])
    assert text == '["lr","name"]\n["0.1","x"]\n["1","true"]'
    assert rows_text(text) == text


def test_a_backslash_is_no_escaped_character() -> None:
    text = pack_rows(["a"], [["\\u0000"]])
    assert rows_text(text) == text


@pytest.mark.parametrize(
    "text", ['["a"]\n["b"]\n', '\n\n["a"]\n\n [ "b" ]', '["a"] ["b"]\n', '["a"]\r\n["b"]\r\n']
)
def test_white_space_makes_no_sets(text: str) -> None:
    assert rows_text(text) == '["a"]\n["b"]'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "has no parameter sets; give at least one"),
        ([3], "must be a mapping, not 3"),
        ([{}], "has no parameters"),
        ([{"a": 1}, {"a": 1}, {}], "has no a; the first set has it: give all the same"),
        ([{"a": 1}, {"a": 1, "b": 2}], "has 'b', which the first set has not; give all the same"),
        ([{"a": 1}, {"a": None}], "a must be text, a number, true or false, not nothing; write"),
        ([{"a": [1]}], "a must be text, a number, true or false, not a list; write it as one text"),
        (
            [{"password": {"hunter2": 1}}],
            "password must be text, a number, true or false, not a mapping; flatten it: password_K",
        ),
        ([{"a b": 1}], "'a b' is not a valid name of a parameter"),
        ([{"a": "x\0"}], "a contains a NUL character"),
        ([{"a": 1}, {"a": "\ud800"}], "a is not UTF-8 text"),
        ('["a"]\n["x\\u0000"]', "a contains a NUL character"),
        ("a,b\n1,2", "must be a list of parameter sets"),
        ('["a"]\n["1","2"]', "must be a list of parameter sets"),
        ('["a"]', "must be a list of parameter sets"),
    ],
)
def test_bad_sets(value: Any, message: str) -> None:
    with pytest.raises(Refused) as refused:
        rows_text(value)
    assert str(refused.value).startswith(message)


def test_every_bad_set_is_named() -> None:
    with pytest.raises(SeveralRefused) as refused:
        rows_text([{"a": 1, "b": 1}, {}, {"a": {"x": 1}, "b": 2}, 3])
    assert [(number, str(each)) for number, each in refused.value.parts] == [
        (1, "has no a; the first set has it: give all the same"),
        (1, "has no b; the first set has it: give all the same"),
        (2, "a must be text, a number, true or false, not a mapping; flatten it: a_x"),
        (3, "must be a mapping, not 3; write NAME: VALUE"),
    ]
