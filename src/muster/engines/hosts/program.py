"""Runs a command of the node program on a machine, and waits for its end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading

from muster.engines.hosts.profile import Machine
from muster.engines.hosts.ssh import (
    GREETING,
    UPLOAD,
    SshSettings,
    start_program,
    upload,
    why,
)


def run_program(ssh: SshSettings, machine: Machine, *words: str, timeout: float) -> str:
    """What the command prints. timeout: seconds. Raises OSError, whose text says why it has failed,
    for people."""
    process = start_program(ssh, machine, *words)
    late = threading.Event()

    def give_up() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout, give_up)
    timer.start()
    try:
        output, errors = _talk(process)
    finally:
        timer.cancel()
    if process.returncode == 0:
        return output
    if late.is_set():
        raise OSError(f"it has not answered within {timeout:.0f} s")
    raise OSError(why(ssh, machine, process.returncode, errors))


def _talk(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Upload the program if it is missing, and wait for the end of ssh. Returns what the program
    has printed, and what was written to standard error."""
    assert process.stdin is not None and process.stdout is not None
    while line := _read_line(process.stdout.fileno()):
        with contextlib.suppress(BrokenPipeError):  # its end says why
            if line.endswith(UPLOAD):
                process.stdin.write(upload())
                process.stdin.flush()
        if line.endswith((UPLOAD, GREETING)):
            break
    output, errors = process.communicate()
    return output.decode(errors="replace"), errors.decode(errors="replace")


def _read_line(descriptor: int) -> bytes:
    """A line, and nothing after it, which `communicate` reads; less at the end."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(descriptor, 1)):
        line += part
    return line
