"""Which slots replicas get on hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muster.engines.remote.slots import ArraySlots, clusters
from muster.plan.model import RunPlan

PlanOf = Callable[..., RunPlan]


@pytest.fixture
def slots(plan_of: PlanOf) -> Callable[..., ArraySlots]:
    """The slots of an array of ten replicas, three at a time."""

    def make(nodes: int = 1) -> ArraySlots:
        group: dict[str, Any] = {"name": "workers", "replicas": 10, "parallelism": 3}
        return ArraySlots(plan_of(node_groups=[{**group, "nodes": nodes}]))

    return make


def always(slot: int) -> bool:
    return True


def wait(one: ArraySlots, *ranks: int) -> None:
    for rank in ranks:
        one.wait(rank)


def test_replicas_wait_until_slots_can_be_used(slots: Callable[..., ArraySlots]) -> None:
    one = slots()
    wait(one, 0, 1, 2)
    assert one.give_out(lambda slot: slot == 1) == [(0, 1)]
    assert one.waiting == [1, 2]
    assert one.give_out(lambda slot: slot == 1) == []
    assert one.give_out(always) == [(1, 0), (2, 2)]
    assert one.waiting == []


def test_the_slot_that_was_left_first_is_taken_first(slots: Callable[..., ArraySlots]) -> None:
    one = slots()
    wait(one, 0, 1, 2)
    one.give_out(always)
    for rank in (2, 0):
        one.leave(rank)
    wait(one, 3, 4)
    assert one.give_out(always) == [(3, 2), (4, 0)]


def test_a_replica_gets_its_former_slot_while_no_other_has_had_it(
    slots: Callable[..., ArraySlots],
) -> None:
    one = slots()
    wait(one, 0, 1, 2)
    one.give_out(always)
    for rank in (0, 1):
        one.leave(rank)
    wait(one, 1)
    assert one.give_out(always) == [(1, 1)]
    wait(one, 3)
    assert one.give_out(always) == [(3, 0)]
    one.leave(1)
    wait(one, 0)
    assert one.give_out(always) == [(0, 1)], "replica 3 has its slot"


def test_the_nodes_of_a_replica_are_neighbours(slots: Callable[..., ArraySlots]) -> None:
    one = slots(nodes=2)
    wait(one, 0, 1, 2, 3)
    assert one.give_out(lambda slot: slot in (1, 2, 3)) == [(0, 2), (1, 3)]
    assert one.give_out(always) == [(2, 0), (3, 1)]
    one.leave(0)
    wait(one, 4, 5)
    assert one.give_out(lambda slot: slot < 4) == [], "a node of replica 0 runs in slot 3"
    one.leave(1)
    assert one.give_out(lambda slot: slot < 4) == [(4, 2), (5, 3)]


def test_a_node_that_lost_its_host_gets_the_slot_beside_the_others(
    slots: Callable[..., ArraySlots],
) -> None:
    one = slots(nodes=2)
    one.found(6, 2)
    one.found(7, 3)
    one.leave(7)
    wait(one, 7, 0, 1)
    assert one.give_out(lambda slot: slot in (0, 1)) == [(0, 0), (1, 1)]
    assert one.give_out(always) == [(7, 3)]


def test_one_that_waits_may_end(slots: Callable[..., ArraySlots]) -> None:
    one = slots()
    wait(one, 0, 1)
    one.wait_no_more(0)
    one.wait_no_more(2)
    assert one.give_out(always) == [(1, 0)]
    one.leave(5)  # it has no slot
    assert one.give_out(always) == []


def test_clusters(plan_of: PlanOf) -> None:
    array = {"name": "tasks", "nodes": 2, "replicas": 5, "parallelism": 2}
    plan = plan_of(node_groups=[{"name": "data"}, array, {"name": "end"}])
    assert list(clusters(plan)) == [(1, 2), (3, 4), (0, 5)]
    arrays = ArraySlots(plan)
    assert [slot in arrays for slot in range(6)] == [False, True, True, True, True, False]
    assert list(clusters(plan_of(node_groups=[{"name": "one", "nodes": 3}]))) == [(0, 1, 2)]
