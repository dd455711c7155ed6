"""The table of the documents is true: each row is shown by a test, or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from documents import table
from documents.table import Document, Marker, Row


@pytest.fixture(scope="module")
def marked() -> list[Marker]:
    """The markers of all tests: a second's work."""
    return table.markers()


def test_every_row_has_a_test_or_a_reason(marked: list[Marker]) -> None:
    assert table.problems(table.documents(), marked) == []


def test_the_page_is_current(marked: list[Marker]) -> None:
    made = table.page(table.documents(), marked)
    assert table.PAGE.read_text() == made, "run `python tests/documents/table.py`"


def row(**fields: Any) -> Row:
    return Row(**{"row": "a", "section": "Overview", "says": "x", "does": "y"} | fields)


def problems(*rows: Row, marked: tuple[str, ...] = ()) -> list[str]:
    tests = [Marker("tests/test_it.py", "test_it", name) for name in marked]
    return table.problems({"paper": Document("Paper", rows)}, tests)


@pytest.mark.parametrize(
    ("rows", "names", "expected"),
    [
        ([row()], ["paper/a"], []),
        ([row(later="the server")], [], []),
        ([row(does="", reason="marketing")], [], []),
        ([row()], [], ["paper/a: no test is marked with it, and it has neither `later` nor `not`"]),
        (
            [row(later="x")],
            ["paper/b"],
            ["tests/test_it.py::test_it: paper/b is no row of tests/documents"],
        ),
        (
            [row(later="the server")],
            ["paper/a"],
            ["paper/a: has `later`, but tests/test_it.py::test_it shows it: remove one of them"],
        ),
        (
            [row(reason="marketing")],
            ["paper/a"],
            ["paper/a: has `not`, but tests/test_it.py::test_it shows it: remove one of them"],
        ),
        ([row(later="x", reason="y")], [], ["paper/a: give either `later` or `not`"]),
        ([row(), row(says="again")], ["paper/a"], ["paper/a: 2 rows have this name"]),
        ([row(does="")], ["paper/a"], ["paper/a: say what Muster does"]),
    ],
)
def test_invalid_rows(rows: list[Row], names: list[str], expected: list[str]) -> None:
    assert problems(*rows, marked=tuple(names)) == expected


def test_a_row_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    for name in table.DOCUMENTS:
        (tmp_path / f"{name}.yaml").write_text("{title: T, rows: [{row: a, sayz: b}]}")
    with pytest.raises(msgspec.ValidationError, match="sayz"):
        table.documents(tmp_path)


def found(text: str) -> list[tuple[str, str]]:
    return [(marker.test, marker.row) for marker in table.markers_in(text, "tests/test_it.py")]


MARKED = """
import pytest
pytestmark = [pytest.mark.slow, pytest.mark.shows("paper/all")]
CASES = [pytest.param(1, marks=pytest.mark.shows("paper/case"))]

@pytest.mark.shows("paper/a", "paper/b")
def test_one(): ...

@pytest.mark.shows("paper/class")
class TestTwo:
    @pytest.mark.shows("paper/method")
    def test_method(self): ...

@pytest.mark.parametrize("x", CASES)
def test_cases(x): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=[pytest.mark.shows("paper/inline")])])
def test_inline(x): ...

def test_unmarked(): ...
"""


def test_markers_of_modules_classes_functions_and_parameters_are_found() -> None:
    assert found(MARKED) == [
        ("", "paper/all"),
        ("test_one", "paper/a"),
        ("test_one", "paper/b"),
        ("TestTwo", "paper/class"),
        ("TestTwo::test_method", "paper/method"),
        ("test_cases", "paper/case"),
        ("test_inline", "paper/inline"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('@pytest.mark.shows("a/b")\ndef helper(): ...', r"py:1: .* belongs to no test"),
        ('ROW = pytest.mark.shows("a/b")\ndef test_it(): ...', r"py:1: .* belongs to no test"),
        ("@pytest.mark.shows(ROW)\ndef test_it(): ...", r"py:1: .* plain strings: ROW"),
    ],
)
def test_a_marker_that_cannot_be_read_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found(text)


def test_markers_are_read_from_the_files_below_tests(tmp_path: Path) -> None:
    test = tmp_path / "tests" / "room" / "test_it.py"
    test.parent.mkdir(parents=True)
    test.write_text('import pytest\n\n@pytest.mark.shows("paper/a")\ndef test_it(): ...\n')
    assert table.markers(tmp_path) == [Marker("tests/room/test_it.py", "test_it", "paper/a")]


def test_the_page_has_a_table_for_each_section() -> None:
    rows = (
        row(),
        row(row="b", later="the server"),
        row(row="c", section="Networks", does="", reason="a | fact"),
    )
    tests = [
        Marker("tests/x/test_it.py", "test_it", "paper/a"),
        Marker("tests/x/test_it.py", "", "paper/a"),
    ]
    made = table.page({"paper": Document("OCI: Paper", rows)}, tests)
    assert "| [OCI: Paper](#oci-paper) | 3 | 1 | 1 | 1 |" in made
    assert made.partition("## OCI: Paper")[2] == (
        "\n\n### Overview\n\n| the document | Muster | shown by |\n| --- | --- | --- |\n"
        "| x | y | [`x/test_it.py::test_it`](../x/test_it.py)"
        "<br>[`x/test_it.py`](../x/test_it.py) |\n"
        "| x | y | later: the server |\n"
        "\n### Networks\n\n| the document | Muster | shown by |\n| --- | --- | --- |\n"
        "| x |  | not: a \\| fact |\n"
    )
