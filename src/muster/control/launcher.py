"""A small warm process that forks supervisors, so that a run costs no interpreter start.

A fork of a large process is slow (its page tables are copied) and drags its memory along. The
command line forks this process off first thing, while it is small itself; a program that uses the
Python API has one started beside it, once.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from muster.control import lease
from muster.errors import EngineError, SystemLack
from muster.interrupt import Held
from muster.secrets import print_traceback

_HEADER = struct.Struct("=I")
#: What the supervisor of one node opens, and some more. With fewer it could not even record why it
#: fails; a run of many nodes needs more, and says so itself.
_LEAST_OPEN_FILES = 24


def check_open_files() -> None:
    """Raises SystemLack where a supervisor, which inherits our limits, could not work."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= allowed < _LEAST_OPEN_FILES:
        raise SystemLack(
            f"Too many open files: a run needs at least {_LEAST_OPEN_FILES}, and this shell allows "
            f"{allowed} (allow more: `ulimit -n 1024`)"
        )


class Launcher:
    """The submitter's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._turn = Lock()  # one request at a time, whichever thread it is from

    @classmethod
    def fork(cls) -> Launcher:
        """A launcher forked from this process, which should be small and have one thread."""
        ours, theirs = socket.socketpair()
        with Held(signal.SIGINT):  # Ctrl-C is the submitter's affair, from the first moment
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        if pid == 0:
            ours.close()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                serve(theirs)
            os._exit(0)
        theirs.close()
        return cls(ours)

    @classmethod
    def spawn(cls) -> Launcher:
        """A launcher in an interpreter of its own, for programs of any size."""
        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from muster.control.launcher import serve_on; serve_on({theirs.fileno()})"
        )
        argv = [sys.executable, "-S", "-c", code]
        # Ctrl-C is the submitter's affair, also while the interpreter starts
        os.posix_spawn(sys.executable, argv, os.environ, setsigmask=(signal.SIGINT,))
        theirs.close()
        return cls(ours)

    def start(
        self, home: Path, run_id: str, held: tuple[int, int], environ: Mapping[str, str]
    ) -> int:
        """Have a supervisor started for a run; it takes over what is held, the run's lease and
        its life. Returns its pid.

        Raises EngineError if it cannot be.
        """
        request = {
            "home": str(home),
            "run_id": run_id,
            "environ": dict(environ),
            "python": sys.executable,
        }
        data = json.dumps(request).encode()
        try:
            with self._turn:
                socket.send_fds(self._sock, [_HEADER.pack(len(data))], held)
                self._sock.sendall(data)
                answer = self._sock.recv(4096).decode()
        except (BrokenPipeError, ConnectionResetError):
            answer = ""
        except OSError as error:
            answer = error.strerror or repr(error)
        if not answer.isdigit():
            why = answer or "the process that starts them was killed; start the run again"
            raise EngineError(f"cannot start a supervisor: {why}")
        return int(answer)

    def close(self) -> None:
        self._sock.close()


def serve_on(descriptor: int) -> None:
    """A spawned launcher's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    _keep_only([descriptor])
    serve(socket.socket(fileno=descriptor))


def serve(sock: socket.socket) -> None:
    """Start a supervisor for each request until the submitter goes away."""
    from muster.control.supervisor import warm

    warm()
    gc.collect()
    gc.freeze()  # what is loaded now is never collected, so children share its pages
    while True:
        data, held, _, _ = socket.recv_fds(sock, _HEADER.size, 2)
        if not data:
            return
        for descriptor in held:
            os.set_inheritable(descriptor, False)
        (length,) = _HEADER.unpack(data)
        request = json.loads(_read(sock, length))
        try:
            pid = _start(request, held)
            # whoever finds the lease held knows by whom
            lease.note(held[0], pid)
            answer = str(pid)
        except OSError as error:
            answer = error.strerror or repr(error)
        for descriptor in held:
            os.close(descriptor)
        sock.sendall(answer.encode())


def _read(sock: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            raise ConnectionResetError(104, "the submitter went away")
        data += part
    return data


def _start(request: dict[str, Any], held: Sequence[int]) -> int:
    """Fork a supervisor by way of a process that opens the run's namespaces for it and ends."""
    pid = _attempt(request, held, plain=False)
    # some containers allow namespaces but not a /proc for them, some users none they can map
    # themselves into: then do without
    pid = pid or _attempt(request, held, plain=True)
    if pid == 0:
        log = f"{request['home']}/runs/{request['run_id']}/supervisor.log"
        raise OSError(errno.ECHILD, f"it ended at once (see {log})")
    return pid


def _attempt(request: dict[str, Any], held: Sequence[int], *, plain: bool) -> int:
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reading)
        _middle(request, held, writing, plain=plain)
    os.close(writing)
    os.waitpid(middle, 0)
    with os.fdopen(reading, "rb") as file:
        answer = file.read().split()
    # in either order: the pid from the middle process, "ready" from the settled supervisor
    pids = [int(word) for word in answer if word.isdigit()]
    return pids[0] if pids and b"ready" in answer else 0


def _middle(request: dict[str, Any], held: Sequence[int], writing: int, *, plain: bool) -> None:
    from muster.engines.local.isolation import Isolation, enclose

    try:
        os.setsid()
        isolation = Isolation("plain", reason="/proc cannot be mounted") if plain else enclose()
        pid = os.fork()
        if pid == 0:
            _supervisor(request, isolation, held, writing)
        os.write(writing, b"%d " % pid)
    finally:
        os._exit(0)


def _supervisor(request: dict[str, Any], isolation: Any, held: Sequence[int], writing: int) -> None:
    from muster.control.supervisor import Assignment, detach, supervise
    from muster.engines.local.isolation import settle
    from muster.storage.home import Home

    code = 70
    try:
        home = Home(Path(request["home"]))
        detach(home.run_dir(request["run_id"]).supervisor_log)
        if isolation.namespaces:
            settle()
        os.write(writing, b"ready ")
        os.close(writing)
        _keep_only(held)
        gc.enable()  # the submitter may have switched it off; we may live for days
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        python = request["python"]
        assignment = Assignment(home, request["run_id"], request["environ"], python, held[1])
        supervise(assignment, isolation)
        code = 0
    except BaseException:  # noqa: BLE001
        print_traceback()
    finally:
        os._exit(code)


def _keep_only(held: Sequence[int]) -> None:
    """Close what came along from the submitter: whoever reads its pipes waits for their end."""
    for descriptor in range(3, max(256, *held)):
        if descriptor not in held:
            with contextlib.suppress(OSError):  # most are not open
                os.close(descriptor)
