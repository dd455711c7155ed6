"""One step: its changes, its log entries, and when the next step is due."""

from __future__ import annotations

from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import Entry
from muster.lifecycle.events import NodeEnded, NodeReady, NodeStarted, Tick
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, RunStatus, new_status
from muster.lifecycle.transition import Transition
from support.run_driver import policy, running, starting

PLAIN = policy((1, 3, None))


def test_a_step_without_changes_returns_the_same_status() -> None:
    run = running(PLAIN)
    before = run.status
    assert run.tick().status is before
    assert run.entries == ()


def test_unchanged_nodes_are_not_copied() -> None:
    run = running(policy((1, 2, None), max_restarts=1))
    before = run.status
    transition = Transition(run.policy, before, run.now)
    transition.update(details="x")
    status, _, _ = transition.finish()
    assert status.nodes is before.nodes
    assert (status.details, before.details) == ("x", "")
    assert before.counts is not status.counts, "a step never changes what it was given"


def test_nodes_with_the_same_change_share_one_log_line() -> None:
    run = starting(PLAIN).step(NodeReady(0), NodeReady(2), NodeStarted(1))
    assert run.entries == (
        Entry("nodes", {"ranks": "0,2", "state": "READY"}),
        Entry("nodes", {"ranks": "1", "state": "RUNNING"}),
        Entry("run", {"state": "IN_PROGRESS", "details": ""}),
    )


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'


def test_ends_of_nodes_are_logged_with_their_exit_codes() -> None:
    run = running(PLAIN)
    run.step(
        NodeEnded(0, 0, message="an unimportant line"),
        NodeEnded(1, 1, message=f"{TRACEBACK}OSError: first\nlast"),
        NodeEnded(2, 139, signal=11, reason=Reason.OUT_OF_MEMORY, raised_at=5.0),
    )
    end = {"state": "FAILED", "why": "OSError: first", "exit_code": 1, "signal": 0}
    assert [entry.kind for entry in run.entries[:2]] == ["failure"] * 2, "the reason first"
    assert run.entries[2:5] == (
        Entry(
            "nodes",
            {"ranks": "0", "state": "SUCCEEDED", "exit_code": 0, "signal": 0}
            | {"why": "an unimportant line"},
        ),
        Entry("nodes", {"ranks": "1", **end}),
        Entry("nodes", {"ranks": "2", "state": "FAILED", "exit_code": 139, "signal": 11}),
    )
    assert run.notes("failure") == [
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


def test_restarts_are_logged_with_their_number_and_the_previous_end() -> None:
    run = running(policy((1, 3, None), max_restarts=1, grace_period=9)).end(0, 4)
    assert [dict(e.data) for e in run.entries if e.kind == "nodes"] == [
        {"ranks": "0", "state": "PENDING", "restart": 1}
    ]
    run.end(1, 143, signal=15)
    assert run.notes("nodes")[-1] == {
        "ranks": "1",
        "state": "PENDING",
        "restart": 1,
        "why": "ended with exit code 143",
    }
    run.end(2, None)
    assert run.notes("nodes")[-1] == {"ranks": "0-2", "state": "STARTING", "restart": 1}


def test_a_node_without_an_exit_code_is_logged_as_ended() -> None:
    run = running(policy((1, 3, None), max_restarts=1)).end(0, 4).end(1, None)
    assert run.notes("nodes")[-1]["why"] == "ended"


def test_stop_requests_are_not_logged_as_node_changes() -> None:
    """A stop request is logged for the run, not as a change of the node."""
    run = running(policy((1, 3, None), max_restarts=1)).end(1, 4)
    assert [note["ranks"] for note in run.notes("nodes")][-1] == "1"


def test_the_alarm_is_the_earliest_of_all_and_off_at_the_end() -> None:
    transition = Transition(
        PLAIN, RunStatus(new_status(PLAIN.first_nodes()).nodes, alarm=50.0), 10.0
    )
    assert not transition.alarm_reached
    transition.wake(60)
    assert transition.alarm == 50
    transition.wake(40)
    assert transition.alarm == 40
    assert transition.finish()[0].alarm == 40
    transition.set_state(RunState.SUSPENDED)
    assert transition.finish()[0].alarm is None


def test_an_alarm_that_was_reached_must_be_set_again() -> None:
    transition = Transition(
        PLAIN, RunStatus(new_status(PLAIN.first_nodes()).nodes, alarm=50.0), 50.0
    )
    assert transition.alarm_reached and transition.alarm is None
    assert transition.finish()[0].alarm is None
    assert Transition(PLAIN, new_status(PLAIN.first_nodes()), 50.0).alarm_reached is False


def test_a_time_that_is_not_due_sets_the_alarm() -> None:
    transition = Transition(PLAIN, new_status(PLAIN.first_nodes()), 50.0)
    assert transition.is_due(49.9) and transition.is_due(50.0)
    assert transition.alarm is None
    assert not transition.is_due(50.1)
    assert transition.alarm == 50.1


def test_nothing_wakes_a_run_that_has_ended() -> None:
    run = running(policy((1, 1, None))).end(0)
    assert run.status.state is RunState.SUCCEEDED
    assert (run.status.alarm, wake_at(run.status)) == (None, None)
    ended = RunStatus((), state=RunState.FAILED, alarm=5.0)
    assert wake_at(ended) is None
    assert decide(PLAIN, ended, [Tick()], 9.0).status is ended


def test_a_run_starts_accepted_or_suspended() -> None:
    nodes = (NodeStatus(), NodeStatus())
    assert new_status(nodes) == RunStatus(nodes, state=RunState.ACCEPTED)
    assert new_status(nodes, suspended=True) == RunStatus(nodes, state=RunState.SUSPENDED)


def test_final_states() -> None:
    final = {state for state in RunState if state.terminal}
    assert final == {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED, RunState.DELETED}
    ended = {state for state in NodeState if state.ended}
    assert ended == {NodeState.SUCCEEDED, NodeState.FAILED, NodeState.STOPPED}


def test_the_limit_of_recorded_failures_applies_to_each_incident() -> None:
    transition = Transition(PLAIN, new_status(PLAIN.first_nodes()), 10.0)

    def recorded(ats: range, first: float) -> list[float]:
        for at in (*ats, first):
            transition.record_failure(Failure(0, "g0", Reason.EXIT, 1, 0, "", at))
        return [failure.at for failure in transition.run.failures]

    assert recorded(range(100, 140), 50) == [*range(100, 131), 50]
    transition.update(failures=())
    assert recorded(range(200, 240), 150) == [*range(200, 231), 150]
    assert recorded(range(240, 250), 120)[-1] == 120
    assert recorded(range(250, 260), 130)[-1] == 120


def test_a_failure_names_the_incarnation() -> None:
    run = running(policy((1, 1, None), max_restarts=3)).end(0, 1).up(0).end(0, 1)
    assert [data.get("restart") for data in run.notes("failure")] == [None, 1]
