"""The engine contract for calls and events, with real and with simulated nodes.

The order of events is checked in every contract test (`support.session_rules`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.programs import (
    COUNTS,
    ENDS_WHEN_STOPPED,
    IGNORES_STOP,
    RUNS,
    SAVE,
    SAVES,
    Program,
    ends_by,
    ends_with,
)
from support.sessions import ALL_KINDS, DrivenSession
from support.ssh_hosts import add_engine, shared_sshd

MakeSession = Callable[..., DrivenSession]

#: Whether nodes are kept for a restart in place.
keeping = pytest.mark.parametrize(
    "keep", [pytest.param(True, marks=pytest.mark.capability("in_place")), False]
)


@pytest.fixture(params=ALL_KINDS)
def kind(request: pytest.FixtureRequest, prepare: Callable[[str], str]) -> str:
    return prepare(request.param)


@pytest.mark.subject("exit codes")
@pytest.mark.parametrize(
    ("program", "code", "number"),
    [(ends_with(0), 0, 0), (ends_with(21), 21, 0), (ends_by(signal.SIGSEGV), 139, 11)],
)
def test_an_end_has_the_exit_code_and_signal_of_the_program(
    programs: MakeSession, program: Program, code: int, number: int
) -> None:
    one = programs(program)
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (code, number, "exit")
    assert one.close() == 0


@pytest.mark.subject("start order")
def test_nothing_is_reported_of_nodes_that_were_not_started(programs: MakeSession) -> None:
    one = programs(ends_with(0), nodes=3)
    one.start(1)
    one.ended(1)
    assert one.close() == 0


def test_a_start_that_is_repeated_changes_nothing(programs: MakeSession) -> None:
    one = programs(RUNS)
    one.start(0)
    one.start(0)
    one.up(0)
    one.start(0)
    one.kill(0)
    assert one.ended(0)[0]["signal"] == signal.SIGKILL
    one.start(0)
    assert one.close() == 0


def test_no_incarnation_starts_while_another_one_runs(programs: MakeSession) -> None:
    one = programs(RUNS)
    one.start(0, incarnation=1)
    one.up(0, incarnation=1)
    one.start(0, incarnation=2)
    one.start(0)
    one.kill(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0


@keeping
def test_calls_about_other_incarnations_change_nothing(programs: MakeSession, keep: bool) -> None:
    one = programs(ENDS_WHEN_STOPPED, keep=keep)
    one.start(0, incarnation=3)
    one.up(0, incarnation=3)
    one.stop(0, incarnation=3)
    assert one.ended(0, incarnation=3)[0]["exit_code"] == 0
    one.start(0, incarnation=4)
    one.up(0, incarnation=4)
    for incarnation in (3, 5):
        one.stop(0, incarnation=incarnation)
        one.kill(0, incarnation=incarnation)
        one.signal(signal.SIGTERM, 0, incarnation=incarnation)
    one.kill(0, incarnation=4)
    assert one.ended(0, incarnation=4)[0]["signal"] == signal.SIGKILL
    assert one.close() == 0


@pytest.mark.subject("restart strategies")
@keeping
def test_every_incarnation_has_an_end(programs: MakeSession, keep: bool) -> None:
    one = programs(COUNTS, nodes=2, keep=keep)
    for incarnation in range(4):
        one.start(0, 1, incarnation=incarnation, attempt=incarnation // 2)
        ended = one.ended(0, 1, incarnation=incarnation)
        assert {end["exit_code"] for end in ended.values()} == {incarnation + 1}
    assert one.close() == 0


@pytest.mark.subject("signals")
def test_a_program_may_end_by_itself_when_it_is_stopped(programs: MakeSession) -> None:
    one = programs(ENDS_WHEN_STOPPED, nodes=2)
    one.start(0, 1)
    one.up(0, 1)
    one.stop(0)
    one.stop(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["signal"]) == (0, 0)
    one.kill(1)
    assert one.ended(1)[1]["signal"] == signal.SIGKILL
    assert one.close() == 0


def test_a_program_that_ignores_a_stop_is_killed(programs: MakeSession) -> None:
    one = programs(IGNORES_STOP)
    one.start(0)
    one.up(0)
    one.stop(0)
    one.kill(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["signal"]) == (137, signal.SIGKILL)
    assert one.close() == 0


@pytest.mark.parametrize("end", [DrivenSession.stop, DrivenSession.kill])
def test_a_node_can_be_ended_before_its_program_has_started(
    programs: MakeSession, end: Callable[..., None]
) -> None:
    one = programs(RUNS)
    one.start(0)
    end(one, 0)
    assert one.ended(0)[0]["exit_code"] in (137, 143)
    assert one.close() == 0


@pytest.mark.subject("signals")
def test_a_signal_reaches_the_program_of_one_node(programs: MakeSession) -> None:
    one = programs(SAVES, nodes=2)
    one.start(0, 1)
    one.up(0, 1)
    one.signal(SAVE, 1)
    assert one.ended(1)[1]["exit_code"] == 0
    one.kill(0)
    assert one.ended(0)[0]["signal"] == signal.SIGKILL
    assert one.close() == 0


@pytest.mark.subject("node loss")
def test_a_node_that_is_lost_is_reported(programs: MakeSession) -> None:
    one = programs(RUNS)
    one.start(0)
    one.up(0)
    one.lose(0)
    assert one.ended(0)[0]["reason"] == "node_lost"
    one.start(0, incarnation=1)
    one.up(0, incarnation=1)
    one.kill(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0


@keeping
def test_a_node_that_is_released_can_be_started_again(programs: MakeSession, keep: bool) -> None:
    one = programs(ends_with(3), keep=keep)
    one.start(0)
    one.ended(0)
    one.release(0, incarnation=1)
    one.release(0, incarnation=1)
    one.start(0, incarnation=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 3
    assert one.close() == 0


@pytest.mark.parametrize("kind", ["hosts"])
def test_a_node_that_waits_in_a_queue_is_reported(
    kind: str, prepare: Callable[[str], str], programs: MakeSession, own_home: Path
) -> None:
    """Its machine is taken by another run. The next session still waits for it."""
    prepare(kind)
    add_engine(own_home, shared_sshd(), slots=1)
    first, second = programs(RUNS), programs(RUNS)
    first.start(0)
    first.up(0)
    second.start(0)
    for _ in range(2):
        queued = second.event()
        assert queued["event"] == "NodeQueued", queued
        assert "127.0.0.1" in queued["why"], queued
        second = second.replaced()
        assert second.event()["event"] == "NodeUnreachable"
    first.kill(0)
    first.ended(0)
    assert first.close() == 0
    names = []
    while names[-1:] != ["NodeReady"]:
        names.append(second.event()["event"])
    assert names.index("NodeScheduled") < names.index("NodeStarted"), names
    assert "NodeEnded" not in names
    second.kill(0)
    assert second.ended(0)[0]["signal"] == signal.SIGKILL
    assert second.close() == 0


@pytest.mark.subject("attach after a kill")
@pytest.mark.capability("detached")
def test_the_next_session_attaches_to_nodes_whose_controller_was_killed(
    programs: MakeSession,
) -> None:
    one = programs(ENDS_WHEN_STOPPED, nodes=2)
    one.start(0, 1)
    one.up(0, 1)
    for _ in range(2):
        one = one.replaced()
        found: dict[int, list[str]] = {0: [], 1: []}
        while not all(names[-1:] == ["NodeReady"] for names in found.values()):
            event = one.event()
            found[event["rank"]].append(event["event"])
        for names in found.values():
            assert "NodeReachable" in names and "NodeEnded" not in names, "the program continues"
    one.start(0, 1)
    one.stop(0, 1)
    assert {end["exit_code"] for end in one.ended(0, 1).values()} == {0}
    assert one.close() == 0


@pytest.mark.subject("attach after a kill")
@pytest.mark.capability("detached")
def test_a_node_that_was_never_started_is_started_by_the_next_session(
    programs: MakeSession,
) -> None:
    """Its start was recorded, and the controller was killed before it called `start`."""
    one = programs(ends_with(7))
    one.records_a_start(0)
    one = one.replaced()
    one.start(0)
    while (event := one.event())["event"] != "NodeEnded":
        pass
    assert event["exit_code"] == 7
    assert one.close() == 0
