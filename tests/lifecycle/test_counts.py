"""Counts of nodes by state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.lifecycle import counts
from muster.lifecycle.blocks import BlockList
from muster.lifecycle.counts import GroupCounts, NodeCounts
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus, Reason
from support.run_driver import policy, starting

N = NodeState
SHAPES: Any = ((2, 2, None), (1, 1, None))
NODES = (
    NodeStatus(N.READY),
    NodeStatus(N.SUCCEEDED),
    NodeStatus(N.FAILED),
    NodeStatus(N.READY, next_incarnation=3),
    NodeStatus(incarnation=3),
)


def test_nodes_are_counted_by_state() -> None:
    counted = counts.count_nodes(policy(*SHAPES), NODES)
    none: BlockList[int] = BlockList([])
    of = (BlockList(each) for each in ([1, 0], [0, 1], [0, 1]))
    first = GroupCounts(0, 1, 2, 0, 1, {}, *of, none)
    second = GroupCounts(1, 0, 0, 0, 0, {3: 1}, *(BlockList([0]) for _ in range(3)), none)
    assert counted == NodeCounts([first, second], {3: 1}, 2, [2], [1])


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
def test_a_replica_succeeds_with_all_nodes_and_fails_with_any(
    nodes: list[NodeState], succeeded: int, failed: int
) -> None:
    made = policy((2, 2, None))
    group = counts.count_nodes(made, [NodeStatus(state) for state in nodes]).groups[0]
    assert (group.succeeded, group.failed) == (succeeded, failed)


def test_a_node_at_fault_counts_as_failed_while_it_is_alive() -> None:
    made = policy((3, 1, None))
    alive = NodeStatus(N.READY, fault=Reason.DEADLINE)
    nodes = [alive, NodeStatus(N.STOPPED, fault=Reason.DEADLINE), NodeStatus(N.READY)]
    assert counts.count_nodes(made, nodes).groups[0].failed_in == [1, 0, 0]


def test_a_restarting_node_does_not_count_as_failed() -> None:
    """One replica may fail. The first was too slow and is retried; the second fails."""
    run = starting(policy((2, 1, 1, {"retries": 1, "ready_timeout": 10}))).up(1)
    run.tick(after=10)
    assert run.status.counts is not None
    assert run.status.counts.groups[0].failed == 0
    run.end(1, 1).up(1).end(1, 1)
    assert run.status.stopping is None, "the first may still succeed"
    assert not counts.is_up(run.policy, run.status.counts, 0)
    run.end_stopping().up(0).end(0)
    assert run.status.state == "SUCCEEDED"


CHANGES = st.builds(
    NodeStatus,
    state=st.sampled_from(NodeState),
    incarnation=st.integers(0, 2),
    fault=st.sampled_from([None, Reason.HANG]),
    next_incarnation=st.sampled_from([None, 1, 2]),
)


@given(st.lists(st.tuples(st.integers(0, 4), CHANGES), max_size=20))
def test_counting_only_changes_equals_counting_all_nodes(
    changes: list[tuple[int, NodeStatus]],
) -> None:
    made = policy(*SHAPES)
    nodes = [NodeStatus()] * 5
    counted = counts.count_nodes(made, nodes)
    for rank, new in changes:
        before = counted.copy()
        counted.change(made, [rank], nodes[rank], new)
        nodes[rank] = new
        assert counted == counts.count_nodes(made, nodes)
        before.change(made, [rank], new, new)
        assert before.groups is not counted.groups


@given(st.lists(st.tuples(st.sets(st.integers(0, 4), min_size=1), CHANGES), max_size=20))
def test_counting_nodes_together_equals_counting_them_one_by_one(
    changes: list[tuple[set[int], NodeStatus]],
) -> None:
    made = policy(*SHAPES)
    nodes = [NodeStatus()] * 5
    counted = counts.count_nodes(made, nodes)
    for ranks, new in changes:
        old = nodes[min(ranks)]
        alike = [rank for rank in sorted(ranks) if nodes[rank] == old]
        counted.change(made, alike, old, new)
        for rank in alike:
            nodes[rank] = new
        assert counted == counts.count_nodes(made, nodes)


def test_a_copy_shares_nothing_with_the_original() -> None:
    made = policy(*SHAPES)
    original = counts.count_nodes(made, NODES)
    copy = original.copy()
    assert copy == original
    for rank, node in enumerate(NODES):
        copy.change(made, [rank], node, NodeStatus(N.STARTING, next_incarnation=4))
    assert original == counts.count_nodes(made, NODES)


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
    """One of two replicas must succeed."""
    made = policy((1, 1, None), (2, 1, 1))
    counted = counts.count_nodes(made, [NodeStatus(), *map(NodeStatus, states)])
    assert counts.is_up(made, counted, 1) is up
    assert counts.is_complete(made, counted, 1) is complete
    assert not counts.is_up(made, counted, 0)
