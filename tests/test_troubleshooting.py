"""Messages that docs/troubleshooting.md explains are messages of Muster."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)


@cache
def texts() -> str:
    """All texts of the source but docstrings; the parts of a formatted one are separate."""
    found: list[str] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found += [
            node.value
            for node in nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ]
    return "\n".join(found)


def test_the_page_is_short() -> None:
    assert 25 < len(MESSAGES) <= 40
    assert len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_words_of_a_message_are_in_the_source(message: str) -> None:
    parts = [part.strip(" :;,") for part in re.split(r"\.\.\.|[()]", message)]
    words = [part for part in parts if re.search(r"\w{2}", part)]
    assert words
    assert [part for part in words if part not in texts()] == []
