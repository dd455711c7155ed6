"""Start the processes of a node, and end every one of them."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
from typing import Container, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

from muster.node.files import open_or_replace

#: Exit codes of a shell for a command that does not exist, or that cannot be executed.
NOT_FOUND = 127
NOT_EXECUTABLE = 126
#: Stands for a file: inherit the descriptor of this process. That may be a socket, which cannot be
#: opened by a path, or a file whose offset has to be shared.
INHERITED = ""

_RESET = tuple(
    s for s in (getattr(signal, n, None) for n in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM")) if s
)


#: Bytes of a script's first line that the kernel reads.
_MAX_INTERPRETER = 256


class CannotStart(Exception):  # noqa: N818
    """A process could not be started. code: the exit code that a shell would have used."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def find_program(name: str, env: Mapping[str, str]) -> str:
    """The path of a program, looked up on the PATH of `env`. Raises CannotStart."""
    if "/" in name:
        if not os.path.exists(name):
            raise CannotStart(NOT_FOUND, "no such program: %s" % name)
        return name
    path = env.get("PATH", os.defpath)
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise CannotStart(NOT_FOUND, "%s: command not found (PATH is %s)" % (name, path))


def spawn(
    argv: Sequence[str], env: Mapping[str, str], stdout: str | None, stderr: str | None
) -> int:
    """Start a process in its own process group; returns its pid. Raises CannotStart.

    stdout, stderr: files to append to; None or INHERITED: those of this process. Uses posix_spawn
    and not fork, as this process may be large.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    for number, path in ((1, stdout), (2, stderr)):
        if path:
            actions.append((os.POSIX_SPAWN_OPEN, number, path, append, 0o644))
    program = find_program(argv[0], env)
    try:
        return os.posix_spawn(
            program,
            list(argv),
            dict(env),
            file_actions=actions,
            setpgroup=0,
            setsigmask=(),
            setsigdef=_RESET,
        )
    except OSError as error:
        raise CannotStart(NOT_EXECUTABLE, _cannot_execute(program, error)) from None


def _cannot_execute(program: str, error: OSError) -> str:
    text = "cannot execute %s: %s" % (program, error.strerror)
    if error.errno == errno.ENOEXEC:
        text += " (a script needs a first line such as #!/bin/sh)"
    elif error.errno == errno.ENOENT:  # the program itself was found
        text = "cannot execute %s: %s" % (program, _missing_interpreter(program))
    elif error.errno == errno.EACCES and os.path.isfile(program):
        text += " (to make it executable: chmod +x %s)" % program
    return text


def _missing_interpreter(program: str) -> str:
    """Why a program that exists was not found."""
    with open(program, "rb") as file:
        line = file.readline(_MAX_INTERPRETER)
    if not line.startswith(b"#!"):
        return "its dynamic loader is missing, as it was built for another system"
    name = line[2:].strip().decode(errors="replace")
    if line.endswith(b"\r\n"):
        return "its lines end as on Windows (CR LF), so that %s is not found; convert it" % name
    return "its first line names %s, which does not exist" % name


def write_message(path: str, text: str) -> None:
    """Write a message for people to a process's stderr file (or INHERITED). Raises OSError."""
    if path:
        with os.fdopen(open_or_replace(path, os.O_WRONLY | os.O_APPEND, 0o644), "a") as file:
            file.write("muster: %s\n" % text)
    else:
        sys.stderr.write("muster: %s\n" % text)
        sys.stderr.flush()


def exit_of(status: int) -> Tuple[int, int]:
    """(exit code, signal) of a wait status. Signal N is exit code 128 + N, as in a shell."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, number
    return os.WEXITSTATUS(status), 0


def signal_group(pid: int, number: int) -> None:
    """Signal a process group; nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_session(leader: int) -> None:
    """Kill the processes of a session that are not in its leader's group. The leader was killed, or
    has ended, and was reaped just now at the earliest: the number may be another's later. Those
    that ignore SIGHUP, as after `nohup`, are left."""
    killed: Set[int] = set()
    while True:  # one may have forked before it was killed
        found = {pid for pid in _session(leader) if not _ignores_hangup(pid)} - killed
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found


def _session(leader: int) -> List[int]:
    """The processes of a session, except those of its leader's group; none without /proc."""
    if not sys.platform.startswith("linux"):
        return []
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = _stat(name)
            if stat.session == leader and stat.group != leader and stat.state != "Z":
                found.append(int(name))
    return found


def _ignores_hangup(pid: int) -> bool:
    with contextlib.suppress(OSError), open("/proc/%d/status" % pid, "rb") as file:
        for line in file:
            if line.startswith(b"SigIgn:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGHUP - 1) & 1)
    return True  # it has ended meanwhile


def kill_everything(contained: bool, groups: Sequence[int]) -> None:
    """Kill every process of the node and wait until none is left.

    contained: this process is PID 1 of the node's namespace, and kills all processes it can see.
    Otherwise it must be a subreaper: orphans become its children, and it kills children until there
    are none. groups: process groups to kill on systems without subreapers. Processes of another
    user (sudo), which must not be killed, are left.
    """
    if contained:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, signal.SIGKILL)
        while _wait_for_one():
            pass
        return
    if not sys.platform.startswith("linux"):
        # on Linux, where children are known, a group's number may belong to another process by now
        for pid in groups:
            signal_group(pid, signal.SIGKILL)
    while True:
        found = children()
        left = [pid for pid in found if not _kill(pid)]
        # a child may fork before it is killed: the orphan becomes our child, so look again
        if (found and len(left) == len(found)) or not _wait_for_one():
            return


def end_children(keep: Container[int]) -> None:
    """Kill all children except those in `keep`, and orphans that become children of this process
    (a subreaper) then; returns when they have ended."""
    while ended := kill_children(keep):
        for pid in ended:
            os.waitpid(pid, 0)


def kill_children(keep: Container[int]) -> List[int]:
    """Kill all children except those in `keep`. Returns the pids to wait for; after that their
    orphans may have become children of this process, and have to be killed in turn."""
    return [pid for pid in children() if pid not in keep and _kill(pid)]


def _kill(child: int) -> bool:
    """Returns whether this process may kill it. A pid stays valid until it is waited for."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def ended_children() -> Iterator[Tuple[int, int]]:
    """Reap the children that have ended: (pid, wait status) of each."""
    # not with wait4, which imports a module of Python's: of a hundred agents, each would do that in
    # its first restart
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def ended_children_with_cpu() -> Iterator[Tuple[int, int, float]]:
    """As `ended_children`, with the seconds of CPU time of each and of its own ended children."""
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status, used.ru_utime + used.ru_stime


def _wait_for_one() -> bool:
    """Wait until any child has ended. False if this process has no child."""
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return False
    return True


def children(of: int | None = None) -> List[int]:
    """Pids of the children of this process, or of process `of`, from /proc; none without /proc."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        if of is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                threads = os.listdir("/proc/%d/task" % of)
                return [
                    pid
                    for thread in threads
                    for pid in _children_of_task("%d/task/%s" % (of, thread))
                ]
            return []
        # complete, as this process has one thread and reaps its children itself; listing all
        # processes of the machine would take longer the more nodes run on it
        return _children_of_task("thread-self")
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        me = os.getpid()
        return [
            int(name) for name in os.listdir("/proc") if name.isdigit() and _stat(name).parent == me
        ]


def _children_of_task(task: str) -> List[int]:
    with open("/proc/%s/children" % task, "rb") as file:
        return [int(pid) for pid in file.read().split()]


def state_of(pid: int) -> str:
    """The letter of a process's state (see proc(5)); empty if it has ended or is not known."""
    return _stat(str(pid)).state


class _Stat(NamedTuple):
    """Fields of /proc/PID/stat, see proc(5)."""

    state: str = ""
    parent: int = 0
    group: int = 0
    session: int = 0


def _stat(pid: str) -> _Stat:
    """Without values if it has ended, or without /proc."""
    try:
        with open("/proc/%s/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return _Stat(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]))
    except (OSError, IndexError, ValueError):
        return _Stat()


def close_others(keep: Container[int]) -> None:
    """Close the descriptors of this process, which was forked from another one, apart from the
    standard streams and these."""
    listing = "/proc/self/fd"
    numbers = os.listdir(listing) if os.path.isdir(listing) else map(str, range(3, 4096))
    for number in map(int, numbers):
        if number > 2 and number not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor
                os.close(number)


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process. False where the kernel cannot."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    set_child_subreaper = 36
    return bool(ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0) == 0)


def wake_on_signals() -> int:
    """A descriptor that becomes readable when a child ends or another handled signal arrives."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ours.detach()


def close_wakeup(descriptor: int) -> None:
    """Undo `wake_on_signals`."""
    os.close(signal.set_wakeup_fd(-1))
    os.close(descriptor)


#: Signals that are passed on to a process that this one stands for.
_FORWARDED = tuple(
    getattr(signal, "SIG" + name)
    for name in ("INT", "QUIT", "TERM", "HUP", "USR1", "USR2", "ALRM", "WINCH")
)


def wait_forwarding_signals(pid: int) -> int:
    """Wait for a child of the same process group; returns its exit code. Signals are passed on to
    it, except those of keys, which the kernel sends to the whole group.

    They have to be blocked (`block_forwarded_signals`) since before the child was started.
    """
    while True:
        found = signal.sigwaitinfo({*_FORWARDED, signal.SIGCHLD})
        if found.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return exit_of(status)[0]
        elif not _sent_to_group(found):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, found.si_signo)


def wait_for_leader(pid: int, terminal: int) -> int:
    """As `wait_forwarding_signals`, for the leader of the session of a terminal, of which a
    descriptor is given. If it was told to end, or hung up, the rest of its session is killed; all
    of it if a signal comes when the parent of this process has ended."""
    told, parent = False, os.getppid()
    while True:
        found = signal.sigwaitinfo({*_FORWARDED, signal.SIGCHLD})
        if found.si_signo == signal.SIGCHLD:
            # not reaped yet: the number of the session is its own
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                if told or _is_hung_up(terminal):
                    kill_session(pid)
                return exit_of(os.waitpid(pid, 0)[1])[0]
        elif not _sent_to_group(found):
            told = told or found.si_signo in (signal.SIGTERM, signal.SIGHUP)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, found.si_signo)
                if os.getppid() != parent:
                    signal_group(pid, signal.SIGKILL)
                    os.kill(pid, signal.SIGKILL)


def _is_hung_up(terminal: int) -> bool:
    poll = select.poll()
    poll.register(terminal, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def forwarded_signals() -> Iterator[tuple[int, bool]]:
    """Wait for signals to pass on. They have to be blocked. Yields the number of each, and whether
    the whole process group has got it, for a key."""
    while True:
        found = signal.sigwaitinfo(_FORWARDED)
        yield found.si_signo, _sent_to_group(found)


def _sent_to_group(found: signal.struct_siginfo) -> bool:
    """Whether the kernel has sent a signal to the whole process group, for a key or a new size of
    the terminal. A terminal that is closed signals only the leader of its session."""
    return found.si_code > 0 and found.si_signo != signal.SIGHUP


def block_forwarded_signals() -> None:
    """Block the signals to pass on, and SIGCHLD."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_FORWARDED, signal.SIGCHLD))


def execute(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process by a program, with the signals of a new one. Raises CannotStart."""
    program = find_program(argv[0], env)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(program, list(argv), dict(env))
    except OSError as error:
        raise CannotStart(NOT_EXECUTABLE, _cannot_execute(program, error)) from None
