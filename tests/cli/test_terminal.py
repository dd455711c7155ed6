"""External text never acts on the terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from muster.cli.terminal import echo, folded, plain, style
from support import command
from support.embedded import over_http

#: Sets the title and the clipboard, clears the screen (also with a C1 control), changes the writing
#: direction, and has characters of zero width.
EVIL = "\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\x9b2J\r\x08\x7f\u202egpj\u2066\u200b\ufeff"


def control_characters(text: str) -> list[str]:
    """Control and invisible characters in a text."""
    return [c for c in text if not c.isprintable() and c not in "\n\t"]


def muster(*args: str, cwd: Path) -> str:
    """Both output streams of a command."""
    done = command.muster(*args, cwd=cwd, encoding="utf-8")
    assert "Traceback (most recent call last)" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job in which every text is hostile."""
    # a server takes no such name of a file
    script = tmp_path / ("a.sh" if over_http() else f"a\n{EVIL}.sh")
    script.write_text(f"printf '%s\\n' '{EVIL}' >&2\nprintf 'Error: %s\\n' '{EVIL}' >&2\nexit 3\n")
    (tmp_path / f"shared{EVIL}").mkdir()
    spec = {
        "name": "hostile",
        "description": f"does {EVIL}",
        "artifact": script.name,
        "args": [f"--{EVIL}", f"two\nlines{EVIL}"],
        "env": {"VALUE": EVIL},
        "tags": {"team": EVIL},
        # directories of this machine are not those of a server
        "mounts": [] if over_http() else [{"source": f"./shared{EVIL}"}],
        "node_groups": [{"name": "main", "env": {"OWN": EVIL}, "working_dir": f"in{EVIL}"}],
    }
    (tmp_path / "job.json").write_text(json.dumps(spec))
    (tmp_path / f"{EVIL}.yaml").write_text(json.dumps({**spec, EVIL: 1}))
    return tmp_path


def test_no_command_prints_control_characters(folder: Path) -> None:
    summary = muster("run", "job.json", "--json", cwd=folder)
    shown = {
        # the lines before are the program's own output
        "run": summary[: summary.index("main/0 !")] + summary[summary.index("hostile-1 FAILED") :],
    }
    for words in [
        "runs list",
        "runs list --json",
        "runs show last",
        "runs show last --json",
        "events last",
        "events last --follow",
        "events last --json",
        "events last --follow --json",
        "logs last --json",
        "jobs list",
        "jobs list --json",
        "jobs show hostile",
        "jobs show hostile --json",
        "explain job.json",
        "explain job.json --json",
        "convert job.json",
        "runs cancel last",
    ]:
        shown[words] = muster(*words.split(), cwd=folder)
    for words, argument in [
        ("run", f"{EVIL}.yaml"),
        ("run", f"missing{EVIL}"),
        ("runs show", EVIL),
        ("jobs show", EVIL),
        ("cluster up", EVIL),
        ("cluster down", EVIL),
        ("env prune", EVIL),
        ("ports", EVIL),
        ("convert", f"missing{EVIL}"),
        ("simulate --mtbf 1h", EVIL),
        ("run --set", EVIL),
        ("runs list --state", EVIL),
        ("run --nodes", EVIL),
        ("run --env", EVIL),
        ("image push", EVIL),
        (f"run job.json --{EVIL}", "x"),
        (f"{EVIL}", "x"),
    ]:
        shown[f"{words} EVIL"] = muster(*words.split(" "), argument, cwd=folder)
    found = {
        words: control_characters(text) for words, text in shown.items() if control_characters(text)
    }
    assert found == {}
    assert "\\x1b]0;title" in shown["run"], "escaped, not removed"
    assert "\\x1b]0;title" in shown["run EVIL"]


def test_a_name_with_a_line_break_does_not_forge_an_error(folder: Path) -> None:
    printed = muster("run", "missing\nerror: forged.yaml", cwd=folder)
    assert not re.search(r"^error: forged", printed, re.MULTILINE), printed
    assert "missing\\nerror: forged.yaml" in printed


@pytest.mark.parametrize("tty", [True, False])
def test_a_style_cannot_be_forged(tty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return tty

    stream = Stream()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.delenv("NO_COLOR", raising=False)
    echo(style("\x1b[31mFAILED", "green"))
    expected = "\x1b[32m\\x1b[31mFAILED\x1b[0m\n" if tty else "\\x1b[31mFAILED\n"
    assert stream.getvalue() == expected
    assert plain(style("x", "red")) == "x"


def test_no_command_shows_a_secret(tmp_path: Path) -> None:
    secret = "hunter2"
    script = f"echo 'Error: cannot reach postgres://me:{secret}@host' >&2; exit 3"
    spec = {
        "name": "secretive",
        "description": f"with --password={secret}",
        "command": ["sh", "-c", script],
        "args": ["--token", secret, f"--password={secret}", f"http://me:{secret}@host/"],
        "env": {"HF_TOKEN": secret, "URL": f"postgres://me:{secret}@host/db"},
        "tags": {"password": secret},
    }
    (tmp_path / "job.json").write_text(json.dumps(spec))
    ran = muster("run", "job.json", cwd=tmp_path)
    shown = {"run": ran[ran.index("secretive-1 ") :]}
    for words in [
        "runs list",
        "runs list --json",
        "runs show last",
        "runs show last --json",
        "events last",
        "events last --json",
        "jobs list",
        "jobs list --json",
        "jobs show secretive",
        "jobs show secretive --json",
        "explain job.json",
        "explain job.json --json",
        "convert job.json",
    ]:
        shown[words] = muster(*words.split(), cwd=tmp_path)
    assert [words for words, text in shown.items() if secret in text] == []
    assert "convert with --show-secrets" in shown["convert job.json"]
    assert secret in muster("convert", "job.json", "--show-secrets", cwd=tmp_path)


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("short enough", ["short enough"]),
        ("a line that is longer than that", ["a line that is longer", "  than that"]),
        ("  indented, and it is longer", ["  indented, and it is", "    longer"]),
        ("use `muster run -- sleep 1000`.", ["use", "  `muster run -- sleep 1000`."]),
        ("averyverylongwordwithoutblanks b", ["averyverylongwordwithoutblanks", "  b"]),
    ],
)
def test_long_lines_are_broken_between_words(line: str, lines: list[str]) -> None:
    assert folded(line, 22).split("\n") == lines


def test_styled_text_is_measured_without_its_style() -> None:
    assert folded(f"{style('error:', 'red')} just fits here", 22).count("\n") == 0
