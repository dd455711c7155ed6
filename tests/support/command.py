"""Run the `muster` command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support import forked_programs

MUSTER = [sys.executable, "-m", "muster"]


def muster(*args: str, code: int | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and, if `code` is given, check its exit code; `options` are of subprocess.

    It is forked if the options are those of `forked_programs.run`.
    """
    if options.keys() <= {"cwd", "env", "encoding", "timeout"}:
        done = forked_programs.run(["-m", "muster", *args], **options)
    else:
        defaults = {"capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run([*MUSTER, *args], check=False, **(defaults | options))
    assert code is None or done.returncode == code, done.stderr
    return done


def output_of(*args: str, **options: Any) -> str:
    """Standard output of a command that succeeds."""
    return muster(*args, code=0, **options).stdout


def json_of(*args: str) -> Any:
    """Standard output of a command that succeeds and prints JSON."""
    return json.loads(output_of(*args))
