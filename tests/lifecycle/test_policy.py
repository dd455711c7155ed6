"""Where ranks belong, and whether anything may ever start again."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.policy import Action, Rule
from support.life import policy

SHAPES: Any = ((2, 3, None), (0, 4, None), (1, 1, None), (0, 1, None))


def test_every_rank_belongs_somewhere() -> None:
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
