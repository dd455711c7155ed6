"""What is kept of slots and their pods, whatever happens to these in which order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.conftest import PlanOf
from engines.kubernetes.test_hosts import pod
from muster.engines.base import RunContext
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.slots import Slots
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus
from muster.storage.home import Home

RUNNING, STARTING, QUEUED = NodeState.RUNNING, NodeState.STARTING, NodeState.QUEUED
SlotsOf = Callable[..., Slots]
ONE = Allocation(0, (0, 1, 2), (0, 1, 2), "uid")


@pytest.fixture
def slots_of(tmp_path: Path, plan_of: PlanOf) -> SlotsOf:
    """The slots of a run with a node for each of these states, as an earlier session has left
    them. pods: their pods, as recorded."""

    def made(*alive: NodeState, pods: Sequence[str] = ()) -> Slots:
        given = [*pods, *([""] * len(alive))]
        nodes = {
            NodeRef(rank, 0): NodeStatus(state, host_id=given[rank])
            for rank, state in enumerate(alive)
        }
        plan = plan_of(nodes=len(alive))
        return Slots(RunContext(plan, Home(tmp_path), {}, sys.executable, alive=nodes))

    return made


def test_nodes_of_an_earlier_session_are_sought_until_they_are_forgotten(slots_of: SlotsOf) -> None:
    slots = slots_of(RUNNING, STARTING, QUEUED)
    assert [slots.is_in_use(slot) for slot in range(3)] == [True, True, False]
    for slot in range(3):
        slots.expect(slot, 0)
    assert slots.sought == {0, 1}
    assert not any(slots.is_in_use(slot) for slot in range(3)), "they were requested"
    assert slots.forget(0)
    assert not slots.forget(0)
    slots.expect(0, 1)
    assert slots.sought == {1}, "its node was lost, and another one follows"


def test_only_a_node_that_had_not_begun_starts_in_another_pod(slots_of: SlotsOf) -> None:
    slots = slots_of(RUNNING, STARTING, STARTING)
    assert [slots.may_start(slot) for slot in range(3)] == [False, True, True]
    slots.restart()
    assert not slots.may_start(1)
    slots = slots_of(RUNNING, STARTING)
    slots.over = True
    assert not slots.may_start(1)


def test_a_node_that_has_begun_runs_in_the_pod_that_is_recorded(slots_of: SlotsOf) -> None:
    slots = slots_of(RUNNING, STARTING, NodeState.READY, pods=["a", "b", ""])
    assert slots.former_pod(0) == "", "nobody has requested it"
    for slot in range(3):
        slots.expect(slot, 0)
    assert [slots.former_pod(slot) for slot in range(3)] == ["a", "", ""]
    slots.forget(0)
    slots.expect(0, 0)
    assert slots.former_pod(0) == "", "it was lost"


def test_slots_without_pods(slots_of: SlotsOf) -> None:
    slots = slots_of(RUNNING, QUEUED, QUEUED)
    for slot in range(3):
        slots.expect(slot, 0)
    assert slots.without_pod(ONE) == [1, 2], "the other one may have a node"
    slots[1].pod = pod("run-0", "workers", 1, "u")
    assert slots.without_pod(ONE) == [2]
    assert [*slots.of(ONE)] == [0, 1, 2]
    slots.expect(2, 1)
    assert [*slots.of(ONE)] == [0, 1], "the other one waits for a pod of another JobSet"


CHANGES = st.tuples(
    st.integers(0, 1), st.sampled_from("abc"), st.sampled_from(["runs", "ends", "gone"])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES))
def test_each_pod_is_known_once(slots_of: SlotsOf, changes: list[tuple[int, str, str]]) -> None:
    """As the cluster reports them: perhaps twice, and their ends first."""
    slots = slots_of(QUEUED, QUEUED)
    known: dict[tuple[int, str], str] = {}
    for slot, name, change in changes:
        uid = f"{name}{slot}"
        had_ended = known.get((slot, uid)) == "ends"
        if change == "runs":
            if not had_ended:
                slots.keep(slot, pod("run-0", "workers", slot, uid))
                known[slot, uid] = change
            continue
        ended = pod("run-0", "workers", slot, uid, code=1)
        assert slots.end(slot, ended, is_gone=change == "gone") is had_ended
        known[slot, uid] = change
    for slot in (0, 1):
        of = {uid: change for (its, uid), change in known.items() if its == slot}
        alive = {uid for uid, change in of.items() if change == "runs"}
        assert {one.uid for one in slots.pods(slot)} == alive
        ended_ones = {uid for uid, change in of.items() if change == "ends"}
        assert {one.uid for one in slots.ended(slot)} == ended_ones
        assert slots.has_pods(Allocation(0, (slot,), (slot,))) is bool(alive)
    every = {uid for (_, uid), change in known.items() if change == "runs"}
    assert {one.uid for one in slots.every_pod()} == every
