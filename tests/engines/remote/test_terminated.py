"""What ends a node may send SIGTERM to all of its processes, in any order, as Slurm does."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.node.processes import children
from support.sessions import Session, make_plan


@pytest.fixture
def session(prepare: Callable[[str], str], own_home: Path) -> Iterator[Session]:
    plan = make_plan("exec sleep 1000")
    (own_home / "runs" / plan.run_id).mkdir(parents=True)
    one = Session(prepare("dialed"), own_home, plan)
    yield one
    one.abandon()


def program_of(session: Session) -> int:
    (agent,) = session.agents()
    (program,) = children(agent)
    return program


@pytest.mark.parametrize("first", ["program", "server"])
def test_a_node_whose_processes_are_all_terminated_is_lost(session: Session, first: str) -> None:
    session.start(0)
    session.ready(0)
    program, (server,) = program_of(session), session.servers()
    if first == "program":
        os.kill(server, signal.SIGSTOP)  # it waits for its own signal for a moment only
        os.kill(program, signal.SIGTERM)
        os.kill(server, signal.SIGTERM)
        os.kill(server, signal.SIGCONT)
    else:
        os.kill(server, signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):  # the server has ended its program
            os.kill(program, signal.SIGTERM)
    ended = session.ended_after_all(0)[0]  # its outputs cannot be copied any more
    assert ended["reason"] == "node_lost"
    assert "canceled, preempted or out of time" in ended["message"]


def test_a_program_that_is_terminated_alone_has_failed_itself(session: Session) -> None:
    session.start(0)
    session.ready(0)
    os.kill(program_of(session), signal.SIGTERM)
    ended = session.ended(0)[0]
    assert (ended["reason"], ended["exit_code"]) == ("exit", 143)
