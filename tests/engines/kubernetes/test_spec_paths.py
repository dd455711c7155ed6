"""Fields of a manifest in the words of the job that it was made of."""

from __future__ import annotations

import pytest

from engines.conftest import PlanOf
from muster.engines.kubernetes.manifest import manifest
from muster.engines.kubernetes.names import RUN
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.spec_paths import spec_path
from muster.engines.kubernetes.versions import Versions

GROUPS = [
    {"name": "driver", "command": ["a"], "image": "driver:1"},
    {
        "name": "w_2",
        "nodes": 2,
        "command": ["b"],
        "image": "w:1",
        "extra_containers": [{"name": "log", "role": "sidecar", "image": "log:1"}],
    },
]
POD = "spec.replicatedJobs[1].template.spec.template.spec"
PATHS = {
    "metadata.name": "name",
    "metadata.labels[team]": "tags",
    "metadata.labels[kueue.x-k8s.io/queue-name]": "kueue.queue",
    "spec.failurePolicy.maxRestarts": "failure.max_restarts",
    "spec.network.enableDNSHostnames": "spec.network.enableDNSHostnames",
    "spec.replicatedJobs[0]": "node_groups[driver]",
    "spec.replicatedJobs[0].replicas": "node_groups[driver].replicas",
    "spec.replicatedJobs[0].template.spec.completions": "node_groups[driver].nodes",
    f"{POD}.containers[0].image": "node_groups[w-2].image",
    f'{POD}.containers[name="node"].image': "node_groups[w-2].image",
    f"{POD}.containers[0].resources.limits[nvidia.com/gpu]": "node_groups[w-2].resources.gpus",
    f"{POD}.containers[0].resources.requests.cpu": "node_groups[w-2].resources.cpus",
    f"{POD}.containers[0].resources.limits[rdma/ib]": (
        "node_groups[w-2].kubernetes.resources.rdma/ib"
    ),
    f"{POD}.containers[0].securityContext.capabilities.add[0]": (
        "node_groups[w-2].container.cap_add"
    ),
    f"{POD}.initContainers[0].image": "node_groups[w-2].extra_containers[log].image",
    f"{POD}.tolerations[0].operator": "node_groups[w-2].kubernetes.tolerations",
    f"{POD}.priorityClassName": "node_groups[w-2].kubernetes.priority_class",
    f"{POD}.frobs": f"node_groups[w-2] ({POD}.frobs)",
    "spec.replicatedJobs[7].replicas": "node_groups[7].replicas",
}


@pytest.mark.parametrize("path", PATHS)
def test_it_comes_from_a_field_of_the_job(plan_of: PlanOf, path: str) -> None:
    plan = plan_of(command=None, node_groups=GROUPS)
    slots = range(len(plan.nodes))
    (made,) = manifest(plan, KubernetesProfile(), Versions(), slots)
    assert spec_path(path, made) == PATHS[path]


def test_a_plain_job_is_of_a_group(plan_of: PlanOf) -> None:
    plan = plan_of(command=None, node_groups=GROUPS)
    made = manifest(plan, KubernetesProfile(), Versions(jobset=None), range(len(plan.nodes)))
    job = made[-1]
    path = "spec.template.spec.containers[0].image"
    assert spec_path(path, job) == "node_groups[w-2].image"


def test_a_manifest_that_is_applied_as_it_is_has_its_own_words() -> None:
    one = {"name": "workers", "template": {"spec": {}}}
    as_is = {
        "kind": "JobSet",
        "metadata": {"name": "a", "labels": {RUN: "r1"}},
        "spec": {"replicatedJobs": [one]},
    }
    path = "spec.replicatedJobs[0].template.spec.template.spec.tolerations[0].operator"
    assert spec_path(path, as_is) == path
