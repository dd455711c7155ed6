"""The census: what is counted of nodes, and ranks as a person writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.lifecycle import census
from muster.lifecycle.census import Census, GroupCensus, expand, ranges
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus, Reason
from support.life import begun, policy

N = NodeState
SHAPES: Any = ((2, 2, None), (1, 1, None))
NODES = (
    NodeStatus(N.READY),
    NodeStatus(N.SUCCEEDED),
    NodeStatus(N.FAILED),
    NodeStatus(N.READY, again=3),
    NodeStatus(incarnation=3),
)


def test_what_is_counted() -> None:
    counted = census.take(policy(*SHAPES), NODES)
    first = GroupCensus(0, 1, 2, 0, 1, {}, [1, 0], [0, 1], [0, 1])
    second = GroupCensus(1, 0, 0, 0, 0, {3: 1}, [0], [0], [0])
    assert counted == Census([first, second], {3: 1}, 2)


@pytest.mark.parametrize(
    ("nodes", "succeeded", "failed"),
    [
        ([N.SUCCEEDED, N.SUCCEEDED, N.SUCCEEDED, N.READY], 1, 0),
        ([N.SUCCEEDED, N.SUCCEEDED, N.SUCCEEDED, N.SUCCEEDED], 2, 0),
        ([N.SUCCEEDED, N.FAILED, N.STOPPED, N.FAILED], 0, 2),
        ([N.FAILED, N.FAILED, N.SUCCEEDED, N.SUCCEEDED], 1, 1),
        ([N.STOPPED, N.STOPPED, N.PENDING, N.STARTING], 0, 0),
    ],
)
def test_a_replica_succeeds_with_all_its_nodes_and_fails_with_any(
    nodes: list[NodeState], succeeded: int, failed: int
) -> None:
    made = policy((2, 2, None))
    group = census.take(made, [NodeStatus(state) for state in nodes]).groups[0]
    assert (group.succeeded, group.failed) == (succeeded, failed)


def test_at_fault_is_failed_while_alive() -> None:
    made = policy((3, 1, None))
    alive = NodeStatus(N.READY, fault=Reason.DEADLINE)
    nodes = [alive, NodeStatus(N.STOPPED, fault=Reason.DEADLINE), NodeStatus(N.READY)]
    assert census.take(made, nodes).groups[0].failed_in == [1, 0, 0]


def test_who_starts_again_has_not_failed() -> None:
    """One replica may fail. The first was too slow and is tried again; the second fails."""
    life = begun(policy((2, 1, 1, {"retries": 1, "ready_timeout": 10}))).up(1)
    life.tick(after=10)
    assert life.status.census is not None
    assert life.status.census.groups[0].failed == 0
    life.end(1, 1).up(1).end(1, 1)
    assert life.status.stopping is None, "the first may still succeed"
    assert not census.up(life.policy, life.status.census, 0)
    life.obey().up(0).end(0)
    assert life.status.state == "SUCCEEDED"


CHANGES = st.builds(
    NodeStatus,
    state=st.sampled_from(NodeState),
    incarnation=st.integers(0, 2),
    fault=st.sampled_from([None, Reason.HANG]),
    again=st.sampled_from([None, 1, 2]),
)


@given(st.lists(st.tuples(st.integers(0, 4), CHANGES), max_size=20))
def test_counting_what_changes_is_counting_all(changes: list[tuple[int, NodeStatus]]) -> None:
    made = policy(*SHAPES)
    nodes = [NodeStatus()] * 5
    counted = census.take(made, nodes)
    for rank, new in changes:
        before = counted.copy()
        counted.change(made, rank, nodes[rank], new)
        nodes[rank] = new
        assert counted == census.take(made, nodes)
        before.change(made, rank, new, new)
        assert before.groups is not counted.groups


def test_a_copy_is_one_through_and_through() -> None:
    made = policy(*SHAPES)
    original = census.take(made, NODES)
    copy = original.copy()
    assert copy == original
    for rank, node in enumerate(NODES):
        copy.change(made, rank, node, NodeStatus(N.STARTING, again=4))
    assert original == census.take(made, NODES)


@pytest.mark.parametrize(
    ("states", "up", "complete"),
    [
        ([N.READY, N.READY], True, False),
        ([N.READY, N.RUNNING], False, False),
        ([N.READY, N.FAILED], True, False),
        ([N.SUCCEEDED, N.READY], True, False),
        ([N.SUCCEEDED, N.FAILED], True, True),
        ([N.SUCCEEDED, N.STOPPED], True, True),
        ([N.FAILED, N.FAILED], True, False),
        ([N.SUCCEEDED, N.PENDING], False, False),
        ([N.SUCCEEDED, N.STARTING], False, False),
    ],
)
def test_up_and_complete(states: list[NodeState], up: bool, complete: bool) -> None:
    """Of two replicas one has to succeed."""
    made = policy((1, 1, None), (2, 1, 1))
    counted = census.take(made, [NodeStatus(), *map(NodeStatus, states)])
    assert census.up(made, counted, 1) is up
    assert census.complete(made, counted, 1) is complete
    assert not census.up(made, counted, 0)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([7, 0, 2, 1], "0-2,7"),
        ([0, 2, 4], "0,2,4"),
        ([9, 10, 11, 99, 100], "9-11,99-100"),
    ],
)
def test_ranges(ranks: list[int], text: str) -> None:
    assert ranges(ranks) == text
    assert expand(text) == sorted(ranks)


@given(st.sets(st.integers(0, 40)))
def test_ranges_and_back(ranks: set[int]) -> None:
    assert expand(ranges(ranks)) == sorted(ranks)
