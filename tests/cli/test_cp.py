"""`muster cp` that a signal ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from muster.client.client import Client
from support.command import output_of
from support.faults import until
from support.runs import start_spec, until_ready
from support.terminals import Terminal

#: Of a file whose copy takes minutes, but no disk.
SIZE = 1 << 40
PROGRAM = f"truncate -s {SIZE} large && mkdir in && touch up && sleep 1000"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
        (signal.SIGKILL, -9),
    ],
)
@pytest.mark.parametrize("direction", ["from the node", "to the node"])
def test_nothing_incomplete_is_left(
    client: Client, tmp_path: Path, engine: str, number: signal.Signals, code: int, direction: str
) -> None:
    probe = {"exec": ["test", "-e", "up"], "period": 0.02, "threshold": 10_000}
    until_ready(
        start_spec(client, {"command": PROGRAM, "startup_probe": probe, "engine": engine}, tmp_path)
    )
    here = tmp_path / "here"
    here.mkdir()
    with (tmp_path / "large").open("w") as file:
        file.truncate(SIZE)
    words = ["last:0:large", str(here)]
    if direction == "to the node":
        words = [str(tmp_path / "large"), "last:0:in"]
    with Terminal([sys.executable, "-m", "muster", "cp", *words]) as terminal:
        terminal.wait_for(" copied")
        if number == signal.SIGINT:
            terminal.type("\x03")
        else:
            os.kill(terminal.process.pid, number)
        assert terminal.end() == code
    assert list(here.iterdir()) == []
    # an end in the node that was not told sees the other end close
    commands = ["exec", "last", "--", "sh", "-c", r"cat /proc/[0-9]*/cmdline | tr '\0' ' '"]
    until(lambda: " -I -S -c " not in output_of(*commands))
    assert output_of("exec", "last", "--", "ls", "-A", "in") == ""
