"""JobSet's unit test tables of dependsOn, startupPolicy, successPolicy, created Jobs, counts and
conditions. A ready Job is a replica all of whose nodes are ready."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle import counts
from muster.lifecycle.events import CancelRequested, NodeEnded, ResumeRequested, SuspendRequested
from muster.lifecycle.start_order import blocked_by
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus
from support.jobset import Jobs, jobset, plan_of, replicated
from support.run_driver import policy

N = NodeState
READY, DONE, FAILED, ACTIVE = "ready", "succeeded", "failed", "active"
STATES = {
    READY: NodeStatus(N.READY),
    DONE: NodeStatus(N.SUCCEEDED),
    FAILED: NodeStatus(N.FAILED),
    ACTIVE: NodeStatus(N.RUNNING),
    "created": NodeStatus(N.STARTING),
    "none": NodeStatus(),
    "restarting": NodeStatus(N.READY, next_incarnation=1),
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
    return blocked_by(made, counts.count_nodes(made, nodes), 2) is not None


@pytest.mark.parametrize(
    ("status", "first", "second", "waiting"),
    [
        pytest.param(None, [ACTIVE], [ACTIVE], False, id="depends on nothing"),
        pytest.param("Complete", ["none"], ["none"], True, id="neither exists"),
        pytest.param("Complete", [DONE], ["none"], True, id="one does not exist"),
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
        pytest.param("Ready", [READY, "restarting"], [READY], True, id="one is restarting"),
    ],
)
def test_a_job_waits_for_those_it_depends_on(
    status: str | None, first: list[str], second: list[str], waiting: bool
) -> None:
    assert waits(first, second, status) is waiting


def test_jobs_without_replicas_are_not_awaited() -> None:
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
def test_the_startup_policy_is_read(order: dict[str, Any], in_order: bool) -> None:
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
def test_a_group_is_up_when_all_its_jobs_are_ready_or_ended(jobs: list[str], started: bool) -> None:
    made = policy((len(jobs), 1, None))
    assert counts.is_up(made, counts.count_nodes(made, [STATES[job] for job in jobs]), 0) is started


# --- successPolicy


@pytest.mark.parametrize(
    ("targets", "groups"),
    [
        pytest.param([], [0, 1, 2], id="no targets"),
        pytest.param(["a", "b"], [0, 1], id="two of three"),
        pytest.param(["c"], [2], id="the last"),
    ],
)
@pytest.mark.parametrize("operator", ["All", "Any"])
def test_the_success_policy_selects_groups(
    operator: str, targets: list[str], groups: list[int]
) -> None:
    made = jobset(
        {"a": 1, "b": 1, "c": 1},
        successPolicy={"operator": operator, "targetReplicatedJobs": targets},
    )
    success = plan_of(made).policy.success
    assert (list(success.groups), success.any_replica) == (groups, operator == "Any")


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
def test_the_run_succeeds_after_enough_jobs(operator: str, targets: list[str], needed: int) -> None:
    """All other Jobs succeed first, then those of the targets one by one."""
    sizes = {"a": 1, "b": 2, "c": 3}
    made = jobset(sizes, successPolicy={"operator": operator, "targetReplicatedJobs": targets})
    jobs = Jobs(made).all_ready()
    names = jobs.names()
    targeted = [job for job in names if not targets or job[0] in targets]
    others = [job for job in names if job not in targeted]
    jobs.complete(*others)
    for count, job in enumerate(targeted, 1):
        if count <= needed:
            assert jobs.status.stopping is None and jobs.state == "IN_PROGRESS"
        if count == needed:
            jobs.complete(job).finish_stopping(*names)
            break
        jobs.complete(job)
    assert jobs.state == "SUCCEEDED"


# --- created Jobs


@pytest.mark.parametrize(
    ("states", "created"),
    [
        pytest.param(["none", "none"], [0, 1], id="none yet"),
        pytest.param([READY, READY], [], id="all"),
        pytest.param([ACTIVE, "none"], [1], id="one is active"),
        pytest.param([DONE, "none"], [1], id="one has succeeded"),
        pytest.param(["restarting", "none"], [1], id="one is being stopped"),
    ],
)
def test_only_missing_jobs_are_created(states: list[str], created: list[int]) -> None:
    jobs = Jobs(jobset({"a": 2}))
    nodes = tuple(STATES[state] for state in states)
    jobs.status = type(jobs.status)(nodes)
    assert jobs.tick().starts() == created


def test_a_failed_job_is_not_created_again() -> None:
    """Without a failure policy, none is."""
    jobs = Jobs(jobset({"a": 2})).all_ready().fail("a-0")
    assert jobs.finish_stopping("a-1").starts() == []
    assert jobs.state == "FAILED"


def test_all_replicated_jobs_are_created_in_their_order() -> None:
    """Ranks correspond to JobSet's global index and group index of a Job."""
    manifest = jobset([replicated("a", 2, 2), replicated("b", 1, 3), replicated("c", 2)])
    plan = plan_of(manifest)
    assert [f"{n.group}-{n.replica}-{n.index}" for n in plan.nodes] == [
        *("a-0-0", "a-0-1", "a-1-0", "a-1-1"),
        *("b-0-0", "b-0-1", "b-0-2"),
        *("c-0-0", "c-1-0"),
    ]
    assert [n.rank for n in plan.nodes] == list(range(9))


# --- counts


@pytest.mark.parametrize(
    ("states", "ready", "succeeded", "failed", "pending"),
    [
        pytest.param([READY, ACTIVE, READY], 2, 0, 0, 0, id="some are ready"),
        pytest.param(["none"] * 3, 0, 0, 0, 3, id="none exists"),
        pytest.param([READY, "none", "none"], 1, 0, 0, 2, id="one exists"),
        pytest.param([DONE, DONE, ACTIVE], 0, 2, 0, 0, id="some have succeeded"),
        pytest.param([FAILED, FAILED, ACTIVE], 0, 0, 2, 0, id="some have failed"),
        pytest.param([ACTIVE] * 3, 0, 0, 0, 0, id="all are active"),
        pytest.param(["restarting", DONE, READY], 1, 1, 0, 0, id="one is restarting"),
    ],
)
def test_nodes_are_counted_by_state(
    states: list[str], ready: int, succeeded: int, failed: int, pending: int
) -> None:
    made = policy((3, 1, None))
    count = counts.count_nodes(made, [STATES[state] for state in states]).groups[0]
    assert (count.ready, count.succeeded, count.failed, count.pending) == (
        ready,
        succeeded,
        failed,
        pending,
    )


# --- conditions, which are entries of the run's event log


def logged_states(jobs: Jobs) -> list[str]:
    return [str(note["state"]) for note in jobs.notes("run")]


def test_unchanged_states_are_not_logged() -> None:
    jobs = Jobs(jobset()).all_ready()
    jobs.tick()
    assert (jobs.entries, logged_states(jobs)) == ((), ["IN_PROGRESS"])


def test_each_change_is_logged_once() -> None:
    jobs = (
        Jobs(jobset())
        .all_ready()
        .step(SuspendRequested("wait"))
        .finish_stopping(*Jobs(jobset()).names())
    )
    jobs.step(SuspendRequested("wait"))
    assert logged_states(jobs) == ["IN_PROGRESS", "SUSPENDED"]
    jobs.step(ResumeRequested("resume"), ResumeRequested("resume")).all_ready()
    assert logged_states(jobs) == ["IN_PROGRESS", "SUSPENDED", "ACCEPTED", "IN_PROGRESS"]


def test_a_run_that_was_never_suspended_is_not_logged_as_resumed() -> None:
    jobs = Jobs(jobset()).all_ready().step(ResumeRequested("resume"))
    assert jobs.notes("resumed") == []


def test_another_reason_does_not_change_the_state() -> None:
    """JobSet updates the reason and keeps the time; Muster keeps the first reason."""
    jobs = Jobs(jobset()).all_ready().step(CancelRequested("enough"))
    first = jobs.status
    jobs.step(CancelRequested("because"))
    assert jobs.status is first


def test_an_ended_run_stays_ended() -> None:
    jobs = Jobs(jobset({"a": 1})).all_ready().complete("a-0")
    before = jobs.status
    jobs.step(NodeEnded(0, 1), CancelRequested("late"), SuspendRequested("late"))
    assert jobs.status is before
