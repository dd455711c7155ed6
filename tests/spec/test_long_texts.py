"""Long texts for which a backtracking expression would take quadratic time or more.

A test of such an expression does not end in time.
"""

from __future__ import annotations

import pytest

from muster.errors import InvalidInput
from muster.images.reference import read_tag
from muster.images.requirements import check_lines, lines_of
from muster.secrets import without_credentials
from muster.spec.formats.jobset.environment_write import escaped
from muster.spec.formats.jobset.references import Value, expand, references
from muster.spec.formats.quantity import parse_quantity
from muster.spec.placeholders import literal, pieces
from muster.spec.reader import is_manifest
from muster.spec.wording import Refused
from muster.storage.ignore_rules import is_ignored, read_rules

N = 300_000


def test_unterminated_references() -> None:
    text = "$(A)" + "$(" * N + "$$"
    assert expand(text, {"A": Value("a")}.get).text == "a" + "$(" * N + "$"
    assert references(text) == ["A"]
    assert escaped("$(A)" + "$(" * N + "$$", {"A"}) == "$$(A)" + "$(" * N + "$$$"


@pytest.mark.parametrize("end", ["", "x", "{", "{rank}"])
def test_dollar_signs(end: str) -> None:
    dollars = "$" * (2 * N + 1)
    made = "".join(text for text, _ in pieces(dollars + end))
    assert made == ("$" * (N + 1) if end.startswith("{") else dollars) + end
    assert "".join(text for text, _ in pieces(literal(dollars + end))) == dollars + end


def test_digits_that_are_not_a_quantity() -> None:
    with pytest.raises(Refused, match="is not a quantity"):
        parse_quantity("1" * N + "x")


def test_a_long_word_that_is_not_an_address() -> None:
    word = "a" * N
    assert without_credentials(f"{word} redis://me:secret@host") == f"{word} redis://me@host"
    assert without_credentials(f"{word}://me:secret@host") == f"{word}://me@host"


def test_globs_with_many_stars() -> None:
    for glob in ("*a" * 40 + "b", "**/a/" * 40 + "b", "x/" + "*a" * 40 + "b", "**/*a*a*a*a/" * 9):
        rules = read_rules(glob.encode())
        assert is_ignored(rules, "a" * 250, folder=False) is None
        assert is_ignored(rules, "/".join(["a"] * 400) + "/c", folder=False) is None
    assert is_ignored(read_rules(b"*a*a*b"), "aaab", folder=False) is True


def test_requirements_of_spaces_and_variables() -> None:
    (line,) = lines_of("numpy" + " " * N + "x  # why")
    assert line.text == "numpy" + " " * N + "x"
    many = "${A}" * N
    lines = [*lines_of(f"{many}\nhttps://${{USER}}:${{KEY}}@host/x.whl\nhttps://me:key@host/y.whl")]
    (problem,) = check_lines(lines, "requirements.txt")
    assert "requirements.txt:3" in str(problem) and "password" in str(problem)


def test_an_image_of_many_colons() -> None:
    with pytest.raises(InvalidInput, match="128 characters") as refused:
        read_tag("a:" * N)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ['"' + '\\"' * N, " '" * N, "kind :  " * N, "kind" + " " * N])
def test_braces_and_quotes_that_are_not_closed(text: str) -> None:
    assert not is_manifest(f"{{kind {text}")
