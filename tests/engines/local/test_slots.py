"""The slots that replicas of an array take, compared with a simple model."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from muster.engines.local.slots import Slots
from muster.plan.model import RunPlan

PlanOf = Callable[..., RunPlan]


@pytest.fixture
def plan(plan_of: PlanOf) -> RunPlan:
    """A node of its own, and an array of replicas with two nodes, three at a time."""
    array = {"name": "workers", "replicas": 20, "nodes": 2, "parallelism": 3}
    return plan_of(node_groups=[{"name": "main"}, {**array, "command": ["true"]}])


def test_a_node_of_no_array_has_the_slot_of_its_rank(plan: RunPlan) -> None:
    slots = Slots(plan)
    assert plan.slot_of(slots.take(0)) == 0
    slots.leave(0)


def test_replicas_that_run_never_share_a_slot(plan: RunPlan, rng: random.Random) -> None:
    """A replica gets its former slots again while no other has had them, else the first free."""
    slots = Slots(plan)
    running: dict[int, int] = {}  # rank -> slot
    former: dict[int, int] = {}  # first slot -> the replica that had it last
    for _ in range(2000):
        replica = rng.randrange(20)
        ranks = (1 + 2 * replica, 2 + 2 * replica)
        if running.keys() & {*ranks}:
            rank = rng.choice([*running])
            slots.leave(rank)
            del running[rank]
        elif len({(rank - 1) // 2 for rank in running}) < 3:
            free = [first for first in (1, 3, 5) if not {first, first + 1} & {*running.values()}]
            own = [first for first, other in former.items() if other == replica]
            expected = own[0] if own else free[0]
            for rank in rng.sample(ranks, 2):
                node = slots.take(rank)
                assert (node.rank, node.replica) == (rank, replica)
                running[rank] = plan.slot_of(node)
                assert running[rank] == expected + node.index
                assert slots.take(rank) == node, "it may be repeated"
            former[expected] = replica
    assert len(former) == 3
