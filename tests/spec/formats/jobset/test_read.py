"""A JobSet read as a job."""

from __future__ import annotations

from typing import Any

import pytest

from muster.spec.models import NodeGroup
from muster.spec.policies import FailurePolicy, SuccessPolicy
from support.jobset_manifests import OWN_TMP, POD, Make, Read


def test_a_plain_manifest(make: Make, read: Read) -> None:
    spec = read(make({})).spec
    assert spec.name == "demo"
    assert spec.subdomain == "demo"
    assert spec.grace_period == 30
    assert spec.failure == FailurePolicy()
    assert spec.success == SuccessPolicy()
    assert spec.startup == "parallel"
    assert spec.node_groups == (
        NodeGroup(
            name="driver",
            nodes=1,
            command=("echo", "hello"),
            image="busybox",
            mounts=(OWN_TMP,),
            hostname="demo-driver-${replica}-${index}",
            node_env={"JOB_COMPLETION_INDEX": "${index}"},
        ),
        NodeGroup(
            name="workers",
            nodes=2,
            command=("echo", "hello"),
            image="busybox",
            mounts=(OWN_TMP,),
            hostname="demo-workers-${replica}-${index}",
            node_env={"JOB_COMPLETION_INDEX": "${index}"},
        ),
    )


#: Changes -> fields of the job.
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "suspended": ({"spec.suspend": True}, {"suspend": True}),
    "deleted later": ({"spec.ttlSecondsAfterFinished": 60}, {"ttl_after_finished": 60.0}),
    "a deadline": ({"spec.activeDeadlineSeconds": 9}, {"attempt_timeout": 9.0}),
    "in order": ({"spec.startupPolicy.startupPolicyOrder": "InOrder"}, {"startup": "in_order"}),
    "no host names": ({"spec.network.enableDNSHostnames": False}, {"subdomain": None}),
    "other host names": ({"spec.network.subdomain": "example"}, {"subdomain": "example"}),
    "labels": ({"metadata.labels": {"team": "a"}}, {"tags": {"team": "a"}}),
    "a generated name": ({"metadata": {"generateName": "demo-"}}, {"name": "demo"}),
    "described": (
        {"metadata.annotations": {"kubernetes.io/description": "For people."}},
        {"description": "For people."},
    ),
    "the longest grace period": (
        {f"{POD}.terminationGracePeriodSeconds": 45},
        {"grace_period": 45.0},
    ),
    "success of some Jobs": (
        {"spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]}},
        {"success": SuccessPolicy(groups=("workers",))},
    ),
    "success of any Job": (
        {"spec.successPolicy": {"operator": "Any"}},
        {"success": SuccessPolicy(when="any")},
    ),
}


@pytest.mark.parametrize("case", JOBS)
def test_the_jobset_becomes_the_job(case: str, make: Make, read: Read) -> None:
    changes, expected = JOBS[case]
    spec = read(make(changes)).spec
    assert {name: getattr(spec, name) for name in expected} == expected


def test_jobs_without_replicas_are_left_out(make: Make, read: Read) -> None:
    changes = {
        "spec.replicatedJobs[0].replicas": 0,
        "spec.replicatedJobs[1].dependsOn": [{"name": "driver", "status": "Complete"}],
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["driver", "workers"]},
        "spec.failurePolicy": {
            "maxRestarts": 1,
            "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["driver"]}],
        },
    }
    manifest = read(make(changes))
    (group,) = manifest.spec.node_groups
    assert group.depends_on == ()
    assert manifest.spec.success.groups == ("workers",)
    assert manifest.spec.failure.rules == ()
    assert manifest.notes == (
        "driver has 0 replicas and is left out; nothing waits for it",
        "rule failurePolicyRule0 is left out: its replicated Jobs have 0 replicas",
    )
