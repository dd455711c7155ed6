"""Jobs that are read as arrays, and written as Jobs again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.spec.formats.jobset.write import write_jobset
from muster.spec.models import NodeGroup
from muster.spec.policies import DependsOn, EarlySuccess
from muster.spec.reader import spec_from_mapping
from support.jobset import jobset, read, replicated, rules


def job(**fields: Any) -> dict[str, Any]:
    return {"completions": 5, "parallelism": 2, "backoffLimit": None, **fields}


def group(**fields: Any) -> NodeGroup:
    (made,) = read(jobset([replicated("a", job=job(**fields))])).spec.node_groups
    return made


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({}, {"replicas": 5, "parallelism": 2, "retries": 6, "total_retries": 6, "max_failed": 0}),
        ({"backoffLimit": 0}, {"retries": 0, "total_retries": 0, "max_failed": 0}),
        ({"backoffLimit": 2**31 - 1}, {"retries": 2**31 - 1, "total_retries": None}),
        ({"parallelism": None}, {"parallelism": 1}),
        ({"backoffLimitPerIndex": 2}, {"retries": 2, "total_retries": None, "max_failed": None}),
        (
            {"parallelism": 5, "backoffLimitPerIndex": 0, "maxFailedIndexes": 3, "backoffLimit": 4},
            {"parallelism": 5, "retries": 0, "total_retries": 4, "max_failed": 3},
        ),
        (
            {"parallelism": 5, "successPolicy": {"rules": [{"succeededIndexes": "0-1,3"}]}},
            {"early_success": (EarlySuccess(replicas="0-1,3"),)},
        ),
        (
            {"successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}},
            {"early_success": (EarlySuccess(replicas="0", count=1),), "min_success": None},
        ),
        (
            {"completions": None, "completionMode": "NonIndexed", "backoffLimit": 3},
            {"replicas": 2, "parallelism": 2, "min_success": 1, "total_retries": 3},
        ),
    ],
)
def test_settings_of_an_array(fields: dict[str, Any], settings: dict[str, Any]) -> None:
    made = group(**fields)
    assert made.nodes == 1 and made.is_array
    assert {name: getattr(made, name) for name in settings} == settings


@pytest.mark.parametrize("fields", [{"parallelism": 5}, {"completions": 1}, {"parallelism": 9}])
def test_other_jobs_are_replicas(fields: dict[str, Any]) -> None:
    made = group(**fields)
    assert not made.is_array and (made.replicas, made.retries) == (1, 6)


JOBS = {
    "one limit": job(backoffLimit=3),
    "no limit": job(backoffLimit=2**31 - 1),
    "limits of indexes": job(backoffLimitPerIndex=1),
    "all at once": job(parallelism=5, backoffLimitPerIndex=1, maxFailedIndexes=2),
    "no failed index": job(backoffLimitPerIndex=2, maxFailedIndexes=0),
    "both limits": job(backoffLimitPerIndex=1, maxFailedIndexes=2, backoffLimit=4),
    "early success": job(
        successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}
    ),
    "a work queue": job(completions=None, completionMode="NonIndexed", backoffLimit=2),
    "FailIndex": job(
        backoffLimitPerIndex=1,
        podFailurePolicy={
            "rules": [
                {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}},
                {"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
            ]
        },
    ),
}
REASONS = "onJobFailureReasons"
POLICIES: dict[str, dict[str, Any]] = {
    "none": {},
    "the default": rules(most=2),
    "any reason": rules({"name": "r", "action": "FailJobSet"}, most=2),
    "of indexes": rules(
        {"name": "r", "action": "FailJobSet", REASONS: ["FailedIndexes"]},
        {"name": "s", "action": "RestartJobSet", REASONS: ["MaxFailedIndexesExceeded"]},
        most=2,
    ),
    "of one Job": rules({"name": "r", "action": "RestartJob"}, most=2),
    "of a reason": rules(
        {"name": "r", "action": "RestartJob", REASONS: ["BackoffLimitExceeded"]},
        {"name": "s", "action": "FailJobSet", "onJobFailureMessagePatterns": ["has failed"]},
        most=2,
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", JOBS)
def test_arrays_are_written_as_jobs(name: str, policy: str) -> None:
    """Read, written and read again, a manifest is the same job, beside a Job that is no array."""
    own = {"name": "a"}  # the name of a container is not kept
    jobs = [replicated("a", job=JOBS[name], container=own), replicated("b", 2, 2)]
    spec = read(jobset(jobs, **POLICIES[policy])).spec
    written = write_jobset(spec)
    again = read(written.data).spec
    assert again.node_groups == spec.node_groups
    assert again.failure == spec.failure
    assert not [str(loss) for loss in written.losses if "strategy" not in loss.path]


def test_a_job_is_written_with_the_fields_that_it_had() -> None:
    jobs = [replicated("a", job=JOBS["both limits"])]
    (made,) = write_jobset(read(jobset(jobs)).spec).data["spec"]["replicatedJobs"]
    fields = dict(made["template"]["spec"])
    del fields["template"]
    assert made["replicas"] == 1
    assert fields == JOBS["both limits"]


def test_several_jobs_that_are_arrays_are_a_group_each() -> None:
    labels = {
        "JOB_INDEX": "jobset.sigs.k8s.io/job-index",
        "GLOBAL_INDEX": "jobset.sigs.k8s.io/job-global-index",
        "RJ": "jobset.sigs.k8s.io/replicatedjob-name",
        "JOB_NAME": "batch.kubernetes.io/job-name",
        "MY_INDEX": "batch.kubernetes.io/job-completion-index",
    }
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}}
        for name, key in labels.items()
    ]
    jobs = [
        replicated("first"),
        replicated("a", 2, job=job(), container={"env": env}),
        replicated("c", dependsOn=[{"name": "a", "status": "Complete"}]),
    ]
    success = {"operator": "All", "targetReplicatedJobs": ["a"]}
    spec = read(jobset(jobs, successPolicy=success)).spec
    assert [one.name for one in spec.node_groups] == ["first", "a_0", "a_1", "c"]
    assert spec.node_groups[2].env == {
        "JOB_INDEX": "1",
        "GLOBAL_INDEX": "2",
        "RJ": "a",
        "JOB_NAME": "demo-a-1",
    }
    index = "${replica}"
    assert spec.node_groups[2].node_env == {"MY_INDEX": index, "JOB_COMPLETION_INDEX": index}
    assert spec.node_groups[2].hostname == "demo-a-1-${replica}"
    assert spec.node_groups[3].depends_on == tuple(
        DependsOn(group=name, status="complete") for name in ("a_0", "a_1")
    )
    assert spec.success.groups == ("a_0", "a_1")


def test_a_single_array_has_the_deadline_of_its_job() -> None:
    manifest = jobset([replicated("a", job=job(activeDeadlineSeconds=60))])
    spec = read(manifest).spec
    assert (spec.attempt_timeout, spec.node_groups[0].timeout) == (60.0, None)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"nodes": 2}, "parallelism"),
        ({"only": "1"}, "only"),
        ({"timeout": 5}, "timeout"),
        ({"min_success": 2}, "min_success"),
        ({"nodes": 2, "retries": 1, "total_retries": 1}, "total_retries"),
        ({"nodes": 2, "early_success": [{"count": 1}]}, "early_success"),
    ],
)
def test_what_a_job_cannot_express_is_listed(fields: dict[str, Any], path: str) -> None:
    one = {"name": "a", "replicas": 3, "parallelism": 2, **fields}
    spec = spec_from_mapping({"name": "demo", "command": ["true"], "node_groups": [one]})
    losses = [loss.path for loss in write_jobset(spec).losses]
    assert f"node_groups[a].{path}" in losses


def test_an_index_is_written_for_the_number_of_a_replica() -> None:
    one = {
        "name": "a",
        "replicas": 3,
        "parallelism": 2,
        "node_env": {"N": "${replica}", "I": "${index}", "W": "w-${replica}"},
        "node_args": ["--n=${replica}"],
    }
    spec = spec_from_mapping({"name": "demo", "command": ["x"], "node_groups": [one]})
    (made,) = write_jobset(spec).data["spec"]["replicatedJobs"]
    (container,) = made["template"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--n=$(JOB_COMPLETION_INDEX)"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (variables["I"], variables["W"]) == ("0", "w-$(MUSTER_INDEX)")
    again = read(write_jobset(replace(spec, node_groups=spec.node_groups)).data).spec
    assert again.node_groups[0].node_env["W"] == "w-${replica}"
