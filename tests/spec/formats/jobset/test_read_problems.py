"""Fields of a manifest that are noted or refused."""

from __future__ import annotations

from typing import Any

import pytest

from support.jobset_manifests import JOB, MAIN, POD, Make, Problems, Read

#: Changes -> the notes.
NOTES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "about one group": (
        {f"{POD}.nodeSelector": {"a": "b"}},
        ["nodeSelector (workers) is used by engine kubernetes only"],
    ),
    "about all groups": (
        {
            f"{POD}.hostNetwork": True,
            "spec.replicatedJobs[0].template.spec.template.spec.hostNetwork": True,
        },
        ["hostNetwork is used by engine kubernetes only"],
    ),
    "empty fields are not noted": ({f"{POD}.tolerations": [], f"{POD}.affinity": {}}, []),
    "fields that a cluster has written": (
        {
            "status": {"restarts": 1},
            "metadata.uid": "x",
            "metadata.managedFields": [{"manager": "kubectl"}],
            "metadata.annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        [],
    ),
    "queues and topologies": (
        {
            "metadata.labels": {"kueue.x-k8s.io/queue-name": "q"},
            "metadata.annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"},
        },
        [
            "label kueue.x-k8s.io/queue-name is used by engine kubernetes only",
            "annotation alpha.jobset.sigs.k8s.io/exclusive-topology is used by "
            "engine kubernetes only",
        ],
    ),
    "different grace periods": (
        {f"{POD}.terminationGracePeriodSeconds": 5},
        [
            "terminationGracePeriodSeconds differs, and is 30 for all: Muster has one for the run",
        ],
    ),
    "requests and other resources": (
        {
            f"{MAIN}.resources": {
                "limits": {"google.com/tpu": 4, "cpu": 1},
                "requests": {"cpu": 1, "memory": "1Gi"},
            }
        },
        [
            "limits.google.com/tpu (workers) is used by engine kubernetes only",
            "requests.memory (workers) is used by engine kubernetes only",
        ],
    ),
    "an existing claim": (
        {
            f"{POD}.volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}],
            f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/v"}],
        },
        ["claim mine is used on engine kubernetes; elsewhere, the folder MUSTER_HOME/volumes/mine"],
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_notes(case: str, make: Make, read: Read) -> None:
    changes, expected = NOTES[case]
    assert list(read(make(changes)).notes) == expected


#: Changes -> the problems.
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown field": (
        {f"{JOB}.foo": 1},
        [f"{JOB}.foo: Muster does not read this field (remove it if the program does not need it)"],
    ),
    "a typing mistake": (
        {"spec.replicatedJobs[1].replica": 2},
        [
            "spec.replicatedJobs[1].replica: Muster does not read this field "
            '(did you mean "replicas"?)'
        ],
    ),
    "a field one level too high": (
        {"spec.replicatedJobs[1].completions": 2},
        [
            "spec.replicatedJobs[1].completions: Muster does not read this field "
            "(it belongs to the Job's spec (template.spec): check the indentation)"
        ],
    ),
    "no command": (
        {f"{MAIN}.command": None, f"{MAIN}.image": None},
        [
            f"{MAIN}.command: is missing, and there is no image with a program of its own "
            "(write the program to run)"
        ],
    ),
    "other containers": (
        {
            f"{POD}.containers[1]": {
                "name": "logs",
                "image": "busybox",
                "startupProbe": {"tcpSocket": {"port": 80}},
                "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
                "restartPolicy": "Always",
            },
            f"{POD}.initContainers": [
                {"name": "fetch"},
                {
                    "name": "proxy",
                    "image": "busybox",
                    "restartPolicy": "Always",
                    "livenessProbe": {"tcpSocket": {"port": 80}},
                },
            ],
        },
        [
            f"{POD}.containers[1].restartPolicy: Muster does not restart single containers of a "
            "pod, except sidecars (set it for the pod, one level up)",
            f"{POD}.containers[1].startupProbe: Muster probes only the first container and "
            "sidecars, not logs (remove it, or make the container a sidecar)",
            f"{POD}.containers[1].lifecycle.preStop: Muster runs hooks of the first container "
            "only, and logs is another (do it in the container's command)",
            f"{POD}.initContainers[0].image: is missing (give the container its image)",
            f"{POD}.initContainers[1].livenessProbe: Muster probes only the first container, and "
            "proxy is another (remove it, or have the container check itself)",
        ],
    ),
    "secrets": (
        {
            f"{MAIN}.env": [
                {
                    "name": "A",
                    "valueFrom": {"fileKeyRef": {"volumeName": "s", "path": "p", "key": "k"}},
                }
            ],
            f"{POD}.volumes": [
                {"name": "s", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
            ],
        },
        [
            f"{MAIN}.env[0].valueFrom.fileKeyRef: Muster does not read variables from files of "
            "volumes (write the value here, or set it with --env)",
            f"{POD}.volumes[0].projected.sources[0].serviceAccountToken: there is no cluster here "
            "that would issue it (remove it, or use a Secret)",
        ],
    ),
    "probes": (
        {
            f"{MAIN}.livenessProbe": {"exec": {}, "tcpSocket": {"port": 1}},
            f"{MAIN}.startupProbe": {"grpc": {"port": 1}},
            f"{MAIN}.readinessProbe": {"tcpSocket": {"port": "web"}, "successThreshold": 2},
        },
        [
            f"{MAIN}.livenessProbe: has exec and tcpSocket "
            "(use one of exec, httpGet and tcpSocket)",
            f"{MAIN}.livenessProbe.exec.command: is empty (add the program to run)",
            f"{MAIN}.startupProbe.grpc: Muster has no gRPC probes "
            "(use tcpSocket, or exec with a gRPC client)",
            f"{MAIN}.readinessProbe: differs from the startupProbe, and Muster has one "
            "probe (keep the one for which other nodes have to wait)",
        ],
    ),
    "a port without a name": (
        {f"{MAIN}.readinessProbe": {"tcpSocket": {"port": "web"}, "successThreshold": 2}},
        [
            f"{MAIN}.readinessProbe.successThreshold: is 2: Muster needs one success (remove it)",
            f"{MAIN}.readinessProbe.tcpSocket.port: 'web' is not a port of the container "
            "(write its number)",
        ],
    ),
    "volumes": (
        {
            f"{POD}.volumes": [{"name": "a", "hostPath": {"path": "x"}}, {"name": "a"}],
            f"{MAIN}.volumeMounts": [
                {"name": "b", "mountPath": "/b"},
                {"name": "a", "mountPath": "a"},
                {"name": "a", "mountPath": "/a", "subPath": "../x"},
            ],
        },
        [
            f"{POD}.volumes[0].hostPath.path: 'x' is not an absolute path (start it with /)",
            f"{POD}.volumes[1].name: 'a' is given twice (also at volumes[0]: remove one)",
            f"{MAIN}.volumeMounts[0].name: volume 'b' not found (use a)",
            f"{MAIN}.volumeMounts[1].mountPath: 'a' is not an absolute path (write /a)",
            f"{MAIN}.volumeMounts[2].subPath: '../x' is not a path below the volume "
            "(write it without .. and without / at its start)",
        ],
    ),
    "quantities": (
        {f"{MAIN}.resources.limits": {"cpu": "much", "nvidia.com/gpu": "500m"}},
        [
            f"{MAIN}.resources.limits.cpu: 'much' is not a quantity (write 500m, 2 or 4Gi)",
            f"{MAIN}.resources.limits.nvidia.com/gpu: 0.500 is not a whole number (round it)",
        ],
    ),
    "placeholders": (
        {f"{MAIN}.image": "gcr.io/<project>/x", f"{MAIN}.command": ["echo", "<message>"]},
        [
            f"{MAIN}.image: 'gcr.io/<project>/x' was not filled in (write what belongs there)",
            f"{MAIN}.command[1]: '<message>' was not filled in (write what belongs there)",
        ],
    ),
    "numbers as text": (
        {f"{MAIN}.env": [{"name": "PORT", "value": 80}]},
        [f'{MAIN}.env[0].value: must be text, not 80 (put it in quotes: "80")'],
    ),
    "a name no variable can have": (
        {f"{MAIN}.env": [{"name": "a-b", "value": "x"}]},
        [
            f"{MAIN}.env.a-b: 'a-b' is not a valid name of an environment variable "
            "(use letters, digits and _, not starting with a digit)"
        ],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_fields_are_named(case: str, make: Make, problems: Problems) -> None:
    changes, expected = REFUSED[case]
    assert sorted(problems(make(changes))) == sorted(expected)


def test_problems_have_line_numbers(tmp_path: Any) -> None:
    from pathlib import Path

    from muster.errors import InvalidInput
    from muster.spec.formats.manifests import read_manifests

    path = Path(tmp_path) / "two.yaml"
    one = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\n"
        "kind: JobSet\n"
        "metadata: {name: NAME}\n"
        "spec:\n"
        "  replicatedJobs:\n"
        "  - name: a\n"
        "    replikas: 2\n"
        "    template: {spec: {template: {spec: {containers: [{name: c, command: [x]}]}}}}\n"
    )
    path.write_text("# first\n" + one.replace("NAME", "one") + "---\n" + one.replace("NAME", "two"))
    with pytest.raises(InvalidInput) as caught:
        read_manifests(path)
    assert [p.source for p in caught.value.problems] == [f"{path}:8", f"{path}:17"]
