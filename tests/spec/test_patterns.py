"""Users' regular expressions: which are accepted, errors of the others, and matches."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.patterns import MAX_LENGTH, any_matches, check_pattern, max_text_length
from muster.spec.reader import spec_from_mapping
from muster.spec.wording import Refused

SYNTAX = "the syntax is RE2's: https://github.com/google/re2/wiki/Syntax"
FEWER = "RE2 repeats up to 1000 times in all"


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("boom", "ValueError: boom", True),
        ("^boom", "ValueError: boom", False),
        ("(?m)^boom$", "ValueError:\nboom\n", True),
        ("(?i)cuda", "CUDA error", True),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("", "anything", True),
        # Go's, which Python's `re` misreads or refuses
        ("[[:digit:]]+", "exit code 3", True),
        ("[[:digit:]]+", "no number", False),
        (r"\pL\pN", "é1", True),
        (r"\p{Greek}", "λ", True),
        (r"end\z", "the end", True),
        (r"(?P<code>\d+) is \x{e9}", "12 is é", True),
        # what programs write need not be text
        ("a.c", "a\udcffc", True),
        ("a.c", "a\0c", True),
    ],
)
@pytest.mark.filterwarnings("error")
def test_matches_of_patterns(pattern: str, text: str, expected: bool) -> None:
    check_pattern(pattern)
    assert any_matches(["never", pattern], text) is expected


@pytest.mark.parametrize(
    ("pattern", "wrong", "hint"),
    [
        ("a(", "'a(' is not a regular expression: missing )", SYNTAX),
        ("ab[c", "'ab[c' is not a regular expression: missing ] '[c' at character 3", SYNTAX),
        (
            "a**",
            "'a**' is not a regular expression: bad repetition operator '**' at character 2",
            None,
        ),
        (
            r"\(x(?=y)",
            r"'\\(x(?=y)' is not a regular expression: lookaround (?= is not supported at "
            r"character 4",
            f"leave it out; {SYNTAX}",
        ),
        (
            r"(?<!a)b",
            "'(?<!a)b' is not a regular expression: lookaround (?<! is not supported at "
            "character 1",
            f"leave it out; {SYNTAX}",
        ),
        (
            r"\\1(a)\1",
            r"'\\\\1(a)\\1' is not a regular expression: backreference \1 is not supported at "
            "character 7",
            f"leave it out; {SYNTAX}",
        ),
        (
            "(?P<x>a)(?P=x)",
            "'(?P<x>a)(?P=x)' is not a regular expression: backreference (?P= is not supported at "
            "character 9",
            f"leave it out; {SYNTAX}",
        ),
        (
            r"a\Z",
            r"'a\\Z' is not a regular expression: invalid escape sequence \Z at character 2",
            r"write \z for the end of the text",
        ),
        (
            "a{99999999999}",
            "'a{99999999999}' is not a regular expression: invalid repetition size at character 2",
            FEWER,
        ),
        (
            "(a{100}){100}",
            "'(a{100}){100}' is not a regular expression: invalid repetition size at character 3",
            FEWER,
        ),
        (
            r"(\pL{1,40}\pN{1,20}){1,5}",
            r"'(\\pL{1,40}\\pN{1,20}){1,5}' is too large a regular expression",
            "use smaller or fewer repetitions",
        ),
        ("a" * (MAX_LENGTH + 1), "has 4,097 characters", "a regular expression can have 4,096"),
        (
            "ab\ud800",
            r"'ab\ud800' has half a surrogate pair at character 3",
            "write the whole character",
        ),
    ],
)
def test_unsupported_patterns_are_refused(
    pattern: str, wrong: str, hint: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused) as refused:
        check_pattern(pattern)
    assert wrong in refused.value.message
    assert refused.value.hint == (SYNTAX if hint is None else hint)
    assert capfd.readouterr() == ("", ""), "RE2 prints nothing"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*$",
        "(a|aa)+$",
        "(.*a){20}$",
        "(x+x+)+y",
        "(" * 500 + ")" * 500,
        "[" * 500 + "]",
    ],
)
def test_no_pattern_takes_long_to_match(pattern: str) -> None:
    """A backtracking engine would take forever on these, or fails on the brackets."""
    check_pattern(pattern)
    assert any_matches([pattern], "a" * 20_000 + "b") is any_matches([pattern], "a" * 10 + "b")


def test_re2_is_imported_only_for_patterns() -> None:
    program = (
        "import sys, muster.lifecycle.decide, muster.spec.policies;"
        "from muster.spec.patterns import any_matches;"
        "assert not any_matches([], 'text');"
        "print('re2' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "False"


def rules(messages: list[str]) -> dict[str, Any]:
    return {"command": "x", "failure": {"rules": [{"action": "fail", "messages": messages}]}}


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        (
            [f"(a|b|ab|ba|aab){{0,800}}c{n}" for n in range(9)],
            "of all rules together are too large",
        ),
        ([f"{n}" for n in range(513)], "there are more than 512 regular expressions"),
    ],
)
def test_all_patterns_of_a_job_are_bounded_together(messages: list[str], wrong: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec_from_mapping(rules(messages))
    (problem,) = caught.value.problems
    assert problem.path == "failure.rules"
    assert wrong in problem.message
    spec_from_mapping(rules(messages[:4] * 200))


def test_large_patterns_search_less_text() -> None:
    large = [f"(a|b|ab|ba|aab){{0,800}}c{n}" for n in range(4)]
    assert (
        1_000_000
        < max_text_length(large)
        < max_text_length(large[:1] * 9)
        < max_text_length(["Xid"])
    )
    assert max_text_length([]) > 0
