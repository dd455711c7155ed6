"""Ending: save, SIGTERM, a grace period, SIGKILL, and the outcome when nothing is left."""

from __future__ import annotations

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, StopNodes
from muster.lifecycle.events import CancelRequested, Event, SuspendRequested
from muster.lifecycle.policy import Backoff, Checkpoint, Success
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.life import begun, policy, refs, running

N = NodeState


def test_a_node_that_was_to_start_again_ends_with_its_replica() -> None:
    """It was too slow and would have been tried again; then another node of it has failed."""
    life = begun(policy((2, 2, 1, {"retries": 1, "ready_timeout": 10}))).up(1, 2, 3)
    life.tick(after=10)
    assert life.node(0).again == 1
    life.end(1, 1)
    assert life.node(0).again is None
    life.obey()
    assert life.states() == [N.FAILED, N.FAILED, N.READY, N.READY]


@pytest.mark.parametrize("grace", [0.0, 7.0])
def test_who_does_not_hear_is_killed_once(grace: float) -> None:
    life = running(policy((1, 3, None), grace_period=grace)).end(0, 1)
    assert life.effects == (StopNodes(refs(1, 2)),)
    assert wake_at(life.status) == life.now + grace
    life.end(1, 143, signal=15, after=grace / 2)
    if grace:
        assert life.effects == ()
        life.tick(after=grace / 2)
    assert life.effects == (KillNodes(refs(2)),)
    assert life.tick(after=100).effects == ()
    assert wake_at(life.status) is None, "nothing more can be done"
    assert life.end(2, 137, signal=9).states() == [N.FAILED, N.STOPPED, N.STOPPED]


def test_each_has_its_own_grace() -> None:
    life = running(policy((3, 2, 1))).end(0, 1).end(2, 1, after=4)
    assert wake_at(life.status) == life.now + 6
    assert life.tick(after=6).effects == (KillNodes(refs(1)),)
    assert wake_at(life.status) == life.now + 4
    assert life.tick(after=4).effects == (KillNodes(refs(3)),)


def test_a_grace_that_is_over_early_is_not_over() -> None:
    """Something else woke the run."""
    life = running(policy((2, 2, 1, {"timeout": 15}))).end(0, 1, after=5)
    assert life.tick(after=9).effects == (StopNodes(refs(2, 3)),)
    assert life.tick(after=1).effects == (KillNodes(refs(1)),)


@pytest.mark.parametrize(
    ("code", "signal", "state"),
    [
        (143, 15, N.STOPPED),
        (137, 9, N.STOPPED),
        (1, 0, N.STOPPED),
        (None, 0, N.STOPPED),
        (0, 0, N.SUCCEEDED),
    ],
)
def test_how_who_was_told_to_end_has_ended(code: int | None, signal: int, state: NodeState) -> None:
    life = running(policy((1, 1, None))).tell(CancelRequested("enough"))
    life.end(0, code, signal=signal)
    assert life.states() == [state]
    assert (life.node(0).exit_code, life.node(0).signal) == (code, signal)
    assert life.status.state is RunState.CANCELED


def test_an_end_of_its_own_while_the_run_pauses_is_none() -> None:
    life = running(policy((1, 1, None))).tell(SuspendRequested("wait")).end(0, 0)
    assert life.states() == [N.PENDING]


def test_a_run_that_has_succeeded_fails_of_what_it_has_lost() -> None:
    """What a node wrote could not be brought to where it belongs while the run ended."""
    life = running(policy((2, 1, None), success=Success((0,), any_replica=True))).end(0)
    life.end(1, 1, reason=Reason.OUTPUT_LOST, message="no such bucket")
    assert (life.status.state, life.status.exit_code) == (RunState.FAILED, 1)
    said = "what node-1 (group g0, rank 1) wrote is not where it belongs:\nno such bucket"
    assert life.status.details == said
    assert life.status.cause is not None and life.status.cause.rank == 1
    assert life.states() == [N.SUCCEEDED, N.FAILED]


def test_a_run_that_has_succeeded_fails_of_nothing_else() -> None:
    life = running(policy((2, 1, None), success=Success((0,), any_replica=True))).end(0)
    life.end(1, 5)
    assert (life.status.state, life.status.exit_code) == (RunState.SUCCEEDED, 0)
    assert life.states() == [N.SUCCEEDED, N.STOPPED]


def test_a_canceled_run_that_has_lost_something_is_canceled() -> None:
    life = running(policy((1, 1, None))).tell(CancelRequested("enough"))
    life.end(0, 1, reason=Reason.OUTPUT_LOST)
    assert (life.status.state, life.status.exit_code) == (RunState.CANCELED, None)
    assert life.states() == [N.FAILED]


def test_what_waits_to_start_again_never_does() -> None:
    save, slow = Checkpoint(10, 30), Backoff(initial=90)
    life = running(
        policy((1, 2, None), max_restarts=2, max_runtime=60, checkpoint=save, backoff=slow)
    )
    life.end(0, 1).obey().up(0, 1).end(0, 1, after=54).tick(after=3)
    assert (life.status.state, life.states()) == (RunState.CANCELING, [N.PENDING, N.READY])
    assert life.node(0).not_before is not None and life.node(1).not_before is None
    life.obey()
    assert (life.status.state, life.states()) == (RunState.CANCELED, [N.STOPPED, N.STOPPED])
    assert life.node(0).not_before is None


def test_what_is_stopped_waits_for_nothing() -> None:
    life = running(policy((1, 2, None), max_restarts=2, backoff=Backoff(initial=90)))
    life.end(0, 1).obey().up(0, 1).end(0, 1)
    assert life.node(1).not_before is not None
    life.tell(CancelRequested("enough"))
    assert [node.not_before for node in life.status.nodes] == [None, None]
    assert life.notes("nodes")[-1]["why"] == "enough"


def test_the_log_says_towards_what_and_why() -> None:
    life = running(policy((1, 2, None))).tell(CancelRequested("enough"))
    assert life.notes("stopping") == [{"towards": "CANCELED", "why": "enough"}]
    assert life.notes("run")[-1] == {"state": "CANCELING", "details": "enough"}


def test_who_only_serves_ends_when_the_others_have_saved() -> None:
    save = Checkpoint(10, 300)
    life = running(policy((1, 2, None), (1, 2, 0, {"serves": True}), checkpoint=save))
    life.tell(SuspendRequested("a rest"))
    assert life.stops() == []
    assert life.end(0).stops() == [], "rank 1 may need them"
    assert life.end(1).stops() == [2, 3]
    assert life.obey().status.state is RunState.SUSPENDED


def test_who_only_serves_is_told_once() -> None:
    save = Checkpoint(10, 300)
    life = running(policy((1, 1, None), (1, 2, 0, {"serves": True}), checkpoint=save))
    life.tell(SuspendRequested("a rest")).end(0)
    assert life.tick().stops() == []
    assert life.end(1, 143, signal=15).stops() == []


@pytest.mark.parametrize("again", [CancelRequested("enough"), SuspendRequested("wait")])
def test_who_is_told_to_end_again_has_no_more_time(again: Event) -> None:
    life = running(policy((1, 2, None), max_restarts=1, grace_period=10)).end(0, 1)
    kill_at = life.node(1).kill_at
    life.tell(again, after=6)
    assert (life.node(1).kill_at, life.effects) == (kill_at, ())
    assert life.tick(after=4).effects == (KillNodes(refs(1)),)
