"""JobSet's in-place restart (KEP-467) over Muster's barrier.

In JobSet, an agent in each pod records the pod's attempt, and two integers in the JobSet's status
select the pods that must restart (at or below `previous`) and that may run (at `current`). Muster
needs no agent: the status of a node has its next incarnation (`next_incarnation`), and the counts
have the nodes that have not ended yet (`awaited`). A pod at attempt n is a node of incarnation n;
`current` is the incarnation that may start; pods at or below `previous` are being stopped.
"""

from __future__ import annotations

import pytest

from muster.lifecycle.effects import StartNodes, StopNodes
from muster.lifecycle.policy import Action, Policy, Rule, Strategy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus, RunStatus
from support.jobset import MAX_INT32, Jobs, jobset, replicated
from support.run_driver import RunDriver, policy, refs, running

N = NodeState


def in_place(restarts: int = 3, nodes: int = 2) -> Policy:
    return policy((1, nodes, None), max_restarts=restarts, strategy=Strategy.IN_PLACE)


def test_in_place_is_a_restart_strategy() -> None:
    job = {"backoffLimit": MAX_INT32, "podReplacementPolicy": "Failed"}
    manifest = jobset(
        [replicated("a", job=job)], failurePolicy={"restartStrategy": "InPlaceRestart"}
    )
    assert Jobs(manifest).policy.strategy is Strategy.IN_PLACE
    again = jobset(failurePolicy={"restartStrategy": "Recreate"})
    assert Jobs(again).policy.strategy is Strategy.RECREATE


# --- the controller's rows


@pytest.mark.parametrize("failures", [2, 3])
def test_too_many_restarts_end_the_run(failures: int) -> None:
    """Each failure counts, of whichever node, and however soon after the last."""
    run = running(in_place(restarts=failures - 1))
    for _ in range(failures - 1):
        run.end(0, 1).end_stopping().up(0, 1)
    assert run.end(1, 1).status.stopping is not None


def at(*nodes: NodeStatus, restarts: int) -> RunDriver:
    """A run with nodes in these states."""
    run = RunDriver(in_place(nodes=len(nodes)))
    run.status = RunStatus(nodes, last_incarnation=restarts, attempt=restarts)
    return run


def new(number: int) -> NodeStatus:
    """A pod whose agent has started and waits at the barrier."""
    return NodeStatus(incarnation=number)


def old(number: int, next_incarnation: int | None = None) -> NodeStatus:
    """A pod whose program runs."""
    kill_at = None if next_incarnation is None else 9e9
    return NodeStatus(N.READY, number, next_incarnation=next_incarnation, kill_at=kill_at)


@pytest.mark.parametrize(
    ("nodes", "restarts", "starts"),
    [
        pytest.param([new(0), new(0)], 0, [0, 1], id="all in sync for the first time"),
        pytest.param([new(1), new(1)], 1, [0, 1], id="all in sync after a restart"),
        pytest.param([old(0), old(0)], 0, [], id="all are running"),
        pytest.param(
            [old(0, next_incarnation=1), new(1)], 1, [], id="the second waits for the first"
        ),
        pytest.param(
            [new(1), old(0, next_incarnation=1)], 1, [], id="the first waits for the second"
        ),
        pytest.param(
            [old(1, next_incarnation=2), new(2)],
            2,
            [],
            id="the second waits for the first at the second restart",
        ),
        pytest.param(
            [old(0, next_incarnation=1), old(0, next_incarnation=1)],
            1,
            [],
            id="both are being stopped",
        ),
    ],
)
def test_nodes_start_when_all_have_reached_the_barrier(
    nodes: list[NodeStatus], restarts: int, starts: list[int]
) -> None:
    run = at(*nodes, restarts=restarts).tick()
    assert run.starts() == starts
    if starts:
        assert run.effects == (StartNodes(restarts, refs(*starts, incarnation=restarts)),)


@pytest.mark.parametrize("restart", [1, 2])
def test_one_restarting_node_restarts_all(restart: int) -> None:
    """In JobSet, `previous` becomes the attempt of all other pods."""
    run = running(in_place(nodes=3))
    for _ in range(restart - 1):
        run.end(0, 1).end_stopping().up(0, 1, 2)
    run.end(1, 1)
    assert run.effects == (StopNodes(refs(0, 2, incarnation=restart - 1)),)
    assert [node.next_incarnation or node.incarnation for node in run.status.nodes] == [restart] * 3
    assert run.status.counts is not None
    assert run.status.counts.awaited == {restart: 2}


@pytest.mark.parametrize(
    ("codes", "spent", "over"),
    [
        pytest.param([1, 1], 2, False, id="all restarts are used"),
        pytest.param([1, 1, 1], 2, True, id="one failure more"),
        pytest.param([9, 1, 9, 1], 2, False, id="uncounted restarts"),
        pytest.param([9, 1, 9, 1, 1], 2, True, id="uncounted restarts do not add to the maximum"),
    ],
)
def test_which_restarts_count(codes: list[int], spent: int, over: bool) -> None:
    free = Rule("free", Action.RESTART_RUN, exit_codes=(9,), counted=False)
    run = running(policy((1, 2, None), max_restarts=2, rules=(free,)))
    for code in codes:
        run.end(0, code).end_stopping()
        if run.status.stopping is None:
            run.up(0, 1)
    assert run.status.spent.run == spent
    assert (run.status.state == "FAILED") is over


# --- the agent's rows: what one node does, given its own state and that of the run


@pytest.mark.parametrize(
    ("row", "node", "restart", "does"),
    [
        ("starts for the first time", new(0), 0, "starts"),
        ("has failed, and waits for the first restart", new(1), 1, "waits"),
        ("has failed, and waits for the second restart", new(2), 2, "waits"),
        ("was stopped, has ended, and waits for the others", new(1), 1, "waits"),
        ("is stopped for the first restart", old(0), 1, "is stopped"),
        ("all have reached the barrier: it runs for the first time", new(0), 0, "starts"),
        ("all have reached the barrier: it runs for the second time", new(1), 1, "starts"),
        ("nothing has restarted, and it runs", old(0), 0, "keeps running"),
        ("all have restarted once, and it runs", old(1), 1, "keeps running"),
    ],
)
def test_the_state_of_one_node_at_the_barrier(
    row: str, node: NodeStatus, restart: int, does: str
) -> None:
    """Node 1 is the node of the row; node 0 has the state of the others."""
    if does == "waits":
        run = at(old(restart - 1, next_incarnation=restart), node, restarts=restart).tick()
        assert (run.effects, run.node(1)) == ((), node), row
        assert run.end(0, 143, signal=15).starts() == [0, 1], row
    elif does == "starts":
        run = at(new(node.incarnation), node, restarts=restart).tick()
        assert run.starts() == [0, 1], row
    elif does == "is stopped":
        run = at(old(0), node, restarts=0).end(0, 1)
        assert (run.stops(), run.node(1).next_incarnation) == ([1], restart), row
    else:
        run = at(old(node.incarnation), node, restarts=restart).tick()
        assert (run.effects, run.node(1)) == ((), node), row


@pytest.mark.parametrize(
    "strategy", [pytest.param(Strategy.RECREATE, id="another strategy"), Strategy.BLOCKING_RECREATE]
)
def test_no_restart_strategy_needs_an_agent(strategy: Strategy) -> None:
    """With another strategy, or none, JobSet's agent runs its program at once. In Muster, nothing
    delays a first start, whatever the strategy."""
    run = RunDriver(policy((1, 2, None), strategy=strategy)).tick()
    assert run.starts() == [0, 1]
