"""Values of parameters as text."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spec.arrays import (
    Distribution,
    Values,
    array_text,
    combinations,
    fields_of_array,
    format_values,
    notes_on,
    parse_values,
    values_text,
    variable_of,
)
from muster.spec.models import Array
from muster.spec.parameter_rows import pack_rows
from muster.spec.wording import Refused


def values(text: str) -> list[str]:
    found = parse_values(text)
    assert isinstance(found, Values)
    return list(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1,0.01", ["0.1", "0.01"]),
        ("adam", ["adam"]),
        (" a , b c ,d", ["a", "b c", "d"]),
        ("0..4", ["0", "1", "2", "3", "4"]),
        ("0..10..5", ["0", "5", "10"]),
        ("0..9..5", ["0", "5"]),
        ("0..1..0.25", ["0", "0.25", "0.5", "0.75", "1"]),
        ("-1..1..0.5", ["-1", "-0.5", "0", "0.5", "1"]),
        ("3..1..-1", ["3", "2", "1"]),
        (".1...3...1", ["0.1", "0.2", "0.3"]),
        ("1e-2..3e-2..1e-2", ["0.01", "0.02", "0.03"]),
        ("7..7", ["7"]),
        ("08..11", ["08", "09", "10", "11"]),
        ("0..2,10,20..21", ["0", "1", "2", "10", "20", "21"]),
        ('"a,b",c', ["a,b", "c"]),
        ('"say ""hi""", "0..9" ,""', ['say "hi"', "0..9", ""]),
        ("../a,../b", ["../a", "../b"]),
        ('"uniform(0,1)"', ["uniform(0,1)"]),
        ("f(1),f(2)", ["f(1)", "f(2)"]),
        ("2024-01,2024-02-03,9-1", ["2024-01", "2024-02-03", "9-1"]),
        ("a[0],x-y", ["a[0]", "x-y"]),
        ('"0-99","[1","a;b"', ["0-99", "[1", "a;b"]),
    ],
)
def test_values(text: str, expected: list[str]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no values"),
        ("a,,b", "'a,,b' has an empty value at column 3"),
        ("a,", "'a,' has an empty value at column 3"),
        ('a,"b', "'a,\"b' has a quote at column 3 that is not closed"),
        ('"a"b', "'\"a\"b' has a quote at column 1 that is not closed"),
        ("9..0", "9..0 is an empty range; write 9..0..-1"),
        ("0..9..-1", "0..9..-1 is an empty range; use a step above 0"),
        ("0..9..0", "0..9..0 is an empty range; use a step above 0"),
        ("0..x", "'0..x' is not a range; write 0..99 or 0..1..0.25; \"0..x\" in quotes is text"),
        ("0..1..", "'0..1..' is not a range"),
        ("0..1e300..1e299", "0..1e300..1e299 has numbers that are too long"),
        (f"0..{'9' * 5000}", f"'0..{'9' * 52}...' has numbers that are too long; list the values"),
        (f"0..1..0.{'0' * 5000}1", "'0..1..0.0000"),
        ("uniform(0,1e999)", "'uniform(0,1e999)' has numbers that are too large; write uniform(0."),
        ("uniform(-1e308,1e308)", "'uniform(-1e308,1e308)' has numbers that are too large"),
        ("unifrom(0,1)", 'no distribution named unifrom; did you mean "uniform"?'),
        ("uniform(0)", "uniform(0) needs two numbers; write uniform(0.001,0.1)"),
        ("uniform(1,0)", "uniform(1,0) is empty"),
        ("loguniform(0,1)", "loguniform(0,1) needs numbers above 0"),
        ("int(0,1.5)", "int(0,1.5) needs two whole numbers"),
        ("choice()", "has no values"),
        ("0..1e30..1", "'0..1e30..1' has too many values; use a larger step"),
        (
            "0..4000000000000000000,0..4000000000000000000",
            "'0..4000000000000000000,0..4000000000000000000' has too many values",
        ),
        ("choice(0..1e30..1)", "'0..1e30..1' has too many values"),
        ("0.1..0.5", "0.1..0.5 needs a step; write 0.1..0.5..0.1"),
        ("1..0.25", "1..0.25 needs a step; write 1..0.25..-0.01"),
        ("1e-5..1e-1", "1e-5..1e-1 needs a step; write a step, or loguniform(1e-5,1e-1)"),
        ("0..1e30", "0..1e30 needs a step; as in 0..1..0.25"),
        ("5,0-99", '0-99 is one value; for a range write 0..99; "0-99" in quotes is text'),
        ("[1,2,3]", "'[1,2,3]' is in brackets; write 1,2,3"),
        ("[1]", "'[1]' is in brackets; write 1"),
        ("(1, 2)", "'(1, 2)' is in brackets; write 1, 2"),
        ("a,(b", "'(b' has ( without its pair; quotes keep brackets and commas: \"(b\""),
        (
            '{"a":1,"b":2}',
            "'{\"a\":1' has { without its pair; quotes keep brackets and commas: "
            '"{""a"":1,""b"":2}"',
        ),
        ("int(1,3),5", "'int(1,3),5': a distribution stands alone; leave out the other values"),
        ("5,int(1,3)", "'5,int(1,3)': a distribution stands alone"),
        ("choice(a", "'choice(a' has a ( that is not closed; write choice(a,b)"),
        (
            "0.1,0.2 seed=1,2",
            "'0.2 seed=1' has a second parameter, seed=; give --array once for each",
        ),
        ("0.1;0.2", "'0.1;0.2' is one value; write 0.1,0.2; \"0.1;0.2\" in quotes is text"),
        ("0.1 0.01", "'0.1 0.01' is one value; write 0.1,0.01"),
        ("a..z", 'a..z is not a range of numbers; list the values; "a..z" in quotes is text'),
        ("a.txt\nb.txt", "'a.txt\\nb.txt' has several lines; write lines to a file"),
    ],
)
def test_bad_values(text: str, message: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_values(text)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        ("inputs/*.txt", ["x has one value, 'inputs/*.txt'; patterns are not expanded: list "]),
        ("adam sgd", ["x has one value, 'adam sgd'; commas separate values"]),
        ("a;b", ["x has one value, 'a;b'; commas separate values"]),
        (["adam sgd"], []),
        ('"adam sgd"', []),
        ("adam sgd,adam", []),
        ("uniform(0, 1)", []),
    ],
)
def test_a_value_that_looks_like_several_is_noted(values: Any, notes: list[str]) -> None:
    array = Array(parameters={"x": values_text(values)})
    found = list(notes_on(array))
    assert [text[: len(note)] for text, note in zip(found, notes, strict=True)] == notes
    assert list(notes_on(Array(parameters={"api_token": "a b"}))) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("uniform(0.001, 0.1)", Distribution("uniform", (0.001, 0.1))),
        ("loguniform(1e-5,1e-1)", Distribution("loguniform", (1e-5, 0.1))),
        ("int(-1,10)", Distribution("int", (-1, 10))),
    ],
)
def test_distributions(text: str, expected: Distribution) -> None:
    assert parse_values(text) == expected


@given(st.lists(st.text(), min_size=1))
def test_any_texts_can_be_written_and_read(texts: list[str]) -> None:
    assert values(format_values(texts)) == texts


@given(st.integers(-(10**6), 10**6), st.integers(-99, 99).filter(bool), st.integers(1, 50))
def test_a_range_of_python_is_a_range(start: int, step: int, count: int) -> None:
    numbers = range(start, start + step * count, step)
    assert values(values_text(numbers)) == [str(number) for number in numbers]


DECIMALS = st.decimals(0, 1000, places=4, allow_nan=False)


@given(DECIMALS, st.decimals("0.0001", 9, places=4, allow_nan=False), st.integers(1, 40))
def test_ranges_of_decimals_are_exact(start: Decimal, step: Decimal, count: int) -> None:
    expected = [start + step * place for place in range(count)]
    text = f"{start:f}..{expected[-1]:f}..{step:f}"
    assert [Decimal(value) for value in values(text)] == expected


@pytest.mark.parametrize(
    ("given_value", "text"),
    [
        ([0.1, 0.01], "0.1,0.01"),
        ([True, "a,b"], 'true,"a,b"'),
        (range(100), "0..99"),
        (range(0, 10, 5), "0..5..5"),
        (range(3, 0, -1), "3..1..-1"),
        (range(7, 8), "7"),
        (range(0, 10**30, 10**29), f"0..{9 * 10**29}..{10**29}"),
        (5, "5"),
        (("x", "0..9"), 'x,"0..9"'),
        ("0..9", "0..9"),
    ],
)
def test_values_from_plain_data(given_value: Any, text: str) -> None:
    assert values_text(given_value) == text


def test_numbers_of_numpy_are_values() -> None:
    numpy = pytest.importorskip("numpy")
    assert values_text(numpy.array([1, 2])) == "1,2"
    assert values_text([numpy.float64(0.5)]) == "0.5"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "has no values"),
        (range(0), "range(0, 0) is empty"),
        (range(10**5000, 10**5000 + 2), "a value has too many digits; write it as text"),
        ([1, 10**5000], "a value has too many digits; write it as text"),
        ([None], "a value must be text, a number, true or false, not nothing"),
        ([[1]], "a value must be text, a number, true or false, not a list"),
        ([float("nan")], "a value must be text, a number, true or false, not nan"),
    ],
)
def test_values_that_no_program_can_get(value: Any, message: str) -> None:
    with pytest.raises(Refused) as refused:
        values_text(value)
    assert str(refused.value).startswith(message)


def test_short_forms_of_an_array() -> None:
    assert fields_of_array("sets.csv") == {"file": "sets.csv"}
    assert fields_of_array([{"a": 1}]) == {"rows": [{"a": 1}]}
    assert fields_of_array({"lr": "1"}) == {"parameters": {"lr": "1"}}
    assert fields_of_array({"sample": 3}) == {"sample": 3}
    assert fields_of_array(Path("sets.csv")) == {"file": "sets.csv"}
    with pytest.raises(
        Refused, match=r"has the parameter lr beside sample; write parameters: \{lr"
    ):
        fields_of_array({"lr": "1", "sample": 3})


class _DataFrame:
    columns = ("lr",)

    def to_dict(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("lr=0.1,0.01", "'lr=0.1,0.01' is not a file; write {lr: [0.1,0.01]}"),
        ("password=hunter2", "'password=***' is not a file; write {password: [***]}"),
        (
            _DataFrame(),
            "must be a mapping, a list or a file, not a _DataFrame; "
            'write array=DATAFRAME.to_dict("records")',
        ),
        (
            iter([{"lr": 1}]),
            "must be a mapping, a list or a file, not a list_iterator; write list(",
        ),
        (3, "must be a mapping, a list or a file, not 3; write {lr: [0.1, 0.01]}"),
    ],
)
def test_what_is_no_array(value: Any, message: str) -> None:
    with pytest.raises(Refused) as refused:
        fields_of_array(value)
    assert str(refused.value).startswith(message)


def test_a_large_range_is_not_expanded() -> None:
    array = Array(parameters={"a": "0..999999999", "b": "0..1..0.000001"})
    assert combinations(array) == 10**9 * (10**6 + 1)
    drawn = parse_values("choice(a,b,0..999999999999)")
    assert isinstance(drawn, Distribution)
    assert (drawn.kind, len(drawn.choices)) == ("choice", 10**12 + 2)
    assert [drawn.choices[index] for index in (0, 1, 2, 10**12 + 1)] == [
        "a",
        "b",
        "0",
        str(10**12 - 1),
    ]


def test_variables_of_names() -> None:
    assert variable_of("optimizer.lr-max") == "MUSTER_PARAM_OPTIMIZER_LR_MAX"


def test_an_array_in_one_line() -> None:
    rows = pack_rows(["a", "b"], [["1", "2"], ["3", "4"]])
    array = Array(parameters={"lr": "0.1,1"}, rows=rows, file="s.csv", sample=2, sample_seed=9)
    assert array_text(array) == "s.csv (2 sets of a, b) lr=0.1,1 sample 2 (seed 9)"
