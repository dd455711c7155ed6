"""Completion in real shells, as far as they are installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client.client import Client
from support.terminals import Terminal

#: What is typed after `muster`, and the words that it becomes at Tab.
COMPLETED = [
    ("canc", ["cancel"]),
    ("jobs cre", ["jobs", "create"]),
    ("status dem", ["status", "demo-1"]),
    ("status la", ["status", "last"]),
    ("logs last --rank 0-", ["logs", "last", "--rank", "0-0"]),
    ("logs last --group w", ["logs", "last", "--group", "workers"]),
    ("run --framework pyto", ["run", "--framework", "pytorch"]),
    ("run --framework=pyto", ["run", "--framework=pytorch"]),
    ("ps --state runn", ["ps", "--state", "running"]),
    ("run --set resources.gp", ["run", "--set", "resources.gpus="]),
    ("ps -o y", ["ps", "-o", "yaml"]),
    ("iam pol", ["iam", "policies"]),
    ("iam policies show job", ["iam", "policies", "show", "job-runs"]),
    ("iam compartments move def", ["iam", "compartments", "move", "default"]),
    ("run dem", ["run", "demo"]),
    ("run my", ["run", "my file.py"]),
    ("run --env-file=my", ["run", "--env-file=my file.py"]),
    ("run -r my", ["run", "-r", "my file.py"]),
    ("run x.py -- my", ["run", "x.py", "--", "my file.py"]),
]
#: The same with quotes, which complete as the shell does for other commands.
QUOTED = [("run my\\ f", ["run", "my file.py"]), ("run 'my f", ["run", "my file.py"])]


@pytest.fixture
def folder(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file, a run of the job `demo`, and `muster` on PATH."""
    job, new = client.job(command=["true"], name="demo")
    client.start(client.prepare_run(job, new_job=new)).wait(60)
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    (work / "my file.py").touch()
    muster = programs / "muster"
    muster.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m muster "$@"\n')
    muster.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize(
    ("shell", "setup"),
    [
        (["bash", "--norc", "--noprofile", "-i"], ""),
        (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; bindkey -e"),
    ],
    ids=["bash", "zsh"],
)
def test_tab_completes(folder: Path, shell: list[str], setup: str) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    with Terminal(shell, columns=200) as terminal:
        show = "show() { printf '[%s]' \"$@\"; echo ' sho''wn'; }"
        terminal.type(f"{setup}\nsource <(muster completion {shell[0]}); {show}; show ready\n")
        terminal.wait_for("[ready] shown\n")
        for typed, words in [*COMPLETED, *QUOTED]:
            # Tab, then `show` at the start of the line
            terminal.type(f"muster {typed}\t\x01show \x05\n")
            shown = re.findall(r"(\[.*\]) shown", terminal.wait_for(" shown\n"))[-1]
            assert shown == "".join(f"[{word}]" for word in ["muster", *words]), typed


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_tab_completes_in_fish(folder: Path) -> None:
    lines = [f"complete -C {shlex.quote('muster ' + typed)}; echo ---" for typed, _ in COMPLETED]
    script = "\n".join(["muster completion fish | source", *lines])
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True
    )
    found = [part.split("\t")[0].strip() for part in done.stdout.split("---\n")]
    assert found[:-1] == [words[-1] for _, words in COMPLETED]


def test_runs_are_described(folder: Path) -> None:
    environ = {**os.environ, "_MUSTER_COMPLETE": "bash_complete", "COMP_WORDS": "muster\ncancel\n"}
    done = subprocess.run(["muster"], env=environ, capture_output=True, text=True, check=False)
    kind, name, about = done.stdout.splitlines()[0].split("\t")
    assert (kind, name) == ("plain", "demo-1")
    assert re.fullmatch(r"SUCCEEDED, [\d.]+s ago", about)
    environ["COMP_WORDS"] = "muster\ncancel\ndemo-1\n"
    done = subprocess.run(["muster"], env=environ, capture_output=True, text=True, check=False)
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == ["last"]
