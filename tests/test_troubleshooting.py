"""Messages that docs/troubleshooting.md explains are messages of Muster."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)


@cache
def texts() -> str:
    """The source without docstrings and comments, with texts in one piece."""
    source = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    source = re.sub(r'^ *(?:"""(?s:.)*?"""$|#.*$)', "", source, flags=re.MULTILINE)
    return re.sub(r"""(["'])\s*\n\s*[rf]?["']""", "", source)


def test_the_page_is_short() -> None:
    assert 25 < len(MESSAGES) <= 40
    assert len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_words_of_a_message_are_in_the_source(message: str) -> None:
    parts = [part.strip(" :;,") for part in re.split(r"\.\.\.|[()]", message)]
    words = [part for part in parts if re.search(r"\w{2}", part)]
    assert words
    assert [part for part in words if part not in texts()] == []
