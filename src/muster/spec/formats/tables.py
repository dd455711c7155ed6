"""Fields that are known and not read, by object. docs/jobset.md shows them as a table."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster.spec.formats import jobset_model as js
from muster.spec.formats import kubernetes as k8s

Model = type[msgspec.Struct]


class Tables(msgspec.Struct, frozen=True):
    """Known fields that are not read. silent: not worth a word; noted: field -> why it is not used;
    refused: field -> (what is wrong, what to do)."""

    silent: Mapping[Model, tuple[str, ...]]
    noted: Mapping[Model, Mapping[str, str]]
    refused: Mapping[Model, Mapping[str, tuple[str, str]]]


_PLACE = "is not used: Muster chooses where nodes run"
_CLUSTER = "is not used: there is no cluster to ask"
_IMAGE = "is not used: programs are those of this machine"
_ENGINE = "is not used: the engine decides how nodes are kept apart"

#: Written by a cluster, or by hand where it says nothing new. Not worth a word.
SILENT: Mapping[Model, tuple[str, ...]] = {
    js.JobSet: ("apiVersion", "kind", "status"),
    js.Claim: ("apiVersion", "kind", "status"),
    k8s.ObjectMeta: (
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
    ),
    k8s.ContainerPort: ("protocol",),
    k8s.FieldRef: ("apiVersion",),
}

#: Field -> why it is not used.
NOTED: Mapping[Model, Mapping[str, str]] = {
    k8s.ObjectMeta: {
        "ownerReferences": _CLUSTER,
        "finalizers": _CLUSTER,
    },
    js.Claim: {"spec": "of volumeClaimPolicies is not used: each claim is a folder without limits"},
    k8s.Job: {
        "suspend": "of a Job is not used: JobSet overwrites it, too",
        "ttlSecondsAfterFinished": "of a Job is not used: the JobSet's counts",
    },
    k8s.PodSpec: {
        **dict.fromkeys(
            (
                "nodeSelector",
                "nodeName",
                "affinity",
                "tolerations",
                "topologySpreadConstraints",
                "schedulerName",
                "schedulingGates",
            ),
            _PLACE,
        ),
        **dict.fromkeys(
            (
                "priority",
                "priorityClassName",
                "preemptionPolicy",
                "runtimeClassName",
                "serviceAccount",
                "automountServiceAccountToken",
                "enableServiceLinks",
                "overhead",
                "os",
            ),
            _CLUSTER,
        ),
        "imagePullSecrets": _IMAGE,
        "schedulingGroup": "is not used: all nodes of a run start together",
        **dict.fromkeys(
            (
                "hostNetwork",
                "hostIPC",
                "hostPID",
                "hostUsers",
                "shareProcessNamespace",
                "securityContext",
            ),
            _ENGINE,
        ),
        **dict.fromkeys(("dnsPolicy", "dnsConfig"), "is not used: nodes know each other's names"),
        **dict.fromkeys(
            ("hostname", "subdomain", "setHostnameAsFQDN"),
            "of a pod is not used: JobSet overwrites it, too",
        ),
    },
    k8s.Container: {
        "imagePullPolicy": _IMAGE,
        "securityContext": _ENGINE,
        **dict.fromkeys(("stdin", "stdinOnce", "tty"), "is not used: nobody types"),
        **dict.fromkeys(
            ("terminationMessagePath", "terminationMessagePolicy", "resizePolicy"), _CLUSTER
        ),
    },
    k8s.Probe: {"terminationGracePeriodSeconds": "of a probe is not used: the pod's counts"},
    k8s.ContainerPort: dict.fromkeys(
        ("hostPort", "hostIP"), "is not used: nodes have addresses of their own"
    ),
    k8s.EmptyDir: {
        "medium": "of an emptyDir is not used: it is a folder on disk",
        "sizeLimit": "of an emptyDir is not enforced",
    },
    k8s.VolumeMount: {"mountPropagation": _ENGINE, "recursiveReadOnly": _ENGINE},
}

_OWN_FILES = "put what is in it into a file, and its folder into a hostPath volume"
_OWN_ENV = "write the value here, or give it to the run with --env"

#: Field -> (what is wrong with it, the way out).
REFUSED: Mapping[Model, Mapping[str, tuple[str, str]]] = {
    k8s.Job: {
        **dict.fromkeys(
            ("selector", "manualSelector"),
            ("Muster does not look for pods by label", "remove it; Jobs find their own"),
        ),
        "successPolicy": (
            "Muster cannot end a Job at the success of some of its pods",
            "make those pods a replicated Job of their own, and name it in spec.successPolicy",
        ),
        **dict.fromkeys(
            ("backoffLimitPerIndex", "maxFailedIndexes"),
            (
                "Muster counts retries for a Job, not for each index",
                "use replicas of one pod each, and backoffLimit",
            ),
        ),
        "managedBy": ("Muster runs Jobs itself", "remove it"),
    },
    k8s.PodSpec: {
        "ephemeralContainers": ("a pod of a manifest has none", "remove it"),
        "activeDeadlineSeconds": (
            "Muster has no deadline for a single pod",
            "say it for the Job, one level up (template.spec.activeDeadlineSeconds)",
        ),
        "hostAliases": ("nodes have names of their own only", "use addresses"),
        "readinessGates": (
            "nobody would open these gates",
            "remove it, or use a readinessProbe",
        ),
        "resourceClaims": (
            "Muster has no devices to claim",
            "ask for nvidia.com/gpu in resources.limits",
        ),
    },
    k8s.Container: {
        "envFrom": ("Muster has no ConfigMaps and Secrets", _OWN_ENV),
        "livenessProbe": (
            "Muster does not end nodes that run and do not answer",
            "remove it; a spec of Muster's own can say hang_timeout",
        ),
        "lifecycle": ("Muster has no hooks", "do it in the command, with a trap for the end"),
        "volumeDevices": ("Muster shows nodes folders, not devices", "use a hostPath volume"),
    },
    k8s.Probe: {
        "grpc": ("Muster cannot ask a gRPC service", "use tcpSocket, or exec with a client of it")
    },
    k8s.HTTPGetAction: {
        "host": ("Muster asks the node itself", "remove it"),
        "httpHeaders": ("Muster asks without headers of its own", "use exec, with curl"),
    },
    k8s.TCPSocketAction: {"host": ("Muster asks the node itself", "remove it")},
    k8s.EnvVarSource: dict.fromkeys(
        ("configMapKeyRef", "secretKeyRef", "fileKeyRef"),
        ("Muster has no ConfigMaps and Secrets", _OWN_ENV),
    ),
    k8s.VolumeMount: dict.fromkeys(
        ("subPath", "subPathExpr"),
        ("Muster shows volumes as a whole", "mount the volume, and use the path below it"),
    ),
    k8s.Volume: {
        **dict.fromkeys(
            ("configMap", "secret", "projected", "downwardAPI"),
            ("Muster has no ConfigMaps and Secrets", _OWN_FILES),
        ),
        **dict.fromkeys(
            ("csi", "ephemeral", "image", "fc", "iscsi", "flexVolume"),
            ("Muster has no such volumes", "use hostPath, nfs, emptyDir or a claim"),
        ),
    },
    k8s.ResourceRequirements: {
        "claims": (
            "Muster has no devices to claim",
            "ask for nvidia.com/gpu in resources.limits",
        ),
    },
}

#: Of JobSet manifests.
JOBSET = Tables(SILENT, NOTED, REFUSED)
