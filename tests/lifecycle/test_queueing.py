"""A run that waits for resources."""

from __future__ import annotations

from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    ResumeRequested,
    RunAdmitted,
    RunQueued,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.states import NodeState, RunState
from support.run_driver import RunDriver, policy, running, starting

N = NodeState
QUEUED = RunQueued("waiting for memory: needs 20GiB")
ADMITTED = RunAdmitted()
ONE = (1, 1, None)


def queued(**more: object) -> RunDriver:
    return RunDriver(policy(ONE, ONE, **more)).step(ControllerStarted(), QUEUED)


def test_no_node_of_a_queued_run_starts() -> None:
    run = queued()
    assert (run.status.state, run.status.details) == (RunState.QUEUED, QUEUED.why)
    assert run.effects == ()
    assert run.states() == [N.PENDING, N.PENDING]
    assert run.tick(after=1e6).status.state is RunState.QUEUED


def test_an_admitted_run_starts() -> None:
    run = queued().step(ADMITTED)
    assert run.status.state is RunState.ACCEPTED
    assert run.starts() == [0, 1]
    run.up(0, 1)
    assert (run.status.state, run.status.details) == (RunState.IN_PROGRESS, "")


def test_a_run_that_does_not_wait_is_admitted_without_an_entry() -> None:
    run = RunDriver(policy(ONE)).step(ControllerStarted(), ADMITTED)
    assert run.starts() == [0]
    assert run.notes("run") == []


def test_each_reason_is_logged_once() -> None:
    other = RunQueued("waiting for something else")
    run = queued().step(QUEUED).step(other).step(other)
    assert [entry["details"] for entry in run.notes("run")] == [QUEUED.why, other.why]
    assert (run.status.state, run.status.details) == (RunState.QUEUED, other.why)


def test_no_clock_runs_while_a_run_is_queued() -> None:
    run = queued(max_runtime=100.0, attempt_timeout=50.0)
    assert run.tick(after=1000).status.state is RunState.QUEUED
    run.step(ADMITTED).up(0, 1)
    assert run.tick(after=49).status.stopping is None
    assert run.tick(after=2).status.stopping is not None


def test_cancel_ends_a_queued_run_at_once() -> None:
    run = queued().step(CancelRequested("enough"))
    assert (run.status.state, run.status.details) == (RunState.CANCELED, "enough")
    assert run.status.started_at is None


def test_a_queued_run_can_be_suspended_and_queues_again_when_resumed() -> None:
    run = queued().step(SuspendRequested("later"))
    assert run.status.state is RunState.SUSPENDED
    run.step(ResumeRequested("now"), QUEUED)
    assert run.status.state is RunState.QUEUED
    assert run.effects == ()
    assert [entry["state"] for entry in run.notes("run")][-2:] == ["ACCEPTED", "QUEUED"]


def test_nodes_that_the_engine_has_not_started_are_pending() -> None:
    run = starting(policy(ONE, (1, 1, None, {"ready_timeout": 5.0}))).step(QUEUED)
    assert run.states() == [N.PENDING, N.PENDING]
    run.tick(after=100).step(ADMITTED)
    assert run.starts() == [0, 1]


def test_a_recovered_run_waits_without_spending_its_runtime() -> None:
    run = running(policy(ONE, max_runtime=100.0, max_restarts=3)).tick(after=60)
    run.step(SupervisorLost("killed", frozenset({0})), QUEUED, after=0)
    assert run.status.state is RunState.QUEUED
    assert run.states() == [N.PENDING]
    run.step(ADMITTED, after=1000)
    assert run.starts() == [0]
    run.up(0)
    assert run.tick(after=30).status.stopping is None
    assert run.tick(after=20).status.stopping is not None


def test_a_run_that_ends_is_not_queued() -> None:
    run = running(policy(ONE)).step(SupervisorLost("killed", frozenset({0})), QUEUED)
    assert run.status.state is RunState.FAILED
    assert "QUEUED" not in [entry["state"] for entry in run.notes("run")]
