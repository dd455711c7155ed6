"""Statuses as events and rows, and back."""

from __future__ import annotations

from msgspec.structs import replace

from muster.control.narrate import narrate
from muster.control.persist import changed_nodes, node_record, run_changes, status_of
from muster.lifecycle.decide import decide
from muster.lifecycle.events import CancelRequested, Event, NodeEnded, NodeStarted, RunBegan
from muster.lifecycle.model import RunStatus, new_status
from muster.lifecycle.states import NodeState, RunState
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan
from muster.plan.policy import policy_of
from muster.store.records import RunRecord

PLAN = RunPlan(
    run_id="r",
    run_name="demo-1",
    job_id="j",
    job_name="demo",
    framework="generic",
    processes_per_node=1,
    in_order=False,
    network="shared",
    network_reason="",
    max_runtime=60,
    grace_period=10,
    groups=(GroupPlan("g", 0, 1, 2, 1, ("x",), (), {}, {}, ResourcePlan()),),
    nodes=tuple(NodePlan(r, "g", 0, r, f"r-{r}", f"node-{r}", f"127.9.9.{r}") for r in (0, 1)),
)


def after(*stories: list[Event]) -> RunStatus:
    status = new_status(policy_of(PLAN))
    for now, events in enumerate(stories, 100):
        status, _ = decide(policy_of(PLAN), status, events, float(now))
    return status


def record(status: RunStatus) -> RunRecord:
    """A row with what the status says in it."""
    base = dict.fromkeys(RunRecord.__struct_fields__)
    return RunRecord(**{**base, "id": "r", "plan": PLAN.to_json(), **run_changes(status)})


def test_what_changed_is_told_once() -> None:
    before, now = after([RunBegan()]), after([RunBegan()], [NodeStarted(1)])
    assert narrate(before, now) == [
        ("run", {"state": RunState.IN_PROGRESS, "details": ""}),
        ("node", {"rank": 1, "state": NodeState.RUNNING}),
    ]
    assert narrate(now, now) == []


def test_an_intention_and_an_end_are_told_with_their_reasons() -> None:
    story = [[RunBegan()], [NodeStarted(0), NodeStarted(1)]]
    before = after(*story)
    now = after(*story, [NodeEnded(0, 7)])
    kinds = dict(narrate(before, now))
    assert kinds["stopping"]["towards"] is RunState.FAILED
    assert kinds["node"] == {"rank": 0, "state": NodeState.FAILED, "exit_code": 7, "signal": 0}


def test_a_status_survives_the_store() -> None:
    stories: list[list[list[Event]]] = [
        [],
        [[RunBegan()]],
        [[RunBegan()], [NodeStarted(0)]],
        [[RunBegan()], [NodeStarted(0)], [NodeEnded(0, 7, message="boom")]],
        [[RunBegan()], [NodeStarted(0)], [CancelRequested("enough")]],
    ]
    for story in stories:
        status = after(*story)
        rows = [node_record(p, n) for p, n in zip(PLAN.nodes, status.nodes, strict=True)]
        kept = status_of(record(status), rows)
        # when each is to be killed, and by which signal each ended, matters only to who drives it
        plain = tuple(replace(n, signal=0, kill_at=None) for n in status.nodes)
        assert kept == replace(status, nodes=plain)


def test_only_nodes_that_changed_are_written() -> None:
    before = after([RunBegan()])
    now, _ = decide(policy_of(PLAN), before, [NodeStarted(1)], 101.0)
    assert [row.rank for row in changed_nodes(PLAN, before, now)] == [1]
    assert changed_nodes(PLAN, now, now) == []
