"""`muster` commands forked from a process that has imported Muster: to import it takes ten times as
long as most commands.

The process starts with the first command and ends with the tests. A command has the arguments, the
environment, the working directory and the standard streams that a new process would have.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

TESTS = str(Path(__file__).parents[1])
#: What a command needs, whose modules import the rest.
_PACKAGES = ("cli", "client", "control", "engines.local", "service", "storage", "store.sqlite")
#: How the variables begin that are not read while modules are imported.
_READ_LATER = ("MUSTER_", "PYTEST_")


def _read_early(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if not name.startswith(_READ_LATER)}


def _mounts() -> int | None:
    """The mount namespace of this thread; None where there are none."""
    try:
        return os.stat("/proc/thread-self/ns/mnt").st_ino
    except FileNotFoundError:
        return None


_ENVIRON, _MOUNTS = dict(os.environ), _mounts()


def is_like_the_first(environ: Mapping[str, str]) -> bool:
    """Whether a command in an environment can be forked: it finds the same modules and files as
    when this module was imported."""
    return _read_early(environ) == _read_early(_ENVIRON) and _mounts() == _MOUNTS


def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    folder: str,
    stdout: IO[bytes],
    stderr: IO[bytes],
    timeout: float,
) -> int:
    """Run a command in a folder, with this process's standard input. Returns its exit code; -N if
    signal N ended it. Raises subprocess.TimeoutExpired."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rw") as channel:
        streams = [0, stdout.fileno(), stderr.fileno()]
        socket.send_fds(_server(), [b"\0"], [theirs.fileno(), *streams])
        theirs.close()
        json.dump([[*words], dict(environ), folder], channel)
        channel.write("\n")
        channel.flush()
        pid = int(channel.readline())
        ours.settimeout(timeout)
        try:
            return int(channel.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["muster", *words], timeout) from None


@cache
def _server() -> socket.socket:
    """The connection to the process."""
    ours, theirs = socket.socketpair()
    atexit.register(ours.close)
    with theirs:
        theirs.set_inheritable(True)
        code = (
            f"import sys; sys.path.append({TESTS!r}); "
            f"from support.forked_commands import serve; serve({theirs.fileno()})"
        )
        os.posix_spawn(sys.executable, [sys.executable, "-c", code], _ENVIRON)
    return ours


def serve(descriptor: int) -> NoReturn:
    """Fork commands until the tests close the connection."""
    sys.path.remove(TESTS)
    for name in _PACKAGES:
        package = import_module(f"muster.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests and their commands
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as connection:
        while True:
            request, received, _, _ = socket.recv_fds(connection, 1, 4)
            if not request:
                os._exit(0)
            if os.fork() == 0:
                connection.close()
                _fork(*received)
            for each in received:
                os.close(each)


def _fork(channel: int, *streams: int) -> NoReturn:
    """Fork a command, and send its pid and its exit code."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=channel) as sock, sock.makefile("rw") as file:
            words, environ, folder = json.loads(file.readline())
            pid = os.fork()
            if pid == 0:
                sock.detach()
                os.close(channel)
                _run(words, environ, folder, streams)
            print(pid, file=file, flush=True)
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), file=file, flush=True)
    finally:
        os._exit(0)


def _run(
    words: Sequence[str], environ: Mapping[str, str], folder: str, streams: Sequence[int]
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.path[0] = folder
    sys.argv = ["muster", *words]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from muster.__main__ import main

    main()
