"""Nodes whose agents cannot be reached for a while."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import KillNodes, SignalNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    Event,
    NodeEnded,
    NodeReachable,
    NodeStarted,
    NodeUnreachable,
    RunBroken,
    RunQueued,
    ScaleRequested,
    SupervisorLost,
    SuspendRequested,
    Tick,
)
from muster.lifecycle.outstanding import effects
from muster.lifecycle.policy import Action, Checkpoint, Policy, Strategy
from muster.lifecycle.ranks import parse_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, RunStatus
from support.run_driver import RunDriver, policy, refs, running, starting

N = NodeState
GRACE = 10.0  # of `policy`
SAVING = Checkpoint(10, 30)


def lost(*ranks: int, incarnation: int = 0, why: str = "no answer") -> list[Event]:
    return [NodeUnreachable(rank, incarnation, why) for rank in ranks]


def found(*ranks: int, incarnation: int = 0) -> list[Event]:
    return [NodeReachable(rank, incarnation) for rank in ranks]


# --- the status


def test_a_lost_contact_fails_and_replaces_nothing() -> None:
    run = running(policy((1, 2, None), max_restarts=3)).step(*lost(1))
    assert (run.states(), run.effects) == ([N.READY, N.READY], ())
    assert run.node(1).unreachable_since == run.now
    assert run.node(0).unreachable_since is None
    assert run.tick(after=1e5).states() == [N.READY, N.READY]
    run.step(*found(1))
    assert run.node(1) == replace(run.node(0))
    assert run.notes("failure") == run.notes("restart") == []


@pytest.mark.parametrize(
    ("node", "event"),
    [
        (NodeStatus(not_before=1e6), NodeUnreachable(0)),
        (NodeStatus(N.SUCCEEDED), NodeUnreachable(0)),
        (NodeStatus(N.SCALED_DOWN), NodeUnreachable(0)),
        (NodeStatus(N.READY, 2), NodeUnreachable(0, 1)),
        (NodeStatus(N.READY), NodeReachable(0)),
        (NodeStatus(N.READY, unreachable_since=5.0, unreachable_why="x"), *lost(0, why="x")),
        (NodeStatus(N.READY, 2, unreachable_since=5.0), NodeReachable(0, 1)),
    ],
)
def test_old_and_repeated_reports_change_nothing(node: NodeStatus, event: Event) -> None:
    status = RunStatus((node, NodeStatus(N.READY)), state=RunState.IN_PROGRESS)
    made = decide(policy((2, 1, None), in_order=True), status, [event], 1000.0)
    assert made.status.nodes[0] == node
    assert not [e for e in made.entries if e.kind in ("reachable", "unreachable")]


@pytest.mark.parametrize(("code", "state"), [(0, N.SUCCEEDED), (1, N.FAILED), (None, N.FAILED)])
def test_an_unreachable_node_ends_like_any_other(code: int | None, state: NodeState) -> None:
    run = running(policy((1, 2, None))).step(*lost(1))
    run.end(1, code, reason=Reason.EXIT if code is not None else Reason.NODE_LOST)
    assert run.node(1).state is state
    assert (run.node(1).unreachable_since, run.node(1).away) == (None, 0.0)


@pytest.mark.parametrize(
    "event", [RunQueued("memory"), SupervisorLost("killed", frozenset()), RunBroken("gone")]
)
def test_a_node_that_is_not_alive_is_not_unreachable(event: Event) -> None:
    run = starting(policy((1, 1, None))).step(*lost(0)).step(event)
    assert run.node(0).unreachable_since is None


# --- successors


@pytest.mark.parametrize("strategy", Strategy)
def test_a_successor_waits_for_the_end_of_an_unreachable_node(strategy: Strategy) -> None:
    rules = policy((1, 2, None), max_restarts=1, strategy=strategy)
    run = running(rules).step(*lost(1)).end(0, 1)
    assert (run.node(1).next_incarnation, run.starts()) == (1, [])
    assert run.tick(after=1e5).starts() == [], "it may run for days"
    run.step(NodeEnded(1, None, reason=Reason.NODE_LOST, message="its host was replaced"))
    assert run.starts() == [0, 1]
    assert len(run.notes("failure")) == 1, "its loss follows from the restart"


def test_a_replica_of_an_array_waits_for_the_end_of_its_unreachable_node() -> None:
    rules = policy((3, 1, None, {"parallelism": 1, "retries": 1}))
    run = starting(rules).up(0).step(*lost(0)).tick(after=1000)
    assert run.starts() == []
    run.end(0, None, reason=Reason.NODE_LOST)
    assert (run.starts(), run.node(0).incarnation) == ([0], 1)


def test_a_lost_node_is_a_failure_when_that_is_confirmed() -> None:
    run = running(policy((1, 2, None), max_restarts=1, action=Action.RESTART_NODE)).step(*lost(1))
    run.end(1, None, reason=Reason.NODE_LOST, after=3600)
    assert run.starts() == [1]
    assert [entry["reason"] for entry in run.notes("failure")] == [Reason.NODE_LOST]


def test_an_unreachable_replica_that_is_scaled_down_ends_first() -> None:
    run = running(policy((2, 1, 1))).step(*lost(1)).step(ScaleRequested("g0", 1, "by user"))
    assert run.node(1).scaling_down
    run.step(ScaleRequested("g0", 2, "by user"), after=1000)
    assert run.starts() == []
    run.end(1, None, reason=Reason.NODE_LOST)
    assert (run.starts(), run.notes("failure")) == ([1], [])


# --- clocks


def test_the_startup_clock_stands_still_without_contact() -> None:
    run = starting(policy((1, 1, None, {"ready_timeout": 10.0}))).tick(after=4)
    run.step(*lost(0), after=0)
    assert run.tick(after=1000).node(0).state is N.STARTING
    run.step(*found(0), after=0)
    assert wake_at(run.status) == run.now + 6
    run.step(*lost(0), after=2).step(*found(0), after=500)
    assert wake_at(run.status) == run.now + 4
    run.step(run.started(0), after=3)
    assert run.notes("failure") == []
    run.tick(after=1)
    assert [entry["reason"] for entry in run.notes("failure")] == [Reason.STARTUP_TIMEOUT]


@pytest.mark.parametrize(
    ("group", "more"),
    [({"timeout": 60.0}, {}), ({}, {"attempt_timeout": 60.0}), ({}, {"max_runtime": 60.0})],
)
def test_other_time_limits_stop_an_unreachable_node(
    group: dict[str, Any], more: dict[str, Any]
) -> None:
    run = running(policy((1, 1, None, group), **more)).step(*lost(0), after=0)
    run.step(*found(0), after=20).step(*lost(0), after=0)
    run.tick(after=40)
    assert run.stops() == [0]
    assert run.status.stopping is not None


def test_a_node_that_was_lost_before_it_was_stopped_has_its_grace_period_when_it_is_found() -> None:
    run = running(policy((1, 1, None))).step(*lost(0)).step(CancelRequested("enough"), after=100)
    assert run.effects == (StopNodes(refs(0)),), "the session delivers it when there is contact"
    assert run.tick(after=1000).effects == ()
    run.step(*found(0), after=0)
    assert (run.effects, wake_at(run.status)) == ((), run.now + GRACE)
    assert run.tick(after=GRACE).effects == (KillNodes(refs(0)),)


def test_a_node_that_is_lost_while_it_is_stopped_has_the_rest_of_its_grace_period() -> None:
    run = running(policy((1, 1, None))).step(CancelRequested("enough")).step(*lost(0), after=4)
    assert run.tick(after=1000).effects == ()
    run.step(*found(0), after=0)
    assert run.tick(after=5.5).effects == ()
    assert run.tick(after=0.5).effects == (KillNodes(refs(0)),)


def test_a_node_that_is_lost_while_it_saves_has_the_rest_of_its_time() -> None:
    run = running(policy((1, 2, None), checkpoint=SAVING)).step(*lost(1))
    run.step(SuspendRequested("later"))
    assert run.effects == (SignalNodes(refs(0, 1), 10),)
    assert run.tick(after=30).stops() == [0], "the other one"
    run.step(*found(1), after=0)
    assert run.tick(after=29).effects == (KillNodes(refs(0)),)
    assert run.tick(after=1).effects == (StopNodes(refs(1)),)
    assert run.tick(after=GRACE).effects == (KillNodes(refs(1)),)


def test_a_killed_node_that_is_found_again_stays_killed() -> None:
    run = running(policy((1, 1, None))).step(CancelRequested("enough")).tick(after=GRACE)
    run.step(*lost(0)).step(*found(0), after=50)
    assert (run.effects, wake_at(run.status)) == ((), None)


def test_a_canceled_run_waits_for_the_end_of_an_unreachable_node() -> None:
    run = running(policy((1, 2, None))).step(*lost(1)).step(CancelRequested("enough")).end(0, 143)
    assert run.tick(after=1e5).status.state is RunState.CANCELING
    run.end(1, None, reason=Reason.NODE_LOST)
    assert run.status.state is RunState.CANCELED


@pytest.mark.parametrize(
    "node",
    [
        NodeStatus(N.STARTING),
        NodeStatus(N.RUNNING, term_at=5.0),
        NodeStatus(N.RUNNING, kill_at=5.0),
        NodeStatus(N.RUNNING, kill_at=5.0, killed=True),
    ],
)
def test_the_next_supervisor_repeats_what_an_unreachable_node_may_not_have_got(
    node: NodeStatus,
) -> None:
    rules = policy((1, 1, None), checkpoint=SAVING)
    away = replace(node, unreachable_since=3.0)
    assert effects(rules, RunStatus((away,))) == effects(rules, RunStatus((node,))) != ()


# --- a controller that attaches


def attached(rules: Policy, node: NodeStatus, *events: Event) -> RunDriver:
    """A run with one node, after a controller has attached to it at 1001."""
    run = RunDriver(rules)
    run.status = RunStatus((node,), state=RunState.IN_PROGRESS, alarm=0.0)
    return run.step(ControllerStarted(attaches=True), *events)


def test_the_startup_of_a_node_starts_again_when_a_controller_attaches() -> None:
    rules = policy((1, 1, None, {"ready_timeout": 50.0, "timeout": 500.0}))
    for state in (N.STARTING, N.RUNNING):
        run = attached(rules, NodeStatus(state, since=900.0))
        assert wake_at(run.status) == 1051.0
        assert run.tick(after=50).notes("failure")[0]["reason"] == Reason.STARTUP_TIMEOUT
    run = attached(rules, NodeStatus(N.RUNNING, since=600.0, unreachable_since=700.0))
    assert run.tick(after=99).notes("failure")[0]["reason"] == Reason.DEADLINE, "as before"


def test_the_startup_clock_stands_still_until_the_node_is_reached() -> None:
    rules = policy((1, 1, None, {"ready_timeout": 50.0}))
    for known in ({}, {"unreachable_since": 950.0}):
        run = attached(rules, NodeStatus(N.STARTING, since=900.0, **known), *lost(0))
        assert run.tick(after=1000).notes("failure") == []
        run.step(*found(0), after=0)
        assert wake_at(run.status) == run.now + 50


def test_a_grace_period_starts_again_when_a_controller_attaches() -> None:
    """The controller before it may not have sent the signal."""
    run = attached(policy((1, 1, None)), NodeStatus(N.READY, kill_at=990.0))
    assert (run.effects, wake_at(run.status)) == ((), run.now + GRACE)
    assert run.tick(after=GRACE).effects == (KillNodes(refs(0)),)
    run = attached(policy((1, 1, None), checkpoint=SAVING), NodeStatus(N.READY, term_at=990.0))
    assert run.tick(after=29).effects == ()
    assert run.tick(after=1).effects == (StopNodes(refs(0)),)
    node = NodeStatus(N.READY, kill_at=990.0, unreachable_since=500.0)
    run = attached(policy((1, 1, None)), node, *lost(0)).step(*found(0), after=100)
    assert run.tick(after=9).effects == ()
    assert run.tick(after=1).effects == (KillNodes(refs(0)),)


def test_attaching_changes_nothing_else() -> None:
    for node in (NodeStatus(N.READY, since=5.0), NodeStatus(N.READY, kill_at=5.0, killed=True)):
        assert attached(policy((1, 1, None)), node).node(0) == node


# --- the log


def test_nodes_that_are_lost_together_have_one_entry_by_group_and_reason() -> None:
    run = running(policy((1, 3, None), (1, 2, None))).step(
        *lost(0, 1, 3, 4, why="the link is down"), *lost(2, why="no answer")
    )
    assert run.notes("unreachable") == [
        {"ranks": "0-1", "group": "g0", "why": "the link is down"},
        {"ranks": "2", "group": "g0", "why": "no answer"},
        {"ranks": "3-4", "group": "g1", "why": "the link is down"},
    ]
    run.step(*lost(0, why="no answer"), *found(0, 2), after=5).step(*found(3), after=2)
    assert run.notes("reachable") == [
        {"ranks": "0,2", "group": "g0", "seconds": 5.0},
        {"ranks": "3", "group": "g1", "seconds": 7.0},
    ]


def test_a_loss_comes_before_the_failure_that_confirms_it() -> None:
    run = running(policy((1, 1, None)))
    run.step(*lost(0), NodeEnded(0, None, reason=Reason.NODE_LOST))
    kinds = [entry.kind for entry in run.entries]
    assert kinds[:3] == ["unreachable", "failure", "nodes"]


def test_contacts_that_come_and_go_in_one_step_have_one_entry_by_group() -> None:
    ranks = range(1000)
    run = running(policy((1, len(ranks), None)))
    flapping = [event for rank in ranks for event in (*lost(rank), *found(rank), *lost(rank))]
    run.step(*flapping)
    assert [(e.kind, e.data["ranks"]) for e in run.entries] == [
        ("unreachable", "0-999"),
        ("reachable", "0-999"),
    ]
    assert {node.unreachable_since for node in run.status.nodes} == {run.now}


# --- any order


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lost", "found", "started", "ended", "cancel", "tick"]),
            st.integers(0, 2),
            st.sampled_from([0.0, 1.0, 9.0, 40.0]),
        ),
        max_size=30,
    )
)
def test_a_node_is_unreachable_from_a_loss_to_its_end_or_a_contact(
    steps: list[tuple[str, int, float]],
) -> None:
    """And it is neither killed nor found to be late meanwhile."""
    group = {"ready_timeout": 20.0}
    run = starting(policy((1, 3, None, group), max_restarts=3, action=Action.RESTART_NODE))
    for what, rank, after in steps:
        number = run.node(rank).incarnation
        event: Event = {
            "lost": NodeUnreachable(rank, number, "no answer"),
            "found": NodeReachable(rank, number),
            "started": NodeStarted(rank, number),
            "ended": NodeEnded(rank, None, reason=Reason.NODE_LOST, incarnation=number),
            "cancel": CancelRequested("enough"),
            "tick": Tick(),
        }[what]
        before = run.status
        run.step(event, after=after)
        if before.state.terminal:
            return
        expected = {r for r, node in enumerate(before.nodes) if node.unreachable_since is not None}
        if what == "lost" and before.nodes[rank].alive:
            expected.add(rank)
        elif what in ("found", "ended"):
            expected.discard(rank)
        nodes = enumerate(run.status.nodes)
        assert {r for r, node in nodes if node.unreachable_since is not None} == expected
        killed = [ref.rank for e in run.effects if isinstance(e, KillNodes) for ref in e.nodes]
        late = [
            entry.data["rank"]
            for entry in run.entries
            if entry.kind == "failure" and entry.data["reason"] == Reason.STARTUP_TIMEOUT
        ]
        assert not expected.intersection(killed, late)
        logged = [e.data["ranks"] for e in run.entries if e.kind == "unreachable"]
        lost_now = expected - {r for r, n in enumerate(before.nodes) if n.unreachable_since}
        assert [r for text in logged for r in parse_ranks(text)] == sorted(lost_now)


def test_why_a_node_cannot_be_reached_may_change() -> None:
    run = running(policy((1, 2, None))).step(*lost(0, 1, why="no answer"))
    since = run.node(0).unreachable_since
    run.step(*lost(0, why="refused"), *lost(1, why="no answer"), after=5)
    assert [run.node(rank).unreachable_why for rank in range(2)] == ["refused", "no answer"]
    assert [run.node(rank).unreachable_since for rank in range(2)] == [since, since]
    assert run.notes("unreachable")[1:] == [{"ranks": "0", "group": "g0", "why": "refused"}]
    run.step(*found(0))
    assert run.node(0).unreachable_why == ""
    run.step(NodeEnded(1, None, reason=Reason.NODE_LOST))
    assert run.node(1).unreachable_why == ""
