"""Deadlines of the run, of an attempt and of a replica, and ready timeouts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, SignalNodes, StartNodes, StopNodes
from muster.lifecycle.events import ResumeRequested, SuspendRequested
from muster.lifecycle.policy import Action, Checkpoint, Dependency, Policy, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.run_driver import RunDriver, policy, refs, running, starting

N = NodeState
RESTARTS = [action for action in Action if action.startswith("restart")]


# --- maximum runtime


@pytest.mark.shows("distributed-jobs/capability-timeout", "jobs/max-runtime")
def test_maximum_runtime_is_canceled_not_failed() -> None:
    """OCI: maximumRuntimeInMinutes."""
    run = starting(policy((1, 1, None), max_runtime=60.5))
    assert wake_at(run.status) is None, "the clock starts with the first node"
    run.up(0)
    assert wake_at(run.status) == run.now + 60.5
    assert run.tick(after=60).effects == ()
    assert run.tick(after=0.5).effects == (StopNodes(refs(0)),)
    assert (run.status.state, run.status.details) == (
        RunState.CANCELING,
        "maximum runtime of 60.5 s exceeded",
    )
    run.end_stopping()
    assert run.status.state is RunState.CANCELED
    assert run.status.details == "maximum runtime of 60.5 s exceeded"


def test_nodes_save_a_checkpoint_before_the_maximum_runtime_ends_them() -> None:
    run = running(policy((1, 2, None), max_runtime=60, checkpoint=Checkpoint(10, 30)))
    assert run.tick(after=60).effects == (SignalNodes(refs(0, 1), 10),)
    run.end(0)
    assert wake_at(run.status) == run.now - 1 + 30
    assert run.tick(after=29).effects == (StopNodes(refs(1)),)
    assert run.tick(after=10).effects == (KillNodes(refs(1)),)
    assert run.end(1, 137, signal=9).status.state is RunState.CANCELED
    assert run.states() == [N.SUCCEEDED, N.STOPPED], "exit code 0 while saving is a success"


def test_maximum_runtime_spans_all_attempts() -> None:
    run = running(policy((1, 1, None), max_runtime=60, max_restarts=5)).tick()
    first = wake_at(run.status)
    run.end(0, 1, after=30).up(0)
    assert wake_at(run.status) == first


def with_group_limit(index: int, seconds: float, count: int = 2, **more: Any) -> Policy:
    """Groups of one node each; one group has a maximum runtime."""
    made = policy(*[(1, 1, None)] * count, **more)
    groups = list(made.groups)
    groups[index] = replace(groups[index], max_runtime=seconds)
    return replace(made, groups=tuple(groups))


@pytest.mark.shows("distributed-jobs/capability-override-node")
def test_maximum_runtime_of_a_group() -> None:
    """OCI: maximumRuntimeInMinutes of a node group. It starts with the group's first node; then the
    run is canceled, as for the run's own maximum."""
    run = starting(with_group_limit(1, 60)).up(0)
    assert wake_at(run.status) == run.now + 30 * 86400
    run.tick(after=100).up(1)
    assert wake_at(run.status) == run.now + 60
    assert run.tick(after=59).effects == ()
    assert run.tick(after=1).effects == (StopNodes(refs(0, 1)),)
    assert (run.status.state, run.status.details) == (
        RunState.CANCELING,
        f"group {run.policy.groups[1].name}: maximum runtime of 60 s exceeded",
    )


def test_maximum_runtime_of_a_group_spans_all_attempts() -> None:
    run = running(with_group_limit(0, 60, 1, max_restarts=5)).tick()
    first = wake_at(run.status)
    run.end(0, 1, after=30).up(0)
    assert wake_at(run.status) == first
    run.step(SuspendRequested("wait"), after=10).end_stopping()
    started = dict(run.status.groups_started)
    run.step(ResumeRequested("go"), after=1000).up(0)
    assert run.status.groups_started == started
    assert wake_at(run.status) == run.now + 60 - run.status.ran_before


def test_a_group_that_has_ended_does_not_exceed_its_maximum_runtime() -> None:
    run = running(with_group_limit(0, 60)).end(0)
    assert run.tick(after=100).effects == ()
    assert run.status.state is RunState.IN_PROGRESS


def test_time_spent_suspended_does_not_count() -> None:
    run = starting(policy((1, 1, None), max_runtime=60)).up(0)
    run.step(SuspendRequested("wait"), after=20).end_stopping()
    assert run.status.ran_before == 21
    assert wake_at(run.status) is None, "nothing is due"
    run.step(ResumeRequested("continue"), after=1000)
    assert wake_at(run.status) is None
    assert wake_at(run.up(0).status) == run.now + 60 - 21
    run.step(SuspendRequested("wait"), after=9).end_stopping()
    assert run.status.ran_before == 21 + 10
    run.step(ResumeRequested("continue")).up(0).tick(after=29)
    assert run.status.state is RunState.CANCELING


# --- attempt timeout


def late(run: RunDriver) -> list[int]:
    return [rank for rank, node in enumerate(run.status.nodes) if node.fault is Reason.DEADLINE]


def test_an_attempt_that_takes_too_long_fails() -> None:
    run = starting(policy((1, 2, None), (1, 1, None), attempt_timeout=100)).up(1)
    assert wake_at(run.status) == run.now + 100
    run.up(0, 2).end(0)
    assert run.tick(after=98).effects == (StopNodes(refs(1, 2)),)
    assert late(run) == [1, 2]
    run.end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.states() == [N.SUCCEEDED, N.FAILED, N.FAILED], "the stopped nodes have failed"
    expected = "node-1 (group g0, rank 1) took too long:\nthe attempt has not ended after 100 s"
    assert run.status.details == expected


@pytest.mark.parametrize("action", RESTARTS)
@pytest.mark.parametrize("by", ["default", "rule"])
def test_an_attempt_timeout_restarts_the_whole_run(action: Action, by: str) -> None:
    """A smaller restart would start within an attempt whose time is over."""
    rules = (Rule("slow", action, reasons=(Reason.DEADLINE,)),) if by == "rule" else ()
    shape = (2, 2, None, {"retries": 3})
    run = running(
        policy(shape, (1, 1, 0), attempt_timeout=100, max_restarts=1, action=action, rules=rules)
    )
    run.tick(after=100)
    assert [node.next_incarnation for node in run.status.nodes] == [1] * 5
    assert (run.status.attempt, run.status.spent.run, run.status.last_incarnation) == (1, 1, 1)
    assert run.retries() == {}
    run.end_stopping().up(*range(5))
    assert run.tick(after=99).effects == (), "the timeout starts again"
    assert wake_at(run.status) == run.now + 1
    assert run.tick(after=1).status.stopping is not None


def test_optional_nodes_are_named_last() -> None:
    run = running(policy((1, 1, 0), (2, 1, 1), attempt_timeout=100))
    run.tick(after=100).end_stopping()
    assert run.status.details.startswith("node-1 (group g1, rank 1) took too long")


def test_an_attempt_timeout_fails_the_required_nodes() -> None:
    """One replica of the first group may fail; the second group must succeed."""
    run = running(policy((2, 1, 1), (1, 1, None), attempt_timeout=100)).end(1)
    run.tick(after=99).end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.states() == [N.FAILED, N.SUCCEEDED, N.FAILED]


def test_an_attempt_timeout_succeeds_if_only_optional_nodes_are_left() -> None:
    run = running(policy((2, 1, 1), attempt_timeout=100)).end(1)
    run.tick(after=99).end_stopping()
    assert run.status.state is RunState.SUCCEEDED


def test_the_attempt_timeout_starts_with_the_first_running_node() -> None:
    run = starting(policy((1, 1, None), attempt_timeout=100)).tick(after=1000)
    assert run.effects == ()


def test_a_stopping_node_misses_no_deadline() -> None:
    run = running(policy((2, 1, 1), attempt_timeout=100)).tick(after=99)
    run.end(0, 1)  # tolerated in this step
    assert late(run) == [1]


# --- timeout of a replica


def test_each_replica_has_its_own_timeout() -> None:
    """Kubernetes: a Job's activeDeadlineSeconds."""
    run = starting(
        policy((2, 2, None, {"timeout": 50}), max_restarts=1, action=Action.RESTART_REPLICA)
    )
    assert wake_at(run.status) == run.now + 50, "from its start command"
    started = run.now
    run.up(0, 1, 2, 3).end(0, after=5).end(2).end(3)
    assert run.tick(after=started + 50 - run.now).effects == (StopNodes(refs(1)),)
    assert late(run) == [1]
    assert (run.node(0).state, run.node(0).incarnation) == (N.PENDING, 1), "the whole replica"
    assert run.node(2).state is N.SUCCEEDED
    run.end_stopping().up(0, 1).tick(after=48)
    assert wake_at(run.status) == run.now + 1, "with the whole timeout"
    run.tick(after=1).end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.details == (
        "node-0 (group g0, rank 0) took too long:\n"
        "replica 0 of group g0 has not ended after 50 s\n"
        "the only restart is used up (failure.max_restarts)"
    )


def test_a_retried_node_does_not_reset_the_timeout_of_its_replica() -> None:
    run = running(policy((1, 2, None, {"timeout": 50, "retries": 1})))
    run.end(0, 1, after=20).up(0).tick(after=27)
    assert late(run) == []
    assert late(run.tick(after=1)) == [0, 1]


def test_a_timeout_of_a_replica_is_not_retried() -> None:
    """Kubernetes: activeDeadlineSeconds takes precedence over backoffLimit."""
    run = running(policy((1, 1, None, {"timeout": 50, "retries": 3}))).tick(after=50).end_stopping()
    assert run.status.state is RunState.FAILED


@pytest.mark.parametrize(
    ("action", "again"),
    [
        (Action.RESTART_NODE, [1, 1, None, None]),
        (Action.RESTART_REPLICA, [1, 1, None, None]),
        (Action.RESTART_GROUP, [1, 1, 1, None]),
        (Action.RESTART_RUN, [1, 1, 1, 1]),
    ],
)
def test_a_replica_that_timed_out_is_restarted_at_least_as_a_whole(
    action: Action, again: list[int | None]
) -> None:
    shapes: Any = ((2, 2, None, {"timeout": 50}), (1, 1, None))
    run = starting(policy(*shapes, max_restarts=1, action=action)).up(0, 1, 4)
    run.end(2, after=20).end(3).up(4).tick(after=27)
    nodes = [run.node(rank) for rank in (0, 1, 2, 4)]
    assert [node.next_incarnation or node.incarnation or None for node in nodes] == again
    assert run.status.spent.run == 1


def test_an_optional_replica_that_timed_out_is_stopped() -> None:
    run = running(policy((2, 2, 1, {"timeout": 50}))).end(2).end(3).tick(after=48)
    assert run.stops() == [0, 1]
    assert run.end_stopping().status.state is RunState.SUCCEEDED


def test_all_replicas_that_timed_out_are_stopped() -> None:
    """Two of three replicas may fail, and do; their other nodes are stopped."""
    run = running(policy((3, 2, 1, {"timeout": 50}))).end(0).end(2).end(4).end(5).tick(after=46)
    assert run.stops() == [1, 3]
    assert run.end_stopping().status.state is RunState.SUCCEEDED


def test_the_timeout_of_a_waiting_replica_has_not_started() -> None:
    after = {"timeout": 50, "depends_on": (Dependency(0, complete=True),)}
    run = running(policy((1, 1, None), (1, 1, None, after))).tick(after=200)
    assert wake_at(run.status) == 1002.0 + 30 * 86400, "the run's deadline"
    run.end(0)
    assert wake_at(run.status) == run.now + 50


def test_the_earliest_deadline_sets_the_wakeup() -> None:
    run = starting(policy((1, 1, None, {"timeout": 50}), (1, 1, None, {"timeout": 40})))
    assert wake_at(run.status) == run.now + 40
    run.end(1, after=30)
    assert wake_at(run.tick(after=10).status) == run.now + 10
    assert late(run) == []


# --- ready timeout


def test_a_group_must_be_ready_in_time() -> None:
    run = starting(policy((1, 4, None, {"ready_timeout": 20})))
    assert wake_at(run.status) == run.now + 20
    run.step(run.started(0), run.ready(1))
    assert run.tick(after=18.5).effects == ()
    assert run.tick(after=0.5).stops() == [0, 2, 3, 1]
    run.end_stopping()
    assert run.states() == [N.FAILED, N.STOPPED, N.FAILED, N.FAILED]
    expected = "node-0 (group g0, rank 0) did not become ready:\nnot ready after 20 s: rank 0,2-3"
    assert run.status.details == expected


def test_each_node_that_is_not_ready_is_retried() -> None:
    run = starting(policy((2, 2, None, {"ready_timeout": 20, "retries": 2}))).up(1)
    run.tick(after=19).end_stopping()
    assert run.retries() == {"g0/0": 1, "g0/1": 2}
    assert [node.incarnation for node in run.status.nodes] == [1, 0, 2, 3]
    run.up(0, 2, 3)
    for rank in range(4):
        run.end(rank)
    assert run.status.state is RunState.SUCCEEDED


def test_each_replica_that_is_not_ready_is_restarted() -> None:
    run = starting(
        policy((2, 1, None, {"ready_timeout": 20}), max_restarts=2, action=Action.RESTART_REPLICA)
    )
    run.tick(after=20).end_stopping()
    assert [node.incarnation for node in run.status.nodes] == [1, 2]
    assert run.status.spent.run == 2


def test_nodes_that_are_not_ready_after_a_restart_are_restarted_again() -> None:
    run = starting(
        policy((1, 2, None, {"ready_timeout": 20}), max_restarts=9, action=Action.RESTART_NODE)
    )
    run.tick(after=20).end_stopping().tick(after=20)
    failures = [(f.rank, f.incarnation, f.signal, f.exit_code) for f in run.status.failures]
    assert failures == [(0, 1, 0, None), (1, 2, 0, None)]
    assert [node.next_incarnation for node in run.status.nodes] == [3, 4]
    assert run.status.spent.run == 4


def test_a_node_that_was_ready_once_was_ready_in_time() -> None:
    run = starting(policy((1, 1, None, {"ready_timeout": 20}))).up(0).tick(after=19)
    assert run.states() == [N.READY]
    assert wake_at(run.status) == 1002.0 + 30 * 86400


def test_the_ready_timeout_of_a_node_starts_with_the_node() -> None:
    run = starting(
        policy((2, 1, None, {"ready_timeout": 20}), action=Action.RESTART_NODE, max_restarts=1)
    )
    run.end(0, 1, after=15)
    assert run.starts() == [0]
    run.up(1)
    run.tick(after=4)
    assert wake_at(run.status) == 1016.0 + 20
    run.tick(after=14)
    assert run.status.stopping is None
    assert run.tick(after=1).status.stopping is not None


# --- together


def test_the_maximum_runtime_takes_precedence_over_other_timeouts() -> None:
    shape = (1, 1, None, {"timeout": 60, "ready_timeout": 60})
    run = starting(policy(shape, max_runtime=60, attempt_timeout=60)).step(after=0)
    run.step(run.started(0), after=0).tick(after=60)
    assert run.status.state is RunState.CANCELING
    assert run.status.failures == ()


def test_no_deadline_is_missed_while_the_run_ends() -> None:
    shape = (2, 1, None, {"timeout": 60})
    run = running(policy(shape, attempt_timeout=55, max_runtime=55, grace_period=20))
    run.end(0, 1, after=50).tick(after=15)
    assert late(run) == []
    assert run.end_stopping().status.state is RunState.FAILED
    assert run.status.details == "node-0 (group g0, rank 0) failed with exit code 1"


def test_the_start_after_an_attempt_timeout_has_the_new_attempt_number() -> None:
    run = running(policy((1, 1, None), attempt_timeout=10, max_restarts=1)).tick(after=10)
    assert run.end_stopping().effects == (StartNodes(1, refs(0, incarnation=1)),)
