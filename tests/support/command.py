"""Run the `muster` command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Any

from support import forked_commands

MUSTER = [sys.executable, "-m", "muster"]


def muster(
    *args: str,
    code: int | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    encoding: str | None = None,
    timeout: float = 120,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a command and, if `code` is given, check its exit code; `options` are of subprocess.

    Without `options` it is a forked one, unless the environment differs.
    """
    argv, environ = [*MUSTER, *args], os.environ if env is None else env
    if options or not forked_commands.is_like_the_first(environ):
        options = {"capture_output": True, "text": True, "encoding": encoding, **options}
        done = subprocess.run(argv, cwd=cwd, env=env, timeout=timeout, check=False, **options)
    else:
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            folder = os.getcwd() if cwd is None else os.path.abspath(cwd)
            ended = forked_commands.run(args, environ, folder, stdout, stderr, timeout)
            texts = []
            for file in (stdout, stderr):
                file.seek(0)
                with TextIOWrapper(file, encoding=encoding) as text:
                    texts.append(text.read())
        done = subprocess.CompletedProcess(argv, ended, *texts)
    assert code is None or done.returncode == code, done.stderr
    return done


def output_of(*args: str, **options: Any) -> str:
    """Standard output of a command that succeeds."""
    return muster(*args, code=0, **options).stdout


def json_of(*args: str) -> Any:
    """Standard output of a command that succeeds and prints JSON."""
    return json.loads(output_of(*args))
