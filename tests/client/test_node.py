"""A node of a run in the Python API."""

from __future__ import annotations

from msgspec.structs import replace

from muster.client.node import Node, node_from
from muster.control.persist import node_record
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus
from simulation.harness.run_plan import run_plan
from support.run_driver import policy


def node(status: NodeStatus) -> Node:
    return node_from(node_record(run_plan(1, policy((1, 1, None))).node(0), status))


def test_a_node_that_cannot_be_reached_says_so() -> None:
    why = "it does not answer"
    lost = node(NodeStatus(NodeState.READY, unreachable_since=5.0, unreachable_why=why))
    assert lost._cells()["STATE"] == "RUNNING"
    assert lost._cells()["READY"] == "unreachable"
    assert str(lost) == "node-0 (g0) is RUNNING, cannot be reached (it does not answer)"
    assert lost.to_dict()["unreachable_since"] == "1970-01-01T00:00:05.000000Z"


def test_a_queued_node_says_what_it_waits_for() -> None:
    queued = node(NodeStatus(NodeState.QUEUED, waits_for="Resources"))
    assert queued._cells()["STATE"] == "QUEUED"
    assert str(queued) == "node-0 (g0) is QUEUED (Resources)"
    assert queued.to_dict()["waits_for"] == "Resources"


def test_a_damaged_row_can_be_listed() -> None:
    plan = run_plan(1, policy((1, 1, None)))
    record = node_record(plan.node(0), NodeStatus(NodeState.READY))
    for intent in ('{"unreachable_since":', '["unreachable_since"]', '{"unreachable_since": "?"}'):
        assert node_from(replace(record, intent=intent)).unreachable_since is None
