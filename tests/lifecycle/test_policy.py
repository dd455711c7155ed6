"""Groups of ranks, and whether a policy allows restarts."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.policy import Action, Rule, Success
from muster.lifecycle.states import NodeState
from support.run_driver import policy

N = NodeState
SHAPES: Any = ((2, 3, None), (0, 4, None), (1, 1, None), (0, 1, None))


def test_every_rank_belongs_to_a_group_and_replica() -> None:
    made = policy(*SHAPES)
    assert made.size == 7
    assert made.first_ranks == (0, 6, 6, 7)
    assert [made.group_index(rank) for rank in range(7)] == [0] * 6 + [2]
    assert [made.group_of(rank).name for rank in (0, 6)] == ["g0", "g2"]
    group = made.groups[0]
    assert (group.size, group.ranks) == (6, range(6))
    assert [group.replica_of(rank) for rank in range(6)] == [0, 0, 0, 1, 1, 1]
    assert group.replica_ranks(1) == range(3, 6)
    assert made.groups[2].ranks == range(6, 7)
    assert made.groups[2].replica_of(6) == 0
    assert made.groups[2].replica_ranks(0) == range(6, 7)


@pytest.mark.parametrize(
    ("options", "shape", "expected"),
    [
        ({}, {}, False),
        ({"max_restarts": 1}, {}, True),
        ({}, {"retries": 1}, True),
        ({"rules": (Rule("r", Action.FAIL),)}, {}, False),
        ({"rules": (Rule("r", Action.FAIL), Rule("s", Action.RESTART_NODE))}, {}, True),
    ],
)
def test_restarts(options: dict[str, Any], shape: dict[str, Any], expected: bool) -> None:
    assert policy((1, 1, None), (1, 1, None, shape), **options).restarts is expected


def test_initial_sizes_and_states() -> None:
    made = policy((1, 2, None), (3, 2, 1, {"desired": 2}), (2, 1, 0))
    assert [group.initial for group in made.groups] == [1, 2, 2]
    assert [*made.replicas_at_once.values()] == [1, 2, 2]
    assert made.initial_size == 8
    states = [node.state for node in made.first_nodes()]
    assert states == [N.PENDING] * 6 + [N.SCALED_DOWN] * 2 + [N.PENDING] * 2
    assert {node.incarnation for node in made.first_nodes()} == {0}


def test_a_required_group_has_at_least_one_replica() -> None:
    made = policy((2, 1, None), (2, 1, 0), (2, 1, 1), success=Success((0, 1)))
    assert [made.min_replicas(index) for index in range(3)] == [1, 0, 0]
