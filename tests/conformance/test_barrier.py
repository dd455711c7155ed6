"""JobSet's in-place restart (KEP-467) over Muster's barrier.

There, an agent in each pod writes which attempt it is at, and two integers in the JobSet's status
say who has to restart (at or below `previous`) and who may run (at `current`). Here nobody has to
be asked: a node that is to start again knows as what (`again`, and then `incarnation`), and
the census counts who has yet to end (`awaited`). A pod at attempt n is a node of incarnation n;
`current` is the incarnation that may start; who is at or below `previous` has been told to end.
"""

from __future__ import annotations

import pytest

from muster.lifecycle.effects import StartNodes, StopNodes
from muster.lifecycle.policy import Action, Policy, Rule, Strategy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus, RunStatus
from support.jobset import MAX_INT32, Jobs, jobset, replicated
from support.life import Life, policy, refs, running

N = NodeState


def in_place(most: int = 3, nodes: int = 2) -> Policy:
    return policy((1, nodes, None), max_restarts=most, strategy=Strategy.IN_PLACE)


def test_in_place_is_a_strategy() -> None:
    job = {"backoffLimit": MAX_INT32, "podReplacementPolicy": "Failed"}
    manifest = jobset(
        [replicated("a", job=job)], failurePolicy={"restartStrategy": "InPlaceRestart"}
    )
    assert Jobs(manifest).policy.strategy is Strategy.IN_PLACE
    again = jobset(failurePolicy={"restartStrategy": "Recreate"})
    assert Jobs(again).policy.strategy is Strategy.RECREATE


# --- the controller's rows


@pytest.mark.parametrize("failures", [2, 3])
def test_too_many_restarts_end_it(failures: int) -> None:
    """Whoever restarts, and however fast: each failure is one that is counted."""
    life = running(in_place(most=failures - 1))
    for _ in range(failures - 1):
        life.end(0, 1).obey().up(0, 1)
    assert life.end(1, 1).status.stopping is not None


def at(*nodes: NodeStatus, restarts: int) -> Life:
    """A run whose nodes are so."""
    life = Life(in_place(nodes=len(nodes)))
    life.status = RunStatus(nodes, restarts=restarts, attempt=restarts)
    return life


def new(number: int) -> NodeStatus:
    """A pod whose agent has come up and waits at the barrier."""
    return NodeStatus(incarnation=number)


def old(number: int, again: int | None = None) -> NodeStatus:
    """A pod whose program runs."""
    kill_at = None if again is None else 9e9
    return NodeStatus(N.READY, number, again=again, kill_at=kill_at)


@pytest.mark.parametrize(
    ("nodes", "restarts", "starts"),
    [
        pytest.param([new(0), new(0)], 0, [0, 1], id="all in sync for the first time"),
        pytest.param([new(1), new(1)], 1, [0, 1], id="all in sync after a restart"),
        pytest.param([old(0), old(0)], 0, [], id="all run"),
        pytest.param([old(0, again=1), new(1)], 1, [], id="one waits for the other"),
        pytest.param([new(1), old(0, again=1)], 1, [], id="and the other way round"),
        pytest.param([old(1, again=2), new(2)], 2, [], id="one waits for the other once more"),
        pytest.param([old(0, again=1), old(0, again=1)], 1, [], id="both on their way out"),
    ],
)
def test_the_barrier_lifts_when_all_are_there(
    nodes: list[NodeStatus], restarts: int, starts: list[int]
) -> None:
    life = at(*nodes, restarts=restarts).tick()
    assert life.starts() == starts
    if starts:
        assert life.effects == (StartNodes(restarts, refs(*starts, incarnation=restarts)),)


@pytest.mark.parametrize("restart", [1, 2])
def test_one_that_restarts_has_all_restart(restart: int) -> None:
    """JobSet: `previous` becomes what all the others are at."""
    life = running(in_place(nodes=3))
    for _ in range(restart - 1):
        life.end(0, 1).obey().up(0, 1, 2)
    life.end(1, 1)
    assert life.effects == (StopNodes(refs(0, 2, incarnation=restart - 1)),)
    assert [node.again or node.incarnation for node in life.status.nodes] == [restart] * 3
    assert life.status.census is not None
    assert life.status.census.awaited == {restart: 2}


@pytest.mark.parametrize(
    ("codes", "spent", "over"),
    [
        pytest.param([1, 1], 2, False, id="as many as there are"),
        pytest.param([1, 1, 1], 2, True, id="one more"),
        pytest.param([9, 1, 9, 1], 2, False, id="what does not count is not counted"),
        pytest.param([9, 1, 9, 1, 1], 2, True, id="and allows no more"),
    ],
)
def test_what_counts(codes: list[int], spent: int, over: bool) -> None:
    free = Rule("free", Action.RESTART_RUN, exit_codes=(9,), counted=False)
    life = running(policy((1, 2, None), max_restarts=2, rules=(free,)))
    for code in codes:
        life.end(0, code).obey()
        if life.status.stopping is None:
            life.up(0, 1)
    assert life.status.spent.run == spent
    assert (life.status.state == "FAILED") is over


# --- the agent's rows: what one node does, told by where it and the run are


@pytest.mark.parametrize(
    ("row", "node", "restart", "does"),
    [
        ("starts for the first time", new(0), 0, "starts"),
        ("has failed, and waits for the first restart", new(1), 1, "waits"),
        ("has failed, and waits for the second restart", new(2), 2, "waits"),
        ("was told to end, has, and waits for the others", new(1), 1, "waits"),
        ("is told to end for the first restart", old(0), 1, "is told to end"),
        ("all are there: it runs for the first time", new(0), 0, "starts"),
        ("all are there: it runs for the second time", new(1), 1, "starts"),
        ("nothing has restarted, and it runs", old(0), 0, "runs on"),
        ("all have restarted once, and it runs", old(1), 1, "runs on"),
    ],
)
def test_what_one_node_does(row: str, node: NodeStatus, restart: int, does: str) -> None:
    """Node 1 is whom the row is about; node 0 is where the row says the others are."""
    if does == "waits":
        life = at(old(restart - 1, again=restart), node, restarts=restart).tick()
        assert (life.effects, life.node(1)) == ((), node), row
        assert life.end(0, 143, signal=15).starts() == [0, 1], row
    elif does == "starts":
        life = at(new(node.incarnation), node, restarts=restart).tick()
        assert life.starts() == [0, 1], row
    elif does == "is told to end":
        life = at(old(0), node, restarts=0).end(0, 1)
        assert (life.stops(), life.node(1).again) == ([1], restart), row
    else:
        life = at(old(node.incarnation), node, restarts=restart).tick()
        assert (life.effects, life.node(1)) == ((), node), row


@pytest.mark.parametrize(
    "strategy", [pytest.param(Strategy.RECREATE, id="another strategy"), Strategy.BLOCKING_RECREATE]
)
def test_no_strategy_needs_an_agent(strategy: Strategy) -> None:
    """JobSet's agent lets its program run at once where the strategy is another, or none; with an
    annotation, or beside the program, it does the same by other means. Here nothing stands before
    a first start whatever the strategy."""
    life = Life(policy((1, 2, None), strategy=strategy)).tick()
    assert life.starts() == [0, 1]
