"""Files of parameter sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.spec.array_files import read_sets
from muster.spec.arrays import notes_on
from muster.spec.models import Array
from muster.spec.overrides import overrides_from_mapping
from muster.spec.parameter_rows import pack_rows
from muster.spec.reader import read_spec


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("a.csv", "lr,seed\n0.10,1\n010,2\n", '["lr","seed"]\n["0.10","1"]\n["010","2"]'),
        ("a.csv", '\ufeffa, b\r\n1, "x, y"\r\n\r\n', '["a","b"]\n["1","x, y"]'),
        ("a.csv", 'a,b\n"  x, ", y \n', '["a","b"]\n["  x, "," y "]'),
        ("a.csv", 'a\n"two\nlines"\n', '["a"]\n["two\\nlines"]'),
        ("a.csv", "a,b\n,2\n", '["a","b"]\n["","2"]'),
        ("a.tsv", "a\tb\n1,5\t2\n", '["a","b"]\n["1,5","2"]'),
        ("a.jsonl", '{"lr": 1.10}\n\n{"lr": true}\n', '["lr"]\n["1.10"]\n["true"]'),
        ("a.txt", '{"a": 1, "b": "x"}\n{"b": "y", "a": 2}', '["a","b"]\n["1","x"]\n["2","y"]'),
    ],
)
def test_files(tmp_path: Path, name: str, text: str, rows: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_sets(tmp_path / name, name) == rows


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "a.csv",
            "lr,seed\n0.1,1\n0.2\n",
            "a.csv:3: 1 value, but the header has 2 names: lr, seed (there is none for seed)",
        ),
        (
            "a.csv",
            "lr\n0.1,1\n",
            "a.csv:2: 2 values, but the header has 1 name: lr ('1' has no column)",
        ),
        (
            "a.csv",
            "password\nhunter,2\n",
            "a.csv:2: 2 values, but the header has 1 name: password (put values that have commas "
            "in quotes)",
        ),
        ("a.csv", "a,b,a\n1,2,3\n", "a.csv:1: column 3: a is also column 1 (names are unique)"),
        ("a.csv", "a,b c\n1,2\n", "a.csv:1: column 2: 'b c' is not a valid name of a parameter"),
        ("a.csv", "a,\n1,2\n", "a.csv:1: column 2: '' is not a valid name of a parameter"),
        ("a.csv", "", "a.csv: the file is empty (write the names of the parameters first)"),
        ("a.csv", "a,b\n", "a.csv: the file has names, but no parameter sets"),
        ("a.csv", 'a\n1\n"2\n', "a.csv:3: cannot be read: unexpected end of data"),
        ("a.jsonl", "", "a.jsonl: the file is empty"),
        ("a.jsonl", '{"a": 1}\n{"b": 1}\n', "a.jsonl:2: has no a (line 1 has it"),
        ("a.jsonl", '{"a": 1}\n{"a":}\n', "a.jsonl:2: column 6: Expecting value"),
        ("a.jsonl", '{"a": 1, "a": 2}\n', "a.jsonl:1: 'a' is given twice"),
        ("a.jsonl", "[1]\n", "a.jsonl:1: must be an object, not a list"),
        (
            "a.jsonl",
            '{"a": {"x": 1}}\n',
            "a.jsonl:1: a must be text, a number, true or false, not a mapping (flatten it: a_x)",
        ),
        (
            "a.csv",
            "lr\tseed\n1\t2\n",
            "a.csv:1: column 1: 'lr\\tseed' is not a valid name of a "
            "parameter (separated by tabs? name the file .tsv)",
        ),
        (
            "a.csv",
            "lr;seed\n1;2\n",
            "a.csv:1: column 1: 'lr;seed' is not a valid name of a "
            "parameter (separate the columns by commas)",
        ),
        (
            "a.csv",
            "0.1\n0.2\n",
            "a.csv:1: column 1: '0.1' is not a valid name of a parameter (is "
            "the header missing? write the names first)",
        ),
        (
            "a.txt",
            "[\n{}]",
            "a.txt:1: column 1: '[' is not a valid name of a parameter (a JSON "
            "list? write one object in each line)",
        ),
        ("a.csv", "a,b\n1,2\n\n3,x\0y\n", "a.csv:4: b contains a NUL character"),
        ("a.jsonl", '{"a": 1}\n\n{"a": "x\\u0000y"}\n', "a.jsonl:3: a contains a NUL character"),
        ("a.jsonl", '{"a": "x\\ud800y"}\n', "a.jsonl:1: a is not UTF-8 text"),
        ("a.yaml", "- lr: 1\n", "a.yaml: parameter sets are not read from .yaml files (write CSV"),
        ("a.json", "[{}]", "a.json: parameter sets are not read from .json files"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput) as error:
        read_sets(tmp_path / name, name)
    (found,) = error.value.problems
    assert str(found).startswith(problem)


@pytest.mark.parametrize(
    ("name", "text", "problems"),
    [
        (
            "a.csv",
            "a,b\n1\n1,2\n1,2,3\n",
            ["a.csv:2: 1 value, but the header", "a.csv:4: 3 values, but the header"],
        ),
        ("a.jsonl", '{"a":' * 100_000, ["a.jsonl:1: is nested too deeply"]),
        ("a.csv", "a b,1\n1,2\n", ["a.csv:1: column 1: 'a b' is", "a.csv:1: column 2: '1' is"]),
        (
            "a.jsonl",
            '{"a": 1}\n{"a":}\n{}\n3\n{"a": []}\n',
            [
                "a.jsonl:2: column 6: Expecting value",
                "a.jsonl:3: has no a (line 1 has it",
                "a.jsonl:4: must be an object, not '3'",
                "a.jsonl:5: a must be text",
            ],
        ),
        (
            "a.csv",
            "a,b\n" + 12 * "1\n",
            [*(f"a.csv:{n}: 1 value" for n in range(2, 12)), "a.csv: 2 more problems in the file"],
        ),
        (
            "a.jsonl",
            11 * "1\n",
            [*(f"a.jsonl:{n}: must" for n in range(1, 11)), "a.jsonl: 1 more problem in the file"],
        ),
    ],
)
def test_every_bad_line_is_named(tmp_path: Path, name: str, text: str, problems: list[str]) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput) as error:
        read_sets(tmp_path / name, name)
    found = [str(problem) for problem in error.value.problems]
    assert [text[: len(start)] for text, start in zip(found, problems, strict=True)] == problems


def test_sets_in_a_spec_are_named_by_their_lines(tmp_path: Path) -> None:
    sets = "array:\n  - {lr: 1, seed: 1}\n  - {lr: 2}\n  - {lr: [1], seed: 1}\n"
    (tmp_path / "job.yaml").write_text(f"command: 'true'\n{sets}")
    with pytest.raises(InvalidInput) as error:
        read_spec(tmp_path / "job.yaml")
    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in error.value.problems] == [
        "job.yaml:4: array[1]: has no seed (the first set has it: give all the same)",
        "job.yaml:5: array[2]: lr must be text, a number, true or false, not a list (write it as "
        "one text)",
    ]
    (tmp_path / "job.yaml").write_text("command: 'true'\narray:\n  lr: 1\n  y: {a: 1}\n")
    with pytest.raises(InvalidInput) as error:
        read_spec(tmp_path / "job.yaml")
    assert str(error.value).removeprefix(f"{tmp_path}/") == (
        "job.yaml:4: array.y: must be a list or text, not a mapping (write [0.1, 0.01] or 0..99)"
    )


def test_a_long_list_of_bad_sets_is_cut() -> None:
    with pytest.raises(InvalidInput) as error:
        overrides_from_mapping({"array": [{"a": None}] * 1000})
    first, *_, last = map(str, error.value.problems)
    assert first.startswith("array[0]: a must be text")
    assert (last, len(error.value.problems)) == ("array: 990 more problems in the list", 11)


def test_empty_cells_are_noted() -> None:
    array = Array(rows=pack_rows(["a", "b"], [["", "2"], ["1", ""], ["2", ""]]))
    assert list(notes_on(array)) == [
        "a is empty in 1 of 3 parameter sets",
        "b is empty in 2 of 3 parameter sets",
    ]


def test_a_file_is_relative_to_the_spec_and_read_with_it(tmp_path: Path) -> None:
    (tmp_path / "sets.csv").write_text("lr\n0.1\n0.2\n")
    (tmp_path / "job.yaml").write_text("command: 'true'\narray: {file: sets.csv, sample: 1}\n")
    array = read_spec(tmp_path / "job.yaml").array
    assert array is not None
    assert (array.file, array.rows) == (str(tmp_path / "sets.csv"), '["lr"]\n["0.1"]\n["0.2"]')


def test_a_problem_in_a_file_names_its_line_and_no_other_problem_follows(tmp_path: Path) -> None:
    (tmp_path / "sets.csv").write_text("lr\n0.1,2\n")
    group = "{name: a, array: sets.csv, only: 4}"
    (tmp_path / "job.yaml").write_text(f"command: 'true'\nnode_groups: [{group}]\n")
    with pytest.raises(InvalidInput) as error:
        read_spec(tmp_path / "job.yaml")
    (found,) = error.value.problems
    assert str(found).startswith("sets.csv:2: node_groups[0].array.file: 2 values, but")


def test_files_of_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets.jsonl").write_text('{"lr": 1}\n')
    made = overrides_from_mapping({"node_groups": {"a": {"array": "sets.jsonl"}}})
    array = made.node_groups["a"].array
    assert array is not None
    assert array.rows == '["lr"]\n["1"]'
    made = overrides_from_mapping({"array": Path("sets.jsonl")})
    assert made.array is not None
    assert made.array.rows == '["lr"]\n["1"]'
    with pytest.raises(
        InvalidInput, match=r"^array: 'lr=1,2' is not a file \(write \{lr: \[1,2\]\}\)"
    ):
        overrides_from_mapping({"array": "lr=1,2"})
    with pytest.raises(InvalidInput, match="no such file"):
        overrides_from_mapping({"array": {"file": "missing.csv"}})
