"""Kill a supervisor that does not answer, and every process of its run."""

from __future__ import annotations

import os
import select
import signal
import time

from muster.control import run_lock
from muster.errors import EngineError
from muster.node.processes import children, state_of
from muster.storage.home import RunDir

#: Seconds for the kernel to end all killed processes of a run.
_KILL_TIMEOUT = 10.0


def end_supervisor(folder: RunDir, name: str) -> None:
    """Kill the supervisor of a run and all its processes; nothing if it has no supervisor. The
    caller recovers the run. Raises EngineError if the supervisor cannot be killed."""
    pid = run_lock.holder_pid(folder.lock)
    if pid is None:
        if run_lock.is_held(folder.lock):
            raise EngineError(
                f"cannot find the supervisor of {name}: it may belong to another user, or "
                f"to another container (`fuser {folder.lock}` names it)"
            )
        return
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        os.kill(pid, signal.SIGKILL)
        return
    try:
        process = opener(pid)
    except ProcessLookupError:
        return
    try:
        # the pid may belong to another process if the supervisor exited before it was opened
        if run_lock.holder_pid(folder.lock) == pid:
            _end(pid, process, name)
    finally:
        os.close(process)


def _end(pid: int, process: int, name: str) -> None:
    """Kill the children first, while the supervisor is stopped: it starts no others, it inherits
    their orphans, and their pids are not reused since it does not wait for them."""
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    deadline = time.monotonic() + _KILL_TIMEOUT
    try:
        while left := [child for child in children(pid) if state_of(child) not in ("Z", "X", "")]:
            for child in left:
                os.kill(child, signal.SIGKILL)
                _await(os.pidfd_open(child), deadline, child, name)
    except BaseException:
        signal.pidfd_send_signal(process, signal.SIGCONT)  # so that it records the child's end
        raise
    signal.pidfd_send_signal(process, signal.SIGKILL)
    _await(os.dup(process), deadline, pid, name)


def _await(process: int, deadline: float, pid: int, name: str) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    os.close(process)
    if not ended:
        raise EngineError(
            f"process {pid} of {name} was killed but has not ended: "
            "it is blocked in the kernel, perhaps by a disk or a server that does not answer"
        )
