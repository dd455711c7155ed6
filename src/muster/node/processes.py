"""Starting and surely ending the processes of one node."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from typing import Container, Iterator, List, Mapping, Sequence, Tuple

from muster.node.files import open_own

#: What a shell answers for a command that is not there, or is no program.
NOT_FOUND = 127
NOT_EXECUTABLE = 126
#: In the place of a file: what we ourselves write to. It may be a socket, which nobody can open, or
#: a file in which whoever opens it anew would not write where we do.
INHERITED = ""

_RESET = tuple(
    s for s in (getattr(signal, n, None) for n in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM")) if s
)


class CannotStart(Exception):  # noqa: N818
    """A process could not be started. code: what a shell would have exited with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def find_program(name: str, env: Mapping[str, str]) -> str:
    """Where `name` is on the PATH of `env` (not on ours). Raises CannotStart."""
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
    """Start a process in a group of its own, its output appended to files (None, INHERITED: it has
    ours). Returns its pid.

    posix_spawn, never fork: the caller may be large. Raises CannotStart.
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
        text = "cannot execute %s: %s" % (program, error.strerror)
        if error.errno == 8:  # ENOEXEC
            text += " (a script needs a first line such as #!/bin/sh)"
        raise CannotStart(NOT_EXECUTABLE, text) from None


def complain(path: str, text: str) -> None:
    """Say why there is no process, where it would have said so. Raises OSError."""
    if path:
        with os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND, 0o644), "a") as file:
            file.write("muster: %s\n" % text)
    else:
        sys.stderr.write("muster: %s\n" % text)
        sys.stderr.flush()


def exit_of(status: int) -> Tuple[int, int]:
    """(exit code, signal) of a wait status. A signal counts as 128 + its number, as in a shell."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, number
    return os.WEXITSTATUS(status), 0


def signal_group(pid: int, number: int) -> None:
    """Signal a process and all in its group; nothing if they are gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_everything(contained: bool, groups: Sequence[int]) -> None:
    """End every process of the node and wait until none is left.

    contained: we are PID 1 of the node's namespace, so "everything" is what we can see. Otherwise
    we must be a subreaper: orphans become our children, and we kill children until there are none.
    What runs as another user (sudo) may not be ours to end, and is left.
    """
    if contained:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, signal.SIGKILL)
        while _wait_for_one():
            pass
        return
    if not sys.platform.startswith("linux"):
        # elsewhere the groups are all we know; here their numbers may be somebody else's by now
        for pid in groups:
            signal_group(pid, signal.SIGKILL)
    while True:
        there = children()
        left = [pid for pid in there if not _kill(pid)]
        # a child may fork between the look and the kill: its orphan comes to us, so look again
        if (there and len(left) == len(there)) or not _wait_for_one():
            return


def end_children(but: Container[int]) -> None:
    """End our children but for some, and the orphans that come to us of it, where we are a
    subreaper; returns when none of them is left that is ours to end."""
    while ended := kill_children(but):
        for pid in ended:
            os.waitpid(pid, 0)


def kill_children(but: Container[int]) -> List[int]:
    """Kill our children but for some. Returns those that are still to be waited for: their
    orphans may come to us then, and have to be killed in turn."""
    return [pid for pid in children() if pid not in but and _kill(pid)]


def _kill(child: int) -> bool:
    """Whether it was ours to end. Its number is its own until it is waited for."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def ended_children() -> Iterator[Tuple[int, int]]:
    """(pid, wait status) of each child that has ended by now; they are gone then."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _wait_for_one() -> bool:
    """Wait until any child has ended. False if there is none."""
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return False
    return True


def children(of: int | None = None) -> List[int]:
    """Pids of our children, or of another process's, from /proc; none where there is no /proc."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        if of is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                threads = os.listdir("/proc/%d/task" % of)
                return [pid for thread in threads for pid in _listed("%d/task/%s" % (of, thread))]
            return []
        # complete, as only we reap and there is one thread of us; a look at every process of the
        # machine takes as long for each node as there are nodes
        return _listed("thread-self")
    except FileNotFoundError:  # a kernel built without
        me = os.getpid()
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == me]


def _listed(task: str) -> List[int]:
    with open("/proc/%s/children" % task, "rb") as file:
        return [int(pid) for pid in file.read().split()]


def state_of(pid: int) -> str:
    """The letter for what a process does (see proc(5)); empty if it has gone, or nobody knows."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def _parent(pid: str) -> int:
    try:
        with open("/proc/%s/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0  # it ended while we looked


def become_subreaper() -> bool:
    """Make orphans of our descendants our own children. False where the kernel cannot."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    set_child_subreaper = 36
    return bool(ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0) == 0)


def wake_on_signals() -> int:
    """A descriptor that becomes readable when a child ends, or another handled signal comes."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ours.detach()
