"""Every field that is read from a manifest is converted, or its loss is noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields

from muster.spec.decode import unwrap
from muster.spec.formats.convert import convert_file
from muster.spec.formats.fields import RAW
from muster.spec.formats.jobset.model import JobSet
from support.jobset_manifests import JOB, MAIN, POD, Make

RJ = "spec.replicatedJobs[1]"
RULE = {"name": "r", "action": "FailJobSet"}
VOLUME = {"name": "v", "hostPath": {"path": "/d"}}
NFS = {"name": "v", "nfs": {"server": "s", "path": "/x"}}
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
MOUNT = [{"name": "v", "mountPath": "/m"}]
PORT = [{"containerPort": 80, "name": "web"}]
GET = {"httpGet": {"port": 80}}
FIELD_REF = {"fieldRef": {"fieldPath": "status.podIP"}}
RESOURCE_REF = {"resource": "limits.cpu"}
LIMITS = {f"{MAIN}.resources": {"limits": {"cpu": "2"}}}
CODES = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}
LOST = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
POLICY = f"{JOB}.podFailurePolicy.rules"
CLAIMS = "spec.volumeClaimPolicies"
OWN = [{"templates": [{"metadata": {"name": "v"}}]}]
MOUNTED = {f"{MAIN}.volumeMounts": MOUNT}
RULES = "spec.failurePolicy.rules"
LIMITED = {f"{JOB}.backoffLimitPerIndex": 1, f"{JOB}.template.spec.restartPolicy": "Never"}
IN_PLACE = {
    f"spec.replicatedJobs[{i}].template.spec.{name}": value
    for i in (0, 1)
    for name, value in (("backoffLimit", 2**31 - 1), ("podReplacementPolicy", "Failed"))
}


def env(**more: Any) -> dict[str, Any]:
    return {f"{MAIN}.env": [{"name": "A", **more}]}


def probe(**more: Any) -> dict[str, Any]:
    return {f"{MAIN}.startupProbe": {**GET, **more}}


def volume(one: dict[str, Any], **more: Any) -> dict[str, Any]:
    kind = next(name for name in one if name != "name")
    return {f"{POD}.volumes": [{"name": "v", kind: {**one[kind], **more}}], **MOUNTED}


FILE = {"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}
ALIAS = {f"{POD}.hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}


def fields_of_pod(**more: Any) -> dict[str, Any]:
    return volume({"name": "v", "downwardAPI": {"items": [{**FILE, **more}]}})


#: Field of a model -> two manifests that differ in it.
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ObjectMeta.name": ({}, {"metadata.name": "other"}),
    "ObjectMeta.generateName": (
        {"metadata": {"name": "demo"}},
        {"metadata": {"generateName": "demo-"}},
    ),
    "ObjectMeta.namespace": ({}, {"metadata.namespace": "team"}),
    "ObjectMeta.labels": ({}, {f"{JOB}.template.metadata": {"labels": {"a": "b"}}}),
    "ObjectMeta.annotations": ({}, {f"{JOB}.template.metadata": {"annotations": {"a": "b"}}}),
    "JobTemplate.metadata": ({}, {f"{RJ}.template.metadata": {"labels": {"a": "b"}}}),
    "ReplicatedJob.name": ({}, {f"{RJ}.name": "others"}),
    "ReplicatedJob.groupName": ({}, {f"{RJ}.groupName": "g"}),
    "ReplicatedJob.replicas": ({}, {f"{RJ}.replicas": 2}),
    "ReplicatedJob.dependsOn": (
        {},
        {f"{RJ}.dependsOn": [{"name": "driver", "status": "Ready"}]},
    ),
    "DependsOnItem.name": (
        {},
        {f"{RJ}.dependsOn": [{"name": "driver", "status": "Complete"}]},
    ),
    "DependsOnItem.status": (
        {f"{RJ}.dependsOn": [{"name": "driver", "status": "Ready"}]},
        {f"{RJ}.dependsOn": [{"name": "driver", "status": "Complete"}]},
    ),
    "Network.enableDNSHostnames": ({}, {"spec.network.enableDNSHostnames": False}),
    "Network.subdomain": ({}, {"spec.network.subdomain": "s"}),
    "Network.publishNotReadyAddresses": ({}, {"spec.network.publishNotReadyAddresses": False}),
    "Success.operator": (
        {"spec.successPolicy": {"operator": "All"}},
        {"spec.successPolicy": {"operator": "Any"}},
    ),
    "Success.targetReplicatedJobs": (
        {"spec.successPolicy": {"operator": "Any"}},
        {"spec.successPolicy": {"operator": "Any", "targetReplicatedJobs": ["driver"]}},
    ),
    "Rule.action": ({RULES: [RULE]}, {RULES: [{**RULE, "action": "RestartJob"}]}),
    "Rule.name": ({RULES: [RULE]}, {RULES: [{**RULE, "name": "s"}]}),
    "Rule.targetReplicatedJobs": (
        {RULES: [RULE]},
        {RULES: [{**RULE, "targetReplicatedJobs": ["driver"]}]},
    ),
    "Rule.onJobFailureReasons": (
        {RULES: [RULE]},
        {RULES: [{**RULE, "onJobFailureReasons": ["DeadlineExceeded"]}]},
    ),
    "Rule.onJobFailureMessagePatterns": (
        {RULES: [RULE]},
        {RULES: [{**RULE, "onJobFailureMessagePatterns": ["x"]}]},
    ),
    "Failure.maxRestarts": ({}, {"spec.failurePolicy": {"maxRestarts": 1}}),
    "Failure.rules": ({}, {RULES: [RULE]}),
    "Failure.restartStrategy": (
        {**IN_PLACE, "spec.failurePolicy": {"maxRestarts": 1}},
        {
            **IN_PLACE,
            "spec.failurePolicy": {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
        },
    ),
    "Startup.startupPolicyOrder": ({}, {"spec.startupPolicy": {"startupPolicyOrder": "InOrder"}}),
    "Coordinator.replicatedJob": ({}, {"spec.coordinator": {"replicatedJob": "driver"}}),
    "Coordinator.jobIndex": ({}, {"spec.coordinator": {"replicatedJob": "driver", "jobIndex": 0}}),
    "Coordinator.podIndex": (
        {},
        {"spec.coordinator": {"replicatedJob": "workers", "podIndex": 1}},
    ),
    "Retention.whenDeleted": (
        {CLAIMS: OWN, **MOUNTED},
        {CLAIMS: [{**OWN[0], "retentionPolicy": {"whenDeleted": "Retain"}}], **MOUNTED},
    ),
    "Claim.metadata": (
        {CLAIMS: OWN, **MOUNTED},
        {
            CLAIMS: [{"templates": [{"metadata": {"name": "v", "labels": {"a": "b"}}}]}],
            **MOUNTED,
        },
    ),
    "JobSetSpec.suspend": ({}, {"spec.suspend": True}),
    "JobSetSpec.managedBy": ({}, {}),  # only JobSet's own controller is accepted
    "JobSetSpec.ttlSecondsAfterFinished": ({}, {"spec.ttlSecondsAfterFinished": 5}),
    "JobSetSpec.activeDeadlineSeconds": ({}, {"spec.activeDeadlineSeconds": 5}),
    "Job.parallelism": ({}, {f"{JOB}.parallelism": 9}),
    "Job.completions": (
        {f"{JOB}.parallelism": 3},
        {f"{JOB}.parallelism": 3, f"{JOB}.completions": 3},
    ),
    "Job.completionMode": ({}, {f"{JOB}.completionMode": "NonIndexed"}),
    "Job.backoffLimit": ({}, {f"{JOB}.backoffLimit": 1}),
    "Job.backoffLimitPerIndex": (LIMITED, {**LIMITED, f"{JOB}.backoffLimitPerIndex": 2}),
    "Job.maxFailedIndexes": (LIMITED, {**LIMITED, f"{JOB}.maxFailedIndexes": 1}),
    "SuccessRule.succeededIndexes": (
        {f"{JOB}.successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
        {f"{JOB}.successPolicy": {"rules": [{"succeededIndexes": "1"}]}},
    ),
    "SuccessRule.succeededCount": (
        {f"{JOB}.successPolicy": {"rules": [{"succeededCount": 1}]}},
        {f"{JOB}.successPolicy": {"rules": [{"succeededCount": 2}]}},
    ),
    "Job.activeDeadlineSeconds": ({}, {f"{JOB}.activeDeadlineSeconds": 5}),
    "Job.podReplacementPolicy": ({}, {}),  # Muster always waits
    "PodFailureRule.action": (
        {POLICY: [CODES]},
        {POLICY: [{**CODES, "action": "Ignore"}]},
    ),
    "OnExitCodes.operator": (
        {POLICY: [CODES], RULES: [{**RULE, "onJobFailureReasons": ["PodFailurePolicy"]}]},
        {
            POLICY: [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}],
            RULES: [{**RULE, "onJobFailureReasons": ["PodFailurePolicy"]}],
        },
    ),
    "OnExitCodes.values": (
        {POLICY: [CODES], RULES: [{**RULE, "onJobFailureReasons": ["PodFailurePolicy"]}]},
        {
            POLICY: [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}],
            RULES: [{**RULE, "onJobFailureReasons": ["PodFailurePolicy"]}],
        },
    ),
    "OnExitCodes.containerName": ({}, {}),  # the pod has one container
    "OnPodCondition.type": ({}, {POLICY: [{**LOST, "action": "Ignore"}]}),
    "OnPodCondition.status": ({}, {}),  # only "True" is accepted
    "PodSpec.restartPolicy": (
        {f"{POD}.volumes": [{"name": "v"}], **MOUNTED},
        {f"{POD}.volumes": [{"name": "v"}], **MOUNTED, f"{POD}.restartPolicy": "OnFailure"},
    ),
    "PodSpec.terminationGracePeriodSeconds": (
        {},
        {f"{POD}.terminationGracePeriodSeconds": 99},
    ),
    "PodSpec.serviceAccountName": ({}, {f"{POD}.serviceAccountName": "me"}),
    "Container.name": ({}, {}),  # the container gets the name of its group
    "Container.image": ({}, {f"{MAIN}.image": "other"}),
    "Container.command": ({}, {f"{MAIN}.command": ["other"]}),
    "Container.args": ({}, {f"{MAIN}.args": ["x"]}),
    "Container.workingDir": ({}, {f"{MAIN}.workingDir": "/x"}),
    "Container.restartPolicy": ({}, {}),  # of in-place restart
    "Container.restartPolicyRules": ({}, {}),
    "Container.readinessProbe": (
        probe(),
        {**probe(), f"{MAIN}.readinessProbe": GET},
    ),
    "EnvVar.name": (env(value="1"), {f"{MAIN}.env": [{"name": "B", "value": "1"}]}),
    "EnvVar.value": (env(value="1"), env(value="2")),
    "FieldRef.fieldPath": (
        env(valueFrom=FIELD_REF),
        env(valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}),
    ),
    "ResourceFieldRef.resource": (
        LIMITS,
        {**LIMITS, **env(valueFrom={"resourceFieldRef": RESOURCE_REF})},
    ),
    "ResourceFieldRef.containerName": ({}, {}),  # the pod has one container
    "ResourceFieldRef.divisor": (
        {**LIMITS, **env(valueFrom={"resourceFieldRef": RESOURCE_REF})},
        {**LIMITS, **env(valueFrom={"resourceFieldRef": {**RESOURCE_REF, "divisor": "1m"}})},
    ),
    "ExecAction.command": (
        {f"{MAIN}.startupProbe": {"exec": {"command": ["a"]}}},
        {f"{MAIN}.startupProbe": {"exec": {"command": ["b"]}}},
    ),
    "SleepAction.seconds": (
        {f"{MAIN}.lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
        {f"{MAIN}.lifecycle": {"preStop": {"sleep": {"seconds": 2}}}},
    ),
    "HTTPGetAction.port": (probe(), {f"{MAIN}.startupProbe": {"httpGet": {"port": 81}}}),
    "HTTPGetAction.path": (
        probe(),
        {f"{MAIN}.startupProbe": {"httpGet": {"port": 80, "path": "/x"}}},
    ),
    "HTTPGetAction.scheme": (
        probe(),
        {f"{MAIN}.startupProbe": {"httpGet": {"port": 80, "scheme": "HTTPS"}}},
    ),
    "TCPSocketAction.port": (
        {f"{MAIN}.startupProbe": {"tcpSocket": {"port": 80}}},
        {f"{MAIN}.startupProbe": {"tcpSocket": {"port": 81}}},
    ),
    "Probe.initialDelaySeconds": (probe(), probe(initialDelaySeconds=7)),
    "Probe.periodSeconds": (probe(), probe(periodSeconds=7)),
    "Probe.timeoutSeconds": (probe(), probe(timeoutSeconds=7)),
    "Probe.failureThreshold": (probe(), probe(failureThreshold=7)),
    "Probe.successThreshold": ({}, {}),  # only 1 is accepted
    "ContainerPort.containerPort": ({}, {f"{MAIN}.ports": [{"containerPort": 80}]}),
    "ContainerPort.name": ({f"{MAIN}.ports": [{"containerPort": 80}]}, {f"{MAIN}.ports": PORT}),
    "ResourceRequirements.limits": ({}, LIMITS),
    "ResourceRequirements.requests": ({}, {f"{MAIN}.resources": {"requests": {"cpu": "1"}}}),
    "VolumeMount.name": (
        {f"{POD}.volumes": [VOLUME, {"name": "w"}], **MOUNTED},
        {
            f"{POD}.volumes": [VOLUME, {"name": "w"}],
            f"{MAIN}.volumeMounts": [{"name": "w", "mountPath": "/m"}],
        },
    ),
    "VolumeMount.mountPath": (
        volume(VOLUME),
        {**volume(VOLUME), f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/n"}]},
    ),
    "VolumeMount.readOnly": (
        volume(VOLUME),
        {**volume(VOLUME), f"{MAIN}.volumeMounts": [{**MOUNT[0], "readOnly": True}]},
    ),
    "VolumeMount.subPath": (
        volume(VOLUME),
        {**volume(VOLUME), f"{MAIN}.volumeMounts": [{**MOUNT[0], "subPath": "a"}]},
    ),
    "VolumeMount.subPathExpr": (
        volume(VOLUME),
        {**volume(VOLUME), f"{MAIN}.volumeMounts": [{**MOUNT[0], "subPathExpr": "a"}]},
    ),
    "DownwardFile.path": (fields_of_pod(), fields_of_pod(path="q")),
    "DownwardFile.mode": (fields_of_pod(), fields_of_pod(mode=0o400)),
    "DownwardVolume.defaultMode": (
        fields_of_pod(),
        volume({"name": "v", "downwardAPI": {"items": [FILE], "defaultMode": 0o400}}),
    ),
    "ProjectedVolume.defaultMode": (
        volume({"name": "v", "projected": {"sources": [{"downwardAPI": {"items": [FILE]}}]}}),
        volume(
            {
                "name": "v",
                "projected": {
                    "sources": [{"downwardAPI": {"items": [FILE]}}],
                    "defaultMode": 0o400,
                },
            }
        ),
    ),
    "HostAlias.ip": (ALIAS, {f"{POD}.hostAliases": [{"ip": "10.0.0.2", "hostnames": ["a"]}]}),
    "HostAlias.hostnames": (
        ALIAS,
        {f"{POD}.hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}]},
    ),
    # with objects in other documents: test_config_objects
    **dict.fromkeys(
        (
            *(f"KeyRef.{name}" for name in ("name", "key", "optional")),
            *(f"ObjectRef.{name}" for name in ("name", "optional")),
            *(f"KeyToPath.{name}" for name in ("key", "path", "mode")),
            *(f"ConfigMapVolume.{name}" for name in ("name", "defaultMode", "optional")),
            *(f"SecretVolume.{name}" for name in ("secretName", "defaultMode", "optional")),
            *(f"ProjectedObject.{name}" for name in ("name", "optional")),
            "EnvFromSource.prefix",
        ),
        ({}, {}),
    ),
    **{
        f"SecurityContext.{name}": ({}, {f"{MAIN}.securityContext": {name: value}})
        for name, value in {
            **dict.fromkeys(("runAsUser", "runAsGroup"), 5),
            **dict.fromkeys(("runAsNonRoot", "privileged", "readOnlyRootFilesystem"), True),
            "allowPrivilegeEscalation": False,
        }.items()
    },
    **{
        f"PodSecurityContext.{name}": ({}, {f"{POD}.securityContext": {name: value}})
        for name, value in {
            **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 5),
            "runAsNonRoot": True,
            "supplementalGroups": [5],
        }.items()
    },
    **{
        f"Capabilities.{name}": (
            {},
            {f"{MAIN}.securityContext": {"capabilities": {name: ["IPC_LOCK"]}}},
        )
        for name in ("add", "drop")
    },
    "SeccompProfile.type": (
        {},
        {f"{POD}.securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    ),
    "Container.imagePullPolicy": ({}, {f"{MAIN}.imagePullPolicy": "Never"}),
    "Volume.name": ({}, {f"{POD}.volumes": [{"name": "v"}]}),
    "Volume.emptyDir": ({}, {f"{POD}.volumes": [{"name": "v", "emptyDir": {}}], **MOUNTED}),
    "HostPath.path": (volume(VOLUME), volume(VOLUME, path="/e")),
    "HostPath.type": (volume(VOLUME), volume(VOLUME, type="Directory")),
    "NFSVolume.server": (volume(NFS), volume(NFS, server="t")),
    "NFSVolume.path": (volume(NFS), volume(NFS, path="/y")),
    "NFSVolume.readOnly": (volume(NFS), volume(NFS, readOnly=True)),
    "ClaimVolume.claimName": (volume(CLAIM), volume(CLAIM, claimName="d")),
    "ClaimVolume.readOnly": (volume(CLAIM), volume(CLAIM, readOnly=True)),
}


def _leaves(model: type[Struct], seen: set[type]) -> set[str]:
    """Every field without fields of its own below it."""
    if model in seen:
        return set()
    seen.add(model)
    made: set[str] = set()
    for info in fields(model):
        plain, _, _ = unwrap(info.type)
        inner = getattr(plain, "__args__", (plain,))[0]
        if isinstance(inner, type) and issubclass(inner, Struct):
            made |= _leaves(inner, seen)
        else:
            made.add(f"{model.__name__}.{info.encode_name}")
    made.discard(f"{model.__name__}.{RAW}")
    return made


def test_every_field_is_covered() -> None:
    assert _leaves(JobSet, set()) - set(FIELDS) == set()


@pytest.mark.parametrize("field", [f for f, (one, other) in FIELDS.items() if one != other])
def test_every_field_changes_the_spec_or_the_notes(field: str, make: Make, tmp_path: Path) -> None:
    """The written spec or its notes differ."""
    path = tmp_path / "jobset.yaml"
    made = []
    for changes in FIELDS[field]:
        path.write_text(json.dumps(make(changes)))
        made.append(convert_file(path, None, "muster"))
    assert made[0] != made[1]


@pytest.mark.parametrize("length", [1, 35, 44, 51])
def test_a_valid_name_is_kept(length: int, tmp_path: Path) -> None:
    """A pod's name is longer: by 12 characters with a group of one letter (-w-0-0-xxxxx)."""
    path = tmp_path / "job.yaml"
    groups = [{"name": "w", "nodes": 1, "command": "true"}]
    path.write_text(json.dumps({"name": "n" * length, "node_groups": groups}))
    text, notes, *_ = convert_file(path, None, "jobset")
    assert f"name: {'n' * length}\n" in text
    assert not [note for note in notes if note.startswith("name:")]


def test_a_long_name_is_shortened_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    groups = [{"name": "w", "nodes": 1, "command": "true"}]
    path.write_text(json.dumps({"name": "start-" + "n" * 60, "node_groups": groups}))
    text, notes, *_ = convert_file(path, None, "jobset")
    back = tmp_path / "jobset.yaml"
    back.write_text(text)
    name = f"start-{'n' * 45}"
    assert f"name: {name}\n" in text
    assert f"name: is {name} in the JobSet: pods' names start with it and are labels" in notes
    assert convert_file(back, None, "muster")[0].startswith(f"name: {name}\n")
