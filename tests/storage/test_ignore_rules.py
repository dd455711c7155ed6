"""Git's syntax, rule by rule; `test_ignore` compares with git itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage.ignore_rules import is_ignored, read_rules


@pytest.mark.parametrize(
    ("rules", "path", "ignored"),
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
def test_each_rule_matches_as_in_git(rules: str, path: str, ignored: bool | None) -> None:
    assert is_ignored(read_rules(rules.encode()), path, folder=False) is ignored


def test_rules_for_folders_match_only_folders() -> None:
    rules = read_rules(b"a/\n!b/\n")
    assert is_ignored(rules, "x/a", folder=True) is True
    assert is_ignored(rules, "x/b", folder=True) is False
    assert is_ignored(rules, "x/b", folder=False) is None


def test_names_that_are_not_utf8_match() -> None:
    assert is_ignored(read_rules(b"\xff*"), "\udcffname", folder=False) is True


@given(st.binary(max_size=60), st.text(st.characters(codec="utf-8"), min_size=1), st.booleans())
def test_any_bytes_are_valid_rules(content: bytes, path: str, folder: bool) -> None:
    assert is_ignored(read_rules(content), path, folder=folder) in (True, False, None)
