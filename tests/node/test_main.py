"""The words of the node program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import muster
from muster.node.__main__ import main
from muster.node.greeting import PROTOCOL

VERSION = f"muster-node {muster.__version__} (protocol {PROTOCOL})\n"
SEE = "; see `muster-node --help`\n"


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version(word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    assert capfd.readouterr() == (VERSION, "")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_one_screen(word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert lines[0] == "usage: muster-node COMMAND"
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "  --version  Show the versions" in out
    assert (err, out.isascii()) == ("", True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "a command is missing"),
        (["bogus"], "unknown command 'bogus'"),
        (["--bogus", "--version"], "unknown command '--bogus'"),
        ([""], "unknown command ''"),
        (["\x1b[31m\n"], r"unknown command '\x1b[31m\n'"),
        (["--version", "x"], "--version takes no arguments"),
        (["--help", "--version"], "--help takes no arguments"),
    ],
)
def test_other_words_are_refused(
    words: list[str], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capfd.readouterr() == ("", f"muster-node: {text}{SEE}")


def test_long_words_are_shortened(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["x" * 10_000]) == 2
    assert len(capfd.readouterr().err) < 200


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (">/dev/full", "cannot write to standard output: No space left on device"),
        (">&-", "cannot write to standard output: Bad file descriptor"),
    ],
)
def test_output_that_cannot_be_written_is_reported(where: str, text: str, tmp_path: Path) -> None:
    done = run_in_shell(f"{where}", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"muster-node: {text}\n")


def test_standard_error_may_be_closed(tmp_path: Path) -> None:
    assert run_in_shell(">&- 2>&-", tmp_path).returncode == 1


def run_in_shell(where: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = f"exec {sys.executable} -m muster.node --version {where}"
    argv = ["sh", "-c", line]
    return subprocess.run(
        argv, check=False, capture_output=True, text=True, cwd=folder, env=os.environ
    )
