"""What a node server that was killed has left: an agent that is ending its node, and, if that was
killed as well, processes that nobody ends.

These are found in the node's control groups, and by a variable in their environment, as of the
start of each program. Where the node has no control group, a process that was started without the
variable, after its agent was killed too, is not found.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Dict, List, NoReturn, Sequence

from muster.node.control_groups import end_groups
from muster.node.files import open_or_replace, read_regular, replace_file

#: Holds the folder of a node, in the environment of its programs.
VARIABLE = "MUSTER_NODE_FOLDER"
#: The file that the agent has locked, with its pid.
_LOCK = "agent"
#: The file with the paths of the node's control groups, a line each.
_GROUPS = "groups"
#: Seconds that an agent gets to end its node, and that killed processes get to end.
_AGENT_TIMEOUT = 10.0
#: Seconds between two looks.
_PAUSE = 0.01


def mark(env: Dict[str, str], folder: str) -> Dict[str, str]:
    """The environment with the mark."""
    return {**env, VARIABLE: folder}


class CannotEnd(Exception):  # noqa: N818
    """Processes of a node cannot be ended. The text says which."""


def hold_agent_lock(folder: str) -> int:
    """Wait until no other agent of the node runs, then be known as its agent until the returned
    descriptor is closed, or this process ends. folder: the node server's. Raises OSError."""
    descriptor = open_or_replace(os.path.join(folder, _LOCK), os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, b"%d" % os.getpid(), 0)
    return descriptor


def has_leftovers(folder: str) -> bool:
    """Whether something may be left: a server has been in this folder, and did not leave."""
    return any(os.path.exists(os.path.join(folder, name)) for name in (_LOCK, _GROUPS))


def end_leftovers(folder: str) -> None:
    """Wait until the agent of a server that was killed has ended the node, and kill what is left.
    folder: the node server's. No other server may run. Raises OSError, CannotEnd."""
    descriptor = open_or_replace(os.path.join(folder, _LOCK), os.O_RDWR, 0o600)
    try:
        _wait_for_agent(descriptor)
        _end_groups(folder)
        _kill_marked(folder)
    finally:
        os.close(descriptor)


def record_groups(folder: str, paths: Sequence[str]) -> None:
    """Record where the control groups of a node will be, before they are made. folder: the node
    server's. Raises OSError."""
    replace_file(os.path.join(folder, _GROUPS), "\n".join(paths).encode(), 0o600)


def _end_groups(folder: str) -> None:
    """Kill the processes in the control groups of a node, and remove these. Raises CannotEnd."""
    path = os.path.join(folder, _GROUPS)
    with contextlib.suppress(FileNotFoundError):
        if left := end_groups(read_regular(path).decode().splitlines()):
            _cannot_end(left)
        os.unlink(path)


def _cannot_end(pids: Sequence[int]) -> NoReturn:
    text = "processes that a killed agent has left: %s"
    raise CannotEnd(text % ", ".join(map(str, pids)))


def _wait_for_agent(descriptor: int) -> None:
    """Wait for the lock of an agent. After a while, kill the agent. Raises CannotEnd."""
    begun = time.monotonic()
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        waited, pid = time.monotonic() - begun, os.pread(descriptor, 20, 0)
        if waited > 2 * _AGENT_TIMEOUT:
            raise CannotEnd(
                "the agent that a killed node server has left (process %s)" % pid.decode()
            )
        if waited > _AGENT_TIMEOUT and pid.isdigit():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(_PAUSE)  # it is no child of this process


def _kill_marked(folder: str) -> None:
    """Kill the processes of a node, and wait until they have ended. Raises CannotEnd."""
    deadline = time.monotonic() + _AGENT_TIMEOUT
    while found := _marked(folder):
        if time.monotonic() > deadline:
            _cannot_end(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)  # they are no children of this process


def _marked(folder: str) -> List[int]:
    """Pids of the processes with the mark, without this one and those that have ended."""
    wanted = ("%s=%s" % (VARIABLE, folder)).encode()
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in numbers if pid != os.getpid() and wanted in _environment(pid)]


def _environment(pid: int) -> List[bytes]:
    """The environment that a process was started with; empty if it has ended, or is not to be
    seen."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
