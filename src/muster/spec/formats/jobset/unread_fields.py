"""The fields of a JobSet that Muster knows but does not read: docs/reference/jobset.md."""

from __future__ import annotations

from collections.abc import Mapping

from muster.spec.formats.fields import FieldTables, Model
from muster.spec.formats.jobset import kubernetes as k8s
from muster.spec.formats.jobset import model as js

_PLACE = "is not used: Muster chooses where nodes run"
_CLUSTER = "is not used: there is no cluster here"
_IMAGE = "is not used: programs are those of this machine"
_ENGINE = "is not used: the engine decides how nodes are isolated"

#: Written by a cluster, or without effect anywhere.
IGNORED: Mapping[Model, tuple[str, ...]] = {
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
        "suspend": "of a Job is not used: JobSet overwrites it",
        "ttlSecondsAfterFinished": "of a Job is not used: the JobSet's applies",
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
            ),
            _ENGINE,
        ),
        **dict.fromkeys(("dnsPolicy", "dnsConfig"), "is not used: nodes know each other's names"),
        **dict.fromkeys(
            ("hostname", "subdomain", "setHostnameAsFQDN"),
            "of a pod is not used: JobSet overwrites it",
        ),
    },
    k8s.Container: {
        **dict.fromkeys(("stdin", "stdinOnce", "tty"), "is not used: programs have no terminal"),
        **dict.fromkeys(
            ("terminationMessagePath", "terminationMessagePolicy", "resizePolicy"), _CLUSTER
        ),
    },
    k8s.SecurityContext: dict.fromkeys(
        ("seLinuxOptions", "windowsOptions", "appArmorProfile", "procMount"), _ENGINE
    ),
    k8s.PodSecurityContext: dict.fromkeys(
        (
            "seLinuxOptions",
            "seLinuxChangePolicy",
            "windowsOptions",
            "appArmorProfile",
            "sysctls",
            "fsGroupChangePolicy",
            "supplementalGroupsPolicy",
        ),
        _ENGINE,
    ),
    k8s.SeccompProfile: {"localhostProfile": _ENGINE},
    k8s.Probe: {"terminationGracePeriodSeconds": "of a probe is not used: the pod's applies"},
    k8s.ContainerPort: dict.fromkeys(
        ("hostPort", "hostIP"), "is not used: each node has its own address"
    ),
    k8s.EmptyDir: {
        "medium": "of an emptyDir is not used: it is a folder on disk",
        "sizeLimit": "of an emptyDir is not enforced",
    },
    k8s.VolumeMount: {"mountPropagation": _ENGINE, "recursiveReadOnly": _ENGINE},
}

_OWN_ENV = "write the value here, or set it with --env"

#: Field -> (what is wrong, what to do instead).
REFUSED: Mapping[Model, Mapping[str, tuple[str, str]]] = {
    k8s.Job: {
        **dict.fromkeys(
            ("selector", "manualSelector"),
            ("Muster does not select pods by label", "remove it"),
        ),
        "managedBy": ("Muster runs Jobs itself", "remove it"),
    },
    k8s.PodSpec: {
        "ephemeralContainers": ("Muster has no ephemeral containers", "remove it"),
        "activeDeadlineSeconds": (
            "Muster has no deadline for a single pod",
            "set it for the Job, one level up (template.spec.activeDeadlineSeconds)",
        ),
        "readinessGates": (
            "nothing sets these conditions",
            "remove it, or use a readinessProbe",
        ),
        "resourceClaims": (
            "Muster has no devices to claim",
            "use nvidia.com/gpu in resources.limits",
        ),
    },
    k8s.Container: {
        "volumeDevices": ("Muster mounts folders, not devices", "use a hostPath volume"),
    },
    k8s.Lifecycle: {
        "stopSignal": ("Muster stops programs with SIGTERM", "handle SIGTERM in the program"),
    },
    k8s.LifecycleHandler: {"tcpSocket": ("Kubernetes does not run it", "remove it")},
    k8s.Probe: {"grpc": ("Muster has no gRPC probes", "use tcpSocket, or exec with a gRPC client")},
    k8s.HTTPGetAction: {
        "host": ("Muster probes the node itself", "remove it"),
        "httpHeaders": ("Muster sends no custom headers", "use exec, with curl"),
    },
    k8s.TCPSocketAction: {"host": ("Muster probes the node itself", "remove it")},
    k8s.EnvVarSource: {
        "fileKeyRef": ("Muster does not read variables from files of volumes", _OWN_ENV),
    },
    k8s.ProjectedSource: {
        **dict.fromkeys(
            ("serviceAccountToken", "clusterTrustBundle", "podCertificate"),
            ("there is no cluster here that would issue it", "remove it, or use a Secret"),
        ),
    },
    k8s.Volume: {
        **dict.fromkeys(
            ("csi", "ephemeral", "image", "fc", "iscsi", "flexVolume"),
            ("Muster has no such volumes", "use hostPath, nfs, emptyDir or a claim"),
        ),
    },
    k8s.ResourceRequirements: {
        "claims": (
            "Muster has no devices to claim",
            "use nvidia.com/gpu in resources.limits",
        ),
    },
}

#: Where a misplaced field may belong.
NEIGHBOURS: Mapping[Model, tuple[Model, ...]] = {
    js.JobSetSpec: (js.ReplicatedJob, k8s.Job),
    js.ReplicatedJob: (k8s.Job, js.JobSetSpec),
    k8s.JobTemplate: (k8s.Job,),
    k8s.Job: (k8s.PodSpec, js.ReplicatedJob, js.JobSetSpec),
    k8s.PodTemplate: (k8s.PodSpec, k8s.Job),
    k8s.PodSpec: (k8s.Container, k8s.Job),
    k8s.Container: (k8s.PodSpec, k8s.Job),
}
#: What messages call those objects.
LABELS: Mapping[Model, str] = {
    js.JobSetSpec: "the JobSet's spec",
    js.ReplicatedJob: "the replicated Job",
    k8s.Job: "the Job's spec (template.spec)",
    k8s.PodSpec: "the pod's spec (template.spec.template.spec)",
    k8s.Container: "a container",
}

TABLES = FieldTables(IGNORED, NOTED, REFUSED, NEIGHBOURS, LABELS, group=js.ReplicatedJob)
