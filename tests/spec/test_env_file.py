"""Files of environment variables (`--env-file`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InvalidInput, Problem
from muster.spec.env_file import EnvEntry, parse_env, read_env_file
from muster.spec.override_flags import overrides_from_flags


def values(text: str, **environ: str) -> dict[str, str]:
    found = list(parse_env(text, environ))
    assert all(isinstance(entry, EnvEntry) for entry in found), found
    return {entry.name: entry.value for entry in found if isinstance(entry, EnvEntry)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("K=v", "v"),
        ("export K=v", "v"),
        ("  K = two words  # comment", "two words"),
        ("K=a#b", "a#b"),
        ("K=#b", "#b"),
        ("K=http://x/#part", "http://x/#part"),
        ("K=a=b", "a=b"),
        ("K=", ""),
        ("K=''", ""),
        ("K='$A \\n # x' # comment", "$A \\n # x"),
        ('K="a\\nb \\"c\\" \\$d \\q"', 'a\nb "c" $d \\q'),
        ('K="two\nlines"', "two\nlines"),
        ("\ufeffK=v\r\n", "v"),
        ("# K=1\n\nK=2", "2"),
        ("K=1\nK=2", "2"),
        ("K", "caller's"),
        ("export K # comment", "caller's"),
    ],
)
def test_a_value(text: str, value: str) -> None:
    assert values(text, K="caller's") == {"K": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b", "1: the line is not K=V (write K=V, or # before a comment)"),
        ("=x", "1: the line is not K=V (write K=V, or # before a comment)"),
        ("A=1\n\nK", "3: K is not set in your environment (write K=VALUE, or export it)"),
        ("A=1\nK='x", "2: K: the quote ' is not closed (close it)"),
        ("K='x\ny'z\nA=1", "1: K: text follows the closing quote (quote the whole value)"),
    ],
)
def test_a_problem_names_its_line(text: str, message: str) -> None:
    assert [str(found) for found in parse_env(text, {}) if isinstance(found, Problem)] == [message]


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]*", fullmatch=True), st.text()))
def test_quoted_values_are_read_back(variables: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r")
        return f'"{escaped}"'

    text = "".join(f"{name}={quoted(value)} # c\n" for name, value in variables.items())
    assert values(text) == variables


@given(st.text(alphabet="AB='\"#\\ \n"))
def test_every_text_is_read_to_its_end(text: str) -> None:
    last = text.count("\n") + 1
    for found in parse_env(text, {}):
        line = found.line if isinstance(found, EnvEntry) else int(found.source)
        assert 1 <= line <= last


def test_env_takes_precedence_and_problems_name_file_and_line(tmp_path: Path) -> None:
    first, second = tmp_path / "a.env", tmp_path / "b.env"
    first.write_text("A=1\nB=1\nC=1\n")
    second.write_text("B=2\nC=2\n")
    files = (str(first), str(second))
    assert overrides_from_flags(env_files=files, env=("C=3",)).env == {"A": "1", "B": "2", "C": "3"}
    second.write_text("OK=1\n1-x=2\nNOPE\n")
    with pytest.raises(InvalidInput) as raised:
        overrides_from_flags(env_files=(*files, str(tmp_path / "nosuch")), environ={})
    text = str(raised.value)
    assert f"{second}:3: NOPE is not set" in text
    assert f"--env-file {tmp_path}/nosuch: no such file" in text
    second.write_text("OK=1\n1-x=2\n")
    with pytest.raises(InvalidInput, match=r"b\.env:2: 1-x: .* is not a valid name"):
        overrides_from_flags(env_files=(str(second),))


def test_a_line_that_is_no_variable_may_be_a_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("hunter2 is it\n")
    with pytest.raises(InvalidInput) as raised:
        read_env_file(str(tmp_path / ".env"), {})
    assert "hunter2" not in str(raised.value)
