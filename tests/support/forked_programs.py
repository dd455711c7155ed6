"""Python programs forked from a process that has imported Muster: importing it takes ten times as
long as most commands.

The process starts with the first program and ends with the tests. A program has the arguments, the
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
import tempfile
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, NoReturn

TESTS = str(Path(__file__).parents[1])
#: What a program needs, whose modules import the rest.
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


def run(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    encoding: str | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments: `-m muster ...` or `-c CODE ...`; the others are those of
    `subprocess.run`. Where a forked process would find other modules or files than a new one, it is
    a new one."""
    environ = os.environ if env is None else env
    if _read_early(environ) != _read_early(_ENVIRON) or _mounts() != _MOUNTS:
        return subprocess.run(
            [sys.executable, *argv],
            cwd=cwd,
            env=env,
            encoding=encoding,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
    folder = os.getcwd() if cwd is None else os.path.abspath(cwd)
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code = _run_forked([argv, dict(environ), folder], (stdout, stderr), timeout)
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            with TextIOWrapper(file, encoding=encoding) as text:
                texts.append(text.read())
    return subprocess.CompletedProcess([sys.executable, *argv], code, *texts)


def _run_forked(request: Any, outputs: Iterable[IO[bytes]], timeout: float) -> int:
    """Its exit code; -N if signal N ended it. Raises subprocess.TimeoutExpired."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rw") as channel:
        streams = [0, *(file.fileno() for file in outputs)]
        socket.send_fds(_server(), [b"\0"], [theirs.fileno(), *streams])
        theirs.close()
        json.dump(request, channel)
        channel.write("\n")
        channel.flush()
        pid = int(channel.readline())
        ours.settimeout(timeout)
        try:
            return int(channel.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(request[0], timeout) from None


@cache
def _server() -> socket.socket:
    """The connection to the process."""
    ours, theirs = socket.socketpair()
    atexit.register(ours.close)
    with theirs:
        theirs.set_inheritable(True)
        code = (
            f"import sys; sys.path.append({TESTS!r}); "
            f"from support.forked_programs import serve; serve({theirs.fileno()})"
        )
        os.posix_spawn(sys.executable, [sys.executable, "-c", code], _ENVIRON)
    return ours


def serve(descriptor: int) -> NoReturn:
    """Fork programs until the tests close the connection."""
    sys.path.remove(TESTS)
    for name in _PACKAGES:
        package = import_module(f"muster.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests and their programs
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
    """Fork a program, and send its pid and its exit code."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=channel) as sock, sock.makefile("rw") as file:
            argv, environ, folder = json.loads(file.readline())
            pid = os.fork()
            if pid == 0:
                sock.detach()
                os.close(channel)
                try:
                    _run(argv, environ, folder, streams)
                except BaseException:  # noqa: BLE001  what ends an interpreter, too
                    traceback.print_exc()
                    os._exit(1)
            print(pid, file=file, flush=True)
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), file=file, flush=True)
    finally:
        os._exit(0)


def _run(
    argv: Sequence[str], environ: Mapping[str, str], folder: str, streams: Sequence[int]
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.path[0] = folder
    option, program, *words = argv
    sys.argv = [option, *words]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if option == "-c":
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    from muster.__main__ import main

    main()
