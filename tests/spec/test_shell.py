"""Commands given as text: which of them a shell runs, and how."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.spec.shell import (
    ignores_arguments,
    is_script,
    literal_parts,
    needs_shell,
    program_of_script,
    script_index,
    words_or_script,
)

PLAIN = {
    "python train.py --lr 0.1": ["python", "train.py", "--lr", "0.1"],
    "echo 'a && b' 'x > $Y' '*'": ["echo", "a && b", "x > $Y", "*"],
    'echo "a; b | c" "d*" "~"': ["echo", "a; b | c", "d*", "~"],
    r"find . -exec rm {} \;": ["find", ".", "-exec", "rm", "{}", ";"],
    r"echo \$X \*": ["echo", "$X", "*"],
    "python t.py --a=b~c x#y path:/z,w@v 5%": [
        *("python", "t.py", "--a=b~c", "x#y", "path:/z,w@v", "5%")
    ],
    "python t.py \\\n  --epochs 3": ["python", "t.py", "--epochs", "3"],
    "  python t.py\n": ["python", "t.py"],
    "echo a $ b": ["echo", "a", "$", "b"],
    "echo {a,b} [": ["echo", "{a,b}", "["],
    "run cd if X=1": ["run", "cd", "if", "X=1"],
    "größe": ["größe"],
    'p --lr ${param.lr} "x=${param.max-steps}"': [
        "p",
        "--lr",
        "${param.lr}",
        "x=${param.max-steps}",
    ],
}

#: Text, and the script that the shell gets.
WAIT = "trap 'exit $?' TERM; "
SHELL = {
    "./solve --rank $RANK": 'exec ./solve --rank $RANK "$@"',
    "./solve ${param.x} $RANK": 'exec ./solve ${param.x} $RANK "$@"',
    'p "${param.x} $Y"': 'exec p "${param.x} $Y" "$@"',
    "./solve ${RANK}": 'exec ./solve ${RANK} "$@"',
    'p "$X"': 'exec p "$X" "$@"',
    r'p "\$X"': r'exec p "\$X" "$@"',
    "p *.csv": 'exec p *.csv "$@"',
    "p file[12]": 'exec p file[12] "$@"',
    "p a?": 'exec p a? "$@"',
    "p ~/data": 'exec p ~/data "$@"',
    "p > log 2>&1": 'exec p > log 2>&1 "$@"',
    "p < in": 'exec p < in "$@"',
    "p `date` $(date) $((1 + 2))": 'exec p `date` $(date) $((1 + 2)) "$@"',
    "X=1 p": 'X=1 exec p "$@"',
    "X=$Y Z='a b' p": "X=$Y Z='a b' exec p \"$@\"",
    "p # comment": 'exec p "$@" # comment',
    "p;": 'exec p "$@";',
    'p "$1" "$@"  $X': 'exec p "$1" "$@"  $X',
    "exec p $X": 'exec p $X "$@"',
    "echo $X": 'echo $X "$@"',
    "cd src": "cd src",
    "a && b": WAIT + 'a && exec b "$@"',
    "a || b": WAIT + 'a || exec b "$@"',
    "cd src; python t.py": WAIT + 'cd src; exec python t.py "$@"',
    "cd src\npython t.py": WAIT + 'cd src\nexec python t.py "$@"',
    "a &&\n b": WAIT + 'a &&\n exec b "$@"',
    "a | b": WAIT + "a | b",
    "c && a 2>&1 | b": WAIT + "c && a 2>&1 | b",
    "awk 'BEGIN { print $1 }' $X": "exec awk 'BEGIN { print $1 }' $X \"$@\"",
    "p $X # not $1": 'exec p $X "$@" # not $1',
    r'p $X "\$1" \$1': r'exec p $X "\$1" \$1 "$@"',
    'p ${#X} "${#X}"': 'exec p ${#X} "${#X}" "$@"',
    "p ${1:-a} $X": "exec p ${1:-a} $X",
    'p "${@:2}"': 'exec p "${@:2}"',
    "X=1": "X=1",
    "a | b && c": WAIT + 'a | b && exec c "$@"',
    "a &": WAIT + "a &",
    "p http://x/?a=1&b=2": WAIT + "p http://x/?a=1&b=2",
    "(cd src; a)": WAIT + "(cd src; a)",
    "! a": WAIT + "! a",
    "for i in 1 2; do p $i; done": WAIT + "for i in 1 2; do p $i; done",
    "if a; then b; fi": WAIT + "if a; then b; fi",
    "f() { a; }; f": WAIT + "f() { a; }; f",
    "cat << E\nx\nE": WAIT + "cat << E\nx\nE",
    'p "$(basename "$X"; x)"; y': WAIT + 'p "$(basename "$X"; x)"; y',
    "p $(a $(b))": WAIT + "p $(a $(b))",
    "a; exit 3": WAIT + "a; exit 3",
    "trap x EXIT; a": "trap x EXIT; a",
}


@pytest.mark.parametrize("text", PLAIN)
def test_text_without_shell_syntax_is_split(text: str) -> None:
    assert words_or_script(text) == PLAIN[text]


@pytest.mark.parametrize("text", SHELL)
def test_a_shell_runs_other_text(text: str) -> None:
    assert words_or_script(text) == ["sh", "-c", SHELL[text], "sh"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo 'x", "has a quote that is not closed"),
        ('echo "x', "has a quote that is not closed"),
        ("a && echo it's", "has a quote that is not closed"),
        ("a \\", "ends with a backslash"),
    ],
)
def test_a_missing_end_is_an_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        words_or_script(text)


@settings(max_examples=100, deadline=None)
@given(st.text("ab $X'\"\\&|;<>()*?[]~#={}!\n1.`", max_size=12).map("printf %s, ".__add__))
@example("printf %s, ${a}")
@example("printf %s, a#b ~a")
@example("printf %s, \\<&")
@example("printf %s, ~ a")
@example("printf %s, \\ ")
@example("printf %s, \\   ")
@example("printf %s, \\\\ ")
def test_plain_text_means_the_same_in_a_shell(text: str) -> None:
    """No text is started directly that a shell would read in another way."""
    try:
        if needs_shell(text):
            return
    except ValueError:
        return
    env = {"PATH": os.environ["PATH"], "X": "value", "HOME": "/home/a"}
    directly = subprocess.run(words_or_script(text), env=env, capture_output=True, check=False)
    by_shell = subprocess.run(["sh", "-c", text], env=env, capture_output=True, check=False)
    assert directly.stdout == by_shell.stdout


def test_arguments_reach_the_last_program(tmp_path: Path) -> None:
    words = [*words_or_script("X=a; echo first; printf '<%s>' $X"), "b c", "$d"]
    found = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout == "first\n<a><b c><$d>"


def test_parameters_of_another_program_are_not_those_of_the_script() -> None:
    text = "awk 'BEGIN { print ARGC, $1 }' $X"
    words = [*words_or_script(text), "given", "too"]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b"3 \n"


def test_arguments_that_nothing_uses_are_known() -> None:
    for text in (
        *("a; exit 3", "X=1", "cd src", "a 2>&1 | b", "trap x EXIT; a", "cat <<E\nx\nE"),
        *("for i in 1 2; do awk '{ print $1 }'; done", "a; exit 3  # not $1", "a | b ${#X}"),
        r'a | b "\$1"',
    ):
        assert ignores_arguments(words_or_script(text)), text
    for text in (
        *("a; exit $1", "echo $X", "X=$1", "a | b $#", 'a "$@" | b', 'a | b "$(c "$1")"'),
        *('a | b ${1:-"x y"}', ". ./run.sh", "if a; then b $*; fi", "cat <<E\n$1\nE"),
    ):
        assert not ignores_arguments(words_or_script(text)), text
    assert ignores_arguments(["sh", "-c", "a", "sh"])
    assert not ignores_arguments(["sh", "-c", "it's", "sh"])
    assert not ignores_arguments(["sh", "-c", "a"])
    assert not is_script(["sh", "-c", "a"])


def test_the_only_program_of_a_script_is_known() -> None:
    assert program_of_script(words_or_script("./solve 'a b' $X")) == ["./solve", "a b", "$X"]
    assert program_of_script(words_or_script("cd src && ./solve")) == []
    assert program_of_script(["sh", "-c", "exec ./solve"]) == []


_SAVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("text", ["true && {}", "{}; true", "true | {}", "X=1 {} > /dev/stdout"])
def test_after_a_signal_the_exit_code_is_the_programs(text: str, tmp_path: Path) -> None:
    script = tmp_path / "saves.py"
    script.write_text(_SAVES)
    words = words_or_script(text.format(f"{sys.executable} {script}"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(20) == 7


@pytest.mark.parametrize(
    ("command", "index"),
    [
        ("sh -c TEXT sh", 2),
        ("/bin/bash -ec TEXT", 2),
        ("bash -eu -o pipefail -c TEXT name", 5),
        ("bash -ceo pipefail TEXT", 3),
        ("bash -c -e TEXT", 3),
        ("bash --norc -c -- TEXT", 4),
        ("sh -c", None),
        ("sh script.sh -c TEXT", None),
        ("sh -- -c TEXT", None),
        ("env -c TEXT", None),
        ("", None),
    ],
)
def test_where_the_text_of_a_shell_is(command: str, index: int | None) -> None:
    assert script_index(command.split()) == index


QUOTES = "single quotes"
DOCUMENT = "a here-document whose end is quoted"


@pytest.mark.parametrize(
    ("script", "parts"),
    [
        ("a 'b' \"it's\" 'c'", [("b", QUOTES), ("c", QUOTES)]),
        ("a # don't\nb 'c'", [("c", QUOTES)]),
        ("a \\' 'b'", [("b", QUOTES)]),
        ("(a 'b') `a 'c'`", [("b", QUOTES), ("c", QUOTES)]),
        ("a \"$(b \"$(c 'd')'s\" 'e')'s\" 'f'", [("d", QUOTES), ("e", QUOTES), ("f", QUOTES)]),
        ("a <<X\nit's\nX\nb 'c'", [("c", QUOTES)]),
        ("a <<'X' 'b'\nit's\nX\nc 'd'", [("b", QUOTES), ("it's\n", DOCUMENT), ("d", QUOTES)]),
        ("a <<-\\X\n\tb\n\tX\nc", [("\tb\n", DOCUMENT)]),
        ("a <<< 'b'\nc 'd'", [("b", QUOTES), ("d", QUOTES)]),
        ("a $((1 << x))\nb 'c'", [("c", QUOTES)]),
        ("a 'b", []),
    ],
)
def test_where_a_shell_expands_nothing(script: str, parts: list[tuple[str, str]]) -> None:
    assert list(literal_parts(script)) == parts
