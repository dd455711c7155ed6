"""Why a run is in its state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster.describe.state import _consequences, why
from muster.lifecycle.counts import count_nodes
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, RunStatus, Stopping
from muster.plan.model import ExtraContainerPlan
from simulation.harness.run_plan import run_plan
from support.run_driver import policy
from support.sessions import make_plan


def test_only_broken_connections_are_counted_as_such() -> None:
    messages = ["ValueError: bad", "Connection reset by peer", "", "KeyboardInterrupt"]
    failures = tuple(
        Failure(rank, "workers", Reason.EXIT, 1, 0, message, float(rank))
        for rank, message in enumerate(messages)
    )
    status = RunStatus((), failures=failures, cause=failures[0])
    assert _consequences(status) == (
        "consequences: node-1, node-2, node-3 ended within 3.0 s, "
        "1 of them from a broken connection"
    )


def test_nodes_that_could_not_be_started_are_no_consequences() -> None:
    message = "ssh: connect to host gpu2 port 22: Connection refused"
    first, second = (
        Failure(rank, "workers", Reason.NOT_STARTED, None, 0, message, 0.0) for rank in range(2)
    )
    status = RunStatus((), failures=(first, second), cause=first)
    assert _consequences(status) == ""
    ended = Failure(1, "workers", Reason.EXIT, 1, 0, "", 2.0)
    assert "node-1" in _consequences(replace(status, failures=(first, ended)))


READY, AWAY = NodeStatus(NodeState.READY), NodeStatus(NodeState.READY, unreachable_since=5.0)
QUEUED = NodeStatus(NodeState.QUEUED, waits_for="Resources")


@pytest.mark.parametrize(
    ("state", "nodes", "sentence"),
    [
        (
            RunState.IN_PROGRESS,
            (READY, AWAY),
            "rank 1 cannot be reached; it is not replaced, since it may still be running",
        ),
        (RunState.IN_PROGRESS, (READY, QUEUED), "rank 1 is waiting: Resources"),
        (RunState.ACCEPTED, (QUEUED, QUEUED), "ranks 0-1 are waiting: Resources"),
        (
            RunState.CANCELING,
            (READY, AWAY),
            "waiting for node-0; SIGKILL follows after the grace period (10 s); "
            "waiting for rank 1, which cannot be reached",
        ),
        (RunState.CANCELING, (AWAY, AWAY), "waiting for ranks 0-1, which cannot be reached"),
    ],
)
def test_nodes_that_cannot_be_reached_or_are_queued_are_named(
    state: RunState, nodes: tuple[NodeStatus, ...], sentence: str
) -> None:
    rules = policy((1, 2, None))
    status = RunStatus(nodes, state=state, counts=count_nodes(rules, nodes))
    assert sentence in why(run_plan(1, rules), status, 0, 10.0)


def test_a_run_whose_nodes_are_queued_is_not_said_to_start_them() -> None:
    rules = policy((1, 2, None))
    for nodes in ((QUEUED, QUEUED), (NodeStatus(), QUEUED)):
        status = RunStatus(nodes, state=RunState.ACCEPTED, counts=count_nodes(rules, nodes))
        (sentence,) = why(run_plan(1, rules), status, 0, 10.0)
        assert sentence.endswith("waiting: Resources")


def test_a_run_that_is_being_suspended_names_the_nodes_that_it_waits_for() -> None:
    rules, nodes = policy((1, 2, None)), (READY, AWAY)
    ending = Stopping(RunState.SUSPENDED, "later")
    status = RunStatus(nodes, state=RunState.IN_PROGRESS, counts=count_nodes(rules, nodes))
    sentences = why(run_plan(1, rules), replace(status, stopping=ending), 0, 10.0)
    assert "waiting for rank 1, which cannot be reached" in sentences


def test_restarts_by_the_engine_itself_are_named() -> None:
    rules = policy((1, 1, None))
    status = RunStatus(
        (READY,), state=RunState.IN_PROGRESS, native_restarts=2, counts=count_nodes(rules, (READY,))
    )
    plan = run_plan(1, rules)
    sentence = "3 restarts after failures, 2 of them by the engine itself; "
    assert f"{sentence}`muster events {plan.run_name}` shows why" in why(plan, status, 3, 10.0)


@pytest.mark.parametrize("state", [RunState.ACCEPTED, RunState.IN_PROGRESS])
def test_what_runs_before_a_program_is_named(state: RunState) -> None:
    rules, nodes = policy((1, 1, None)), (NodeStatus(NodeState.STARTING),)
    extra = tuple(ExtraContainerPlan(role, role, "x") for role in ("init", "sidecar", "main"))
    plan = make_plan("true", extra_containers=extra)
    status = RunStatus(nodes, state=state, counts=count_nodes(rules, nodes))
    (sentence,) = [one for one in why(plan, status, 0, 10.0) if "sidecar" in one]
    assert sentence.endswith("starts after its init containers and sidecars: init, sidecar")
