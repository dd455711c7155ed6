"""Signals that are meant for the program, where a shell runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.node.signals import signal_program
from muster.spec.shell import words_or_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

#: Saves at SIGUSR1 and ends.
SAVES = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit("saved"))
print("up", file=sys.stderr, flush=True)
signal.pause()
"""


def start(text: str) -> subprocess.Popen[bytes]:
    """Start a command that prints "up" to stderr."""
    process = subprocess.Popen(words_or_script(text), stderr=subprocess.PIPE, process_group=0)
    assert process.stderr is not None and process.stderr.readline() == b"up\n"
    return process


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "exec {}", "{} | cat", "true && {} | cat", "{}; exit 1", "for i in 1; do {}; done"),
        *("(cd /; {}; true) | cat", "sh -c '{}; true'; true", "sleep 0 & {}; wait"),
    ],
)
def test_a_program_that_a_shell_runs_saves_its_work(text: str, tmp_path: Path) -> None:
    script = tmp_path / "saves.py"
    script.write_text(SAVES)
    with start(text.format(f"{sys.executable} {script}")) as process:
        signal_program(process.pid, signal.SIGUSR1)
        assert process.stderr is not None and process.stderr.read() == b"saved\n"
        assert process.wait(20) >= 0, "the shell has ended by itself"


def test_programs_without_a_handler_and_their_shell_survive() -> None:
    with start("echo up >&2; sleep 0.3; exit 5") as process:
        signal_program(process.pid, signal.SIGUSR1)
        assert process.wait(20) == 5


def test_a_shell_with_a_trap_gets_the_signal_itself() -> None:
    with start("trap 'exit 6' USR1; echo up >&2; while :; do sleep 0.02; done") as process:
        signal_program(process.pid, signal.SIGUSR1)
        assert process.wait(20) == 6


def test_a_program_without_a_handler_gets_the_signal() -> None:
    code = "import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(20)"
    with start(f'{sys.executable} -c "{code}"') as process:
        signal_program(process.pid, signal.SIGUSR1)
        assert process.wait(20) == -signal.SIGUSR1
