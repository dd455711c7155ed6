"""More replicas of a group, and fewer, while the run goes on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.lifecycle import outstanding
from muster.lifecycle.effects import KillNodes, ReleaseNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ResumeRequested,
    RunBegan,
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
from support.life import Life, begun, policy, refs

N = NodeState
SUSPEND = SuspendRequested("wait")
RESUME = ResumeRequested("go on")


def to(replicas: int, group: str = "g0") -> ScaleRequested:
    return ScaleRequested(group, replicas, "by its owner")


def elastic(wanted: int, most: int, least: int | None = None, **more: Any) -> tuple[Any, ...]:
    """A group of nodes that may become more."""
    return most, more.pop("nodes", 1), least, {"wanted": wanted, **more}


def cluster(wanted: int = 2, most: int = 4, least: int = 0, **more: Any) -> Life:
    """One node for which all is done, and others that serve it; all are up."""
    return grown(Life(policy((1, 1, None), elastic(wanted, most, least), **more)))


def grown(life: Life) -> Life:
    life.tell(RunBegan())
    return life.up(*life.starts())


def ending(life: Life, *ranks: int, code: int = 143) -> Life:
    return life.tell(*(life.ended(rank, code) for rank in ranks))


# --- as it begins


def test_who_is_not_wanted_is_parked_and_nobody_waits_for_it() -> None:
    life = begun(policy(elastic(2, 4), (1, 1, None), in_order=True))
    assert life.states() == [N.STARTING, N.STARTING, N.PARKED, N.PARKED, N.PENDING]
    assert life.up(0, 1).starts() == [4]
    life.up(4).end(0).end(1)
    assert life.status.state is RunState.IN_PROGRESS
    life.end(4)
    assert life.status.state is RunState.SUCCEEDED
    assert life.states() == [N.SUCCEEDED, N.SUCCEEDED, N.PARKED, N.PARKED, N.SUCCEEDED]


def test_whoever_takes_it_up_tells_who_is_not_there() -> None:
    life = cluster()
    assert outstanding.effects(life.policy, life.status) == (ReleaseNodes(refs(3, 4)),)


# --- more


def test_the_lowest_that_are_parked_start() -> None:
    life = cluster().tell(to(3, "g1"))
    assert life.effects == (StartNodes(0, refs(3)),)
    assert life.notes("scaled") == [{"group": "g1", "from": 2, "to": 3, "why": "by its owner"}]
    assert [entry.kind for entry in life.entries] == ["nodes", "scaled"]
    life.up(3)
    assert life.states() == [N.READY] * 4 + [N.PARKED]
    assert life.status.restarts == 0


def test_a_wish_that_is_told_again_changes_nothing() -> None:
    life = cluster().tell(to(3, "g1"))
    before = life.status
    assert life.tell(to(3, "g1"), to(1, "nobody")).status is before


@pytest.mark.parametrize(("asked", "had"), [(9, 4), (-3, 0)])
def test_as_many_as_there_can_be(asked: int, had: int) -> None:
    life = cluster().tell(to(asked, "g1"))
    assert life.notes("scaled")[0]["to"] == had
    before = life.status
    assert life.tell(to(asked, "g1")).status is before


def test_a_group_that_has_to_succeed_is_never_without_replicas() -> None:
    life = grown(Life(policy(elastic(2, 4)))).tell(to(0))
    assert life.stops() == [1]
    assert life.obey().status.state is RunState.IN_PROGRESS
    assert life.end(0).status.state is RunState.SUCCEEDED


def test_more_start_when_their_group_may() -> None:
    wait = {"depends_on": (Dependency(0, complete=False),)}
    life = begun(policy((1, 1, None), elastic(1, 3, 0, **wait))).tell(to(2, "g1"))
    assert life.states() == [N.STARTING, N.PENDING, N.PENDING, N.PARKED]
    assert life.effects == ()
    assert life.up(0).starts() == [1, 2]


def test_a_group_that_has_ended_may_become_larger() -> None:
    done = {"depends_on": (Dependency(0, complete=True),)}
    life = grown(Life(policy(elastic(1, 2), (1, 1, None, done)))).end(0)
    assert life.starts() == [2]
    assert life.tell(to(2)).starts() == [1]
    life.up(1, 2).end(2)
    assert life.status.state is RunState.IN_PROGRESS
    assert life.end(1).status.state is RunState.SUCCEEDED


# --- fewer


def test_the_highest_that_run_are_told_to_end() -> None:
    life = cluster(4).tell(to(2, "g1"))
    assert life.effects == (StopNodes(refs(3, 4)),)
    assert life.node(4).parking and life.node(4).parked and life.node(4).alive
    assert life.states() == [N.READY] * 5
    assert outstanding.effects(life.policy, life.status) == life.effects
    life.tick(20)
    assert life.effects == (KillNodes(refs(3, 4)),)
    ending(life, 3, 4, code=137)
    assert life.states() == [N.READY] * 3 + [N.PARKED] * 2
    assert life.node(4) == NodeStatus(N.PARKED, 1)
    assert life.effects == (ReleaseNodes(refs(3, 4, incarnation=1)),)
    assert outstanding.effects(life.policy, life.status) == life.effects
    assert life.status.state is RunState.IN_PROGRESS
    assert life.notes("nodes")[-1]["why"] == "ended with exit code 137"


@pytest.mark.parametrize("reason", [Reason.EXIT, Reason.OUTPUT_LOST, Reason.NODE_LOST])
@pytest.mark.parametrize("code", [0, 1, 143])
def test_however_they_end_it_is_no_failure(code: int, reason: Reason) -> None:
    life = cluster(2, least=2, max_restarts=1).tell(to(1, "g1"))
    life.end(2, code, reason=reason, message="oops")
    assert life.notes("failure") == []
    assert life.status.failures == ()
    told = "oops" if reason is Reason.OUTPUT_LOST else f"ended with exit code {code}"
    assert life.notes("nodes")[-1]["why"] == told
    assert life.end(0).end(1).status.state is RunState.SUCCEEDED


def test_who_failed_in_the_very_moment_has_not() -> None:
    life = cluster(3, least=3)
    life.tell(life.ended(3, 1), to(2, "g1"))
    assert life.status.stopping is None
    assert (life.status.failures, life.states()[3]) == ((), N.PARKED)
    assert life.effects == (ReleaseNodes(refs(3, incarnation=1)),)


def test_others_who_failed_in_that_moment_have() -> None:
    life = cluster(3, least=3)
    life.tell(life.ended(3, 1), life.ended(1, 2), to(2, "g1"))
    assert [failure.rank for failure in life.status.failures] == [1]
    assert life.obey().status.exit_code == 2


def test_who_never_began_is_parked_at_once() -> None:
    wait = {"depends_on": (Dependency(0, complete=False),)}
    life = begun(policy((1, 1, None), elastic(2, 3, 0, **wait))).tell(to(1, "g1"))
    assert life.effects == (ReleaseNodes(refs(2)),)
    assert life.notes("nodes")[-1] == {"ranks": "2", "state": "PARKED"}
    assert life.node(2) == NodeStatus(N.PARKED)
    assert life.status.restarts == 0
    assert life.up(0).starts() == [1]


def test_what_has_failed_goes_first_and_what_has_succeeded_last() -> None:
    life = grown(Life(policy((1, 1, None), elastic(4, 4, 0)))).end(1, 1).end(4)
    assert life.states() == [N.READY, N.FAILED, N.READY, N.READY, N.SUCCEEDED]
    assert life.tell(to(3, "g1")).stops() == []
    assert life.states()[1] is N.PARKED
    assert life.tell(to(2, "g1")).stops() == [3]
    assert life.tell(to(1, "g1")).stops() == [2]
    life.tell(to(0, "g1"))
    assert life.states() == [N.READY, N.PARKED, N.READY, N.READY, N.PARKED]


def one_in_the_middle_parked() -> Life:
    """Node 1 of a group of four, which had failed."""
    life = grown(Life(policy((1, 1, None), elastic(4, 4, 0)))).end(1, 1)
    return life.tell(to(3, "g1"))


def test_a_restart_passes_over_who_is_parked() -> None:
    life = one_in_the_middle_parked()
    life.policy = replace(life.policy, max_restarts=1)
    assert life.end(0, 1).stops() == [2, 3, 4]
    assert life.obey().starts() == [0, 2, 3, 4]


def test_a_suspension_passes_over_who_is_parked() -> None:
    life = one_in_the_middle_parked().tell(SUSPEND).obey()
    assert life.status.state is RunState.SUSPENDED
    assert life.states() == [N.PENDING, N.PARKED, N.PENDING, N.PENDING, N.PENDING]


def test_who_is_not_up_yet_goes_too() -> None:
    life = begun(policy((1, 1, None), elastic(3, 3, 0))).tell(to(2, "g1"))
    assert life.stops() == [3]
    life.tell(to(1, "g1"))
    assert life.notes("scaled")[-1]["from"] == 2


def test_one_is_left_where_one_has_to_succeed() -> None:
    life = begun(policy(elastic(3, 3, 1))).tell(to(0))
    assert life.notes("scaled")[-1]["to"] == 1
    assert life.stops() == [1, 2]


def test_a_whole_replica_goes() -> None:
    life = grown(Life(policy((1, 1, None), elastic(2, 3, 0, nodes=2)))).end(4)
    life.tell(to(1, "g1"))
    assert life.stops() == [3]
    assert life.states()[3:5] == [N.READY, N.PARKED]
    life.obey()
    assert life.states() == [N.READY] * 3 + [N.PARKED] * 4


def test_fewer_may_be_all_that_is_needed() -> None:
    life = grown(Life(policy(elastic(3, 3)))).end(0).tell(to(1))
    assert life.stops() == [1, 2]
    assert life.status.stopping is not None
    assert life.obey().status.state is RunState.SUCCEEDED
    assert life.states() == [N.SUCCEEDED, N.PARKED, N.PARKED]


def test_of_fewer_all_must_succeed() -> None:
    life = grown(Life(policy(elastic(3, 5)))).tell(to(2)).obey().end(0)
    assert life.status.stopping is None
    assert life.end(1, 1).status.state is RunState.FAILED


def test_so_many_may_fail_as_are_wanted_beyond_the_minimum() -> None:
    life = grown(Life(policy(elastic(3, 5, 1)))).tell(to(2)).obey()
    assert life.end(1, 1).status.state is RunState.IN_PROGRESS
    assert life.end(0, 1).status.state is RunState.FAILED


# --- and back


def test_who_is_wanted_again_is_another() -> None:
    life = cluster().tell(to(1, "g1")).obey().tell(to(2, "g1"))
    assert life.effects == (StartNodes(0, refs(2, incarnation=1)),)
    assert life.notes("scaled")[-1] == {"group": "g1", "from": 1, "to": 2, "why": "by its owner"}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_who_is_wanted_again_too_soon_begins_when_the_old_one_has_gone(strategy: Strategy) -> None:
    life = cluster(strategy=strategy).tell(to(1, "g1")).tell(to(2, "g1"))
    assert life.effects == ()
    assert (life.node(2).again, life.node(2).parking) == (2, False)
    life.end(2, 143)
    assert life.effects == (StartNodes(0, refs(2, incarnation=2)),)
    assert life.notes("failure") == []


@pytest.mark.parametrize("strategy", list(Strategy))
def test_who_has_gone_waits_for_nobody_else(strategy: Strategy) -> None:
    life = cluster(4, strategy=strategy).tell(to(2, "g1")).end(3, 143)
    life.tell(to(3, "g1"))
    assert life.effects == (StartNodes(0, refs(3, incarnation=1)),)
    life.tell(to(4, "g1"))
    assert (life.effects, life.node(4).again) == ((), 2)
    assert life.obey().starts() == [4]


def test_a_replica_begins_as_one() -> None:
    life = grown(Life(policy((1, 1, None), elastic(2, 2, 0, nodes=2))))
    life.tell(to(1, "g1")).end(3, 143).tell(to(2, "g1"))
    assert life.effects == ()
    assert (life.node(3), life.node(4).again) == (NodeStatus(incarnation=2), 2)
    assert life.obey().starts() == [3, 4]


def test_fewer_more_and_fewer_again() -> None:
    life = cluster().tell(to(1, "g1")).tell(to(2, "g1")).tell(to(1, "g1"))
    assert life.effects == ()
    assert (life.node(2).parking, life.node(2).again) == (True, 3)
    life.obey()
    assert life.node(2) == NodeStatus(N.PARKED, 3)


# --- beside restarts


def test_what_is_parked_does_not_start_again_with_the_others() -> None:
    life = cluster(3, max_restarts=3, action=Action.RESTART_RUN).tell(to(2, "g1"))
    life.end(0, 1)
    assert life.stops() == [1, 2]
    assert (life.node(3).again, life.node(3).parking) == (1, True)
    ending(life, 1, 2)
    assert life.starts() == [0, 1, 2], "which does not wait for what is scaled away"
    ending(life, 3)
    assert life.states()[3:] == [N.PARKED, N.PARKED]


def test_what_was_to_start_again_is_parked_instead() -> None:
    life = cluster(2, max_restarts=3, backoff=Backoff(initial=30)).end(0, 1)
    assert life.node(2).again == 1
    life.tell(to(1, "g1"))
    assert (life.effects, life.node(2).again, life.node(2).parking) == ((), 2, True)
    assert life.obey().starts() == [0, 1]
    assert life.node(2) == NodeStatus(N.PARKED, 2)


def test_who_waits_to_start_again_is_parked_and_waits_no_more() -> None:
    life = grown(Life(policy((1, 1, None), elastic(2, 2, 1), max_restarts=9)))
    life.policy = policy((1, 1, None), elastic(2, 2, 1), max_restarts=9, backoff=Backoff(30))
    for _ in range(2):
        life.end(0, 1).obey()
        life.up(*life.starts())
    assert [node.not_before is not None for node in life.status.nodes] == [True] * 3
    life.tell(to(1, "g1"))
    assert life.node(2) == NodeStatus(N.PARKED, 3)
    assert life.effects == (ReleaseNodes(refs(2, incarnation=3)),)
    assert life.tell(to(2, "g1")).starts() == [2], "which is no restart"


def test_a_replica_that_is_added_again_does_not_wait_for_a_restart_s_backoff() -> None:
    life = cluster(2, max_restarts=9, backoff=Backoff(30)).end(0, 1).obey()
    life.up(*life.starts()).end(0, 1)
    assert (life.node(2).alive, life.node(2).not_before is None) == (True, False)
    life.tell(to(1, "g1")).tell(to(2, "g1")).end(2, 143)
    assert life.starts() == [2]


def test_a_restart_by_a_rule_is_of_who_is_wanted() -> None:
    rule = Rule("gpu", Action.RESTART_GROUP, groups=("g1",))
    life = cluster(3, rules=(rule,), max_restarts=1).tell(to(2, "g1")).end(1, 1)
    assert life.stops() == [2]
    assert [life.node(rank).again for rank in (2, 3)] == [2, 1]


# --- beside other wishes


def test_nothing_is_scaled_in_a_run_that_is_ending() -> None:
    life = cluster().tell(CancelRequested("enough"), to(4, "g1"))
    assert life.notes("scaled") == []
    assert life.obey().status.state is RunState.CANCELED
    assert life.states() == [N.STOPPED] * 3 + [N.PARKED] * 2


@pytest.mark.parametrize("checkpoint", [None, Checkpoint(10, 30)])
def test_what_is_scaled_away_is_parked_although_the_run_ends(checkpoint: Checkpoint | None) -> None:
    life = cluster(checkpoint=checkpoint).tell(to(1, "g1")).tell(CancelRequested("enough"))
    assert life.stops() == [0, 1]
    assert life.obey().states() == [N.STOPPED] * 2 + [N.PARKED] * 3
    assert life.status.state is RunState.CANCELED


def test_a_suspended_run_has_another_size_when_it_goes_on() -> None:
    life = cluster().tell(SUSPEND).obey().tell(to(3, "g1"))
    assert life.status.state is RunState.SUSPENDED
    assert life.states() == [N.PENDING] * 4 + [N.PARKED]
    assert life.effects == ()
    assert life.tell(RESUME).starts() == [0, 1, 2, 3]


def test_a_suspended_run_with_nothing_left_to_do_still_rests() -> None:
    life = grown(Life(policy(elastic(2, 2)))).end(0).tell(SUSPEND).obey().tell(to(1))
    assert life.status.state is RunState.SUSPENDED
    assert life.states() == [N.SUCCEEDED, N.PARKED]
    assert life.tell(RESUME).status.state is RunState.SUCCEEDED


@pytest.mark.parametrize("checkpoint", [None, Checkpoint(10, 30)])
def test_one_that_is_about_to_be_suspended_has_it_then(checkpoint: Checkpoint | None) -> None:
    life = cluster(3, checkpoint=checkpoint).tell(SUSPEND).tell(to(1, "g1"))
    assert life.effects == (), "each was told already, and may save what it has"
    assert [node.parking for node in life.status.nodes] == [False, False, True, True, False]
    life.tell(to(2, "g1"))
    assert life.effects == ()
    life.obey()
    assert life.status.state is RunState.SUSPENDED
    assert life.states() == [N.PENDING] * 3 + [N.PARKED] * 2
    assert life.tell(RESUME).starts() == [0, 1, 2]


def test_what_saves_although_it_is_not_wanted_has_its_time() -> None:
    life = cluster(checkpoint=Checkpoint(10, 30)).tell(SUSPEND).tell(to(1, "g1"))
    life.tick(40)
    assert life.effects == (StopNodes(refs(0, 1, 2)),)
    life.obey()
    assert life.states() == [N.PENDING] * 2 + [N.PARKED] * 3


def test_what_is_scaled_away_needs_not_save() -> None:
    life = cluster(checkpoint=Checkpoint(10, 30)).tell(to(1, "g1")).tell(SUSPEND)
    assert life.node(2).term_at is None
    assert life.node(2).again == 1
    life.obey()
    assert life.node(2) == NodeStatus(N.PARKED, 1)


# --- beside mishaps


def test_what_is_scaled_away_is_gone_with_its_supervisor() -> None:
    life = cluster(max_restarts=1).tell(to(1, "g1")).tell(SupervisorLost("killed", None))
    assert life.node(2) == NodeStatus(N.PARKED, 1)
    assert {entry["rank"] for entry in life.notes("failure")} == {0, 1}


def test_a_run_that_is_broken_leaves_what_is_parked() -> None:
    life = cluster().tell(to(1, "g1")).tell(RunBroken("gone"))
    assert life.status.state is RunState.FAILED
    assert life.states() == [N.STOPPED] * 2 + [N.PARKED] * 3
    assert life.node(2).incarnation == 1
    parked = [note for note in life.notes("nodes") if note["state"] == "PARKED"]
    assert parked[-1] == {"ranks": "2", "state": "PARKED", "why": "gone", "restart": 1}


def test_success_of_any_replica_does_not_wait_for_those_that_are_not_wanted() -> None:
    made = policy(elastic(2, 3, 0), success=Success((0,), any_replica=True))
    life = grown(Life(made)).tell(to(1)).end(0, 1)
    assert life.status.stopping is None, "something is left, which ends as well"
    life.obey()
    assert life.status.state is RunState.FAILED
