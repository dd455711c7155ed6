"""Arrays: replicas that run a few at a time, each by itself."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.events import (
    CancelRequested,
    ResumeRequested,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.policy import (
    Action,
    Backoff,
    Dependency,
    EarlySuccess,
    GroupFailure,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.run_driver import RunDriver, policy, running, starting

N = NodeState
FAIL, FAIL_REPLICA = Action.FAIL, Action.FAIL_REPLICA


def array(replicas: int = 5, nodes: int = 1, at_once: int = 2, **more: Any) -> Any:
    """A group whose failed replicas are tolerated."""
    least = more.pop("min_success", replicas)
    return (replicas, nodes, least, {"parallelism": at_once, "max_failed": replicas, **more})


def run_of(*shapes: Any, **more: Any) -> RunDriver:
    return starting(policy(*shapes, **more))


# --- which replicas run


@pytest.mark.parametrize(
    ("shape", "ranks"),
    [
        (array(), [0, 1]),
        (array(at_once=9), [0, 1, 2, 3, 4]),
        (array(nodes=2), [0, 1, 2, 3]),
        (array(only="1,3-4"), [1, 3]),
        (array(nodes=2, only="4"), [8, 9]),
    ],
)
def test_the_first_replicas_start(shape: Any, ranks: list[int]) -> None:
    assert run_of(shape).starts() == ranks


def test_replicas_start_in_the_order_of_their_numbers_as_others_end() -> None:
    run = run_of(array())
    assert run.end(1).starts() == [2]
    assert run.step(run.ended(0), run.ended(2)).starts() == [3, 4]
    assert run.step(run.ended(4), run.ended(3)).status.state is RunState.SUCCEEDED


def test_a_replica_of_several_nodes_keeps_its_place_until_all_have_ended() -> None:
    run = run_of(array(3, nodes=2, at_once=1))
    assert run.end(0).starts() == []
    assert run.end(1).starts() == [2, 3]


def test_a_replica_that_waits_for_its_restart_does_not_hold_back_others() -> None:
    run = run_of(array(retries=3), backoff=Backoff(initial=10.0))
    assert run.end(0, 1).starts() == [0]  # the first restart does not wait
    assert run.end(0, 1).starts() == [2]
    assert run.end(1).starts() == [3]
    run.tick(after=20.0)
    assert run.starts() == []  # two others run
    assert run.end(2).starts() == [0]


def test_the_nodes_of_an_active_replica_come_before_further_replicas() -> None:
    run = run_of(array(3, nodes=2, at_once=1, retries=1)).up(0, 1)
    assert run.end(1, 1).starts() == []
    assert run.end_stopping().starts() == [0, 1]


def test_a_group_that_waits_for_an_array_waits_until_it_is_up_or_complete() -> None:
    for complete, ranks in ((False, [5]), (True, [])):
        run = run_of(array(), (1, 1, None, {"depends_on": (Dependency(0, complete=complete),)}))
        assert run.up(0).starts() == []
        assert run.up(1).starts() == ranks


# --- retries


def test_each_replica_has_retries_and_delays_of_its_own() -> None:
    run = run_of(array(at_once=5, retries=3), backoff=Backoff(initial=1.0))
    for rank, wait in ((0, 0), (1, 0), (0, 1), (0, 2), (1, 1)):
        run.tick(after=10.0).end(rank, 1)
        assert run.notes("restart")[-1]["wait"] == wait, rank
    assert run.retries() == {"g0/0": 3, "g0/1": 2}


def test_the_retries_of_a_replica_are_for_all_its_nodes() -> None:
    run = run_of(array(2, nodes=2, at_once=1, retries=1)).up(0, 1)
    assert run.end(1, 1).stops() == [0]
    assert run.end_stopping().starts() == [0, 1]
    assert run.up(0, 1).end(0, 1).stops() == [1]
    assert run.end_stopping().starts() == [2, 3]


def test_a_retry_restarts_the_nodes_of_a_replica_that_have_ended_too() -> None:
    """They run one program together: alone, the node would wait for the others."""
    run = run_of(array(2, nodes=2, at_once=1, retries=1)).up(0, 1)
    assert run.end(0, 0).end(1, 1).starts() == [0, 1]
    assert run.retries() == {"g0/0": 1}


#: Retries of all replicas -> what is said when none is left.
NO_RETRY_LEFT = {
    0: "\ngroup g0 allows no retry (total_retries)",
    1: "\nthe only retry of group g0 is used up (total_retries)",
    2: "\nall 2 retries of group g0 are used up (total_retries)",
}


@pytest.mark.parametrize(
    ("total", "retries", "codes", "starts"),
    [
        (2, 9, {0: 2}, 3),
        (2, 9, {0: 3}, None),
        (2, 9, {0: 1, 1: 1, 2: 1}, None),
        (3, 1, {0: 2, 1: 1}, 2),  # replica 0 fails for good
        (1, 0, {0: 1}, 1),
        (1, 0, {0: 1, 1: 1}, None),
        (0, 9, {4: 1}, None),
    ],
)
def test_failures_of_all_replicas_have_one_limit(
    total: int, retries: int, codes: dict[int, int], starts: int | None
) -> None:
    """codes: replica -> its failures. starts: of replica 0; None: the group fails at once."""
    run = run_of(array(total_retries=total, retries=retries, min_success=0))
    count = 1
    while not run.status.state.terminal and run.status.stopping is None:
        rank = next(rank for rank, node in enumerate(run.status.nodes) if node.alive)
        left = codes.get(rank, 0)
        codes[rank] = left - 1
        run.end(rank, 1 if left > 0 else 0)
        count += run.starts().count(0)
    if starts is None:
        assert run.end_stopping().status.state is RunState.FAILED
        assert run.status.details.endswith(NO_RETRY_LEFT[total])
    else:
        assert (run.status.state, count) == (RunState.SUCCEEDED, starts)


def test_a_restart_of_the_run_gives_all_retries_back() -> None:
    shape = array(3, total_retries=1, retries=1, max_failed=0)
    run = run_of(shape, max_restarts=1, action=Action.RESTART_RUN)
    run.end(0, 1)
    assert run.status.spent.retries == {"g0": 1}
    run.end(0, 1).end_stopping()
    assert (run.status.spent.retries, run.retries(), run.starts()) == ({}, {}, [0, 1])


# --- failed replicas


def test_the_others_run_when_a_replica_has_failed() -> None:
    run = run_of(array(), (1, 1, 0))
    run.end(1, 3)
    assert (run.starts(), run.status.stopping) == ([2], None)
    for rank in (0, 2, 3, 4):
        run.end(rank)
    assert run.stops() == [5]
    run.end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.details.splitlines() == [
        "replica 1 (group g0) failed with exit code 3",
        "1 of 5 replicas of group g0 failed: 1",
    ]
    assert run.status.exit_code == 3


def test_the_first_failure_is_the_cause_even_if_others_were_restarted_since() -> None:
    run = run_of(array(retries=1))
    run.end(0, 1).end(0, 5, message="the first")
    run.end(1, 7)
    for rank in (1, 2, 3, 4):
        run.end(rank)
    assert run.status.state is RunState.FAILED
    assert (run.status.exit_code, "the first" in run.status.details) == (5, True)


@pytest.mark.parametrize(
    ("least", "state"), [(4, RunState.SUCCEEDED), (5, RunState.FAILED), (0, RunState.SUCCEEDED)]
)
def test_enough_replicas_have_to_succeed(least: int, state: RunState) -> None:
    run = run_of(array(min_success=least)).end(0, 1)
    for rank in range(1, 5):
        run.end(rank)
    assert run.status.state is state


@pytest.mark.parametrize("most", [0, 1, 2])
def test_more_failed_replicas_than_allowed_stop_the_others(most: int) -> None:
    run = run_of(array(max_failed=most, at_once=1, min_success=0))
    for rank in range(most):
        assert run.end(rank, 1).starts() == [rank + 1]
    assert run.end(most, 1).status.state is RunState.FAILED
    assert run.states()[most + 1 :] == [N.STOPPED] * (4 - most)
    assert ("(max_failed)" in run.status.details) is (most > 0)


def test_a_replica_that_takes_too_long_fails_and_the_next_starts() -> None:
    run = run_of(array(at_once=1, timeout=10.0, retries=2, min_success=4)).up(0)
    assert run.tick(after=10.0).stops() == [0]
    assert run.end_stopping().starts() == [1]
    assert run.node(0).state is N.FAILED


# --- rules

SOME = {"retries": 2, "min_success": 0}


def test_a_rule_can_fail_a_replica_without_retries() -> None:
    rules = (Rule("hopeless", FAIL_REPLICA, exit_codes=(42,)),)
    run = run_of(array(**SOME), rules=rules)
    assert run.end(0, 1).starts() == [0]
    assert run.end(0, 42).starts() == [2]
    assert (run.node(0).state, run.status.stopping) == (N.FAILED, None)


def test_a_rule_that_fails_a_replica_fails_the_run_if_that_is_not_tolerated() -> None:
    rules = (Rule("hopeless", FAIL_REPLICA, exit_codes=(42,)),)
    run = running(policy((2, 1, None, {"retries": 2}), rules=rules)).end(0, 42).end_stopping()
    assert run.status.state is RunState.FAILED


@pytest.mark.parametrize(
    ("failures", "group", "ends"),
    [
        ((), {}, True),  # about a node
        ((GroupFailure.MAX_FAILED,), {}, False),
        ((GroupFailure.MAX_FAILED,), {"max_failed": 0}, True),
        ((GroupFailure.TOTAL_RETRIES,), {"max_failed": 0}, False),
        ((GroupFailure.TOTAL_RETRIES,), {"total_retries": 0}, True),
        ((GroupFailure.MIN_SUCCESS,), {"max_failed": None, "min_success": 5}, True),
        (tuple(GroupFailure), {"max_failed": 0}, True),
    ],
)
def test_rules_can_be_about_groups(
    failures: tuple[GroupFailure, ...], group: dict[str, Any], ends: bool
) -> None:
    """Another rule restarts the run."""
    rules = (Rule("strict", FAIL, group_failed=failures),)
    run = run_of(
        array(**{"min_success": 0, **group}), rules=rules, max_restarts=1, action=Action.RESTART_RUN
    )
    run.end(0, 1)
    stopped = run.status.stopping is not None
    assert stopped is ends
    if ends:
        assert run.end_stopping().status.details.endswith("rule strict")


def test_an_array_that_falls_short_is_handled_by_rules_about_groups() -> None:
    rules = (Rule("again", Action.RESTART_GROUP, group_failed=(GroupFailure.MIN_SUCCESS,)),)
    run = run_of(array(2), (1, 1, None), rules=rules, max_restarts=1)
    run.up(0, 1, 2).end(1, 1)
    assert run.end(0).starts() == [0, 1]
    assert run.notes("restart")[-1]["why"].endswith("; rule again")
    assert (run.node(2).state, run.node(0).incarnation) == (N.READY, 1)
    assert run.step(run.ended(0), run.ended(1), run.ended(2)).status.state is RunState.SUCCEEDED


def test_one_restart_restarts_all_failed_replicas() -> None:
    run = run_of(array(5), max_restarts=2, action=Action.RESTART_REPLICA, backoff=Backoff(3.0))
    for rank, code in ((1, 3), (0, 0), (2, 0), (4, 5), (3, 5)):
        run.end(rank, code)
    assert (run.starts(), run.status.spent.run) == ([1, 3], 1)
    assert run.notes("restart")[-1]["what"] == "the failed replicas 1, 3-4 of group g0"
    assert [run.node(rank).incarnation for rank in range(5)] == [0, 1, 0, 1, 1]
    run.end(1).end(3)
    assert run.end(4, 5).starts() == []
    assert run.notes("restart")[-1]["what"] == "the failed replica 4 of group g0"
    assert run.tick(after=4).starts() == [4]
    assert run.end(4, 5).status.stopping is not None
    assert "1 of 5 replicas of group g0 failed: 4" in run.status.details


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_failure_with_a_retry_left_does_not_count(order: tuple[int, int]) -> None:
    shape = array(4, at_once=3, retries=1, max_failed=1, min_success=3)
    run = run_of(shape).up(0, 1, 2).end(0, 1).up(0)
    run.step(*(run.ended(rank, 1) for rank in order))
    assert run.status.stopping is None
    assert (run.starts(), run.retries()) == ([1, 3], {"g0/0": 1, "g0/1": 1})


def test_a_replica_with_a_retry_left_does_not_use_a_restart() -> None:
    shape = array(4, at_once=3, retries=1, max_failed=0, min_success=3)
    run = run_of(shape, max_restarts=1, action=Action.RESTART_REPLICA).up(0, 1, 2)
    run.end(0, 1).up(0).step(run.ended(0, 1), run.ended(1, 1))
    assert run.notes("restart")[-2]["what"] == "the failed replica 0 of group g0"
    assert (run.starts(), run.status.spent.run) == ([0, 1], 1)


@pytest.mark.parametrize("retries", [0, 1])
def test_replicas_that_fail_together_are_counted_one_after_another(retries: int) -> None:
    """As when a supervisor is lost."""
    shape = array(4, at_once=4, retries=retries, max_failed=1, min_success=2)
    run = run_of(shape).up(0, 1, 2, 3)
    run.step(*(run.ended(rank, 1) for rank in range(4)))
    assert (run.status.stopping is None) == bool(retries)
    if not retries:
        assert "4 of 4 replicas of group g0 failed: 0-3" in run.end_stopping().status.details


def test_a_restart_of_failed_replicas_gives_their_retries_back() -> None:
    run = run_of(array(3, retries=1), max_restarts=1, action=Action.RESTART_REPLICA)
    for rank, code in ((0, 1), (0, 1), (1, 0), (2, 1), (2, 1)):
        run.end(rank, code)
    assert (run.starts(), run.retries()) == ([0, 2], {})


def test_a_restart_of_the_run_starts_all_replicas_again_in_order() -> None:
    run = run_of(array(3), max_restarts=1, action=Action.RESTART_RUN)
    run.end(1, 1).end(0).end(2)
    assert (run.starts(), run.status.attempt) == ([0, 1], 1)
    assert run.end(0).starts() == [2]


def test_a_single_node_is_not_restarted_in_a_replica_that_has_ended() -> None:
    run = run_of(array(1, nodes=2, at_once=1), max_restarts=3, action=Action.RESTART_NODE)
    run.up(0, 1).end(0, 1).end_stopping()
    assert run.status.state is RunState.FAILED


# --- early success


@pytest.mark.parametrize(
    ("early", "codes", "ends_after"),
    [
        ((EarlySuccess(count=2),), {}, 2),
        ((EarlySuccess("2"),), {}, 3),
        ((EarlySuccess("1,3", 1),), {}, 2),
        ((EarlySuccess("0-1", 1),), {0: 1}, 2),
        ((EarlySuccess("0-1"),), {0: 1}, None),
        ((EarlySuccess("4"), EarlySuccess(count=3)), {}, 3),
        ((), {}, 5),
    ],
)
def test_an_array_succeeds_early(
    early: tuple[EarlySuccess, ...], codes: dict[int, int], ends_after: int | None
) -> None:
    """Replicas end in order. ends_after: how many end by themselves; None: the run fails."""
    run = run_of(array(early_success=early))
    for rank in range(5):
        if run.end(rank, codes.get(rank, 0)).stops():
            assert rank + 1 == ends_after
            break
    run.end_stopping()
    assert run.status.state is (RunState.FAILED if ends_after is None else RunState.SUCCEEDED)


def test_an_array_that_has_succeeded_early_starts_what_waits_for_it() -> None:
    after = {"depends_on": (Dependency(0, complete=True),)}
    run = run_of(array(early_success=(EarlySuccess(count=1),)), (1, 1, None, after))
    assert (run.end(0).stops(), run.starts()) == ([1], [])
    assert run.end_stopping().starts() == [5]
    assert run.states()[:5] == [N.SUCCEEDED, *[N.STOPPED] * 4]
    assert run.end(5).status.state is RunState.SUCCEEDED


def test_any_success_is_that_of_a_whole_array() -> None:
    run = run_of(array(2, at_once=1), (1, 1, None), success=Success((0, 1), any_replica=True))
    assert run.end(0).status.stopping is None
    assert run.end(1).stops() == [2]


# --- users and supervisors


def test_a_suspended_array_keeps_its_successes() -> None:
    run = run_of(array(retries=1)).end(0).end(1, 1)
    run.step(SuspendRequested("wait")).end_stopping()
    assert run.status.state is RunState.SUSPENDED
    assert run.states() == [N.SUCCEEDED, *[N.PENDING] * 4]
    assert run.step(ResumeRequested("again")).starts() == [1, 2]
    assert run.retries() == {"g0/1": 1}


def test_a_replica_that_has_failed_for_good_stays_failed_when_suspended() -> None:
    run = run_of(array(retries=1, max_failed=1)).end(0, 1).end(0, 7)
    assert run.states()[:3] == [N.FAILED, N.STARTING, N.STARTING]
    failed = run.node(0)
    run.step(SuspendRequested("wait")).end_stopping()
    assert (run.status.state, run.states()) == (RunState.SUSPENDED, [N.FAILED, *[N.PENDING] * 4])
    assert run.step(ResumeRequested("again")).starts() == [1, 2]
    assert run.node(0) == failed
    run.end(1, 1).end(1, 1)
    assert run.status.stopping is not None, "max_failed counts both"
    assert "2 of 5 replicas of group g0 failed: 0-1" in run.end_stopping().status.details


def test_the_whole_of_a_failed_replica_stays_down_when_suspended() -> None:
    run = run_of(array(2, nodes=2)).end(0, 1)
    run.step(SuspendRequested("wait")).end_stopping()
    assert run.states() == [N.FAILED, N.STOPPED, N.PENDING, N.PENDING]
    assert run.step(ResumeRequested("again")).starts() == [2, 3]
    assert run.end(2).end(3).status.state is RunState.FAILED


def test_a_replica_that_fails_while_it_is_suspended_runs_again() -> None:
    run = run_of(array())
    run.step(run.ended(0, 1), SuspendRequested("wait")).end_stopping()
    assert run.states() == [N.PENDING] * 5
    assert run.step(ResumeRequested("again")).starts() == [0, 1]


def test_a_late_replica_that_was_to_restart_runs_again_when_suspended() -> None:
    rule = Rule("", Action.RESTART_REPLICA)
    run = run_of(array(2, timeout=10.0), rules=(rule,), max_restarts=3).up(0, 1).tick(after=11.0)
    run.step(SuspendRequested("wait")).end_stopping()
    assert run.states() == [N.PENDING] * 2
    late = run_of(array(2, timeout=10.0)).up(0, 1).tick(after=11.0)
    late.step(SuspendRequested("wait")).end_stopping()
    assert late.states() == [N.FAILED] * 2


def test_an_array_whose_last_replica_fails_after_others_were_kept_ends() -> None:
    run = run_of(array(2, at_once=1, min_success=1)).end(0, 1)
    run.step(run.ended(1), SuspendRequested("wait"))
    assert run.states() == [N.FAILED, N.SUCCEEDED]
    run.step(ResumeRequested("again"))
    assert run.status.state is RunState.SUCCEEDED


def test_a_canceled_array_starts_no_further_replicas() -> None:
    run = run_of(array()).step(CancelRequested("no")).end_stopping()
    assert run.status.state is RunState.CANCELED
    assert run.states() == [N.STOPPED] * 5


@pytest.mark.parametrize("retries", [0, 1])
def test_the_replicas_that_ran_when_a_supervisor_was_lost_have_failed(retries: int) -> None:
    run = run_of(array(retries=retries)).up(0)
    started = frozenset((run_ref(run, 0),))
    run.step(SupervisorLost("its supervisor died", started))
    expected = [N.STARTING, N.STARTING] if retries else [N.FAILED, N.STARTING, N.STARTING]
    assert run.states()[: len(expected)] == expected
    assert run.node(0).fault is (None if retries else Reason.NODE_LOST)


def run_ref(run: RunDriver, rank: int) -> Any:
    from muster.lifecycle.status import NodeRef

    return NodeRef(rank, run.node(rank).incarnation)


@pytest.mark.parametrize("strategy", Strategy)
def test_a_replica_that_is_being_stopped_keeps_its_place(strategy: Strategy) -> None:
    rules = (Rule("again", Action.RESTART_REPLICA, exit_codes=(9,)),)
    run = run_of(array(3, nodes=2, at_once=1), rules=rules, max_restarts=1, strategy=strategy).up(
        0, 1
    )
    assert (run.end(0, 9).stops(), run.starts()) == ([1], [])
    assert run.end_stopping().starts() == [0, 1]


def test_a_run_records_whether_its_details_name_the_failed_replicas() -> None:
    short = run_of(array(), (1, 1, 0))
    short.end(1, 3)
    for rank in (0, 2, 3, 4):
        short.end(rank)
    assert short.status.stopping is not None
    assert short.status.stopping.names_failed
    used_up = run_of(array(total_retries=0))
    used_up.end(1, 3)
    assert used_up.status.stopping is not None
    assert used_up.status.stopping.note == "group g0 allows no retry (total_retries)"
    assert not used_up.status.stopping.names_failed
