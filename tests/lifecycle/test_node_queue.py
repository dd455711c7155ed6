"""Nodes that wait in the queue of the engine's infrastructure."""

from __future__ import annotations

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    Event,
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
    RunQueued,
    SupervisorLost,
)
from muster.lifecycle.outstanding import effects
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, RunStatus
from support.run_driver import RunDriver, policy, refs, starting

N = NodeState
WHY = "Resources: 8 GPUs"
QUEUED = NodeQueued(0, 0, WHY)
LIMITS = {"ready_timeout": 10.0, "timeout": 60.0}


def queued(**group: float) -> RunDriver:
    return starting(policy((1, 1, None, group))).step(QUEUED)


def test_a_node_that_waits_is_queued() -> None:
    run = queued()
    node = run.node(0)
    assert (node.state, node.waits_for, node.alive) == (N.QUEUED, WHY, True)
    assert run.status.state is RunState.ACCEPTED
    assert run.notes("nodes")[-1] == {"ranks": "0", "state": "QUEUED", "why": WHY}
    assert run.step(QUEUED).entries == (), "as before"
    run.step(NodeQueued(0, 0, "Priority"))
    assert run.notes("nodes")[-1] == {"ranks": "0", "state": "QUEUED", "why": "Priority"}


def test_a_scheduled_node_starts() -> None:
    run = queued().step(NodeScheduled(0, 0, "n17"), after=3600)
    node = run.node(0)
    assert (node.state, node.waits_for, node.since) == (N.STARTING, "", run.now)
    assert run.notes("scheduled") == [
        {"ranks": "0", "group": "g0", "where": "n17", "seconds": 3601.0}
    ]
    assert run.step(NodeScheduled(0, 0, "n17")).entries == ()


def test_no_clock_of_a_node_runs_while_it_is_queued() -> None:
    run = queued(**LIMITS)
    assert run.tick(after=1e5).effects == ()
    run.step(NodeScheduled(0))
    assert wake_at(run.status) == run.now + 10
    run.step(run.started(0), run.ready(0), after=9)
    assert run.tick(after=50).notes("failure") == []
    assert run.tick(after=1).notes("failure")[0]["reason"] == Reason.DEADLINE


@pytest.mark.parametrize(
    ("event", "limit"), [(NodeScheduled(0), 10.0), (NodeStarted(0), 10.0), (NodeReady(0), 60.0)]
)
def test_clocks_count_from_the_first_sign_of_a_start(event: Event, limit: float) -> None:
    run = queued(**LIMITS).step(event, after=1e5)
    assert run.node(0).since == run.now
    assert run.tick(after=limit - 1).notes("failure") == []
    assert len(run.tick(after=1).notes("failure")) == 1


def test_a_node_that_waits_again_counts_from_its_last_start() -> None:
    """Also if it could not be reached for a while after the first."""
    run = queued(ready_timeout=10.0).step(NodeScheduled(0))
    run.step(NodeUnreachable(0)).step(NodeReachable(0), after=100)
    assert run.node(0).away == 100
    run.step(QUEUED).step(NodeScheduled(0), after=1e5)
    assert run.tick(after=9).notes("failure") == []
    assert len(run.tick(after=1).notes("failure")) == 1


@pytest.mark.parametrize(("code", "state"), [(0, N.SUCCEEDED), (None, N.FAILED)])
def test_a_node_may_end_from_the_queue(code: int | None, state: NodeState) -> None:
    reason = Reason.EXIT if code == 0 else Reason.NOT_STARTED
    run = queued().step(NodeEnded(0, code, reason=reason))
    assert (run.node(0).state, run.node(0).waits_for) == (state, "")


def test_a_replica_counts_from_its_first_node_that_is_not_queued() -> None:
    rules = policy((1, 2, None, {"timeout": 60.0}))
    run = starting(rules).step(*(NodeQueued(rank, 0, WHY) for rank in range(2)))
    run.step(NodeScheduled(0), after=1000).tick(after=59)
    assert run.notes("failure") == []
    run.tick(after=1)
    assert [entry["rank"] for entry in run.notes("failure")] == [0, 1]


def test_a_replica_does_not_count_from_a_node_that_ended_from_the_queue() -> None:
    """It has run while there was no contact, and nobody knows when."""
    rules = policy((1, 2, None, {"timeout": 60.0}))
    run = starting(rules).step(*(NodeQueued(rank, 0, WHY) for rank in range(2)))
    run.step(NodeScheduled(1), NodeEnded(0, 0), after=1000).tick(after=59)
    assert run.notes("failure") == []
    run.tick(after=1)
    assert [entry["rank"] for entry in run.notes("failure")] == [1]


@pytest.mark.parametrize(
    "node", [NodeStatus(N.RUNNING), NodeStatus(N.READY), NodeStatus(N.STOPPED)]
)
def test_only_a_node_that_is_starting_is_queued(node: NodeStatus) -> None:
    run = RunDriver(policy((2, 1, None), in_order=True))
    run.status = RunStatus((NodeStatus(N.RUNNING), node), state=RunState.IN_PROGRESS)
    run.step(NodeQueued(1, 0, WHY), NodeScheduled(1))
    assert run.node(1) == node


def test_a_queued_node_is_stopped_like_one_that_has_not_started() -> None:
    run = queued().step(CancelRequested("enough"))
    assert run.effects == (StopNodes(refs(0)),)
    assert run.tick(after=10).effects == (KillNodes(refs(0)),)
    run.end(0, 143, signal=15)
    assert (run.status.state, run.states()) == (RunState.CANCELED, [N.STOPPED])


@pytest.mark.parametrize("event", [RunQueued("memory"), SupervisorLost("killed", frozenset())])
def test_a_queued_node_that_was_lost_with_its_queue_is_pending(event: Event) -> None:
    run = queued()
    run.policy = policy((1, 1, None), in_order=True)
    run.step(event, RunQueued("memory"))
    assert run.node(0) == NodeStatus()


def test_the_next_supervisor_does_not_ask_again_for_a_node_that_is_queued() -> None:
    status = RunStatus((NodeStatus(N.QUEUED, since=5.0),))
    assert effects(policy((1, 1, None)), status) == ()
    run = queued(**LIMITS)
    before = run.node(0)
    assert run.step(ControllerStarted(attaches=True)).node(0) == before


def test_nodes_that_are_scheduled_together_have_one_entry_by_group() -> None:
    ranks = range(1000)
    run = starting(policy((1, 999, None), (1, 1, None)))
    run.step(*(NodeQueued(rank, 0, WHY) for rank in ranks))
    assert [entry["ranks"] for entry in run.notes("nodes")[1:]] == ["0-999"]
    run.step(*(NodeScheduled(rank, 0, f"n{rank // 8}") for rank in ranks), after=5)
    assert run.notes("scheduled") == [
        {"ranks": "0-998", "group": "g0", "where": "n0, n1, n2 and 122 more", "seconds": 6.0},
        {"ranks": "999", "group": "g1", "where": "n124", "seconds": 6.0},
    ]


def test_where_a_node_is() -> None:
    run = starting(policy((1, 2, None, {}))).step(NodeLocated(0, 0, "n17", "10.0.0.17", "4711"))
    assert (run.node(0).host, run.node(0).address) == ("n17", "10.0.0.17")
    assert run.node(0).host_id == "4711"
    assert (run.node(1).host, run.node(1).address) == ("", "")
    run.step(NodeReady(0), NodeReady(1), NodeLocated(0, 0, "n18", "10.0.0.18"))
    assert (run.node(0).state, run.node(0).host) == (N.READY, "n18")
    run.step(NodeLocated(1, 7, "n19", "10.0.0.19"))
    assert run.node(1).host == "", "of an incarnation that does not exist"
    run.step(NodeEnded(0, 0))
    assert run.node(0).host == "n18", "it was there"
