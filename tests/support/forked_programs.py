"""Python programs forked from a process that has imported what they need: importing Muster takes
ten times as long as most commands, and a session of an engine imports even more.

The process starts with the first program and ends with the tests. A program has the arguments, the
environment, the working directory and the standard streams that a new process would have.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

TESTS = str(Path(__file__).parents[1])
#: What a command needs: packages and modules, which import the rest.
_COMMANDS = tuple(
    f"muster.{name}"
    for name in ("cli", "client", "control", "engines.local", "service", "storage", "store.sqlite")
)
#: Variables that are not read while modules are imported, and how the names of others begin.
_READ_LATER = ("PATH", "PYTHONPATH")
_OF_PROGRAMS = ("MUSTER_", "PYTEST_", "SLURM_")


def _read_early(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in environ.items()
        if name not in _READ_LATER and not name.startswith(_OF_PROGRAMS)
    }


def _python_path(environ: Mapping[str, str]) -> list[str]:
    """Where a new process would look for modules first."""
    return [*filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]


def _can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a forked process finds the modules and files of a new one."""
    hooks = any(Path(folder, "sitecustomize.py").exists() for folder in _python_path(environ))
    return not hooks and _read_early(environ) == _read_early(_ENVIRON) and _mounts() == _MOUNTS


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
    if not _can_fork(environ):
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
        streams = [0, stdout.fileno(), stderr.fileno()]
        words = [os.fspath(word) for word in argv]
        program = _Forked(_COMMANDS, [words, dict(environ), folder], streams)
        try:
            code = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            with TextIOWrapper(file, encoding=encoding) as text:
                texts.append(text.read())
    return subprocess.CompletedProcess([sys.executable, *argv], code, *texts)


class Program(Protocol):
    """What tests do with a program that runs, as with a `subprocess.Popen` whose streams are texts:
    of standard error, they see what pytest shows."""

    stdin: IO[str] | None
    stdout: IO[str] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


def start(argv: Sequence[str], needs: tuple[str, ...]) -> Program:
    """Start Python with the path of a script and its arguments. needs: packages and modules to
    import before it is forked. It is a new process where `run` has one."""
    if not _can_fork(os.environ):
        return subprocess.Popen(
            [sys.executable, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
    stdin, writing = os.pipe()
    reading, stdout = os.pipe()
    try:
        program = _Forked(needs, [argv, dict(os.environ), os.getcwd()], [stdin, stdout, 2])
    finally:
        os.close(stdin)
        os.close(stdout)
    program.stdin = os.fdopen(writing, "w", buffering=1)
    program.stdout = os.fdopen(reading)
    return program


class _Forked:
    """A forked program. See `Program`."""

    def __init__(self, needs: tuple[str, ...], request: Any, streams: Sequence[int]) -> None:
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.args = request[0]
        self._channel, theirs = socket.socketpair()
        self._code: int | None = None
        with theirs, self._channel.makefile("w") as channel:
            socket.send_fds(_server(needs), [b"\0"], [theirs.fileno(), *streams])
            json.dump(request, channel)
            channel.write("\n")
        self._answers = self._channel.makefile("r")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Its exit code, -N if signal N ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """As `poll`, when it has ended. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._code = int(self._answers.readline())
            self._answers.close()
            self._channel.close()
        return self._code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server(needs: tuple[str, ...]) -> socket.socket:
    """The connection to the process that has imported these packages and modules."""
    ours, theirs = socket.socketpair()
    atexit.register(ours.close)
    with theirs:
        theirs.set_inheritable(True)
        code = (
            f"import sys; sys.path.append({TESTS!r}); "
            f"from support.forked_programs import serve; serve({theirs.fileno()}, {needs!r})"
        )
        os.posix_spawn(sys.executable, [sys.executable, "-c", code], _ENVIRON)
    return ours


def serve(descriptor: int, needs: Sequence[str]) -> NoReturn:
    """Fork programs until the tests close the connection."""
    for name in needs:
        found = import_module(name)
        for module in pkgutil.walk_packages(getattr(found, "__path__", ()), f"{name}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    sys.path.remove(TESTS)
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
    sys.path[:1] = [folder, *_python_path(environ)]
    option, program, *words = argv
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if option not in ("-c", "-m"):  # the path of a script
        _run_script(option, [program, *words])
    sys.argv = [option, *words]
    if option == "-c":
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    from muster.__main__ import main

    main()


def _run_script(path: str, words: Sequence[str]) -> NoReturn:
    sys.argv = [path, *words]
    sys.path[0] = str(Path(path).parent)
    runpy.run_path(path, run_name="__main__")
    sys.stdout.flush()
    os._exit(0)
