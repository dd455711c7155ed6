"""Statuses are stored as rows and read back."""

from __future__ import annotations

from msgspec.structs import replace

from muster.control.persist import node_changes, node_record, run_columns, status_of
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    NodeStarted,
    RunRestarted,
    SuspendRequested,
)
from muster.lifecycle.policy import Action, Backoff, Checkpoint, Policy, Rule
from muster.lifecycle.status import NodeStatus, Reason, RunStatus
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan
from muster.store.records import RunRecord
from support.run_driver import RunDriver, policy, running, starting

POLICY = policy(
    (1, 2, None, {"retries": 1, "ready_timeout": 60.0}),
    max_restarts=3,
    backoff=Backoff(initial=5.0),
    checkpoint=Checkpoint(10, 30.0),
    rules=(Rule("again", Action.RESTART_RUN, exit_codes=(7,)),),
)


def plan(of: Policy) -> RunPlan:
    return RunPlan(
        run_id="r",
        run_name="demo-1",
        job_id="j",
        job_name="demo",
        framework="generic",
        processes_per_node=1,
        network="shared",
        network_reason="",
        policy=of,
        groups=(GroupPlan("g0", 0, 1, 2, ("x",), (), {}, {}, ResourcePlan()),),
        nodes=tuple(
            NodePlan(r, "g0", 0, r, f"r-{r}", f"node-{r}", f"127.9.9.{r}", f"node-{r}")
            for r in range(of.size)
        ),
    )


def record(status: RunStatus) -> RunRecord:
    """A row with the data of the status."""
    base = dict.fromkeys(RunRecord.__struct_fields__)
    return RunRecord(**{**base, "id": "r", "plan": plan(POLICY).to_json(), **run_columns(status)})


def round_trip(status: RunStatus) -> RunStatus:
    nodes = plan(POLICY).nodes
    rows = [node_record(p, n) for p, n in zip(nodes, status.nodes, strict=True)]
    return status_of(record(status), rows, POLICY)


def example_runs() -> list[RunDriver]:
    return [
        RunDriver(POLICY),
        RunDriver(POLICY, suspended=True),
        starting(POLICY),
        starting(POLICY).up(0),
        running(POLICY).end(0, 1, message="boom", raised_at=900.5),
        running(POLICY).end(0, 1).end(1, 7, signal=9, reason=Reason.OUT_OF_MEMORY),
        running(POLICY).end(0, 1).end(1, 7).end_stopping().end(1, 7),
        starting(POLICY).tick(61.0),
        running(POLICY).step(SuspendRequested("pause")).tick(30.0),
        running(POLICY).step(SuspendRequested("pause")).tick(30.0).tick(10.0),
        running(POLICY).step(CancelRequested("enough")),
        running(POLICY).step(CancelRequested("enough")).end_stopping(),
        running(POLICY).end(0, 7).step(RunRestarted(2)),
    ]


def test_a_status_survives_the_store() -> None:
    for run in example_runs():
        # the alarm is computed by the next step
        assert round_trip(run.status) == replace(
            run.status, alarm=0.0, counts=round_trip(run.status).counts
        )
        assert run.status.counts in (None, round_trip(run.status).counts)


def test_only_nodes_that_changed_are_written() -> None:
    run = starting(POLICY)
    before = run.status
    after = run.step(NodeStarted(1)).status
    records, changes = node_changes(plan(POLICY), before, after, {})
    assert (records, [change.ranks for change in changes]) == ([], [[range(1, 2)]])
    assert node_changes(plan(POLICY), after, after, {}) == ([], [])


def test_nodes_that_become_alike_are_one_change() -> None:
    made = policy((6, 1, None))
    run = starting(made)
    before = run.status
    after = run.step(*(NodeStarted(rank) for rank in (4, 0, 1, 5, 2))).status
    (change,) = node_changes(plan(made), before, after, {})[1]
    assert change.ranks == [range(3), range(4, 6)]
    rows = [node_record(each, NodeStatus()) for each in plan(made).nodes]
    for rank in (0, 1, 2, 4, 5):
        expected = node_record(plan(made).node(rank), after.nodes[rank])
        assert change.applied_to(rows[rank]) == expected


def test_results_are_recorded_with_their_node() -> None:
    made = policy((3, 1, None))
    run = running(made)
    before = run.status
    after = run.end(0).end(1).status
    changes = node_changes(plan(made), before, after, {1: '{"a": 1}'})[1]
    assert {tuple(change.ranks): change.metrics for change in changes} == {
        (range(1),): "",
        (range(1, 2),): '{"a": 1}',
    }


def test_a_node_of_an_array_that_may_have_no_row_is_recorded_as_a_whole() -> None:
    made = policy((3, 1, None, {"parallelism": 2}))
    run = RunDriver(made)
    first = run.status
    second = run.step(ControllerStarted()).status
    records, changes = node_changes(plan(made), first, second, {})
    assert ([row.rank for row in records], changes) == ([0, 1], [])
    records, changes = node_changes(plan(made), second, run.step(NodeStarted(1)).status, {})
    assert (records, [change.ranks for change in changes]) == ([], [[range(1, 2)]])
