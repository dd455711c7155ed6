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
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import finalize

from msgspec.structs import asdict

from muster.control import run_lock
from muster.engines.registry import engine_named, local_engine
from muster.errors import EngineError, MusterError, ResourceShortage
from muster.interrupt import Held
from muster.secrets import print_traceback
from muster.storage.home import Home
from muster.submission import Submission
from muster.unix_account import act_as, as_root

if TYPE_CHECKING:
    from muster.control.shared_supervisor import SharedSupervisor
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

    def __init__(self, sock: socket.socket, pid: int, *, shares: bool = False) -> None:
        """pid: of the launcher, a child of this process. shares: whether runs may share a
        supervisor."""
        self._sock = sock
        self._pid = pid
        self._shares = shares
        self._owner = os.getpid()
        self._lock = Lock()  # one request at a time, from any thread
        # also when it is not closed: at the exit of the program, or when nothing refers to it
        self._disconnect = finalize(self, _disconnect, sock, pid, self._owner)

    @classmethod
    def fork(cls) -> Launcher:
        """Fork a launcher from this process, which should be small, have one thread, and start one
        run."""
        _import_shared()
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
        return cls(ours, pid, shares=True)

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
        *,
        shared: bool = False,
    ) -> int:
        """Start a supervisor for a run. Returns its pid.

        run: its lease. engine: the name of its engine. held: descriptors of its lock and its
        liveness pipe. The supervisor takes over lease and descriptors. submission: what the nodes
        start from. shared: whether runs that are started soon after one another may have the same
        one.
        Raises EngineError if it cannot be started, LauncherClosed.
        """
        request = {
            "home": str(home),
            "lease": asdict(run),
            "engine": engine,
            "environ": dict(submission.environ),
            "python": submission.python,
            "account": None if submission.account is None else asdict(submission.account),
            "shared": shared and self._shares,
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


def _import_shared() -> None:
    """Import what both the submitter and the supervisor need: once instead of twice."""
    import muster.control.persist
    import muster.node.file_watch
    import muster.plan.environment
    import muster.storage.wakeup
    import muster.store.sqlite.store  # noqa: F401

    local_engine()


def serve(sock: socket.socket) -> None:
    """Start a supervisor for each request until the submitter exits."""
    from muster.control.open_store import import_store
    from muster.control.supervisor import warm

    warm(local_engine())  # another one takes longer to start
    # objects loaded so far are never collected, so that children share their pages; collecting once
    # before would take longer than starting a supervisor
    gc.freeze()
    shared = _SharedSupervisors()
    while True:
        if not shared.wait(sock):
            continue
        data, held, _, _ = socket.recv_fds(sock, _HEADER.size, 2)
        if not data:
            return
        for descriptor in held:
            os.set_inheritable(descriptor, False)
        (length,) = _HEADER.unpack(data)
        data = _read(sock, length)
        request = json.loads(data)
        import_store(Home(Path(request["home"])))
        try:
            # agents of several runs, one after the other, cannot belong to one account
            may_share = request["shared"] and request["account"] is None
            pid = shared.start(request, data, held) if may_share else 0
            pid = pid or _start(request, held)
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
    engine = engine_named(request["engine"], Home(Path(request["home"])))

    def supervisor(ready: Callable[[bytes], None]) -> None:
        _supervisor(engine, request, held, ready)

    pid = _fork_prepared(engine, supervisor, plain=False)
    pid = pid or _fork_prepared(engine, supervisor, plain=True)
    if pid == 0:
        log = f"{request['home']}/runs/{request['lease']['run_id']}/supervisor.log"
        raise OSError(errno.ECHILD, f"it ended at once (see {log})")
    return pid


#: What a forked supervisor says when it is settled, and when it cannot be used.
_READY, _UNUSABLE = b"ready ", b"unusable "


def _fork_prepared(
    engine: Engine, supervisor: Callable[[Callable[[bytes], None]], None], *, plain: bool
) -> int:
    """Fork a process that the engine has prepared. Returns its pid; 0 if it did not get ready.

    supervisor: runs in it. Gets a function to call with `_READY`.
    """
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reading)
        try:
            os.setsid()
            engine.prepare_parent(plain=plain)
            pid = os.fork()
            if pid == 0:
                _run_forked(supervisor, writing)
            os.write(writing, b"%d " % pid)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(middle, 0)
    with os.fdopen(reading, "rb") as file:
        answer = file.read().split()
    # in either order: the pid from the middle process, "ready" from the settled supervisor
    pids = [int(word) for word in answer if word.isdigit()]
    return pids[0] if pids and _READY.strip() in answer else 0


def _run_forked(supervisor: Callable[[Callable[[bytes], None]], None], writing: int) -> None:
    """Run a supervisor in the forked process, and exit."""

    def ready(word: bytes) -> None:
        os.write(writing, word)
        os.close(writing)
        gc.enable()  # the submitter may have disabled it, and a supervisor may run for days
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    code = 70
    try:
        supervisor(ready)
        code = 0
    except BaseException:  # noqa: BLE001
        with as_root():  # which imports modules
            print_traceback()
    finally:
        os._exit(code)


def _supervisor(
    engine: Engine,
    request: dict[str, Any],
    held: Sequence[int],
    ready: Callable[[bytes], None],
) -> None:
    from muster.control.command_line import hide_command_line
    from muster.control.supervisor import Assignment, detach, supervise

    assignment = Assignment.of(request, held)
    run_id = assignment.lease.run_id
    hide_command_line(f"muster: run {run_id}")
    detach(assignment.home.run_dir(run_id).supervisor_log)
    engine.prepare_supervisor()
    act_as(assignment.account)
    ready(_READY)
    _keep_only(held)
    supervise(assignment, engine)


class _SharedSupervisors:
    """Supervisors that drive several runs: the one that is handed the next run, if there is one.

    A run joins the one before it if that was started less than LINGER ago. So runs that have
    nothing to do with each other do not share the fate of one process, and none is left idle.
    """

    #: Seconds for which a supervisor is kept for the next run.
    LINGER = 1.0

    def __init__(self) -> None:
        self._current: SharedSupervisor | None = None
        #: Whether the machine's processes cannot drive several runs.
        self._unusable = False

    def wait(self, sock: socket.socket) -> bool:
        """Wait for a request. False if none came for so long that the current supervisor was given
        up."""
        poll = select.poll()  # select() refuses descriptors from 1024 on
        poll.register(sock, select.POLLIN)
        if self._current is None or poll.poll(self.LINGER * 1000):
            return True
        self._give_up()
        return False

    def start(self, request: dict[str, Any], data: bytes, held: Sequence[int]) -> int:
        """Hand a run to the current supervisor, or to a new one. Returns its pid; 0 if the run
        needs one for itself. data: the encoded request."""
        key = (request["home"], request["engine"])
        if self._current is not None:
            if self._current.key == key and self._current.hand(data, held):
                return self._current.pid
            self._give_up()
        if self._unusable:
            return 0
        self._current = self._fork(key, request)
        self._unusable = self._current is None
        if self._current is not None and self._current.hand(data, held):
            return self._current.pid
        self._give_up()
        return 0

    def _give_up(self) -> None:
        """Hand it no more runs: it ends when those that it has do."""
        if self._current is not None:
            self._current.close()
            self._current = None

    def _fork(self, key: tuple[str, str], request: dict[str, Any]) -> SharedSupervisor | None:
        from muster.control.shared_supervisor import SharedSupervisor

        engine = engine_named(request["engine"], Home(Path(request["home"])))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def supervisor(ready: Callable[[bytes], None]) -> None:
            _shared_supervisor(engine, request, theirs, ready)

        pid = _fork_prepared(engine, supervisor, plain=False)
        theirs.close()
        if pid:
            return SharedSupervisor(key, pid, ours)
        ours.close()
        return None


def _shared_supervisor(
    engine: Engine,
    request: dict[str, Any],
    sock: socket.socket,
    ready: Callable[[bytes], None],
) -> None:
    from muster.control.command_line import hide_command_line
    from muster.control.shared_supervisor import supervise_handed
    from muster.control.supervisor import detach
    from muster.storage.home import Home

    hide_command_line("muster: several runs")
    home = Home(Path(request["home"]))
    detach(home.run_dir(request["lease"]["run_id"]).supervisor_log)
    engine.prepare_supervisor()
    if not engine.may_share():
        ready(_UNUSABLE)
        return
    ready(_READY)
    _keep_only([sock.fileno()])
    supervise_handed(home, engine, sock)


def _keep_only(held: Sequence[int]) -> None:
    """Close descriptors inherited from the submitter: readers of its pipes wait for their end."""
    first = 3
    for descriptor in sorted(held):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, max(256, first))
