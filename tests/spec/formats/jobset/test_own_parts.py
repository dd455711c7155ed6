"""What a patch of a pod template may not touch."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.formats.jobset.own_parts import own_problems
from muster.spec.formats.jobset.patches import patch_problems
from muster.spec.reader import spec_from_mapping


def node(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "log"}, {"name": "node", **fields}]}}


NODE = "spec.containers[1]"


@pytest.mark.parametrize(
    ("patch", "path", "text"),
    [
        ({"spec": None}, "spec", "would delete what Muster needs"),
        ({"spec": {"$patch": "replace"}}, "spec.$patch", "would replace what Muster needs"),
        ({"$patch": "replace", "spec": {}}, "$patch", "would replace what Muster needs"),
        ({"metadata": None}, "metadata", "would delete"),
        ({"metadata": {"labels": None}}, "metadata.labels", "would delete"),
        ({"metadata": {"labels": {"$patch": "replace"}}}, "metadata.labels.$patch", "would repl"),
        (
            {"metadata": {"labels": {"muster.run/id": "x"}}},
            "metadata.labels.muster.run/id",
            "is set by Muster or Kubernetes, which find pods by it",
        ),
        (
            {"metadata": {"labels": {"muster.run/id": None}}},
            "metadata.labels.muster.run/id",
            "is set by Muster or Kubernetes",
        ),
        (
            {"metadata": {"labels": {"batch.kubernetes.io/job-name": "x"}}},
            "metadata.labels.batch.kubernetes.io/job-name",
            "is set by Muster or Kubernetes",
        ),
        ({"metadata": {"namespace": "other"}}, "metadata.namespace", "is set by Muster"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy", "must be Never, not"),
        ({"spec": {"restartPolicy": None}}, "spec.restartPolicy", "must be Never, not nothing"),
        ({"spec": {"containers": None}}, "spec.containers", "would delete"),
        (
            {"spec": {"containers": [{"$patch": "replace"}]}},
            "spec.containers[0].$patch",
            "would replace the list",
        ),
        (node(**{"$patch": "delete"}), f"{NODE}.$patch", "would delete"),
        (node(command=["sleep"]), f"{NODE}.command", "would replace the node program"),
        (node(command=None), f"{NODE}.command", "would replace the node program"),
        (node(args=["1"]), f"{NODE}.args", "would replace the node program"),
        (node(env=None), f"{NODE}.env", "would delete"),
        (node(env=[{"name": "MUSTER_POD_JOB", "value": "1"}]), f"{NODE}.env[0]", "MUSTER_POD_JOB"),
        (
            node(volumeMounts=[{"name": "x", "mountPath": "/muster//node/"}]),
            f"{NODE}.volumeMounts[0].mountPath",
            "/muster/node is needed by Muster",
        ),
        (
            node(volumeMounts=[{"name": "x", "mountPath": "/muster"}]),
            f"{NODE}.volumeMounts[0].mountPath",
            "/muster is needed by Muster",
        ),
        (
            node(volumeMounts=[{"name": "x", "mountPath": "/muster/program/a"}]),
            f"{NODE}.volumeMounts[0].mountPath",
            "is needed by Muster",
        ),
        (
            {"spec": {"volumes": [{"name": "muster-key", "emptyDir": {}}]}},
            "spec.volumes[0]",
            "muster-key is a volume of Muster",
        ),
        (
            {"spec": {"volumes": [{"name": "node", "$patch": "delete"}]}},
            "spec.volumes[0]",
            "node is a volume of Muster",
        ),
        ({"spec": {"volumes": [{"$patch": "replace"}]}}, "spec.volumes[0].$patch", "would replace"),
    ],
)
def test_what_makes_a_pod_a_node_is_kept(patch: dict[str, Any], path: str, text: str) -> None:
    assert not [*patch_problems(patch, "pod")]
    (problem,) = own_problems(patch, "pod")
    assert problem.path == f"pod.{path}"
    assert text in problem.message


def test_it_is_refused_when_the_job_is_read() -> None:
    patch = {"metadata": {"labels": None}, **node(command=["sleep"])}
    groups = [{"name": "w", "command": "true", "kubernetes": {"pod": patch}}]
    with pytest.raises(InvalidInput) as refused:
        spec_from_mapping({"node_groups": groups, "kubernetes": {"pod": node(env=None)}})
    start = "node_groups[0].kubernetes.pod"
    assert [one.path for one in refused.value.problems] == [
        f"kubernetes.pod.{NODE}.env",
        f"{start}.metadata.labels",
        f"{start}.{NODE}.command",
    ]


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"a": "b", "muster-team": "x"}, "annotations": None}},
        {"spec": {"volumes": [{"name": "muster-shm", "emptyDir": {"sizeLimit": "1Gi"}}]}},
        {"spec": {"containers": [{"name": "log", "command": ["x"], "env": None}]}},
        {"spec": {"initContainers": [{"$patch": "replace"}], "restartPolicy": "Never"}},
        node(env=[{"name": "A", "value": "1"}], image="x", lifecycle=None),
        node(volumeMounts=[{"name": "x", "mountPath": "/muster/shared/data"}]),
        node(volumeMounts=[{"name": "x", "mountPath": "/muster-data"}]),
    ],
)
def test_other_patches_are_taken(patch: dict[str, Any]) -> None:
    assert not [*patch_problems(patch, "pod"), *own_problems(patch, "pod")]
