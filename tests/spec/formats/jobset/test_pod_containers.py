"""Init containers, sidecars and further containers of a pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from muster.spec.formats.jobset.write import write_jobset
from muster.spec.formats.manifests import read_manifest
from muster.spec.models import Container, ExtraContainer, JobSpec, Mount, Resources, StartupProbe
from support.jobset import read

INDEX = {"JOB_COMPLETION_INDEX": "${index}"}
VOLUME = {"name": "data", "mountPath": "/data"}


def manifest(**pod: Any) -> dict[str, Any]:
    main = {"name": "w", "image": "train", "command": ["python", "train.py"]}
    spec = {"restartPolicy": "Never", "containers": [main], "volumes": [], **pod}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": spec}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": job}}]},
    }


FULL = manifest(
    initContainers=[
        {
            "name": "fetch",
            "image": "busybox",
            "command": ["wget", "$(URL)"],
            "args": ["-O", "/data/$(JOB_COMPLETION_INDEX)"],
            "env": [
                {
                    "name": "JOB_COMPLETION_INDEX",
                    "valueFrom": {
                        "fieldRef": {
                            "fieldPath": "metadata.annotations"
                            "['batch.kubernetes.io/job-completion-index']"
                        }
                    },
                },
                {"name": "URL", "value": "http://x"},
            ],
            "volumeMounts": [VOLUME],
            "resources": {"limits": {"cpu": "500m"}},
        },
        {
            "name": "proxy",
            "image": "proxy",
            "restartPolicy": "Always",
            "workingDir": "/srv",
            "startupProbe": {"tcpSocket": {"port": 80}, "failureThreshold": 5},
        },
    ],
    containers=[
        {
            "name": "w",
            "image": "train",
            "command": ["python", "train.py"],
            "volumeMounts": [VOLUME],
        },
        {"name": "logs", "image": "logs", "args": ["-f"], "volumeMounts": [VOLUME]},
    ],
    volumes=[{"name": "data", "emptyDir": {}}],
)


def extra(spec: JobSpec) -> tuple[ExtraContainer, ...]:
    return spec.node_groups[0].extra_containers


def test_roles_programs_and_volumes() -> None:
    shared = Mount(source="scratch:incarnation/data", path="/data")
    read_spec = read(FULL).spec
    assert shared in read_spec.node_groups[0].mounts
    assert extra(read_spec) == (
        ExtraContainer(
            name="fetch",
            role="init",
            image="busybox",
            command=("wget", "http://x"),
            args=("-O",),
            node_args=("/data/${index}",),
            env={"URL": "http://x"},
            node_env=INDEX,
            mounts=(shared,),
            resources=Resources(cpus=0.5),
        ),
        ExtraContainer(
            name="proxy",
            role="sidecar",
            image="proxy",
            node_env=INDEX,
            working_dir="/srv",
            startup_probe=StartupProbe(tcp=80, period=10.0, threshold=5),
        ),
        ExtraContainer(
            name="logs", role="main", image="logs", args=("-f",), node_env=INDEX, mounts=(shared,)
        ),
    )


def test_they_are_written_again() -> None:
    spec = read(FULL).spec
    written = write_jobset(spec)
    assert [str(loss) for loss in written.losses] == []
    assert extra(read(written.data).spec) == extra(spec)
    pod = written.data["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["fetch", "proxy"]
    assert [one["name"] for one in pod["containers"]] == ["w", "logs"]
    assert pod["volumes"] == [{"name": "data", "emptyDir": {}}]


def test_secrets_of_other_containers_are_secrets_of_the_job(tmp_path: Path) -> None:
    secret = {"secretKeyRef": {"name": "db", "key": "PASS"}}
    env = [{"name": "PASS", "valueFrom": secret}]
    data = manifest(initContainers=[{"name": "i", "image": "i", "env": env}])
    found = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}}
    objects = ({**found, "stringData": {"PASS": "x"}}, data)
    path = tmp_path / "all.yaml"
    path.write_text("---\n".join(f"{json.dumps(one)}\n" for one in objects))
    spec = read_manifest(path).spec
    assert spec.secrets == {"db.PASS": "x"}
    assert extra(spec)[0].node_env["PASS"] == "${secret.db.PASS}"


def test_security_of_pods_and_containers() -> None:
    own = {
        "runAsGroup": 6,
        "capabilities": {"add": ["CAP_IPC_LOCK"], "drop": ["ALL"]},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
    }
    side = {"name": "s", "image": "s", "securityContext": {"runAsNonRoot": False}}
    main = {"name": "w", "image": "i", "imagePullPolicy": "Never", "command": ["x"]}
    main["securityContext"] = own
    of_pod = {
        "runAsUser": 5,
        "runAsNonRoot": True,
        "fsGroup": 7,
        "supplementalGroups": [8],
        "seccompProfile": {"type": "Unconfined"},
    }
    spec = read(manifest(containers=[main, side], securityContext=of_pod)).spec
    common = {"groups": (8, 7), "seccomp": "unconfined"}
    assert spec.node_groups[0].container == Container(
        pull="never",
        user="5:6",
        non_root=True,
        cap_add=("IPC_LOCK",),
        cap_drop=("ALL",),
        read_only=True,
        no_new_privileges=True,
        **common,
    )
    assert extra(spec)[0].container == Container(user="5", **common)
    written = write_jobset(spec)
    assert [str(loss) for loss in written.losses] == []
    again = read(written.data).spec
    assert again.node_groups[0].container == spec.node_groups[0].container
    assert extra(again) == extra(spec)


def test_what_a_security_context_cannot_express() -> None:
    container = Container(user="ana", ulimits={"nofile": 9})
    spec = read(FULL).spec
    (group,) = spec.node_groups
    spec = replace(spec, node_groups=(replace(group, container=container),))
    assert [str(loss) for loss in write_jobset(spec).losses] == [
        "node_groups[w].container.user: is left out: Kubernetes requires a number",
        "node_groups[w].container.ulimits: a JobSet has no such setting",
    ]
