"""The index lists every framework and links its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.frameworks.registry import framework_names

PAGES = Path(__file__).parents[2] / "docs" / "frameworks"


@pytest.mark.parametrize("name", framework_names())
def test_a_framework_is_on_the_index(name: str) -> None:
    (row,) = [
        line
        for line in (PAGES / "README.md").read_text().splitlines()
        if line.startswith((f"| [{name}](", f"| {name} |", f"| `{name}` |"))
    ]
    assert (f"({name}.md)" in row) == (PAGES / f"{name}.md").exists(), "link the page"
