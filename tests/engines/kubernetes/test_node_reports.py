"""What is reported of a node: only what is new."""

from __future__ import annotations

from msgspec.structs import replace

from engines.kubernetes.observed_pods import pod, runs
from muster.engines.kubernetes.node_reports import NodeReports
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
)
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus

REF = NodeRef(3, 1)


def begun() -> tuple[NodeReports, list[EngineEvent]]:
    events: list[EngineEvent] = []
    node = NodeReports(events.append)
    node.begin(REF)
    return node, events


def test_a_node_waits_runs_and_is_ready() -> None:
    node, events = begun()
    node.queue("no machine")
    node.queue("no machine")
    node.run(replace(runs("a"), is_ready=False))
    node.run(replace(runs("a"), is_ready=True))
    node.run(replace(runs("a"), is_ready=True))
    node.queue("it has run")
    assert events == [
        NodeQueued(*REF, "no machine"),
        NodeScheduled(*REF, "m1"),
        NodeLocated(*REF, "m1", "10.0.0.1", "a"),
        NodeStarted(*REF),
        NodeReady(*REF),
    ]


def test_a_node_is_lost_and_found() -> None:
    node, events = begun()
    node.reach()
    node.lose("no answer")
    node.lose("no answer")
    node.reach()
    assert events == [NodeUnreachable(*REF, "no answer"), NodeReachable(*REF)]


def test_nothing_is_reported_of_a_node_that_has_ended() -> None:
    node, events = begun()
    end = NodeEnded(3, 0, incarnation=1)
    node.end(end)
    node.queue("no machine")
    node.run(runs("a"))
    node.lose("no answer")
    node.reach()
    assert events == [end]


def test_the_next_incarnation_begins_anew() -> None:
    node, events = begun()
    node.stopping, node.pod = True, pod("a").uid
    node.run(runs("a"))
    node.begin(NodeRef(3, 2))
    assert (node.newest, node.pod, node.stopping, node.has_started) == (2, "", False, False)
    node.queue("no machine")
    assert events[-1] == NodeQueued(3, 2, "no machine")


def test_a_node_of_an_earlier_session_is_not_heard_of_yet() -> None:
    events: list[EngineEvent] = []
    for state in (NodeState.QUEUED, NodeState.STARTING, NodeState.RUNNING):
        node = NodeReports(events.append)
        node.attach(REF, NodeStatus(state, 1))
        assert node.has_started is (state is NodeState.RUNNING)
    why = "the new supervisor has not heard of its pod yet"
    assert events == [NodeUnreachable(*REF, why)] * 3
