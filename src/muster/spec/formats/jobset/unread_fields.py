"""The fields of a JobSet that Muster knows but does not read: docs/reference/jobset.md."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from muster.spec.formats.fields import FieldTables, Model
from muster.spec.formats.jobset import kubernetes as k8s
from muster.spec.formats.jobset import model as js
from muster.spec.formats.jobset.cluster_read import (
    KEPT_OF_POD_SECURITY,
    KEPT_OF_PODS,
    KEPT_OF_SECURITY,
    KUBERNETES_ONLY,
    TYPED_OF_PODS,
)

_TERMINAL = "is not used: programs have no terminal"
_MESSAGES = "is not used: Muster reports why a program has ended"

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
        **dict.fromkeys(
            ("ownerReferences", "finalizers"), "is not used: a run has objects of its own"
        ),
    },
    js.Claim: {"spec": "of volumeClaimPolicies is not used: a job does not create claims"},
    k8s.Job: {
        "suspend": "of a Job is not used: JobSet overwrites it",
        "ttlSecondsAfterFinished": "of a Job is not used: the JobSet's applies",
    },
    k8s.PodSpec: {
        **dict.fromkeys((*TYPED_OF_PODS, *KEPT_OF_PODS), KUBERNETES_ONLY),
        **dict.fromkeys(
            ("hostname", "subdomain"),
            "of a pod is not used: JobSet overwrites it",
        ),
    },
    k8s.Container: {
        **dict.fromkeys(("stdin", "stdinOnce", "tty"), _TERMINAL),
        **dict.fromkeys(("terminationMessagePath", "terminationMessagePolicy"), _MESSAGES),
        "resizePolicy": KUBERNETES_ONLY,
    },
    k8s.SecurityContext: dict.fromkeys(KEPT_OF_SECURITY, KUBERNETES_ONLY),
    k8s.PodSecurityContext: dict.fromkeys(
        (name for name in KEPT_OF_POD_SECURITY if name != "fsGroup"), KUBERNETES_ONLY
    ),
    k8s.SeccompProfile: {"localhostProfile": KUBERNETES_ONLY},
    k8s.Probe: {"terminationGracePeriodSeconds": "of a probe is not used: the pod's applies"},
    k8s.ContainerPort: dict.fromkeys(("hostPort", "hostIP"), KUBERNETES_ONLY),
    k8s.EmptyDir: dict.fromkeys(("medium", "sizeLimit"), f"of an emptyDir {KUBERNETES_ONLY}"),
    k8s.VolumeMount: dict.fromkeys(("mountPropagation", "recursiveReadOnly"), KUBERNETES_ONLY),
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

#: Refused fields that become a patch for engine kubernetes, if that is to run the job.
_OF_CLUSTERS = frozenset(
    (
        *("readinessGates", "resourceClaims", "claims", "volumeDevices", "fileKeyRef"),
        *("serviceAccountToken", "clusterTrustBundle", "podCertificate"),
        *("csi", "ephemeral", "image", "fc", "iscsi", "flexVolume"),
    )
)


def in_cluster(tables: FieldTables) -> FieldTables:
    """The tables for manifests whose fields may be of use in a cluster only."""
    noted = {
        model: {
            **tables.noted.get(model, {}),
            **{name: KUBERNETES_ONLY for name in names if name in _OF_CLUSTERS},
        }
        for model, names in tables.refused.items()
    }
    refused = {
        model: {name: one for name, one in names.items() if name not in _OF_CLUSTERS}
        for model, names in tables.refused.items()
    }
    return structs.replace(tables, noted={**tables.noted, **noted}, refused=refused)


TABLES = FieldTables(IGNORED, NOTED, REFUSED, NEIGHBOURS, LABELS, group=js.ReplicatedJob)
