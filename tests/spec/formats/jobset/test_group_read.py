"""A replicated Job read as a node group."""

from __future__ import annotations

from typing import Any

import pytest

from muster.spec.models import LivenessProbe, Mount, Resources, StartupProbe
from muster.spec.policies import DependsOn
from support.jobset_manifests import JOB, MAIN, MAX, OWN_TMP, POD, Make, Read, workers

#: Changes -> fields of the last group.
GROUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "replicas": ({"spec.replicatedJobs[1].replicas": 3}, {"replicas": 3}),
    "Kubernetes retries": ({f"{JOB}.backoffLimit": None}, {"retries": 6}),
    "retries": ({f"{JOB}.backoffLimit": 2}, {"retries": 2}),
    "a deadline": ({f"{JOB}.activeDeadlineSeconds": 90}, {"timeout": 90.0}),
    "parallelism above completions": ({f"{JOB}.parallelism": 9}, {"nodes": 2}),
    "one pod": ({f"{JOB}.parallelism": None, f"{JOB}.completions": None}, {"nodes": 1}),
    "no index": ({f"{JOB}.completionMode": "NonIndexed"}, {"node_env": {}}),
    "arguments": ({f"{MAIN}.args": ["a", "b"]}, {"args": ("a", "b")}),
    "a working directory": ({f"{MAIN}.workingDir": "/opt/x"}, {"working_dir": "/opt/x"}),
    "an HTTP probe": (
        {f"{MAIN}.startupProbe": {"httpGet": {"port": 80, "path": "up"}}},
        {"startup_probe": StartupProbe(tcp=80, http="/up", period=10, timeout=1, threshold=3)},
    ),
    "a liveness probe": (
        {f"{MAIN}.livenessProbe": {"httpGet": {"port": 80, "path": "/up"}, "periodSeconds": 5}},
        {"liveness_probe": LivenessProbe(tcp=80, http="/up", period=5, timeout=1, threshold=3)},
    ),
    "hooks": (
        {
            f"{MAIN}.lifecycle": {
                "postStart": {"exec": {"command": ["touch", "/up"]}},
                "preStop": {"sleep": {"seconds": 5}},
            }
        },
        {"after_start": ("touch", "/up"), "before_stop": ("sleep", "5")},
    ),
    "the machine's own /tmp": (
        {
            f"{POD}.volumes": [{"name": "t", "hostPath": {"path": "/tmp"}}],
            f"{MAIN}.volumeMounts": [{"name": "t", "mountPath": "/tmp"}],
        },
        {"mounts": (Mount(source="/tmp", path="/tmp"),)},
    ),
    "dependencies": (
        {
            "spec.replicatedJobs[1].dependsOn": [
                {"name": "driver", "status": "Complete"},
            ]
        },
        {"depends_on": (DependsOn(group="driver", status="complete"),)},
    ),
    "limits": (
        {
            f"{MAIN}.resources.limits": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": 1},
        },
        {"resources": Resources(cpus=1.5, memory=2 << 30, gpus=1)},
    ),
    "requests without limits": ({f"{MAIN}.resources.requests": {"cpu": 4}}, {"resources": None}),
    "a startup probe": (
        {f"{MAIN}.startupProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 5}},
        {
            "startup_probe": StartupProbe(
                exec_=("true",), period=10, timeout=1, threshold=3, initial_delay=5
            )
        },
    ),
    "a file": (
        {f"{MAIN}.startupProbe": {"exec": {"command": ["test", "-e", "/up"]}, "periodSeconds": 1}},
        {"startup_probe": StartupProbe(file="/up", period=1, timeout=1, threshold=3)},
    ),
    "a readiness probe, which never gives up": (
        {f"{MAIN}.readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 0}},
        {"startup_probe": StartupProbe(tcp=80, period=10, timeout=1, threshold=MAX)},
    ),
    "a port by name": (
        {
            f"{MAIN}.ports": [{"name": "web", "containerPort": 8080}],
            f"{MAIN}.readinessProbe": {"tcpSocket": {"port": "web"}},
        },
        {"startup_probe": StartupProbe(tcp=8080, period=10, timeout=1, threshold=MAX)},
    ),
    "two equal probes": (
        {
            f"{MAIN}.startupProbe": {"tcpSocket": {"port": 80}},
            f"{MAIN}.readinessProbe": {"tcpSocket": {"port": 80}},
        },
        {"startup_probe": StartupProbe(tcp=80, period=10, timeout=1, threshold=3)},
    ),
    "volumes": (
        {
            f"{POD}.volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "sets", "hostPath": {"path": "/data", "type": "Directory"}},
                {"name": "kept", "persistentVolumeClaim": {"claimName": "mine"}},
                {"name": "far", "nfs": {"server": "box", "path": "/x", "readOnly": True}},
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
            ],
            f"{MAIN}.volumeMounts": [
                {"name": "tmp", "mountPath": "/tmp/"},
                {"name": "sets", "mountPath": "/sets", "readOnly": True},
                {"name": "kept", "mountPath": "/kept"},
                {"name": "far", "mountPath": "/far"},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
        },
        {
            "mounts": (
                Mount(source="scratch:incarnation/tmp.volume", path="/tmp"),
                Mount(source="/data", path="/sets", read_only=True),
                Mount(source="volume:mine", path="/kept"),
                Mount(source="nfs://box/x", path="/far", read_only=True),
            )
        },
    ),
    "claims": (
        {
            "spec.volumeClaimPolicies": [
                {"templates": [{"metadata": {"name": "deleted"}, "spec": {}}]},
                {
                    "templates": [{"metadata": {"name": "kept"}, "spec": {}}],
                    "retentionPolicy": {"whenDeleted": "Retain"},
                },
            ],
            f"{MAIN}.volumeMounts": [
                {"name": "deleted", "mountPath": "/deleted"},
                {"name": "kept", "mountPath": "/kept"},
            ],
        },
        {
            "mounts": (
                Mount(source="scratch:run/deleted", path="/deleted"),
                Mount(source="volume:kept-demo", path="/kept"),
                OWN_TMP,
            )
        },
    ),
}


@pytest.mark.shows("jobset/group-of-jobs", "jobset/multi-template")
@pytest.mark.parametrize("case", GROUPS)
def test_replicated_jobs_become_groups(case: str, make: Make, read: Read) -> None:
    changes, expected = GROUPS[case]
    group = workers(read(make(changes)))
    assert {name: getattr(group, name) for name in expected} == expected


def test_an_https_probe_becomes_a_command(make: Make, read: Read) -> None:
    probe = {"httpGet": {"port": 80, "path": "up", "scheme": "HTTPS"}}
    made = workers(read(make({f"{MAIN}.readinessProbe": probe}))).startup_probe
    assert made is not None
    assert made.exec_ is not None
    assert made.exec_[0] == "python3"
    assert made.exec_[3:] == ("https", "80", "/up")
