"""One step: what it changes, what it says of it, and when the next one is due."""

from __future__ import annotations

from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import Entry
from muster.lifecycle.events import NodeEnded, NodeReady, NodeStarted, Tick
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, RunStatus, new_status
from muster.lifecycle.turn import Turn
from support.life import begun, policy, running

PLAIN = policy((1, 3, None))


def test_a_step_that_changes_nothing_is_the_status_itself() -> None:
    life = running(PLAIN)
    before = life.status
    assert life.tick().status is before
    assert life.entries == ()


def test_who_does_not_change_is_not_copied() -> None:
    life = running(policy((1, 2, None), max_restarts=1))
    before = life.status
    turn = Turn(life.policy, before, life.now)
    turn.update(details="x")
    status, _, _ = turn.finish()
    assert status.nodes is before.nodes
    assert (status.details, before.details) == ("x", "")
    assert before.census is not status.census, "a step never changes what it was given"


def test_what_is_alike_is_told_in_one_line() -> None:
    life = begun(PLAIN).tell(NodeReady(0), NodeReady(2), NodeStarted(1))
    assert life.entries == (
        Entry("nodes", {"ranks": "0,2", "state": "READY"}),
        Entry("nodes", {"ranks": "1", "state": "RUNNING"}),
        Entry("run", {"state": "IN_PROGRESS", "details": ""}),
    )


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'


def test_ends_are_told_with_their_codes() -> None:
    life = running(PLAIN)
    life.tell(
        NodeEnded(0, 0, message="a line of no matter"),
        NodeEnded(1, 1, message=f"{TRACEBACK}OSError: first\nlast"),
        NodeEnded(2, 139, signal=11, reason=Reason.OUT_OF_MEMORY, raised_at=5.0),
    )
    end = {"state": "FAILED", "why": "OSError: first", "exit_code": 1, "signal": 0}
    assert [entry.kind for entry in life.entries[:2]] == ["failure"] * 2, "the reason first"
    assert life.entries[2:5] == (
        Entry(
            "nodes",
            {"ranks": "0", "state": "SUCCEEDED", "exit_code": 0, "signal": 0}
            | {"why": "a line of no matter"},
        ),
        Entry("nodes", {"ranks": "1", **end}),
        Entry("nodes", {"ranks": "2", "state": "FAILED", "exit_code": 139, "signal": 11}),
    )
    assert life.notes("failure") == [
        {
            "rank": 1,
            "group": "g0",
            "reason": "exit",
            "exit_code": 1,
            "signal": 0,
            "message": f"{TRACEBACK}OSError: first\nlast",
        },
        {
            "rank": 2,
            "group": "g0",
            "reason": "out_of_memory",
            "exit_code": 139,
            "signal": 11,
            "message": "",
            "raised_at": 5.0,
        },
    ]


def test_new_lives_are_told_with_their_number_and_what_ended_the_old() -> None:
    life = running(policy((1, 3, None), max_restarts=1, grace_period=9)).end(0, 4)
    assert [dict(e.data) for e in life.entries if e.kind == "nodes"] == [
        {"ranks": "0", "state": "PENDING", "restart": 1}
    ]
    life.end(1, 143, signal=15)
    assert life.notes("nodes")[-1] == {
        "ranks": "1",
        "state": "PENDING",
        "restart": 1,
        "why": "ended with exit code 143",
    }
    life.end(2, None)
    assert life.notes("nodes")[-1] == {"ranks": "0-2", "state": "STARTING", "restart": 1}


def test_what_has_no_code_just_ended() -> None:
    life = running(policy((1, 3, None), max_restarts=1)).end(0, 4).end(1, None)
    assert life.notes("nodes")[-1]["why"] == "ended"


def test_intentions_are_no_news() -> None:
    """That a node was told to end is in what the run is doing, not in what the node is."""
    life = running(policy((1, 3, None), max_restarts=1)).end(1, 4)
    assert [note["ranks"] for note in life.notes("nodes")][-1] == "1"


def test_the_alarm_is_the_first_of_all_and_off_at_the_end() -> None:
    turn = Turn(PLAIN, RunStatus(new_status(PLAIN.first_nodes()).nodes, alarm=50.0), 10.0)
    assert not turn.due
    turn.wake(60)
    assert turn.alarm == 50
    turn.wake(40)
    assert turn.alarm == 40
    assert turn.finish()[0].alarm == 40
    turn.become(RunState.SUSPENDED)
    assert turn.finish()[0].alarm is None


def test_an_alarm_that_went_off_has_to_be_set_again() -> None:
    turn = Turn(PLAIN, RunStatus(new_status(PLAIN.first_nodes()).nodes, alarm=50.0), 50.0)
    assert turn.due and turn.alarm is None
    assert turn.finish()[0].alarm is None
    assert Turn(PLAIN, new_status(PLAIN.first_nodes()), 50.0).due is False


def test_a_time_that_has_not_come_is_looked_at_again() -> None:
    turn = Turn(PLAIN, new_status(PLAIN.first_nodes()), 50.0)
    assert turn.past(49.9) and turn.past(50.0)
    assert turn.alarm is None
    assert not turn.past(50.1)
    assert turn.alarm == 50.1


def test_nothing_wakes_a_run_that_has_ended() -> None:
    life = running(policy((1, 1, None))).end(0)
    assert life.status.state is RunState.SUCCEEDED
    assert (life.status.alarm, wake_at(life.status)) == (None, None)
    ended = RunStatus((), state=RunState.FAILED, alarm=5.0)
    assert wake_at(ended) is None
    assert decide(PLAIN, ended, [Tick()], 9.0).status is ended


def test_a_run_begins_accepted_or_suspended() -> None:
    nodes = (NodeStatus(), NodeStatus())
    assert new_status(nodes) == RunStatus(nodes, state=RunState.ACCEPTED)
    assert new_status(nodes, suspended=True) == RunStatus(nodes, state=RunState.SUSPENDED)


def test_states_say_whether_they_are_final() -> None:
    final = {state for state in RunState if state.terminal}
    assert final == {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED, RunState.DELETED}
    ended = {state for state in NodeState if state.ended}
    assert ended == {NodeState.SUCCEEDED, NodeState.FAILED, NodeState.STOPPED}


def test_too_many_failures_of_each_incident_are_too_many_of_it_alone() -> None:
    turn = Turn(PLAIN, new_status(PLAIN.first_nodes()), 10.0)

    def told(ats: range, first: float) -> list[float]:
        for at in (*ats, first):
            turn.remember(Failure(0, "g0", Reason.EXIT, 1, 0, "", at))
        return [failure.at for failure in turn.run.failures]

    assert told(range(100, 140), 50) == [*range(100, 131), 50]
    turn.update(failures=())
    assert told(range(200, 240), 150) == [*range(200, 231), 150]
    assert told(range(240, 250), 120)[-1] == 120
    assert told(range(250, 260), 130)[-1] == 120


def test_a_failure_says_which_life_failed() -> None:
    life = running(policy((1, 1, None), max_restarts=3)).end(0, 1).up(0).end(0, 1)
    assert [data.get("restart") for data in life.notes("failure")] == [None, 1]
