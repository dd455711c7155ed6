"""docs/internals/conformance.md lists every case of JobSet and of Jobs once; each has a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/internals/conformance.md"
TEXT = PAGE.read_text()
CASES = [
    *(f"C{number:02}" for number in range(1, 56)),
    *(f"W{number:02}" for number in range(1, 20)),
    *(f"E{number:02}" for number in range(1, 18)),
    *(f"J{number:02}" for number in (*range(1, 27), *range(30, 47))),
]
#: A case of the page; in parentheses the case whose test shows it.
CASE = re.compile(
    r"(?:^\| |<br>|\| )(?P<case>[CWEJ]\d\d)(?: \((?P<shown>[CWEJ]\d\d)\))?(?:: | \| )", re.M
)


def cases_of(path: Path) -> set[str]:
    """The cases that a file's tests, or their parameters, are named after."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found |= set(re.findall(r"_([CWEJ]\d\d)_", node.name))
        elif isinstance(node, ast.keyword) and node.arg == "id":
            found |= set(re.findall(r"^[CWEJ]\d\d", ast.literal_eval(node.value)))
    return found


def test_every_case_is_listed_once() -> None:
    assert sorted(found["case"] for found in CASE.finditer(TEXT)) == sorted(CASES)


def test_every_case_has_a_test() -> None:
    known: set[str] = set()
    for path in (PAGE.parents[2] / "tests/conformance").glob("test_*.py"):
        known |= cases_of(path)
    assert {found["shown"] or found["case"] for found in CASE.finditer(TEXT)} <= known


def test_every_link_has_a_target() -> None:
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
