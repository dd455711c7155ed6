"""Texts that become something else."""

from __future__ import annotations

import pytest

from muster.spec.values import words_of
from muster.spec.wording import Refused


@pytest.mark.parametrize("operator", ["&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"])
def test_what_only_a_shell_understands_is_refused(operator: str) -> None:
    with pytest.raises(Refused) as caught:
        words_of(f"make {operator} x")
    assert caught.value.message == f"has {operator} in it, but no shell reads this"
    assert caught.value.hint.startswith(f'write [sh, -c, "make {operator} x"]')


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
def test_what_is_a_program_s_own_is_left_alone(text: str, words: list[str] | None) -> None:
    if words is None:
        with pytest.raises(Refused, match=r"has \| in it"):
            words_of(text)
    else:
        assert words_of(text) == words
