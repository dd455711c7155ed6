"""Ending a supervisor that does not answer, and every process of its run."""

from __future__ import annotations

import os
import select
import signal
import time

from muster.control import lease
from muster.errors import EngineError
from muster.node.processes import children, state_of
from muster.storage.home import RunDir

_DYING = 10.0  # seconds that the kernel has to end a process


def end_supervisor(folder: RunDir, name: str) -> None:
    """Kill whoever drives a run, and all that it has started; nothing if nobody drives it. The run
    is then to be taken up by somebody else. Raises EngineError if that cannot be done."""
    pid = lease.supervisor(folder.lease)
    if pid is None:
        if lease.held(folder.lease):
            raise EngineError(
                f"cannot find the process that drives {name}: it may belong to another user, or "
                f"to another container (`fuser {folder.lease}` names it)"
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
        # the number was somebody else's if the process has ended before we had hold of it
        if lease.supervisor(folder.lease) == pid:
            _end(pid, process, name)
    finally:
        os.close(process)


def _end(pid: int, process: int, name: str) -> None:
    """Its children first, while it is stopped: it starts no others then, orphans of theirs come to
    it, and as it does not wait for them their numbers stay their own."""
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    deadline = time.monotonic() + _DYING
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
            f"process {pid} of {name} was killed and has not ended: it waits for the kernel, "
            "for a disk or a server that does not answer, say"
        )
