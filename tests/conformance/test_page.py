"""docs/internals/conformance.md lists every case of JobSet once, with a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/internals/conformance.md"
TEXT = PAGE.read_text()
CASES = [
    *(f"C{number:02}" for number in range(1, 56)),
    *(f"W{number:02}" for number in range(1, 20)),
    *(f"E{number:02}" for number in range(1, 18)),
]
ROW = re.compile(r"^\| (?P<case>[CWE]\d\d) \|.*\| \[(?P<file>\w+)\] `(?P<test>\w+)` \|$", re.M)
RESULT = re.compile(
    r"^\| [CWE]\d\d \| [^|]+ \| (same|otherwise: |not here: )[^|]*\| [^|]+ \|$", re.M
)
LINKS = dict(re.findall(r"^\[(\w+)\]: (\S+)$", TEXT, re.M))


def names(path: Path) -> set[str]:
    """Names of a file's tests, cases and tables."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found |= {node.name, *re.findall(r"_([CWE]\d\d)_", node.name)}
        elif isinstance(node, ast.keyword) and node.arg == "id":
            found |= set(re.findall(r"^[CWE]\d\d", ast.literal_eval(node.value)))
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_every_case_is_listed_once_with_its_result() -> None:
    assert [row["case"] for row in ROW.finditer(TEXT)] == CASES
    assert len(RESULT.findall(TEXT)) == len(CASES)


@pytest.mark.parametrize("link", sorted({row["file"] for row in ROW.finditer(TEXT)}))
def test_every_test_on_the_page_exists(link: str) -> None:
    known = names((PAGE.parent / LINKS[link]).resolve())
    named = {row["test"] for row in ROW.finditer(TEXT) if row["file"] == link}
    assert named <= known


def test_every_link_has_a_target() -> None:
    links = [*LINKS.values(), *re.findall(r"\]\(([^)#]+)", TEXT)]
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
