"""Start a node server, and connect to one. The command `serve` of the node program.

A node server has a folder, which no other server uses:

    lock        locked while the server runs; has its pid
    socket      accepts supervisors, or what stands for them
    journal     see `node.journal`
    code/       archives, see `node.code`, unless servers share them
    environments/  see `node.environments`, unless servers share them
    environment    a link to the one of the job
    modules/    see `node.host_programs`
    short       see `node.host_programs`
    agent       see `node.leftovers`
    groups      see `node.leftovers`
    ports       see `node.free_ports`
    log-copy    see `node.log_copy`
    sent/       see `node.tree_streams`
    node/       the node's own files; emptied before a new node starts
    server.log  what the server and its agents write
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Callable, Mapping, NamedTuple, Sequence, Tuple

from muster.node import processes, records, unix_sockets
from muster.node.code import Archives
from muster.node.control_groups import (
    Amounts,
    CannotLimit,
    NodeGroups,
    check,
    reduced,
    unique_groups,
)
from muster.node.environments import Environments
from muster.node.files import (
    direct_output,
    open_or_replace,
    open_regular,
    overwrite_file,
    read_regular,
    remove_entry,
    remove_tree,
)
from muster.node.host_programs import provide_modules, provide_short, remove_short
from muster.node.hosts_file import HostsFile, names_beside
from muster.node.journal import Journal
from muster.node.leftovers import CannotEnd, end_leftovers, has_leftovers, record_groups
from muster.node.messages import Ended, ExitReport
from muster.node.reservation import Demand
from muster.node.server import Identity, Limits, NodeServer

if TYPE_CHECKING:
    from muster.node.dialer import Dialer
    from muster.node.log_copy import LogCopy

#: Variables with what `serve` is told, for infrastructures that give a program an environment and
#: no standard input: the line with the settings, and the node's token. No process of the node has
#: them in its environment.
SETTINGS, TOKEN = "MUSTER_NODE_SETTINGS", "MUSTER_NODE_TOKEN"
#: The exit code of a server whose folder another one serves (sysexits.h: EX_TEMPFAIL).
SERVED = 75
_SOCKET = "socket"
#: Seconds that a server gets to start.
_START_TIMEOUT = 60.0
_PAUSE = 0.005
#: Seconds that a server which leaves gives readers of its standard output to take the rest.
_COPY_TIMEOUT = 2.0
#: The name of the file that is locked.
_LOCK = "lock"
_MAX_SETTINGS = 65_536  # bytes of the line


class CannotServe(Exception):  # noqa: N818
    """The text says why."""


class Supervisor(NamedTuple):
    """Where a server dials its supervisor (`node.dialer`), and how each knows the other."""

    #: HOST:PORT, or the path of a file that has it, beginning with a slash.
    address: str
    #: The certificate of the run's authority: PEM.
    authority: str
    #: A file with the node's token; "": the token is in the environment (TOKEN).
    token_file: str = ""


class Settings(NamedTuple):
    """What a server is told when it starts."""

    #: Muster's version on the node, which the node program adds.
    version: str
    run_id: str
    #: The node's rank in the run.
    rank: int
    #: See `server.Limits`.
    isolation: float | None = None
    decision: float | None = None
    #: What it needs of a machine that runs share; None: it need not wait for a turn.
    reserve: Demand | None = None
    #: A folder for archives of code, which the servers of a user share; "": one of its own.
    archives: str = ""
    #: None: it is dialed.
    supervisor: Supervisor | None = None
    #: A folder for environments, which the servers of a user share; "": one of its own.
    environments: str = ""
    #: What the node may use of its machine.
    amounts: Amounts = Amounts()
    #: Whether what runs the server limits it to these amounts, such as a container.
    contained: bool = False
    #: Whether what runs the server may end it with its node, and the supervisor learns there why.
    #: What dials its supervisor is hosted.
    hosted: bool = False
    #: Whether the server writes the output of its programs to its own standard output and error,
    #: too (`node.log_copy`).
    copy_log: bool = False
    #: What starts the Python that runs the server, if that is not a program by itself; "": it is.
    executable: str = ""
    #: Variables that programs of the node inherit, and the server itself does without.
    environ: Mapping[str, str] = {}
    #: Whether archives are on a volume of the infrastructure: who owns files there may differ from
    #: who has made them.
    on_volume: bool = False
    #: The hosts file that is the node's own, and gets the names of nodes; "": there is none.
    hosts: str = ""


def serve(folder: str, settings: Settings) -> int:
    """Serve in this process. Returns its exit code: SERVED if another one serves. Raises
    CannotServe, OSError."""
    lock = _lock(folder)
    if lock is None:
        sys.stderr.write("muster-node: a node server runs in %s already\n" % folder)
        return SERVED
    return _serve(folder, settings, lambda: None)


def connect_to_running(folder: str) -> socket.socket | None:
    """A connection to the server of a folder; None if none runs. Raises OSError."""
    try:
        return unix_sockets.connect(folder, _SOCKET)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


def connect(folder: str, settings: Settings, held: Sequence[int] = ()) -> socket.socket:
    """A connection to the server of a folder, which is started in the background unless it runs.
    Raises CannotServe, OSError.

    held: descriptors that a server which is started keeps open, and its agents.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        running = connect_to_running(folder)
        if running is not None:
            return running
        lock = _lock(folder)
        if lock is not None:
            _start(folder, settings, lock, held)
            return unix_sockets.connect(folder, _SOCKET)
        _check_deadline(folder, deadline)
        time.sleep(_PAUSE)  # it is starting, or ending


def connect_if_running(folder: str) -> socket.socket | None:
    """A connection to the server of a folder; None if none runs, and nothing is left of one that
    was killed. Raises CannotServe, OSError."""
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        running = connect_to_running(folder)
        if running is not None:
            return running
        try:
            lock = _lock_existing(folder)
        except FileNotFoundError:
            return None  # it has left, or there was none
        if lock is not None:
            try:
                _end_leftovers(folder)
            finally:
                os.close(lock)
            return None
        _check_deadline(folder, deadline)
        time.sleep(_PAUSE)  # it is starting, or ending


def connect_when_running(folder: str) -> socket.socket:
    """A connection to the server of a folder, which is starting, or is started again after it was
    killed: by somebody else. Raises CannotServe, OSError."""
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        running = connect_to_running(folder)
        if running is not None:
            return running
        _check_deadline(folder, deadline)
        time.sleep(_PAUSE)


def _check_deadline(folder: str, deadline: float) -> None:
    """Raises CannotServe if a server should have answered by now."""
    if time.monotonic() > deadline:
        raise CannotServe("the node server in %s does not answer" % folder)


def _lock(folder: str) -> int | None:
    """Take the lock of a server, whose folder is created; None if it runs. Raises OSError."""
    os.makedirs(folder, 0o700, exist_ok=True)
    owner = os.stat(folder).st_uid
    if owner != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", folder)
    path = os.path.join(folder, _LOCK)
    return _take_lock(path, open_or_replace(path, os.O_RDWR, 0o600))


def _lock_existing(folder: str) -> int | None:
    """Take the lock of a server that has been there; None if it runs. Raises FileNotFoundError if
    there was none, or it has left; OSError."""
    path = os.path.join(folder, _LOCK)
    return _take_lock(path, open_regular(path, os.O_RDWR))


def _take_lock(path: str, lock: int) -> int | None:
    """Lock a file that was opened; None, and it is closed, if it is locked or was removed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            os.truncate(lock, 0)  # the pid of an earlier server
            return lock
    except (BlockingIOError, FileNotFoundError):  # FileNotFoundError: a server has removed it
        pass
    os.close(lock)
    return None


def _end_leftovers(folder: str) -> None:
    """See `leftovers`. Raises CannotServe, OSError."""
    if not has_leftovers(folder):  # as in most folders: to look at all processes takes time
        return
    try:
        end_leftovers(folder)
    except CannotEnd as error:
        raise CannotServe("cannot end %s" % error) from None


def _start(folder: str, settings: Settings, lock: int, held: Sequence[int] = ()) -> None:
    """Start a server in the background, and wait until it accepts connections. Raises CannotServe,
    OSError."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_in_background(folder, settings, (lock, *held), writing)
    os.close(writing)
    os.close(lock)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as file:
        answer = file.read()
    if answer != b"ready":
        text = answer.decode(errors="replace") or "see server.log in %s" % folder
        raise CannotServe("the node server cannot start: %s" % text)


def _run_in_background(folder: str, settings: Settings, held: Sequence[int], writing: int) -> None:
    """In a forked process: let another one, which is nobody's child, serve. held: the descriptors
    that it keeps open, the lock first."""
    code = 70
    try:
        os.setsid()
        in_background = os.fork() == 0
        code = _serve_in_background(folder, settings, held, writing) if in_background else 0
    except BaseException:  # noqa: BLE001
        import traceback  # few fail

        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _serve_in_background(folder: str, settings: Settings, held: Sequence[int], writing: int) -> int:
    """Returns the exit code. Raises what ends a server that was ready."""
    is_ready = False

    def ready() -> None:
        nonlocal is_ready
        os.write(writing, b"ready")
        os.close(writing)
        is_ready = True

    processes.close_others((*held, writing))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        direct_output(os.path.join(folder, "server.log"))
        return _serve(folder, settings, ready, held[1:])
    except (CannotServe, OSError) as error:
        if is_ready:
            raise
        with contextlib.suppress(OSError):  # nobody waits for it any more
            os.write(writing, str(error).encode())
        sys.stderr.write("muster: %s\n" % error)
        return 1


def _serve(
    folder: str, settings: Settings, ready: Callable[[], object], held: Sequence[int] = ()
) -> int:
    """Serve while this process holds the lock. ready: called when connections are accepted. held:
    descriptors that agents keep open."""
    os.chdir("/")
    os.environ.update(settings.environ)
    sys.executable = settings.executable or sys.executable
    processes.become_subreaper()
    overwrite_file(os.path.join(folder, _LOCK), b"%d" % os.getpid())
    dialer = _make_dialer(settings)
    wake = processes.wake_on_signals()
    journal = _take_over(folder)
    groups, amounts = _make_groups(folder, settings)
    log_copy = _make_log_copy(folder) if settings.copy_log else None
    modules, short = provide_modules(folder, settings.version), provide_short(folder)
    with unix_sockets.listen(folder, _SOCKET) as listener:
        ready()
        limits = Limits(settings.isolation, settings.decision)
        identity = Identity(settings.version, settings.run_id, settings.rank)
        shared = os.path.expanduser(settings.archives)
        own = os.path.join(folder, "code")
        archives = Archives(shared or own, check_owner=not settings.on_volume)
        place = os.path.expanduser(settings.environments)
        environments = Environments(place or os.path.join(folder, "environments"))
        server = NodeServer(
            *(identity, folder, archives, listener, journal, wake, limits, modules, short),
            *(environments, groups, amounts, held, dialer, log_copy),
            hosted=settings.hosted,
            hosts=HostsFile(settings.hosts, names_beside(folder)) if settings.hosts else None,
        )
        code = server.run()
    if log_copy is not None:
        log_copy.finish(_COPY_TIMEOUT)
    groups.end()
    archives.close()
    remove_short(folder)  # another server makes one
    if server.exit_message:
        sys.stderr.write("muster: %s\n" % server.exit_message)
    if server.removes_folder:
        _remove(folder)
    server.close()
    return code


def _make_groups(folder: str, settings: Settings) -> Tuple[NodeGroups, Amounts]:
    """The control groups of the node, and what it may use. Raises CannotServe, OSError."""
    amounts = settings.amounts
    if settings.contained:
        return NodeGroups.of_container(), amounts
    try:
        check(amounts)
    except CannotLimit as error:
        raise CannotServe(str(error)) from None
    name, paths = unique_groups()
    record_groups(folder, paths)  # first: a server that takes over finds what this one has made
    amounts = reduced(amounts)
    try:
        groups = NodeGroups(name, amounts.cpus, amounts.memory, hold=True)
        if groups.admit():
            return groups, amounts
        groups.end()
        why = "processes cannot join it"
    except OSError as error:  # such as a file system that is read-only, as in a container
        why = str(error)
    if amounts.required:
        raise CannotServe("the node cannot be limited: %s" % why)
    sys.stderr.write("muster: the node has no control group: %s\n" % why)
    return NodeGroups(name, None, None), Amounts()


def _make_log_copy(folder: str) -> LogCopy:
    from muster.node.log_copy import LogCopy  # most servers copy nothing

    return LogCopy(os.path.join(folder, "log-copy"))


def _make_dialer(settings: Settings) -> Dialer | None:
    """What dials the supervisor; None if nothing does. Raises CannotServe, OSError."""
    token, supervisor = os.environ.pop(TOKEN, ""), settings.supervisor
    if supervisor is None:
        return None
    from muster.node.dialer import Dialer  # it imports the module `ssl`

    try:
        if supervisor.token_file:
            token = read_regular(supervisor.token_file, _MAX_SETTINGS).decode().strip()
        return Dialer(supervisor, settings.run_id, token)
    except ValueError as error:
        raise CannotServe("the settings are invalid: %s" % error) from None


def _remove(folder: str) -> None:
    """Remove the folder of a server that leaves, the lock last: a server that starts now waits for
    it. What cannot be removed, such as what is mounted there, stays."""
    for name in os.listdir(folder):
        if name != _LOCK:
            with contextlib.suppress(OSError):
                remove_entry(os.path.join(folder, name))
    with contextlib.suppress(OSError):  # something is left
        os.unlink(os.path.join(folder, _LOCK))
        os.rmdir(folder)


def _take_over(folder: str) -> Journal:
    """End what a server before has left. Raises CannotServe, OSError."""
    _end_leftovers(folder)
    journal = Journal(os.path.join(folder, "journal"))
    if not journal.ended:
        text = "its node server was killed, or its host was restarted"
        report = ExitReport(None, 0, "node_lost", text)
        journal.add(Ended(journal.incarnation, report, kept=False))
    return journal


def read_settings(descriptor: int, version: str) -> Settings:
    """Read the settings: a line with a JSON object. What follows it is not read. Raises
    CannotServe."""
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(descriptor, 1)
        text += part
        if not part or len(text) > _MAX_SETTINGS:
            raise CannotServe("no line with settings on standard input")
    return _parse_settings(text, version)


def _parse_settings(text: bytes | str, version: str) -> Settings:
    """Raises CannotServe."""
    try:
        data = json.loads(text)
        if isinstance(data, dict):
            data["version"] = version
        return records.read(Settings, data)
    except (ValueError, RecursionError) as error:
        raise CannotServe("the settings are invalid: %s" % error) from None


def serve_command(words: Sequence[str], version: str) -> int:
    """`serve FOLDER`. version: Muster's. Returns the exit code."""
    text = os.environ.pop(SETTINGS, None)
    if text is None:
        return run_command(words, version, serve)
    return run_in_folder(words, lambda folder: serve(folder, _parse_settings(text, version)))


def end(folder: str) -> None:
    """End the server of a folder, if one runs, with all processes of its node, and remove the
    folder. Raises CannotServe, OSError."""
    deadline = time.monotonic() + _START_TIMEOUT
    while os.path.isdir(folder):
        lock = _lock(folder)
        if lock is not None:
            _end_leftovers(folder)
            remove_short(folder)
            remove_tree(folder)
            os.close(lock)
            return
        if time.monotonic() > deadline:
            raise CannotServe("the node server in %s cannot be ended" % folder)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = read_regular(os.path.join(folder, _LOCK), 20)
            if pid.isdigit():  # else it is starting
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(_PAUSE)  # it is no child of this process


def end_command(words: Sequence[str]) -> int:
    """`end FOLDER`. Returns the exit code."""
    return run_in_folder(words, end)


def run_command(words: Sequence[str], version: str, command: Callable[[str, Settings], int]) -> int:
    """Run a command of which the words are the arguments. version: Muster's. Returns its exit
    code."""
    return run_in_folder(words, lambda folder: command(folder, read_settings(0, version)))


def run_in_folder(words: Sequence[str], command: Callable[[str], int | None]) -> int:
    """Run a command of which the word is the argument. Returns its exit code."""
    if len(words) != 1:
        sys.stderr.write("muster-node: one argument is needed: the server's folder\n")
        return 2
    try:
        return command(os.path.realpath(os.path.expanduser(words[0]))) or 0
    except (CannotServe, OSError) as error:
        sys.stderr.write("muster-node: %s\n" % error)
        return 1
