"""A small process with all modules loaded that forks supervisors: a run needs no interpreter start.

Forking a large process is slow, since its page tables are copied, and the child keeps its memory.
The command line forks the launcher first, while it is small itself; for a program that uses the
Python API, a launcher is spawned once.
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
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import finalize

from msgspec.structs import asdict

from muster.control import run_lock
from muster.engines.registry import LOCAL, engine_named
from muster.errors import EngineError, MusterError, ResourceShortage
from muster.interrupt import Held
from muster.secrets import print_traceback
from muster.submission import Submission

if TYPE_CHECKING:
    from muster.engines.base import Engine
    from muster.store.records import Lease

_HEADER = struct.Struct("=I")
#: Open files that the supervisor of a run with one node needs, and some more. With fewer it could
#: not record why it fails. The supervisor of a larger run checks its own limit.
_MIN_OPEN_FILES = 24
#: Seconds to wait for the end of a launcher, which takes milliseconds unless it is still starting.
_EXIT_TIMEOUT = 1.0


def check_open_files() -> None:
    """Raises ResourceShortage if the limit of open files is too low; a supervisor inherits it."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= allowed < _MIN_OPEN_FILES:
        raise ResourceShortage(
            f"Too many open files: a run needs at least {_MIN_OPEN_FILES}, and this shell allows "
            f"{allowed} (allow more: `ulimit -n 1024`)"
        )


class LauncherClosed(Exception):  # noqa: N818
    """Nothing was sent to the launcher, since it is closed: another one can be used."""


class Launcher:
    """The submitter's end of the connection to a launcher."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        """pid: of the launcher, a child of this process."""
        self._sock = sock
        self._pid = pid
        self._owner = os.getpid()
        self._lock = Lock()  # one request at a time, from any thread
        # also when it is not closed: at the exit of the program, or when nothing refers to it
        self._disconnect = finalize(self, _disconnect, sock, pid, self._owner)

    @classmethod
    def fork(cls) -> Launcher:
        """Fork a launcher from this process, which should be small and have one thread."""
        ours, theirs = socket.socketpair()
        with Held(signal.SIGINT):  # the launcher ignores Ctrl-C from the start
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        if pid == 0:
            ours.close()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                serve(theirs)
            os._exit(0)
        theirs.close()
        return cls(ours, pid)

    @classmethod
    def spawn(cls) -> Launcher:
        """Start a launcher in a new interpreter, for programs of any size."""
        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        code = (
            # -S leaves out `site`, which would set the prefix of a virtual environment
            f"import sys; sys.path[:] = {sys.path!r}; sys.prefix = {sys.prefix!r}; "
            f"sys.exec_prefix = {sys.exec_prefix!r}; "
            f"from muster.control.launcher import serve_on; serve_on({theirs.fileno()})"
        )
        argv = [sys.executable, "-S", "-c", code]
        # the launcher ignores Ctrl-C also while its interpreter starts
        pid = os.posix_spawn(sys.executable, argv, os.environ, setsigmask=(signal.SIGINT,))
        theirs.close()
        _reap_disconnected()
        return cls(ours, pid)

    @property
    def inherited(self) -> bool:
        """Whether this process was forked from the one that uses the launcher."""
        return self._owner != os.getpid()

    def start(
        self,
        home: Path,
        run: Lease,
        engine: str,
        held: tuple[int, int],
        submission: Submission,
    ) -> int:
        """Start a supervisor for a run. Returns its pid.

        run: its lease. engine: the name of its engine. held: descriptors of its lock and its
        liveness pipe. The supervisor takes over lease and descriptors. submission: what the nodes
        start from.
        Raises EngineError if it cannot be started, LauncherClosed.
        """
        request = {
            "home": str(home),
            "lease": asdict(run),
            "engine": engine,
            "environ": dict(submission.environ),
            "python": submission.python,
        }
        data = json.dumps(request).encode()
        try:
            with self._lock:
                answer = self._answer(data, held)
        except (BrokenPipeError, ConnectionResetError):
            answer = ""
        except OSError as error:
            answer = error.strerror or repr(error)
        if not answer.isdigit():
            why = answer or "the process that starts them was killed; start the run again"
            raise EngineError(f"cannot start a supervisor: {why}")
        return int(answer)

    def _answer(self, request: bytes, held: tuple[int, int]) -> str:
        if self.closed:  # by another thread, for whose request it did not work
            raise LauncherClosed
        answer = ""
        try:
            socket.send_fds(self._sock, [_HEADER.pack(len(request))], held)
            self._sock.sendall(request)
            answer = self._sock.recv(4096).decode()
        finally:
            if not answer:  # its state is unknown
                self._disconnect()
        return answer

    @property
    def closed(self) -> bool:
        """Whether it can start no more supervisors."""
        return not self._disconnect.alive

    def close(self) -> None:
        """End the launcher, and wait until it has ended. Supervisors continue."""
        from muster.storage.liveness import wait_for_process

        self._disconnect()
        if not self.inherited:
            wait_for_process(self._pid, _EXIT_TIMEOUT)
            _reap_disconnected()


#: Launchers that end, and are to be reaped.
_disconnected: set[int] = set()


def _disconnect(sock: socket.socket, pid: int, owner: int) -> None:
    if os.getpid() == owner:
        _disconnected.add(pid)
        with contextlib.suppress(OSError):  # it has ended already
            sock.shutdown(socket.SHUT_RDWR)  # forked children may have copies of the socket
    sock.close()


def _reap_disconnected() -> None:
    for pid in list(_disconnected):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # the program or another thread has reaped it
            ended = pid
        if ended:
            _disconnected.discard(pid)


def serve_on(descriptor: int) -> None:
    """The main function of a spawned launcher."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    _keep_only([descriptor])
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the submitter was killed
        serve(socket.socket(fileno=descriptor))
    os._exit(0)  # at once: who closes the launcher waits for it


def serve(sock: socket.socket) -> None:
    """Start a supervisor for each request until the submitter exits."""
    from muster.control.supervisor import warm

    warm(engine_named(LOCAL))  # another one takes longer to start
    gc.collect()
    gc.freeze()  # objects loaded so far are never collected, so that children share their pages
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
            # written here, so that processes that find the lock held see the pid
            run_lock.record_holder(held[0], pid)
            answer = str(pid)
        except OSError as error:
            answer = error.strerror or repr(error)
        except MusterError as error:  # the engine cannot be loaded
            answer = str(error)
        for descriptor in held:
            os.close(descriptor)
        sock.sendall(answer.encode())


def _read(sock: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            raise ConnectionResetError(104, "the submitter exited")
        data += part
    return data


def _start(request: dict[str, Any], held: Sequence[int]) -> int:
    """Fork a supervisor through an intermediate process, which the run's engine prepares. Raises
    InvalidInput if there is no such engine."""
    engine = engine_named(request["engine"])
    pid = _try_start(engine, request, held, plain=False)
    pid = pid or _try_start(engine, request, held, plain=True)
    if pid == 0:
        log = f"{request['home']}/runs/{request['lease']['run_id']}/supervisor.log"
        raise OSError(errno.ECHILD, f"it ended at once (see {log})")
    return pid


def _try_start(engine: Engine, request: dict[str, Any], held: Sequence[int], *, plain: bool) -> int:
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reading)
        try:
            os.setsid()
            engine.prepare_parent(plain=plain)
            pid = os.fork()
            if pid == 0:
                _supervisor(engine, request, held, writing)
            os.write(writing, b"%d " % pid)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(middle, 0)
    with os.fdopen(reading, "rb") as file:
        answer = file.read().split()
    # in either order: the pid from the middle process, "ready" from the settled supervisor
    pids = [int(word) for word in answer if word.isdigit()]
    return pids[0] if pids and b"ready" in answer else 0


def _supervisor(engine: Engine, request: dict[str, Any], held: Sequence[int], writing: int) -> None:
    from muster.control.command_line import hide_command_line
    from muster.control.supervisor import Assignment, detach, supervise
    from muster.storage.home import Home
    from muster.store.records import Lease

    code = 70
    try:
        own = Lease(**request["lease"])
        hide_command_line(f"muster: run {own.run_id}")
        home = Home(Path(request["home"]))
        detach(home.run_dir(own.run_id).supervisor_log)
        engine.prepare_supervisor()
        os.write(writing, b"ready ")
        os.close(writing)
        _keep_only(held)
        gc.enable()  # the submitter may have disabled it, and a supervisor may run for days
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        python = request["python"]
        assignment = Assignment(home, own, request["environ"], python, held[1])
        supervise(assignment, engine)
        code = 0
    except BaseException:  # noqa: BLE001
        print_traceback()
    finally:
        os._exit(code)


def _keep_only(held: Sequence[int]) -> None:
    """Close descriptors inherited from the submitter: readers of its pipes wait for their end."""
    for descriptor in range(3, max(256, *held)):
        if descriptor not in held:
            with contextlib.suppress(OSError):  # most are not open
                os.close(descriptor)
