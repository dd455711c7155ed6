"""The order in which ends of nodes are reported."""

from __future__ import annotations

from muster.engines.end_order import EndOrder
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef


def ended(rank: int, code: int | None = 0, incarnation: int = 0) -> NodeEnded:
    return NodeEnded(rank, code, incarnation=incarnation)


def test_failures_are_held_until_the_succeeded_node_ends() -> None:
    order = EndOrder()
    assert order.next(ended(1, 1)) == [ended(1, 1)], "no program has succeeded"
    order.program_succeeded(NodeRef(0, 0))
    assert order.next(ended(2, 1)) == []
    assert order.next(ended(3)) == [ended(3)], "a success is never held"
    assert order.next(ended(0)) == [ended(0), ended(2, 1)]
    assert order.next(ended(1, 1)) == [ended(1, 1)]


def test_failures_are_held_until_the_last_succeeded_node_ends() -> None:
    order = EndOrder()
    order.program_succeeded(NodeRef(0, 0))
    order.program_succeeded(NodeRef(1, 0))
    assert order.next(ended(2, None)) == []
    assert order.next(ended(1)) == [ended(1)]
    assert order.next(ended(3, 9)) == []
    assert order.next(ended(0)) == [ended(0), ended(2, None), ended(3, 9)]


def test_only_the_incarnation_that_succeeded_releases_failures() -> None:
    order = EndOrder()
    order.program_succeeded(NodeRef(0, 1))
    assert order.next(ended(0, 1, incarnation=0)) == []
    assert order.next(ended(0, 0, incarnation=1)) == [ended(0, 0, 1), ended(0, 1, 0)]
