"""A node that hangs or was killed does not block the session: it still reports the other nodes."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.sessions import Event, Session

MakeSession = Callable[..., Session]

_PIDFD_GETFD = 438  # the same on all architectures


def next_event(one: Session, kind: str, rank: int) -> Event:
    """The next event, which must be of this kind and rank."""
    assert select.select([one.process.stdout], [], [], 60)[0], "the session is blocked"
    event = one.event()
    assert (event["event"], event["rank"]) == (kind, rank), event
    return event


def hold_sockets_of(pid: int) -> list[int]:
    """Duplicate the sockets of a process, as a child has them that was stopped before its exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    links = Path(f"/proc/{pid}/fd").iterdir()
    sockets = [int(link.name) for link in links if os.readlink(link).startswith("socket:")]
    held = [libc.syscall(_PIDFD_GETFD, process, number, 0) for number in sockets]
    os.close(process)
    assert held
    if min(held) < 0:
        pytest.skip(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
    return held


def test_the_end_of_an_agent_is_reported_while_another_process_holds_its_socket(
    session: MakeSession,
) -> None:
    one = session("exec sleep 1000", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    lost = one.agents()[0]
    held = hold_sockets_of(lost)
    os.kill(lost, signal.SIGKILL)
    assert next_event(one, "NodeEnded", 0)["reason"] == "node_lost"
    one.kill(1)
    next_event(one, "NodeEnded", 1)
    assert one.close() == 0
    for descriptor in held:
        os.close(descriptor)


def test_a_stopped_agent_does_not_block_the_session(session: MakeSession) -> None:
    """The agent reads nothing, and the buffer of its socket is full."""
    one = session("exec sleep 1000", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    stopped = one.agents()[0]
    os.kill(stopped, signal.SIGSTOP)
    for _ in range(5000):
        one.signal(signal.SIGCONT, 0)
    one.kill(1)
    next_event(one, "NodeEnded", 1)
    os.kill(stopped, signal.SIGCONT)
    one.stop(0)
    assert next_event(one, "NodeEnded", 0)["signal"] == signal.SIGTERM, (
        "the agent received every message"
    )
    assert one.close() == 0
