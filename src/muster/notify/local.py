"""Files and commands of the server's machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from muster.escapes import visible_line
from muster.notify.formats import Message
from muster.notify.retries import Answer
from muster.store.outbox_records import OutboxEntry

_TIMEOUT = 10.0
_MOST_SHOWN = 200
#: A command starts from these, and not from the environment of the server, which has its secrets.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def append_line(path: Path, folders: Sequence[Path], message: Message) -> Answer:
    """Append the body as a line to a file below one of these folders. Several servers may."""
    real = path.parent.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        allowed = ", ".join(map(str, folders))
        return Answer(False, f"not written: {path} is not below {allowed}", final=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    line = message.body.rstrip(b"\n") + b"\n"
    try:
        real.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(real / path.name, flags, 0o600), "ab", buffering=0) as file:
            written = file.write(line)
            if written != len(line):
                return Answer(False, f"{path}: only a part could be written: is the disk full?")
            os.fsync(file.fileno())
    except OSError as error:
        return Answer(False, f"{path}: {error.strerror}")
    return Answer(True, f"appended to {path}")


def run_command(argv: Sequence[str], entry: OutboxEntry, message: Message) -> Answer:
    """Run a command, without a shell, with the body on its standard input."""
    environ = {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        "MUSTER_EVENT_ID": entry.id,
        "MUSTER_EVENT_TYPE": entry.type,
        "MUSTER_PROJECT": entry.project,
    }
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(message.body)
        given.seek(0)
        try:
            process = subprocess.Popen(
                [*argv],
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environ,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return Answer(False, f"{argv[0]} cannot be started: {error.strerror}")
        try:
            code = process.wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
            process.wait()
            return Answer(False, f"{argv[0]} has not ended within {_TIMEOUT:.0f}s")
        if code == 0:
            return Answer(True, "exit code 0")
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MOST_SHOWN))
        tail = errors.read(_MOST_SHOWN).decode(errors="replace").strip()
        return Answer(
            False, f"exit code {code}: {visible_line(tail)}" if tail else f"exit code {code}"
        )
