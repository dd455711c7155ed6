"""No node, however it fares, keeps the session from hearing of the others, or of its controller."""

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

_PIDFD_GETFD = 438  # the same on every machine


def soon(one: Session, kind: str, rank: int) -> Event:
    """The next event, which is this one."""
    assert select.select([one.process.stdout], [], [], 60)[0], "the session waits for somebody"
    event = one.event()
    assert (event["event"], event["rank"]) == (kind, rank), event
    return event


def hold_sockets_of(pid: int) -> list[int]:
    """Duplicates of them, as a child has that was stopped before it became another program."""
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


def test_an_agent_dies_while_another_process_has_its_socket(session: MakeSession) -> None:
    one = session("exec sleep 1000", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    lost = one.agents()[0]
    held = hold_sockets_of(lost)
    os.kill(lost, signal.SIGKILL)
    assert soon(one, "NodeEnded", 0)["reason"] == "node_lost"
    one.kill(1)
    soon(one, "NodeEnded", 1)
    assert one.close() == 0
    for descriptor in held:
        os.close(descriptor)


def test_a_stopped_agent_is_not_waited_for(session: MakeSession) -> None:
    """It hears nothing, and there is no room for what it is sent."""
    one = session("exec sleep 1000", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    stopped = one.agents()[0]
    os.kill(stopped, signal.SIGSTOP)
    for _ in range(5000):
        one.signal(signal.SIGCONT, 0)
    one.kill(1)
    soon(one, "NodeEnded", 1)
    os.kill(stopped, signal.SIGCONT)
    one.stop(0)
    assert soon(one, "NodeEnded", 0)["signal"] == signal.SIGTERM, "it has heard all of it"
    assert one.close() == 0
