"""Any manifest is read or refused, without a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.spec.formats.documents import documents
from muster.spec.formats.jobset.read import read_jobset
from muster.spec.formats.jobset.write import write_jobset

FULL: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "demo", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
        "network": {"subdomain": "x", "enableDNSHostnames": True},
        "coordinator": {"replicatedJob": "a", "jobIndex": 0},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["a"]},
        "failurePolicy": {
            "maxRestarts": 1,
            "restartStrategy": "Recreate",
            "rules": [
                {
                    "name": "r",
                    "action": "FailJobSet",
                    "targetReplicatedJobs": ["a"],
                    "onJobFailureReasons": ["PodFailurePolicy"],
                    "onJobFailureMessagePatterns": ["x"],
                }
            ],
        },
        "volumeClaimPolicies": [{"templates": [{"metadata": {"name": "claim"}, "spec": {}}]}],
        "replicatedJobs": [
            {
                "name": "a",
                "replicas": 1,
                "template": {
                    "spec": {
                        "parallelism": 1,
                        "completions": 1,
                        "backoffLimit": 0,
                        "activeDeadlineSeconds": 5,
                        "podFailurePolicy": {
                            "rules": [
                                {
                                    "action": "FailJob",
                                    "onExitCodes": {"operator": "In", "values": [1]},
                                }
                            ]
                        },
                        "template": {
                            "metadata": {"labels": {"x": "y"}},
                            "spec": {
                                "restartPolicy": "Never",
                                "volumes": [
                                    {"name": "v", "hostPath": {"path": "/d"}},
                                    {"name": "n", "nfs": {"server": "s", "path": "/"}},
                                ],
                                "containers": [
                                    {
                                        "name": "m",
                                        "image": "i",
                                        "command": ["x"],
                                        "args": ["$(A)"],
                                        "ports": [{"name": "p", "containerPort": 1}],
                                        "env": [
                                            {"name": "A", "value": "1"},
                                            {
                                                "name": "B",
                                                "valueFrom": {
                                                    "fieldRef": {"fieldPath": "metadata.name"}
                                                },
                                            },
                                            {
                                                "name": "C",
                                                "valueFrom": {
                                                    "resourceFieldRef": {
                                                        "resource": "limits.cpu",
                                                        "divisor": "1m",
                                                    }
                                                },
                                            },
                                        ],
                                        "resources": {"limits": {"cpu": "1"}},
                                        "readinessProbe": {"httpGet": {"port": "p", "path": "/"}},
                                        "volumeMounts": [
                                            {"name": "v", "mountPath": "/v"},
                                            {"name": "claim", "mountPath": "/c"},
                                        ],
                                    }
                                ],
                            },
                        },
                    }
                },
            },
            {
                "name": "b",
                "dependsOn": [{"name": "a", "status": "Ready"}],
                "template": {
                    "spec": {
                        "template": {"spec": {"containers": [{"name": "m", "command": ["x"]}]}}
                    }
                },
            },
        ],
    },
}


def places(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if way:
        yield way
    pairs: Any = data.items() if isinstance(data, dict) else ()
    for key, value in enumerate(data) if isinstance(data, list) else pairs:
        yield from places(value, (*way, key))


junk = st.sampled_from(
    [
        *(None, "", "x", "-1", "1e9", "$(A)", "${index}", "a" * 70, "ü", "a\0b", "2026-01-01"),
        *(0, -1, 1.5, 10**12, True),
        *([], {}, [None], [{}], ["x", "x"], {"x": {}}, {"name": "a"}, [[1]]),
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(list(places(FULL))), junk), min_size=1, max_size=3))
def test_junk_is_refused_or_read(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    data = copy.deepcopy(FULL)
    for way, value in changes:
        inner: Any = data
        try:
            for step in way[:-1]:
                inner = inner[step]
            inner[way[-1]] = copy.deepcopy(value)
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change took it away
    try:
        (document,) = documents(json.dumps(data), "x.yaml")
        write_jobset(read_jobset(document).spec)
    except InvalidInput as error:
        assert all(problem.message for problem in error.problems)
