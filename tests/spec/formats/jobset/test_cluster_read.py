"""What a JobSet asks of its cluster: kept by a job, and written again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.spec.formats.documents import Manifest, documents
from muster.spec.formats.jobset.config_objects import ConfigObjects
from muster.spec.formats.jobset.read import read_jobset
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.formats.yaml_write import dump
from muster.spec.models import Kubernetes, Topology

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "serviceAccountName": st.sampled_from(("default", "trainer")),
        "priorityClassName": st.just("high"),
        "runtimeClassName": st.just("kata"),
        "schedulerName": st.just("volcano"),
        "imagePullSecrets": st.just([{"name": "login"}]),
        "nodeSelector": st.just({"disk": "fast"}),
        "tolerations": st.just([{"operator": "Exists", "tolerationSeconds": 5}]),
        "affinity": st.just({"podAntiAffinity": {}}),
        "hostNetwork": st.booleans(),
        "dnsConfig": st.just({"nameservers": ["10.0.0.1"]}),
        "automountServiceAccountToken": st.booleans(),
        "enableServiceLinks": st.booleans(),
        "schedulingGates": st.just([{"name": "a.b/c"}]),
        "resourceClaims": st.just([{"name": "gpu", "resourceClaimTemplateName": "big"}]),
        "securityContext": st.just(
            {
                "fsGroup": 7,
                "sysctls": [{"name": "a", "value": "b"}],
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p"},
            }
        ),
    },
)
VOLUMES: Mapping[str, Any] = {
    "empty": {"emptyDir": {}},
    "memory": {"emptyDir": {"medium": "Memory"}},
    "small": {"emptyDir": {"sizeLimit": "1Gi"}},
    "disk": {"hostPath": {"path": "/mnt/disk", "type": "Directory"}},
    "node": {"hostPath": {"path": "/var"}},
    "files": {"nfs": {"server": "s", "path": "/x"}},
    "claim": {"persistentVolumeClaim": {"claimName": "mine"}},
    "own": {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
    "bucket": {"csi": {"driver": "bucket.test", "volumeAttributes": {"name": "b"}}},
    "settings": {"configMap": {"name": "settings", "optional": True}},
    "login": {"secret": {"secretName": "login", "items": [{"key": "a", "path": "b"}]}},
    "token": {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
}
CONTAINERS = st.fixed_dictionaries(
    {},
    optional={
        "ports": st.just([{"containerPort": 80, "name": "web"}]),
        "env": st.just(
            [
                {"name": "A", "value": "1"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "t"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            ]
        ),
        "envFrom": st.just([{"secretRef": {"name": "hub"}}]),
        "resources": st.sampled_from(
            (
                {"requests": {"cpu": "1", "memory": "1Gi"}},
                {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1"}},
                {"limits": {"rdma/ib": "1", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "8"}},
                {"claims": [{"name": "gpu"}]},
            )
        ),
        "securityContext": st.sampled_from(
            ({"procMount": "Unmasked"}, {"capabilities": {"add": ["IPC_LOCK"]}})
        ),
    },
)


@st.composite
def mounted(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Volumes, and where a container has them."""
    names = draw(st.lists(st.sampled_from([*VOLUMES]), unique=True, max_size=4))
    mounts = [
        {"name": name, "mountPath": "/dev/shm" if name == "memory" else f"/m/{number}"}
        | draw(st.sampled_from(({}, {"readOnly": True}, {"mountPropagation": "None"})))
        for number, name in enumerate(names)
    ]
    return [{"name": name, **VOLUMES[name]} for name in names], mounts


@st.composite
def jobsets(draw: st.DrawFn) -> dict[str, Any]:
    volumes, mounts = draw(mounted())
    main = {"name": "w", "image": "i", "command": ["c"], **draw(CONTAINERS)}
    extra = {"name": "x", "image": "i", "command": ["c"], **draw(CONTAINERS)}
    extra["volumeMounts"] = mounts[:1]
    pod = {**draw(FIELDS), "volumes": volumes, "restartPolicy": "Never"}
    pod |= {"containers": [{**main, "volumeMounts": mounts}], "initContainers": [extra]}
    labels = draw(st.sampled_from(({}, {"kueue.x-k8s.io/queue-name": "a"})))
    limit = draw(st.sampled_from(({}, {"kueue.x-k8s.io/max-exec-time-seconds": "3600"})))
    return jobset(pod, labels={**labels, **limit}, annotations={})


def jobset(pod: dict[str, Any], labels: Any, annotations: Any) -> dict[str, Any]:
    """A JobSet with one pod. annotations: of the pod."""
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo", "labels": labels},
        "spec": {
            "replicatedJobs": [{"name": "w", "template": {"spec": {**job, "template": template}}}]
        },
    }


def read(data: Mapping[str, Any], *, in_cluster: bool = True) -> Manifest:
    (document,) = documents(dump(data), "x.yaml")
    return read_jobset(document, ConfigObjects(in_cluster=in_cluster))


def template_of(data: Mapping[str, Any]) -> Any:
    return data["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def meaning(data: Mapping[str, Any]) -> Any:
    """What a JobSet asks of its cluster, without names of volumes and what is a default."""
    pod = template_of(data)["spec"]
    volumes = {
        one["name"]: {k: v for k, v in one.items() if k != "name"} for one in pod.get("volumes", ())
    }
    profile = pod.get("securityContext", {}).get("seccompProfile")
    containers = []
    for one in [*pod["containers"], *pod.get("initContainers", ())]:
        mounts = {
            mount["mountPath"]: (
                _size(volumes[mount["name"]], one),
                {k: v for k, v in mount.items() if k not in ("name", "mountPath")},
            )
            for mount in one.get("volumeMounts", ())
        }
        kept = {k: v for k, v in one.items() if k not in ("volumeMounts", "env")}
        security = {"seccompProfile": profile} if profile else {}
        security |= one.get("securityContext", {})
        kept["env"] = {env["name"]: env for env in one.get("env", ())}
        limits = one.get("resources", {})
        kept["resources"] = {
            kind: limits[kind] if kind == "claims" else {n: str(v) for n, v in limits[kind].items()}
            for kind in limits
        }
        containers.append(({**kept, "securityContext": security}, mounts))
    fields = {k: v for k, v in pod.items() if k not in ("volumes", "containers", "initContainers")}
    fields.pop("terminationGracePeriodSeconds", None)
    if security := {**fields.pop("securityContext", {})}:
        security.pop("seccompProfile", None)
        fields["securityContext"] = security
    return data["metadata"].get("labels", {}), fields, containers


def _size(volume: Any, container: Any) -> Any:
    """Kubernetes: an emptyDir in memory without a limit has that of its container."""
    memory = container.get("resources", {}).get("limits", {}).get("memory")
    if volume == VOLUMES["memory"] and memory:
        return {"emptyDir": {"medium": "Memory", "sizeLimit": memory}}
    return volume


@pytest.mark.parametrize("more", [{}, {"readOnly": True}, {"mountPropagation": "None"}])
def test_shared_memory_is_mounted_as_it_was(more: dict[str, Any]) -> None:
    mount = {"name": "memory", "mountPath": "/dev/shm", **more}
    limit = {"limits": {"memory": "4Gi"}}
    main = {"name": "w", "image": "i", "command": ["c"], "resources": limit}
    pod = {
        "volumes": [{"name": "memory", **VOLUMES["memory"]}],
        "restartPolicy": "Never",
        "containers": [{**main, "volumeMounts": [mount]}],
    }
    data = jobset(pod, {}, {})
    assert meaning(write_jobset(read(data).spec).data) == meaning(data)


@settings(deadline=None)
@given(jobsets())
def test_what_a_cluster_is_asked_for_is_written_again(data: dict[str, Any]) -> None:
    spec = read(data).spec
    written = write_jobset(spec)
    assert meaning(written.data) == meaning(data)
    again = read(written.data).spec
    assert meaning(write_jobset(again).data) == meaning(data)


def test_settings_are_fields_where_there_are_some() -> None:
    pod = {
        "serviceAccount": "old-name",
        "schedulerName": "default-scheduler",
        "dnsPolicy": "ClusterFirst",
        "containers": [{"name": "c", "image": "i", "command": ["x"]}],
    }
    topology = {
        "kueue.x-k8s.io/podset-unconstrained-topology": "true",
        "kueue.x-k8s.io/podset-slice-required-topology": "host",
        "kueue.x-k8s.io/podset-slice-size": "2",
        "note": "mine",
    }
    data = jobset(pod, {}, topology)
    data["spec"]["replicatedJobs"][0]["template"]["metadata"] = {
        "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    }
    (group,) = read(data).spec.node_groups
    assert group.kubernetes == Kubernetes(
        service_account="old-name",
        exclusive="rack",
        topology=Topology(unconstrained=True, slice="host", slice_size=2),
    )
    assert group.pod_metadata.annotations == {"note": "mine"}
    assert group.job_metadata.annotations == {}


@pytest.mark.parametrize(
    ("annotations"),
    [
        {"kueue.x-k8s.io/podset-slice-size": "2"},
        {"kueue.x-k8s.io/podset-slice-size": "x"},
        {"kueue.x-k8s.io/podset-unconstrained-topology": "false"},
        {
            "kueue.x-k8s.io/podset-required-topology": "a",
            "kueue.x-k8s.io/podset-preferred-topology": "b",
        },
    ],
)
def test_what_is_no_topology_stays_an_annotation(annotations: dict[str, str]) -> None:
    pod = {"containers": [{"name": "c", "image": "i", "command": ["x"]}]}
    (group,) = read(jobset(pod, {}, annotations)).spec.node_groups
    assert group.kubernetes is None
    assert group.pod_metadata.annotations == annotations


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"priorityClassName": "High"}, "priorityClassName"),
        ({"tolerations": [{"operator": "Is"}]}, "tolerations[0].operator"),
        ({"nodeSelector": {"a b": "c"}}, "nodeSelector.a b"),
        ({"imagePullSecrets": [{"name": "A"}]}, "imagePullSecrets"),
    ],
)
def test_problems_are_at_their_places_in_the_manifest(fields: dict[str, Any], path: str) -> None:
    pod = {**fields, "containers": [{"name": "c", "image": "i", "command": ["x"]}]}
    with pytest.raises(InvalidInput) as refused:
        read(jobset(pod, {}, {}))
    (problem,) = refused.value.problems
    assert problem.path == f"spec.replicatedJobs[0].template.spec.template.spec.{path}"
    assert problem.source.startswith("x.yaml:")


@pytest.mark.parametrize("name", ["own", "bucket", "token"])
def test_what_only_a_cluster_can_do_is_refused_where_there_may_be_none(name: str) -> None:
    container = {"name": "c", "image": "i", "command": ["x"]}
    container["volumeMounts"] = [{"name": name, "mountPath": "/m"}]
    volumes = [{"name": name, **VOLUMES[name]}]
    data = jobset({"containers": [container], "volumes": volumes}, {}, {})
    found = read(data)
    assert found.notes == ()
    kept = found.spec.node_groups[0].kubernetes
    assert kept is not None and kept.pod["spec"]["volumes"]
    with pytest.raises(InvalidInput):
        read(data, in_cluster=False)
