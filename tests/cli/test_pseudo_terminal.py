"""Commands that no child process stands for, as of an engine that reaches its nodes over a network.

Those of the local engine are tested in `test_exec`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from support.terminals import Terminal

#: `Remote` is a command in a thread. It prints the signals and sizes that it is notified of, and
#: ends with exit code 7 after SIGTERM, or with 137 after SIGKILL.
REMOTE = """
import contextlib, os, signal, sys, threading

class Remote:
    in_process_group = False

    def __init__(self, output, obstinate=False):
        self.output = os.dup(output.fileno())
        self.obstinate = obstinate
        self.code = None
        self.ended = threading.Event()
        self.say("up")

    def say(self, text):
        with contextlib.suppress(OSError):  # the terminal was hung up
            os.write(self.output, text.encode() + b"\\n")

    def wait(self):
        self.ended.wait()
        return self.code

    def send_signal(self, number):
        self.say(f"signal {number}")
        if number == signal.SIGKILL or number == signal.SIGTERM and not self.obstinate:
            self.code = 137 if number == signal.SIGKILL else 7
            os.close(self.output)
            self.ended.set()

    def resize(self, rows, columns):
        self.say(f"size {rows} {columns}")
"""
IN_TERMINAL = """
from muster.cli.pseudo_terminal import run_in_terminal
sys.exit(run_in_terminal(Remote))
"""
OBSTINATE = """
from muster.cli.pseudo_terminal import run_in_terminal
sys.exit(run_in_terminal(lambda terminal: Remote(terminal, obstinate=True)))
"""
WITH_FILES = """
from muster.cli.exec import run_forwarding_signals
sys.exit(run_forwarding_signals(lambda: Remote(sys.stdout)))
"""
NEVER_STARTS = """
from muster.cli.exec import run_forwarding_signals
def start():
    print("starting", flush=True)
    threading.Event().wait()
run_forwarding_signals(start)
"""


def on_terminal(folder: Path, text: str) -> Terminal:
    script = folder / "script.py"
    script.write_text(REMOTE + text)
    return Terminal([sys.executable, str(script)])


def test_a_command_is_notified_of_signals_and_of_the_size_of_its_terminal(tmp_path: Path) -> None:
    with on_terminal(tmp_path, IN_TERMINAL) as terminal:
        terminal.wait_for("up\n")
        terminal.resize(31, 101)
        terminal.wait_for("size 31 101\n")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("signal 2\n")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 7


def test_a_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with on_terminal(tmp_path, OBSTINATE) as terminal:
        terminal.wait_for("up\n")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.wait_for("signal 15\n")
        assert terminal.end() == 137


@pytest.mark.parametrize(("key", "number"), [("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)])
def test_keys_send_signals_to_a_command_without_a_terminal(
    tmp_path: Path, key: str, number: signal.Signals
) -> None:
    with on_terminal(tmp_path, WITH_FILES) as terminal:
        terminal.wait_for("up\n")
        terminal.type(key)
        terminal.wait_for(f"signal {number:d}\n")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_that_does_not_start(
    tmp_path: Path, number: signal.Signals
) -> None:
    with on_terminal(tmp_path, NEVER_STARTS) as terminal:
        terminal.wait_for("starting\n")
        terminal.resize(31, 101)
        terminal.process.send_signal(number)
        assert terminal.end() == 128 + number
