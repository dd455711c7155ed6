from __future__ import annotations

import pytest

from muster.errors import Problem
from muster.spec.problem_places import in_order, placed

LINES = {"": 1, "env": 3, "env.A": 4, "node_groups": 6, "node_groups[0]": 7}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("env.A", "f:4"),
        ("env.B", "f:3"),
        ("node_groups[0].mounts[2].path", "f:7"),
        ("node_groups[1].name", "f:6"),
        ("elsewhere", "f:1"),
    ],
)
def test_a_missing_field_has_the_line_of_its_parent(path: str, source: str) -> None:
    assert placed(Problem(path, "x"), "f", LINES).source == source


def test_without_a_file_or_lines() -> None:
    assert placed(Problem("a", "x"), "", LINES) == Problem("a", "x")
    assert placed(Problem("a", "x"), "f", {}).source == "f"


def test_problems_are_in_the_order_of_the_file() -> None:
    paths = ["node_groups[0].b", "env.A", "node_groups[0].a", "env"]
    ordered = in_order([Problem(path, "x") for path in paths], LINES)
    assert [p.path for p in ordered] == ["env", "env.A", "node_groups[0].b", "node_groups[0].a"]
