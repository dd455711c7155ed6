"""The engine contract for commands inside nodes (`Engine.run_in_node`)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Thread
from typing import IO

import pytest

from muster.engines.base import NodeCommand, NodeProcess, RunningNode, Stdio
from muster.engines.registry import engine_named
from muster.errors import EngineError
from muster.storage.home import Home
from support.faults import until
from support.sessions import DETACHED, NAMESPACES, REAL_KINDS, Session

pytestmark = pytest.mark.capability("exec")

MakeSession = Callable[..., Session]


@pytest.fixture(params=REAL_KINDS)
def kind(request: pytest.FixtureRequest, prepare: Callable[[str], str]) -> str:
    return prepare(request.param)


def node_of(one: Session, rank: int) -> RunningNode:
    return RunningNode(Home(one.home).run_dir(one.plan.run_id), rank, one.pid, one.engine)


def start(one: Session, rank: int, command: NodeCommand) -> tuple[NodeProcess, IO[str]]:
    """Start a command; its process, and what it writes."""
    reading, writing = os.pipe()
    with open(os.devnull, "rb") as null, open(writing, "wb") as end:
        stdio = Stdio(null, end, end)
        process = engine_named(one.engine, Home(one.home)).run_in_node(
            node_of(one, rank), command, stdio
        )
    return process, open(reading)


def run(one: Session, rank: int, script: str, **more: object) -> tuple[str, int]:
    """Run a script of the shell; its output and exit code."""
    process, output = start(one, rank, NodeCommand(("sh", "-c", script), **more))  # type: ignore[arg-type]
    with output as file:
        text = file.read()
    return text, process.wait()


@pytest.fixture
def sleeping(session: MakeSession) -> Session:
    """Two nodes that sleep."""
    one = session("exec sleep 1000", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    return one


def test_a_command_has_the_environment_directory_and_processes_of_its_node(
    sleeping: Session, kind: str
) -> None:
    script = 'echo $RANK $EXTRA "$PWD"; hostname; exec 2>&1; cat /proc/1/comm; exit 21'
    text, code = run(sleeping, 1, script, env={"EXTRA": "more"})
    folder = Home(sleeping.home).run_dir(sleeping.plan.run_id)
    work = sleeping.seen_folder(1) / "node/work" if kind in DETACHED else folder.work(1)
    lines = text.splitlines()
    assert (lines[0], code) == (f"1 more {work}", 21)
    if kind in NAMESPACES:
        assert lines[1] == sleeping.plan.nodes[1].hostname
        assert run(sleeping, 1, "echo $$ $PPID")[0].split()[1] == "0"  # its parent is outside
    assert run(sleeping, 0, "pwd", cwd="/")[0] == "/\n"
    sleeping.kill(0, 1)
    sleeping.ended(0, 1)
    assert sleeping.close() == 0


@pytest.mark.parametrize(
    ("script", "code"), [("kill -KILL $$", 137), ("exec no-such-program", 127), ("exec /etc", 126)]
)
def test_exit_codes_are_those_of_a_shell(sleeping: Session, script: str, code: int) -> None:
    assert run(sleeping, 0, script)[1] == code


def test_a_program_that_does_not_exist_is_named(sleeping: Session) -> None:
    process, output = start(sleeping, 0, NodeCommand(("no-such-program",)))
    with output as file:
        assert "no-such-program: command not found" in file.read()
    assert process.wait() == 127


def test_signals_are_passed_on(sleeping: Session) -> None:
    script = "trap 'echo got it; exit 3' USR1; echo up; while :; do sleep 0.01; done"
    process, output = start(sleeping, 0, NodeCommand(("sh", "-c", script)))
    with output as file:
        assert file.readline() == "up\n"
        process.send_signal(signal.SIGUSR1)
        assert file.read() == "got it\n"
    assert process.wait() == 3


def test_an_end_is_reported_to_all_who_wait_and_later(sleeping: Session) -> None:
    process, output = start(sleeping, 0, NodeCommand(("sh", "-c", "echo up; exec sleep 1000")))
    codes: list[int] = []
    waiting = [Thread(target=lambda: codes.append(process.wait())) for _ in range(3)]
    with output as file:
        assert file.readline() == "up\n"
        for thread in waiting:
            thread.start()
        process.send_signal(signal.SIGTERM)
        for thread in waiting:
            thread.join(30)
    assert codes == [143] * 3
    process.send_signal(signal.SIGTERM)  # no process gets it
    assert process.wait() == 143


def test_a_command_ends_with_its_caller(
    sleeping: Session, alive: Callable[[str], list[str]]
) -> None:
    process, output = start(sleeping, 0, NodeCommand(("sh", "-c", "echo up; exec sleep 7654321")))
    with output as file:
        assert file.readline() == "up\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == 137
        assert file.read() == ""
    until(lambda: not alive("7654321"))


def test_a_command_ends_with_its_node(sleeping: Session, kind: str) -> None:
    if kind not in (*NAMESPACES, *DETACHED):
        pytest.skip("without namespaces it outlives the node")
    process, output = start(sleeping, 0, NodeCommand(("sh", "-c", "echo up; exec sleep 1000")))
    with output as file:
        assert file.readline() == "up\n"
        sleeping.kill(0)
        sleeping.ended(0)
        assert file.read() == ""
    assert process.wait() == 137


def test_a_node_that_does_not_run_cannot_be_entered(sleeping: Session, kind: str) -> None:
    sleeping.kill(1)
    sleeping.ended(1)
    why = "node-1 has no processes that are visible here"
    if kind in DETACHED:
        why = "cannot run a command in node-1: no program runs there"
    with pytest.raises(EngineError, match=why):
        start(sleeping, 1, NodeCommand(("true",)))
