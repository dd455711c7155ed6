"""Arguments given as text, split into words."""

from __future__ import annotations

import pytest

from muster.spec.values import words_of
from muster.spec.wording import Refused


@pytest.mark.parametrize("operator", ["&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"])
def test_shell_syntax_is_refused(operator: str) -> None:
    with pytest.raises(Refused) as caught:
        words_of(f"make {operator} x")
    assert caught.value.message == f"contains {operator}, but no shell runs"
    assert caught.value.hint.startswith(f"quote {operator} to pass it to the program")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grep '|' \"&&\" x", ["grep", "|", "&&", "x"]),
        (r"find . -exec rm {} \;", ["find", ".", "-exec", "rm", "{}", ";"]),
        ("sh -c 'a && b; c > d'", ["sh", "-c", "a && b; c > d"]),
        ("a&b http://x/?p=1&q=2 c>d", ["a&b", "http://x/?p=1&q=2", "c>d"]),
        ("echo # | x'y'", None),
        ("python train.py", ["python", "train.py"]),
    ],
)
def test_arguments_of_programs_are_unchanged(text: str, words: list[str] | None) -> None:
    if words is None:
        with pytest.raises(Refused, match=r"contains \|"):
            words_of(text)
    else:
        assert words_of(text) == words
