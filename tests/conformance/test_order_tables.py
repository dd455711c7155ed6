"""JobSet's unit tables of dependsOn, startupPolicy, successPolicy, of which Jobs it makes, and of
what it counts and tells. A Job that is ready is a replica all of whose nodes are."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle import census
from muster.lifecycle.events import CancelRequested, NodeEnded, ResumeRequested, SuspendRequested
from muster.lifecycle.startup import blocked_by
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus
from support.jobset import Jobs, jobset, plan_of, replicated
from support.life import policy

N = NodeState
READY, DONE, FAILED, ACTIVE = "ready", "succeeded", "failed", "active"
STATES = {
    READY: NodeStatus(N.READY),
    DONE: NodeStatus(N.SUCCEEDED),
    FAILED: NodeStatus(N.FAILED),
    ACTIVE: NodeStatus(N.RUNNING),
    "created": NodeStatus(N.STARTING),
    "none": NodeStatus(),
    "restarting": NodeStatus(N.READY, again=1),
}


def waits(first: list[str], second: list[str], status: str | None) -> bool:
    """Whether a third replicated Job waits, given the Jobs of the two that it depends on."""
    depends = [{"name": n, "status": status} for n in ("a", "b")] if status else []
    jobs = [
        replicated("a", len(first)),
        replicated("b", len(second)),
        replicated("c", **({"dependsOn": depends} if depends else {})),
    ]
    made = plan_of(jobset(jobs)).policy
    nodes = [STATES[state] for state in (*first, *second, "none")]
    return blocked_by(made, census.take(made, nodes), 2) is not None


@pytest.mark.parametrize(
    ("status", "first", "second", "waiting"),
    [
        pytest.param(None, [ACTIVE], [ACTIVE], False, id="depends on nothing"),
        pytest.param("Complete", ["none"], ["none"], True, id="nothing is known"),
        pytest.param("Complete", [DONE], ["none"], True, id="nothing is known of one"),
        pytest.param("Complete", [DONE, DONE], [DONE, DONE], False, id="both complete"),
        pytest.param("Complete", [READY, DONE], [DONE, DONE], True, id="one complete"),
        pytest.param("Complete", [READY, DONE], [DONE, READY], True, id="none complete"),
        pytest.param(
            "Ready", [READY, DONE, FAILED], [READY, DONE, FAILED], False, id="both ready, or ended"
        ),
        pytest.param(
            "Ready", [READY, READY, ACTIVE], [READY, DONE, FAILED], True, id="one not ready"
        ),
        pytest.param(
            "Ready", [READY, READY, ACTIVE], [READY, READY, "created"], True, id="none ready"
        ),
        pytest.param("Ready", [READY, "restarting"], [READY], True, id="one starts again"),
    ],
)
def test_depends_on(status: str | None, first: list[str], second: list[str], waiting: bool) -> None:
    assert waits(first, second, status) is waiting


def test_what_has_no_replicas_keeps_nobody_waiting() -> None:
    depends = [{"name": "b", "status": "Complete"}]
    jobs = Jobs(jobset([replicated("a"), replicated("b", 0), replicated("c", dependsOn=depends)]))
    assert jobs.current() == ["a-0", "c-0"]


# --- startupPolicy


@pytest.mark.parametrize(
    ("order", "in_order"),
    [
        ({"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}, False),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, True),
        ({}, False),
    ],
)
def test_in_order(order: dict[str, Any], in_order: bool) -> None:
    assert plan_of(jobset(**order)).policy.in_order is in_order


@pytest.mark.parametrize(
    ("jobs", "started"),
    [
        pytest.param(["none"], False, id="nothing yet"),
        pytest.param([READY] * 4, True, id="all ready"),
        pytest.param([READY, READY, DONE, FAILED], True, id="ready, or ended"),
        pytest.param([ACTIVE] * 4, False, id="all active"),
        pytest.param([READY, READY, READY, ACTIVE], False, id="all but one"),
    ],
)
def test_started(jobs: list[str], started: bool) -> None:
    made = policy((len(jobs), 1, None))
    assert census.up(made, census.take(made, [STATES[job] for job in jobs]), 0) is started


# --- successPolicy


@pytest.mark.parametrize(
    ("targets", "looked_at"),
    [
        pytest.param([], [0, 1, 2], id="no targets"),
        pytest.param(["a", "b"], [0, 1], id="two of three"),
        pytest.param(["c"], [2], id="the last"),
    ],
)
@pytest.mark.parametrize("operator", ["All", "Any"])
def test_which_count(operator: str, targets: list[str], looked_at: list[int]) -> None:
    made = jobset(
        {"a": 1, "b": 1, "c": 1},
        successPolicy={"operator": operator, "targetReplicatedJobs": targets},
    )
    success = plan_of(made).policy.success
    assert (list(success.groups), success.any_replica) == (looked_at, operator == "Any")


@pytest.mark.parametrize(
    ("operator", "targets", "needed"),
    [
        pytest.param("Any", [], 1, id="any"),
        pytest.param("Any", ["c"], 1, id="any of a target"),
        pytest.param("All", ["a", "b"], 3, id="all of two targets"),
        pytest.param("All", ["a", "c"], 4, id="all of two others"),
        pytest.param("All", [], 6, id="all"),
    ],
)
def test_how_many_have_to_succeed(operator: str, targets: list[str], needed: int) -> None:
    """Jobs of the targets succeed one by one; those of the others before all of them."""
    sizes = {"a": 1, "b": 2, "c": 3}
    made = jobset(sizes, successPolicy={"operator": operator, "targetReplicatedJobs": targets})
    jobs = Jobs(made).all_ready()
    names = jobs.names()
    mine = [job for job in names if not targets or job[0] in targets]
    others = [job for job in names if job not in mine]
    jobs.complete(*others)
    for count, job in enumerate(mine, 1):
        if count <= needed:
            assert jobs.status.stopping is None and jobs.state == "IN_PROGRESS"
        if count == needed:
            jobs.complete(job).gone(*names)
            break
        jobs.complete(job)
    assert jobs.state == "SUCCEEDED"


# --- which Jobs are made


@pytest.mark.parametrize(
    ("there", "made"),
    [
        pytest.param(["none", "none"], [0, 1], id="none yet"),
        pytest.param([READY, READY], [], id="all"),
        pytest.param([ACTIVE, "none"], [1], id="one is active"),
        pytest.param([DONE, "none"], [1], id="one has succeeded"),
        pytest.param(["restarting", "none"], [1], id="one has still to go"),
    ],
)
def test_which_jobs_are_made(there: list[str], made: list[int]) -> None:
    jobs = Jobs(jobset({"a": 2}))
    nodes = tuple(STATES[state] for state in there)
    jobs.status = type(jobs.status)(nodes)
    assert jobs.tick().starts() == made


def test_one_that_has_failed_is_not_made_again() -> None:
    """Unless a policy says so; and then all that ends in time is."""
    jobs = Jobs(jobset({"a": 2})).all_ready().fail("a-0")
    assert jobs.gone("a-1").starts() == []
    assert jobs.state == "FAILED"


def test_all_replicated_jobs_are_made_in_their_order() -> None:
    """JobSet's global and group index of a Job are what ranks are here."""
    manifest = jobset([replicated("a", 2, 2), replicated("b", 1, 3), replicated("c", 2)])
    plan = plan_of(manifest)
    assert [f"{n.group}-{n.replica}-{n.index}" for n in plan.nodes] == [
        *("a-0-0", "a-0-1", "a-1-0", "a-1-1"),
        *("b-0-0", "b-0-1", "b-0-2"),
        *("c-0-0", "c-1-0"),
    ]
    assert [n.rank for n in plan.nodes] == list(range(9))


# --- what is counted


@pytest.mark.parametrize(
    ("there", "ready", "succeeded", "failed", "pending"),
    [
        pytest.param([READY, ACTIVE, READY], 2, 0, 0, 0, id="some are ready"),
        pytest.param(["none"] * 3, 0, 0, 0, 3, id="nothing is there"),
        pytest.param([READY, "none", "none"], 1, 0, 0, 2, id="some are there"),
        pytest.param([DONE, DONE, ACTIVE], 0, 2, 0, 0, id="some have succeeded"),
        pytest.param([FAILED, FAILED, ACTIVE], 0, 0, 2, 0, id="some have failed"),
        pytest.param([ACTIVE] * 3, 0, 0, 0, 0, id="all are active"),
        pytest.param(["restarting", DONE, READY], 1, 1, 0, 0, id="one starts again"),
    ],
)
def test_what_is_counted(
    there: list[str], ready: int, succeeded: int, failed: int, pending: int
) -> None:
    made = policy((3, 1, None))
    count = census.take(made, [STATES[state] for state in there]).groups[0]
    assert (count.ready, count.succeeded, count.failed, count.pending) == (
        ready,
        succeeded,
        failed,
        pending,
    )


# --- what is told: JobSet's conditions are lines of the run's event log


def told(jobs: Jobs) -> list[str]:
    return [str(note["state"]) for note in jobs.notes("run")]


def test_nothing_is_told_of_what_does_not_change() -> None:
    jobs = Jobs(jobset()).all_ready()
    jobs.tick()
    assert (jobs.entries, told(jobs)) == ((), ["IN_PROGRESS"])


def test_each_change_is_told_once() -> None:
    jobs = Jobs(jobset()).all_ready().tell(SuspendRequested("wait")).gone(*Jobs(jobset()).names())
    jobs.tell(SuspendRequested("wait"))
    assert told(jobs) == ["IN_PROGRESS", "SUSPENDED"]
    jobs.tell(ResumeRequested("go on"), ResumeRequested("go on")).all_ready()
    assert told(jobs) == ["IN_PROGRESS", "SUSPENDED", "ACCEPTED", "IN_PROGRESS"]


def test_what_was_never_suspended_is_not_told_to_be_resumed() -> None:
    jobs = Jobs(jobset()).all_ready().tell(ResumeRequested("go on"))
    assert jobs.notes("resumed") == []


def test_another_reason_is_no_other_state() -> None:
    """JobSet updates the reason and keeps the time; here the first reason stands."""
    jobs = Jobs(jobset()).all_ready().tell(CancelRequested("enough"))
    first = jobs.status
    jobs.tell(CancelRequested("because"))
    assert jobs.status is first


def test_what_has_ended_stays_ended() -> None:
    jobs = Jobs(jobset({"a": 1})).all_ready().complete("a-0")
    before = jobs.status
    jobs.tell(NodeEnded(0, 1), CancelRequested("late"), SuspendRequested("late"))
    assert jobs.status is before
