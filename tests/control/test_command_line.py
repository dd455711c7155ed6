"""What `ps` shows of the processes of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.command import muster

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux")


def test_secrets_of_options_are_not_in_the_command_line_of_a_run() -> None:
    command = ("sh", "-c", "exec sleep 1000")
    run_id = muster("run", "--detach", "-e", "API_TOKEN=sekrit-8c1", "--", *command).stdout.strip()
    lines = [line for line in map(_command_line, Path("/proc").glob("[0-9]*")) if line]
    muster("cancel", run_id)
    assert f"muster: run {run_id}" in lines
    assert not [line for line in lines if "sekrit-8c1" in line]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().strip(b"\0").replace(b"\0", b" ").decode()
    except OSError:  # it has ended
        return ""
