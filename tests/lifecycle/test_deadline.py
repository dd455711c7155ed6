"""Deadlines: of the run, of an attempt, of a replica, and of getting ready."""

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
from support.life import Life, begun, policy, refs, running

N = NodeState


# --- the run's


@pytest.mark.shows("distributed-jobs/capability-timeout", "jobs/max-runtime")
def test_maximum_runtime_is_canceled_not_failed() -> None:
    """OCI: maximumRuntimeInMinutes."""
    life = begun(policy((1, 1, None), max_runtime=60.5))
    assert wake_at(life.status) is None, "the clock starts with the first node"
    life.up(0)
    assert wake_at(life.status) == life.now + 60.5
    assert life.tick(after=60).effects == ()
    assert life.tick(after=0.5).effects == (StopNodes(refs(0)),)
    assert (life.status.state, life.status.details) == (
        RunState.CANCELING,
        "maximum runtime of 60.5 s exceeded",
    )
    assert life.obey().status.state is RunState.CANCELED


def test_whose_time_is_over_may_save_first() -> None:
    life = running(policy((1, 2, None), max_runtime=60, checkpoint=Checkpoint(10, 30)))
    assert life.tick(after=60).effects == (SignalNodes(refs(0, 1), 10),)
    life.end(0)
    assert wake_at(life.status) == life.now - 1 + 30
    assert life.tick(after=29).effects == (StopNodes(refs(1)),)
    assert life.tick(after=10).effects == (KillNodes(refs(1)),)
    assert life.end(1, 137, signal=9).status.state is RunState.CANCELED
    assert life.states() == [N.SUCCEEDED, N.STOPPED], "who ended well while saving has succeeded"


def test_maximum_runtime_is_over_all_attempts() -> None:
    life = running(policy((1, 1, None), max_runtime=60, max_restarts=5)).tick()
    first = wake_at(life.status)
    life.end(0, 1, after=30).up(0)
    assert wake_at(life.status) == first


def with_group_limit(index: int, seconds: float, count: int = 2, **more: Any) -> Policy:
    """Groups of one node, one of which may run only so long."""
    made = policy(*[(1, 1, None)] * count, **more)
    groups = list(made.groups)
    groups[index] = replace(groups[index], max_runtime=seconds)
    return replace(made, groups=tuple(groups))


@pytest.mark.shows("distributed-jobs/capability-override-node")
def test_maximum_runtime_of_a_group() -> None:
    """OCI: maximumRuntimeInMinutes of a node group. Its clock starts with its first node, and the
    run is canceled, as for its own."""
    life = begun(with_group_limit(1, 60)).up(0)
    assert wake_at(life.status) == life.now + 30 * 86400
    life.tick(after=100).up(1)
    assert wake_at(life.status) == life.now + 60
    assert life.tick(after=59).effects == ()
    assert life.tick(after=1).effects == (StopNodes(refs(0, 1)),)
    assert (life.status.state, life.status.details) == (
        RunState.CANCELING,
        f"group {life.policy.groups[1].name}: maximum runtime of 60 s exceeded",
    )


def test_maximum_runtime_of_a_group_is_over_all_attempts() -> None:
    life = running(with_group_limit(0, 60, 1, max_restarts=5)).tick()
    first = wake_at(life.status)
    life.end(0, 1, after=30).up(0)
    assert wake_at(life.status) == first
    life.tell(SuspendRequested("wait"), after=10).obey()
    begun_at = dict(life.status.begun)
    life.tell(ResumeRequested("go"), after=1000).up(0)
    assert life.status.begun == begun_at
    assert wake_at(life.status) == life.now + 60 - life.status.ran


def test_a_group_that_has_ended_has_time_enough() -> None:
    life = running(with_group_limit(0, 60)).end(0)
    assert life.tick(after=100).effects == ()
    assert life.status.state is RunState.IN_PROGRESS


def test_time_spent_suspended_does_not_count() -> None:
    life = begun(policy((1, 1, None), max_runtime=60)).up(0)
    life.tell(SuspendRequested("wait"), after=20).obey()
    assert life.status.ran == 21
    assert wake_at(life.status) is None, "nothing of it is a matter of time"
    life.tell(ResumeRequested("go on"), after=1000)
    assert wake_at(life.status) is None
    assert wake_at(life.up(0).status) == life.now + 60 - 21
    life.tell(SuspendRequested("wait"), after=9).obey()
    assert life.status.ran == 21 + 10
    life.tell(ResumeRequested("go on")).up(0).tick(after=29)
    assert life.status.state is RunState.CANCELING


# --- an attempt's


def late(life: Life) -> list[int]:
    return [rank for rank, node in enumerate(life.status.nodes) if node.fault is Reason.DEADLINE]


def test_an_attempt_that_takes_too_long_fails() -> None:
    life = begun(policy((1, 2, None), (1, 1, None), attempt_timeout=100)).up(1)
    assert wake_at(life.status) == life.now + 100
    life.up(0, 2).end(0)
    assert life.tick(after=98).effects == (StopNodes(refs(1, 2)),)
    assert late(life) == [1, 2]
    life.obey()
    assert life.status.state is RunState.FAILED
    assert life.states() == [N.SUCCEEDED, N.FAILED, N.FAILED], "of no fault of their own"
    said = "node-1 (group g0, rank 1) took too long:\nthe attempt has not ended after 100 s"
    assert life.status.details == said


@pytest.mark.parametrize("action", [action for action in Action if action is not Action.FAIL])
@pytest.mark.parametrize("by", ["default", "rule"])
def test_only_another_attempt_helps_against_one_that_is_over(action: Action, by: str) -> None:
    """A part of it would start into what is over already."""
    rules = (Rule("slow", action, reasons=(Reason.DEADLINE,)),) if by == "rule" else ()
    shape = (2, 2, None, {"retries": 3})
    life = running(
        policy(shape, (1, 1, 0), attempt_timeout=100, max_restarts=1, action=action, rules=rules)
    )
    life.tick(after=100)
    assert [node.again for node in life.status.nodes] == [1] * 5
    assert (life.status.attempt, life.status.spent.run, life.status.restarts) == (1, 1, 1)
    assert life.status.spent.retries == {}
    life.obey().up(*range(5))
    assert life.tick(after=99).effects == (), "its clock starts anew"
    assert wake_at(life.status) == life.now + 1
    assert life.tick(after=1).status.stopping is not None


def test_who_can_be_done_without_is_named_last() -> None:
    life = running(policy((1, 1, 0), (2, 1, 1), attempt_timeout=100))
    life.tick(after=100).obey()
    assert life.status.details.startswith("node-1 (group g1, rank 1) took too long")


def test_an_attempt_that_is_over_fails_of_those_that_are_needed() -> None:
    """One replica of the first group may fail; the second group has to succeed."""
    life = running(policy((2, 1, 1), (1, 1, None), attempt_timeout=100)).end(1)
    life.tick(after=99).obey()
    assert life.status.state is RunState.FAILED
    assert life.states() == [N.FAILED, N.SUCCEEDED, N.FAILED]


def test_an_attempt_whose_rest_can_be_done_without_succeeds() -> None:
    life = running(policy((2, 1, 1), attempt_timeout=100)).end(1)
    life.tick(after=99).obey()
    assert life.status.state is RunState.SUCCEEDED


def test_an_attempt_without_a_node_that_ran_has_no_time() -> None:
    life = begun(policy((1, 1, None), attempt_timeout=100)).tick(after=1000)
    assert life.effects == ()


def test_nothing_is_late_of_what_is_on_its_way_out() -> None:
    life = running(policy((2, 1, 1), attempt_timeout=100)).tick(after=99)
    life.end(0, 1)  # tolerated at the very moment
    assert late(life) == [1]


# --- a replica's


def test_a_replica_has_its_own_time() -> None:
    """Kubernetes: a Job's activeDeadlineSeconds."""
    life = begun(
        policy((2, 2, None, {"timeout": 50}), max_restarts=1, action=Action.RESTART_REPLICA)
    )
    assert wake_at(life.status) == life.now + 50, "from when it is handed over"
    began = life.now
    life.up(0, 1, 2, 3).end(0, after=5).end(2).end(3)
    assert life.tick(after=began + 50 - life.now).effects == (StopNodes(refs(1)),)
    assert late(life) == [1]
    assert (life.node(0).state, life.node(0).incarnation) == (N.PENDING, 1), "as a whole"
    assert life.node(2).state is N.SUCCEEDED
    life.obey().up(0, 1).tick(after=48)
    assert wake_at(life.status) == life.now + 1, "and has all its time again"
    life.tick(after=1).obey()
    assert life.status.state is RunState.FAILED
    assert life.status.details == (
        "node-0 (group g0, rank 0) took too long:\n"
        "replica 0 of group g0 has not ended after 50 s\n"
        "the one restart is used up (failure.max_restarts)"
    )


def test_the_clock_of_a_replica_goes_on_when_a_node_of_it_is_tried_again() -> None:
    life = running(policy((1, 2, None, {"timeout": 50, "retries": 1})))
    life.end(0, 1, after=20).up(0).tick(after=27)
    assert late(life) == []
    assert late(life.tick(after=1)) == [0, 1]


def test_what_took_too_long_is_not_tried_again() -> None:
    """Kubernetes: activeDeadlineSeconds takes precedence over backoffLimit."""
    life = running(policy((1, 1, None, {"timeout": 50, "retries": 3}))).tick(after=50).obey()
    assert life.status.state is RunState.FAILED


@pytest.mark.parametrize(
    ("action", "again"),
    [
        (Action.RESTART_NODE, [1, 1, None, None]),
        (Action.RESTART_REPLICA, [1, 1, None, None]),
        (Action.RESTART_GROUP, [1, 1, 1, None]),
        (Action.RESTART_RUN, [1, 1, 1, 1]),
    ],
)
def test_a_slow_replica_starts_again_as_a_whole_at_least(
    action: Action, again: list[int | None]
) -> None:
    shapes: Any = ((2, 2, None, {"timeout": 50}), (1, 1, None))
    life = begun(policy(*shapes, max_restarts=1, action=action)).up(0, 1, 4)
    life.end(2, after=20).end(3).up(4).tick(after=27)
    nodes = [life.node(rank) for rank in (0, 1, 2, 4)]
    assert [node.again or node.incarnation or None for node in nodes] == again
    assert life.status.spent.run == 1


def test_a_slow_replica_that_can_be_done_without_is_ended() -> None:
    life = running(policy((2, 2, 1, {"timeout": 50}))).end(2).end(3).tick(after=48)
    assert life.stops() == [0, 1]
    assert life.obey().status.state is RunState.SUCCEEDED


def test_several_slow_replicas_are_all_ended() -> None:
    """Two of three may fail, and do; the rest of each is ended with it."""
    life = running(policy((3, 2, 1, {"timeout": 50}))).end(0).end(2).end(4).end(5).tick(after=46)
    assert life.stops() == [1, 3]
    assert life.obey().status.state is RunState.SUCCEEDED


def test_a_replica_that_waits_has_no_time_yet() -> None:
    after = {"timeout": 50, "depends_on": (Dependency(0, complete=True),)}
    life = running(policy((1, 1, None), (1, 1, None, after))).tick(after=200)
    assert wake_at(life.status) == 1002.0 + 30 * 86400, "only the run's"
    life.end(0)
    assert wake_at(life.status) == life.now + 50


def test_of_several_deadlines_the_first_wakes() -> None:
    life = begun(policy((1, 1, None, {"timeout": 50}), (1, 1, None, {"timeout": 40})))
    assert wake_at(life.status) == life.now + 40
    life.end(1, after=30)
    assert wake_at(life.tick(after=10).status) == life.now + 10
    assert late(life) == []


# --- getting ready


def test_a_group_has_to_be_ready_in_time() -> None:
    life = begun(policy((1, 4, None, {"ready_timeout": 20})))
    assert wake_at(life.status) == life.now + 20
    life.tell(life.started(0), life.ready(1))
    assert life.tick(after=18.5).effects == ()
    assert life.tick(after=0.5).stops() == [0, 2, 3, 1]
    life.obey()
    assert life.states() == [N.FAILED, N.STOPPED, N.FAILED, N.FAILED]
    said = "node-0 (group g0, rank 0) did not become ready:\nnot ready after 20 s: rank 0,2-3"
    assert life.status.details == said


def test_each_node_that_is_not_ready_is_tried_again() -> None:
    life = begun(policy((2, 2, None, {"ready_timeout": 20, "retries": 2}))).up(1)
    life.tick(after=19).obey()
    assert life.status.spent.retries == {"g0/0": 1, "g0/1": 2}
    assert [node.incarnation for node in life.status.nodes] == [1, 0, 2, 3]
    life.up(0, 2, 3)
    for rank in range(4):
        life.end(rank)
    assert life.status.state is RunState.SUCCEEDED


def test_each_replica_that_is_not_ready_starts_again() -> None:
    life = begun(
        policy((2, 1, None, {"ready_timeout": 20}), max_restarts=2, action=Action.RESTART_REPLICA)
    )
    life.tick(after=20).obey()
    assert [node.incarnation for node in life.status.nodes] == [1, 2]
    assert life.status.spent.run == 2


def test_each_of_several_that_have_started_again_is_tried_again() -> None:
    life = begun(
        policy((1, 2, None, {"ready_timeout": 20}), max_restarts=9, action=Action.RESTART_NODE)
    )
    life.tick(after=20).obey().tick(after=20)
    told = [(f.rank, f.incarnation, f.signal, f.exit_code) for f in life.status.failures]
    assert told == [(0, 1, 0, None), (1, 2, 0, None)]
    assert [node.again for node in life.status.nodes] == [3, 4]
    assert life.status.spent.run == 4


def test_ready_once_is_ready_in_time() -> None:
    life = begun(policy((1, 1, None, {"ready_timeout": 20}))).up(0).tick(after=19)
    assert life.states() == [N.READY]
    assert wake_at(life.status) == 1002.0 + 30 * 86400


def test_each_node_has_its_time_from_its_own_start() -> None:
    life = begun(
        policy((2, 1, None, {"ready_timeout": 20}), action=Action.RESTART_NODE, max_restarts=1)
    )
    life.end(0, 1, after=15)
    assert life.starts() == [0]
    life.up(1)
    life.tick(after=4)
    assert wake_at(life.status) == 1016.0 + 20
    life.tick(after=14)
    assert life.status.stopping is None
    assert life.tick(after=1).status.stopping is not None


# --- together


def test_a_run_whose_time_is_over_fails_of_nothing_else() -> None:
    shape = (1, 1, None, {"timeout": 60, "ready_timeout": 60})
    life = begun(policy(shape, max_runtime=60, attempt_timeout=60)).tell(after=0)
    life.tell(life.started(0), after=0).tick(after=60)
    assert life.status.state is RunState.CANCELING
    assert life.status.failures == ()


def test_nothing_is_too_slow_while_the_run_ends() -> None:
    shape = (2, 1, None, {"timeout": 60})
    life = running(policy(shape, attempt_timeout=55, max_runtime=55, grace_period=20))
    life.end(0, 1, after=50).tick(after=15)
    assert late(life) == []
    assert life.obey().status.state is RunState.FAILED
    assert life.status.details == "node-0 (group g0, rank 0) failed with exit code 1"


def test_the_start_after_a_deadline_tells_the_new_attempt() -> None:
    life = running(policy((1, 1, None), attempt_timeout=10, max_restarts=1)).tick(after=10)
    assert life.obey().effects == (StartNodes(1, refs(0, incarnation=1)),)
