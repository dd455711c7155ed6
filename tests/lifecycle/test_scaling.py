"""Scaling groups up and down while the run continues."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.lifecycle import outstanding
from muster.lifecycle.effects import KillNodes, ReleaseNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    ResumeRequested,
    RunBroken,
    ScaleRequested,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.policy import (
    Action,
    Backoff,
    Checkpoint,
    Dependency,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason
from support.run_driver import RunDriver, policy, refs, starting

N = NodeState
SUSPEND = SuspendRequested("wait")
RESUME = ResumeRequested("continue")


def to(replicas: int, group: str = "g0") -> ScaleRequested:
    return ScaleRequested(group, replicas, "by user")


def elastic(desired: int, most: int, least: int | None = None, **more: Any) -> tuple[Any, ...]:
    """A group that can be scaled up."""
    return most, more.pop("nodes", 1), least, {"desired": desired, **more}


def cluster(desired: int = 2, most: int = 4, least: int = 0, **more: Any) -> RunDriver:
    """One required node, and others that serve it; all are ready."""
    return all_ready(RunDriver(policy((1, 1, None), elastic(desired, most, least), **more)))


def all_ready(run: RunDriver) -> RunDriver:
    """Start a run, and let all desired nodes become ready."""
    run.step(ControllerStarted())
    return run.up(*run.starts())


def end_nodes(run: RunDriver, *ranks: int, code: int = 143) -> RunDriver:
    return run.step(*(run.ended(rank, code) for rank in ranks))


# --- at the start


def test_replicas_beyond_the_desired_count_are_scaled_down_and_not_awaited() -> None:
    run = starting(policy(elastic(2, 4), (1, 1, None), in_order=True))
    assert run.states() == [N.STARTING, N.STARTING, N.SCALED_DOWN, N.SCALED_DOWN, N.PENDING]
    assert run.up(0, 1).starts() == [4]
    run.up(4).end(0).end(1)
    assert run.status.state is RunState.IN_PROGRESS
    run.end(4)
    assert run.status.state is RunState.SUCCEEDED
    assert run.states() == [N.SUCCEEDED, N.SUCCEEDED, N.SCALED_DOWN, N.SCALED_DOWN, N.SUCCEEDED]


def test_the_next_supervisor_releases_scaled_down_nodes() -> None:
    run = cluster()
    assert outstanding.effects(run.policy, run.status) == (ReleaseNodes(refs(3, 4)),)


# --- scaling up


def test_scaling_up_starts_the_lowest_scaled_down_replicas() -> None:
    run = cluster().step(to(3, "g1"))
    assert run.effects == (StartNodes(0, refs(3)),)
    assert run.notes("scaled") == [{"group": "g1", "from": 2, "to": 3, "why": "by user"}]
    assert [entry.kind for entry in run.entries] == ["nodes", "scaled"]
    run.up(3)
    assert run.states() == [N.READY] * 4 + [N.SCALED_DOWN]
    assert run.status.last_incarnation == 0


def test_a_repeated_scale_request_changes_nothing() -> None:
    run = cluster().step(to(3, "g1"))
    before = run.status
    assert run.step(to(3, "g1"), to(1, "missing")).status is before


@pytest.mark.parametrize(("requested", "expected"), [(9, 4), (-3, 0)])
def test_a_requested_size_is_limited_to_the_possible_sizes(requested: int, expected: int) -> None:
    run = cluster().step(to(requested, "g1"))
    assert run.notes("scaled")[0]["to"] == expected
    before = run.status
    assert run.step(to(requested, "g1")).status is before


def test_a_required_group_keeps_at_least_one_replica() -> None:
    run = all_ready(RunDriver(policy(elastic(2, 4)))).step(to(0))
    assert run.stops() == [1]
    assert run.end_stopping().status.state is RunState.IN_PROGRESS
    assert run.end(0).status.state is RunState.SUCCEEDED


def test_added_replicas_start_when_their_group_may_start() -> None:
    wait = {"depends_on": (Dependency(0, complete=False),)}
    run = starting(policy((1, 1, None), elastic(1, 3, 0, **wait))).step(to(2, "g1"))
    assert run.states() == [N.STARTING, N.PENDING, N.PENDING, N.SCALED_DOWN]
    assert run.effects == ()
    assert run.up(0).starts() == [1, 2]


def test_a_group_that_has_ended_can_be_scaled_up() -> None:
    done = {"depends_on": (Dependency(0, complete=True),)}
    run = all_ready(RunDriver(policy(elastic(1, 2), (1, 1, None, done)))).end(0)
    assert run.starts() == [2]
    assert run.step(to(2)).starts() == [1]
    run.up(1, 2).end(2)
    assert run.status.state is RunState.IN_PROGRESS
    assert run.end(1).status.state is RunState.SUCCEEDED


# --- scaling down


def test_scaling_down_stops_the_highest_replicas() -> None:
    run = cluster(4).step(to(2, "g1"))
    assert run.effects == (StopNodes(refs(3, 4)),)
    assert run.node(4).scaling_down and run.node(4).scaled_down and run.node(4).alive
    assert run.states() == [N.READY] * 5
    assert outstanding.effects(run.policy, run.status) == run.effects
    run.tick(20)
    assert run.effects == (KillNodes(refs(3, 4)),)
    end_nodes(run, 3, 4, code=137)
    assert run.states() == [N.READY] * 3 + [N.SCALED_DOWN] * 2
    assert run.node(4) == NodeStatus(N.SCALED_DOWN, 1)
    assert run.effects == (ReleaseNodes(refs(3, 4, incarnation=1)),)
    assert outstanding.effects(run.policy, run.status) == run.effects
    assert run.status.state is RunState.IN_PROGRESS
    assert run.notes("nodes")[-1]["why"] == "ended with exit code 137"


@pytest.mark.parametrize("reason", [Reason.EXIT, Reason.OUTPUT_LOST, Reason.NODE_LOST])
@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_node_that_is_scaled_down_cannot_fail(code: int, reason: Reason) -> None:
    run = cluster(2, least=2, max_restarts=1).step(to(1, "g1"))
    run.end(2, code, reason=reason, message="oops")
    assert run.notes("failure") == []
    assert run.status.failures == ()
    why = "oops" if reason is Reason.OUTPUT_LOST else f"ended with exit code {code}"
    assert run.notes("nodes")[-1]["why"] == why
    assert run.end(0).end(1).status.state is RunState.SUCCEEDED


def test_a_failure_in_the_step_of_scaling_down_does_not_count() -> None:
    run = cluster(3, least=3)
    run.step(run.ended(3, 1), to(2, "g1"))
    assert run.status.stopping is None
    assert (run.status.failures, run.states()[3]) == ((), N.SCALED_DOWN)
    assert run.effects == (ReleaseNodes(refs(3, incarnation=1)),)


def test_a_failure_of_another_replica_in_the_step_of_scaling_down_counts() -> None:
    run = cluster(3, least=3)
    run.step(run.ended(3, 1), run.ended(1, 2), to(2, "g1"))
    assert [failure.rank for failure in run.status.failures] == [1]
    assert run.end_stopping().status.exit_code == 2


def test_a_replica_that_never_started_is_scaled_down_at_once() -> None:
    wait = {"depends_on": (Dependency(0, complete=False),)}
    run = starting(policy((1, 1, None), elastic(2, 3, 0, **wait))).step(to(1, "g1"))
    assert run.effects == (ReleaseNodes(refs(2)),)
    assert run.notes("nodes")[-1] == {"ranks": "2", "state": "SCALED_DOWN"}
    assert run.node(2) == NodeStatus(N.SCALED_DOWN)
    assert run.status.last_incarnation == 0
    assert run.up(0).starts() == [1]


def test_failed_replicas_are_removed_first_and_succeeded_ones_last() -> None:
    run = all_ready(RunDriver(policy((1, 1, None), elastic(4, 4, 0)))).end(1, 1).end(4)
    assert run.states() == [N.READY, N.FAILED, N.READY, N.READY, N.SUCCEEDED]
    assert run.step(to(3, "g1")).stops() == []
    assert run.states()[1] is N.SCALED_DOWN
    assert run.step(to(2, "g1")).stops() == [3]
    assert run.step(to(1, "g1")).stops() == [2]
    run.step(to(0, "g1"))
    assert run.states() == [N.READY, N.SCALED_DOWN, N.READY, N.READY, N.SCALED_DOWN]


def one_in_the_middle_scaled_down() -> RunDriver:
    """Node 1 of a group of four was scaled down after it had failed."""
    run = all_ready(RunDriver(policy((1, 1, None), elastic(4, 4, 0)))).end(1, 1)
    return run.step(to(3, "g1"))


def test_a_restart_skips_scaled_down_replicas() -> None:
    run = one_in_the_middle_scaled_down()
    run.policy = replace(run.policy, max_restarts=1)
    assert run.end(0, 1).stops() == [2, 3, 4]
    assert run.end_stopping().starts() == [0, 2, 3, 4]


def test_a_suspend_skips_scaled_down_replicas() -> None:
    run = one_in_the_middle_scaled_down().step(SUSPEND).end_stopping()
    assert run.status.state is RunState.SUSPENDED
    assert run.states() == [N.PENDING, N.SCALED_DOWN, N.PENDING, N.PENDING, N.PENDING]


def test_starting_replicas_are_scaled_down_too() -> None:
    run = starting(policy((1, 1, None), elastic(3, 3, 0))).step(to(2, "g1"))
    assert run.stops() == [3]
    run.step(to(1, "g1"))
    assert run.notes("scaled")[-1]["from"] == 2


def test_scaling_to_zero_leaves_one_required_replica() -> None:
    run = starting(policy(elastic(3, 3, 1))).step(to(0))
    assert run.notes("scaled")[-1]["to"] == 1
    assert run.stops() == [1, 2]


def test_all_nodes_of_a_replica_are_scaled_down() -> None:
    run = all_ready(RunDriver(policy((1, 1, None), elastic(2, 3, 0, nodes=2)))).end(4)
    run.step(to(1, "g1"))
    assert run.stops() == [3]
    assert run.states()[3:5] == [N.READY, N.SCALED_DOWN]
    run.end_stopping()
    assert run.states() == [N.READY] * 3 + [N.SCALED_DOWN] * 4


def test_scaling_down_can_complete_the_run() -> None:
    run = all_ready(RunDriver(policy(elastic(3, 3)))).end(0).step(to(1))
    assert run.stops() == [1, 2]
    assert run.status.stopping is not None
    assert run.end_stopping().status.state is RunState.SUCCEEDED
    assert run.states() == [N.SUCCEEDED, N.SCALED_DOWN, N.SCALED_DOWN]


def test_all_replicas_left_after_scaling_down_must_succeed() -> None:
    run = all_ready(RunDriver(policy(elastic(3, 5)))).step(to(2)).end_stopping().end(0)
    assert run.status.stopping is None
    assert run.end(1, 1).status.state is RunState.FAILED


def test_replicas_beyond_the_minimum_may_fail() -> None:
    run = all_ready(RunDriver(policy(elastic(3, 5, 1)))).step(to(2)).end_stopping()
    assert run.end(1, 1).status.state is RunState.IN_PROGRESS
    assert run.end(0, 1).status.state is RunState.FAILED


# --- scaling up again


def test_a_re_added_replica_is_a_new_incarnation() -> None:
    run = cluster().step(to(1, "g1")).end_stopping().step(to(2, "g1"))
    assert run.effects == (StartNodes(0, refs(2, incarnation=1)),)
    assert run.notes("scaled")[-1] == {"group": "g1", "from": 1, "to": 2, "why": "by user"}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_re_added_replica_starts_when_the_old_one_has_ended(strategy: Strategy) -> None:
    run = cluster(strategy=strategy).step(to(1, "g1")).step(to(2, "g1"))
    assert run.effects == ()
    assert (run.node(2).next_incarnation, run.node(2).scaling_down) == (2, False)
    run.end(2, 143)
    assert run.effects == (StartNodes(0, refs(2, incarnation=2)),)
    assert run.notes("failure") == []


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_re_added_replica_waits_for_no_other_replica(strategy: Strategy) -> None:
    run = cluster(4, strategy=strategy).step(to(2, "g1")).end(3, 143)
    run.step(to(3, "g1"))
    assert run.effects == (StartNodes(0, refs(3, incarnation=1)),)
    run.step(to(4, "g1"))
    assert (run.effects, run.node(4).next_incarnation) == ((), 2)
    assert run.end_stopping().starts() == [4]


def test_all_nodes_of_a_re_added_replica_start_together() -> None:
    run = all_ready(RunDriver(policy((1, 1, None), elastic(2, 2, 0, nodes=2))))
    run.step(to(1, "g1")).end(3, 143).step(to(2, "g1"))
    assert run.effects == ()
    assert (run.node(3), run.node(4).next_incarnation) == (NodeStatus(incarnation=2), 2)
    assert run.end_stopping().starts() == [3, 4]


def test_scaling_down_up_and_down_again() -> None:
    run = cluster().step(to(1, "g1")).step(to(2, "g1")).step(to(1, "g1"))
    assert run.effects == ()
    assert (run.node(2).scaling_down, run.node(2).next_incarnation) == (True, 3)
    run.end_stopping()
    assert run.node(2) == NodeStatus(N.SCALED_DOWN, 3)


# --- together with restarts


def test_a_replica_being_scaled_down_is_not_restarted() -> None:
    run = cluster(3, max_restarts=3, action=Action.RESTART_RUN).step(to(2, "g1"))
    run.end(0, 1)
    assert run.stops() == [1, 2]
    assert (run.node(3).next_incarnation, run.node(3).scaling_down) == (1, True)
    end_nodes(run, 1, 2)
    assert run.starts() == [0, 1, 2], "without waiting for the node that is scaled down"
    end_nodes(run, 3)
    assert run.states()[3:] == [N.SCALED_DOWN, N.SCALED_DOWN]


def test_a_restarting_replica_is_scaled_down_instead() -> None:
    run = cluster(2, max_restarts=3, backoff=Backoff(initial=30)).end(0, 1)
    assert run.node(2).next_incarnation == 1
    run.step(to(1, "g1"))
    assert (run.effects, run.node(2).next_incarnation, run.node(2).scaling_down) == ((), 2, True)
    assert run.end_stopping().starts() == [0, 1]
    assert run.node(2) == NodeStatus(N.SCALED_DOWN, 2)


def test_a_replica_waiting_for_its_restart_is_scaled_down_at_once() -> None:
    run = all_ready(RunDriver(policy((1, 1, None), elastic(2, 2, 1), max_restarts=9)))
    run.policy = policy((1, 1, None), elastic(2, 2, 1), max_restarts=9, backoff=Backoff(30))
    for _ in range(2):
        run.end(0, 1).end_stopping()
        run.up(*run.starts())
    assert [node.not_before is not None for node in run.status.nodes] == [True] * 3
    run.step(to(1, "g1"))
    assert run.node(2) == NodeStatus(N.SCALED_DOWN, 3)
    assert run.effects == (ReleaseNodes(refs(2, incarnation=3)),)
    assert run.step(to(2, "g1")).starts() == [2], "not as a restart"


def test_a_re_added_replica_does_not_wait_for_a_restart_backoff() -> None:
    run = cluster(2, max_restarts=9, backoff=Backoff(30)).end(0, 1).end_stopping()
    run.up(*run.starts()).end(0, 1)
    assert (run.node(2).alive, run.node(2).not_before is None) == (True, False)
    run.step(to(1, "g1")).step(to(2, "g1")).end(2, 143)
    assert run.starts() == [2]


def test_a_restart_by_a_rule_includes_only_desired_replicas() -> None:
    rule = Rule("gpu", Action.RESTART_GROUP, groups=("g1",))
    run = cluster(3, rules=(rule,), max_restarts=1).step(to(2, "g1")).end(1, 1)
    assert run.stops() == [2]
    assert [run.node(rank).next_incarnation for rank in (2, 3)] == [2, 1]


# --- together with other requests


def test_a_run_that_is_ending_is_not_scaled() -> None:
    run = cluster().step(CancelRequested("enough"), to(4, "g1"))
    assert run.notes("scaled") == []
    assert run.end_stopping().status.state is RunState.CANCELED
    assert run.states() == [N.STOPPED] * 3 + [N.SCALED_DOWN] * 2


@pytest.mark.parametrize("checkpoint", [None, Checkpoint(10, 30)])
def test_replicas_being_scaled_down_end_scaled_down_even_if_the_run_ends(
    checkpoint: Checkpoint | None,
) -> None:
    run = cluster(checkpoint=checkpoint).step(to(1, "g1")).step(CancelRequested("enough"))
    assert run.stops() == [0, 1]
    assert run.end_stopping().states() == [N.STOPPED] * 2 + [N.SCALED_DOWN] * 3
    assert run.status.state is RunState.CANCELED


def test_a_suspended_run_resumes_with_the_requested_size() -> None:
    run = cluster().step(SUSPEND).end_stopping().step(to(3, "g1"))
    assert run.status.state is RunState.SUSPENDED
    assert run.states() == [N.PENDING] * 4 + [N.SCALED_DOWN]
    assert run.effects == ()
    assert run.step(RESUME).starts() == [0, 1, 2, 3]


def test_a_suspended_run_with_nothing_left_to_do_stays_suspended() -> None:
    run = (
        all_ready(RunDriver(policy(elastic(2, 2)))).end(0).step(SUSPEND).end_stopping().step(to(1))
    )
    assert run.status.state is RunState.SUSPENDED
    assert run.states() == [N.SUCCEEDED, N.SCALED_DOWN]
    assert run.step(RESUME).status.state is RunState.SUCCEEDED


@pytest.mark.parametrize("checkpoint", [None, Checkpoint(10, 30)])
def test_a_run_that_is_being_suspended_can_be_scaled(checkpoint: Checkpoint | None) -> None:
    run = cluster(3, checkpoint=checkpoint).step(SUSPEND).step(to(1, "g1"))
    assert run.effects == (), "all nodes are stopping or saving already"
    assert [node.scaling_down for node in run.status.nodes] == [False, False, True, True, False]
    run.step(to(2, "g1"))
    assert run.effects == ()
    run.end_stopping()
    assert run.status.state is RunState.SUSPENDED
    assert run.states() == [N.PENDING] * 3 + [N.SCALED_DOWN] * 2
    assert run.step(RESUME).starts() == [0, 1, 2]


def test_a_node_that_saves_keeps_its_grace_even_if_it_is_scaled_down() -> None:
    run = cluster(checkpoint=Checkpoint(10, 30)).step(SUSPEND).step(to(1, "g1"))
    run.tick(40)
    assert run.effects == (StopNodes(refs(0, 1, 2)),)
    run.end_stopping()
    assert run.states() == [N.PENDING] * 2 + [N.SCALED_DOWN] * 3


def test_a_node_being_scaled_down_does_not_save() -> None:
    run = cluster(checkpoint=Checkpoint(10, 30)).step(to(1, "g1")).step(SUSPEND)
    assert run.node(2).term_at is None
    assert run.node(2).next_incarnation == 1
    run.end_stopping()
    assert run.node(2) == NodeStatus(N.SCALED_DOWN, 1)


# --- together with failures


def test_a_node_being_scaled_down_ends_with_its_supervisor() -> None:
    run = cluster(max_restarts=1).step(to(1, "g1")).step(SupervisorLost("killed", None))
    assert run.node(2) == NodeStatus(N.SCALED_DOWN, 1)
    assert {entry["rank"] for entry in run.notes("failure")} == {0, 1}


def test_a_broken_run_leaves_scaled_down_nodes_as_they_are() -> None:
    run = cluster().step(to(1, "g1")).step(RunBroken("broken"))
    assert run.status.state is RunState.FAILED
    assert run.states() == [N.STOPPED] * 2 + [N.SCALED_DOWN] * 3
    assert run.node(2).incarnation == 1
    removed = [note for note in run.notes("nodes") if note["state"] == "SCALED_DOWN"]
    assert removed[-1] == {"ranks": "2", "state": "SCALED_DOWN", "why": "broken", "restart": 1}


def test_success_of_any_replica_does_not_wait_for_scaled_down_replicas() -> None:
    made = policy(elastic(2, 3, 0), success=Success((0,), any_replica=True))
    run = all_ready(RunDriver(made)).step(to(1)).end(0, 1)
    assert run.status.stopping is None, "another replica is still stopping"
    run.end_stopping()
    assert run.status.state is RunState.FAILED
