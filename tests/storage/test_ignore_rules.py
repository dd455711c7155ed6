"""Git's syntax, rule by rule; `test_ignore` asks git itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage.ignore_rules import read_rules, verdict


@pytest.mark.parametrize(
    ("rules", "path", "said"),
    [
        ("", "a", None),
        ("# a", "# a", None),
        ("\\#a", "#a", True),
        ("\\!a", "!a", True),
        ("a", "x/a", True),
        ("/a", "x/a", None),
        ("/a", "a", True),
        ("x/a", "x/a", True),
        ("x/a", "y/x/a", None),
        ("a/", "a", None),
        ("a\n!a", "a", False),
        ("!a\na", "a", True),
        ("!a", "b", None),
        ("*.py", "x/a.py", True),
        ("x*y", "x/y", None),
        ("x?y", "x/y", None),
        ("x[/]y", "x/y", None),
        ("x/*", "x/a/b", None),
        ("x/**", "x/a/b", True),
        ("**/b", "x/a/b", True),
        ("**/b", "b", True),
        ("x/**/b", "x/b", True),
        ("x/**/b", "x/a/a/b", True),
        ("[a-c]", "b", True),
        ("[!a-c]", "b", None),
        ("[^a-c]", "d", True),
        ("[]]", "]", True),
        ("[a-]", "-", True),
        ("[c-a]", "b", None),
        ("[!c-a]", "b", True),
        ("[[:digit:]]", "7", True),
        ("[[:nope:]]", "n", None),
        ("a[", "a[", None),
        ("a\\", "a\\", None),
        ("a ", "a", True),
        ("a\\ ", "a ", True),
        ("a\r", "a", True),
        ("\ufeffa", "a", True),
        ("a\x0bb", "a\x0bb", True),
        ("ü", "ü", True),
        ("?", "ü", None),
        ("??", "ü", True),
        ("/", "a", None),
        ("!", "a", None),
    ],
)
def test_rules(rules: str, path: str, said: bool | None) -> None:
    assert verdict(read_rules(rules.encode()), path, folder=False) is said


def test_folders() -> None:
    rules = read_rules(b"a/\n!b/\n")
    assert verdict(rules, "x/a", folder=True) is True
    assert verdict(rules, "x/b", folder=True) is False
    assert verdict(rules, "x/b", folder=False) is None


def test_names_that_are_no_text() -> None:
    assert verdict(read_rules(b"\xff*"), "\udcffname", folder=False) is True


@given(st.binary(max_size=60), st.text(st.characters(codec="utf-8"), min_size=1), st.booleans())
def test_nothing_it_cannot_read(content: bytes, path: str, folder: bool) -> None:
    assert verdict(read_rules(content), path, folder=folder) in (True, False, None)
