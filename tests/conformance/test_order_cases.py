"""JobSet's integration tests of its controller, C31 to C54: suspension, order, and cases without a
counterpart. docs/internals/conformance.md has all cases."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.lifecycle.events import CancelRequested, ResumeRequested, SuspendRequested
from muster.spec.override_models import RunOverrides
from muster.spec.resolve import resolve
from support.jobset import Jobs, jobset, plan_of, read, replicated, rules

ALL = ["a-0", "b-0", "b-1", "b-2"]
B = ALL[1:]
RESUME = ResumeRequested("resume")
SUSPEND = SuspendRequested("wait")
IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
ANY_ORDER = {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}


def running(**spec: Any) -> Jobs:
    return Jobs(jobset(**spec)).all_ready()


def depends(*items: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "status": status} for name, status in items]


# --- suspension


def test_C31_a_jobset_created_suspended_has_no_jobs() -> None:
    """JobSet creates its Jobs suspended; Muster has no effects before the resume."""
    jobs = Jobs(jobset(suspend=True))
    assert (jobs.state, jobs.effects) == ("SUSPENDED", ())
    assert jobs.missing() == ALL
    assert jobs.step(RESUME).current() == ALL
    assert jobs.status.attempt == 0


def test_C33_a_running_run_is_suspended_and_resumed() -> None:
    jobs = running().complete("b-0").step(SUSPEND)
    assert jobs.stopping() == ["a-0", "b-1", "b-2"]
    jobs.finish_stopping(*ALL)
    assert (jobs.state, jobs.succeeded(), jobs.missing()) == (
        "SUSPENDED",
        ["b-0"],
        ["a-0", "b-1", "b-2"],
    )
    jobs.step(RESUME)
    assert jobs.current() == ["a-0", "b-1", "b-2"], "the succeeded Job is kept"
    assert jobs.all_ready().complete("a-0", "b-1", "b-2").state == "SUCCEEDED"


def test_a_suspended_restart_continues_as_a_resume() -> None:
    jobs = running(failurePolicy={"maxRestarts": 1}).fail("a-0").step(SUSPEND).finish_stopping(*ALL)
    assert jobs.state == "SUSPENDED"
    assert (jobs.step(RESUME).current(), jobs.status.spent.run) == (ALL, 1)


def test_nothing_is_decided_while_the_run_is_suspended() -> None:
    """JobSet evaluates its policies even then."""
    jobs = running().step(SUSPEND).finish_stopping(*ALL)
    before = jobs.status
    assert jobs.tick(after=1e6).status is before
    assert jobs.step(CancelRequested("enough")).state == "CANCELED"


def test_C37_jobs_are_counted_by_state() -> None:
    jobs = Jobs(jobset())
    assert (jobs.current(), jobs.succeeded()) == (ALL, [])
    jobs.jobs_ready("a-0", "b-0").complete("b-0")
    assert jobs.status.counts is not None
    a, b = jobs.status.counts.groups
    assert ((a.ready, a.succeeded), (b.ready, b.succeeded, b.ended)) == ((1, 0), (0, 1, 1))
    jobs.fail("b-1").finish_stopping(*ALL)
    assert jobs.status.counts.groups[1].failed == 1


@pytest.mark.parametrize(
    ("end", "state"),
    [
        pytest.param({"operator": "Any"}, "SUCCEEDED", id="C38 after success"),
        pytest.param({"operator": "All"}, "FAILED", id="C38 after failure"),
    ],
)
def test_active_jobs_end_with_the_run(end: dict[str, str], state: str) -> None:
    jobs = running(successPolicy={**end, "targetReplicatedJobs": []})
    if state == "SUCCEEDED":
        jobs.complete("b-0")
    else:
        jobs.fail("b-0")
    assert jobs.stopping() == ["a-0", "b-1", "b-2"]
    jobs.finish_stopping(*ALL)
    assert jobs.state == state
    assert [str(node.state) for node in jobs.status.nodes] == [
        "STOPPED",
        "SUCCEEDED" if state == "SUCCEEDED" else "FAILED",
        "STOPPED",
        "STOPPED",
    ]


def test_C39_a_generated_name_is_that_of_the_nodes() -> None:
    """Every run has a different number; nodes are named after the JobSet."""
    manifest = jobset()
    manifest["metadata"] = {"generateName": "demo-"}
    plan = plan_of(manifest)
    domain = "demo.default.svc.cluster.local"
    assert [node.fqdn for node in plan.nodes] == [f"demo-{job}-0.{domain}" for job in ALL]


# --- order


@pytest.mark.parametrize("policy", [IN_ORDER, ANY_ORDER], ids=["in order", "any order"])
def test_C40_a_suspended_jobset_has_no_jobs_in_any_order(policy: dict[str, Any]) -> None:
    jobs = Jobs(jobset(suspend=True, **policy))
    assert (jobs.effects, jobs.missing()) == ((), ALL)


def test_C41_any_order_resumes_all_at_once() -> None:
    assert Jobs(jobset(suspend=True, **ANY_ORDER)).step(RESUME).current() == ALL


def test_C42_in_order_resumes_one_after_the_other() -> None:
    jobs = Jobs(jobset(suspend=True, **IN_ORDER)).step(RESUME)
    assert jobs.current() == ["a-0"]
    assert jobs.jobs_ready("a-0").current() == ALL
    again = jobs.all_ready().step(SUSPEND).finish_stopping(*ALL).step(RESUME)
    assert again.current() == ["a-0"]
    assert again.jobs_ready("a-0").current() == ALL


@pytest.mark.shows("jobset/startup-order")
def test_C43_in_order_waits_for_the_first() -> None:
    jobs = Jobs(jobset(**IN_ORDER))
    assert jobs.tick(after=1000).current() == ["a-0"]
    assert jobs.jobs_ready("a-0").current() == ALL


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
def test_C44_the_order_is_kept_after_a_restart(strategy: str) -> None:
    policy = {"maxRestarts": 1, "restartStrategy": strategy}
    jobs = running(failurePolicy=policy, **IN_ORDER).all_ready().fail("b-0").finish_stopping(*ALL)
    assert jobs.current() == ["a-0"]
    assert jobs.jobs_ready("a-0").current() == ALL


@pytest.mark.shows("jobset/startup-order")
def test_C46_a_dependent_waits_until_ready() -> None:
    manifest = jobset([replicated("a"), replicated("b", 3, dependsOn=depends(("a", "Ready")))])
    jobs = Jobs(manifest)
    assert jobs.current() == ["a-0"]
    assert jobs.jobs_ready("a-0").current() == ALL


def test_C47_dependents_wait_until_complete_and_then_ready() -> None:
    manifest = jobset(
        [
            replicated("a"),
            replicated("b", dependsOn=depends(("a", "Complete"))),
            replicated("c", 3, dependsOn=depends(("b", "Ready"))),
        ]
    )
    jobs = Jobs(manifest)
    assert len(jobs.missing()) == 4
    assert len(jobs.jobs_ready("a-0").missing()) == 4
    assert len(jobs.complete("a-0").missing()) == 3
    assert jobs.jobs_ready("b-0").missing() == []


def test_C48_a_dependent_waits_until_both_are_complete() -> None:
    both = depends(("a", "Complete"), ("b", "Complete"))
    jobs = Jobs(jobset([replicated("a"), replicated("b"), replicated("c", dependsOn=both)]))
    jobs.all_ready().complete("a-0")
    assert jobs.missing() == ["c-0"]
    assert jobs.complete("b-0").current() == ["c-0"]


def test_C49_each_dependency_has_its_own_status() -> None:
    mixed = depends(("a", "Ready"), ("b", "Complete"))
    jobs = Jobs(jobset([replicated("a"), replicated("b", 2), replicated("c", dependsOn=mixed)]))
    assert jobs.jobs_ready("b-0", "b-1").complete("b-0", "b-1").missing() == ["c-0"]
    assert "c-0" in jobs.jobs_ready("a-0").current()


def test_C50_the_order_is_kept_after_a_resume() -> None:
    """JobSet resumes all existing Jobs at once; Muster starts them in order, as at first."""
    manifest = jobset([replicated("a"), replicated("b", 3, dependsOn=depends(("a", "Ready")))])
    jobs = (
        Jobs(manifest)
        .jobs_ready("a-0")
        .all_ready()
        .step(SUSPEND)
        .finish_stopping(*ALL)
        .step(RESUME)
    )
    assert jobs.current() == ["a-0"]
    assert jobs.jobs_ready("a-0").current() == ALL


def test_completed_jobs_stay_complete_after_a_resume() -> None:
    manifest = jobset([replicated("a"), replicated("b", 3, dependsOn=depends(("a", "Complete")))])
    jobs = (
        Jobs(manifest).all_ready().complete("a-0").all_ready().step(SUSPEND).finish_stopping(*ALL)
    )
    assert jobs.step(RESUME).current() == B


def test_dependencies_are_kept_after_a_restart() -> None:
    """JobSet counts only Jobs of the current attempt."""
    manifest = jobset(
        [replicated("a"), replicated("b", dependsOn=depends(("a", "Complete")))],
        **rules({"action": "RestartJobSet"}, most=1),
    )
    jobs = Jobs(manifest).all_ready().complete("a-0").all_ready().fail("b-0")
    assert jobs.current() == ["a-0"]
    assert jobs.all_ready().complete("a-0").current() == ["b-0"]


def test_restarting_one_job_does_not_stop_its_dependents() -> None:
    manifest = jobset(
        [replicated("a"), replicated("b", dependsOn=depends(("a", "Ready")))],
        **rules({"action": "RestartJob"}, most=1),
    )
    jobs = Jobs(manifest).all_ready().all_ready().fail("a-0")
    assert jobs.current() == ["a-0", "b-0"]
    assert jobs.attempts() == [1, 0]


# --- cases without a counterpart


def test_C45_the_coordinator_is_in_the_requested_variables() -> None:
    variable = {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": LABEL}}}
    manifest = jobset(
        [replicated("a"), replicated("b", 3, container={"env": [variable]})],
        coordinator={"replicatedJob": "b", "jobIndex": 1},
    )
    group = plan_of(manifest).group("b")
    assert group.env["WHO"] == "demo-b-1-0.demo"


LABEL = "metadata.labels['jobset.sigs.k8s.io/coordinator']"


def test_C51_a_jobset_managed_by_another_controller_is_refused() -> None:
    """JobSet ignores it; in Muster, its run would never start."""
    with pytest.raises(InvalidInput, match=r"another controller, example\.com/other"):
        read(jobset(managedBy="example.com/other"))
    assert read(jobset(managedBy="jobset.sigs.k8s.io/jobset-controller")).spec.name == "demo"


def test_C53_an_invalid_template_is_refused_before_anything_starts() -> None:
    manifest = jobset([replicated("a", job={"parallelism": -1, "completions": -1})])
    with pytest.raises(InvalidInput, match="must be at least 0, not -1"):
        read(manifest)


def test_C54_a_run_keeps_its_size() -> None:
    """JobSet may change a running Job's parallelism; Muster needs another run of the Job."""
    bigger = resolve(read(jobset({"a": 2})).spec, RunOverrides(nodes=4)).spec
    assert [(group.replicas, group.nodes) for group in bigger.node_groups] == [(2, 4)]
