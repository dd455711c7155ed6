"""Limits on fields of Jobs and pods that JobSet's published schema lacks.

JobSet accepts a manifest with such a value, but Kubernetes refuses the Jobs or pods made from it
(k8s.io/kubernetes, pkg/apis/batch/validation and pkg/apis/core/validation).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

MAX_INT32 = 2**31 - 1


class Limit(Struct, frozen=True):
    """What a field's value, or each entry of a list, may be."""

    minimum: int | None = None
    maximum: int | None = None
    enum: tuple[str, ...] | None = None
    #: Whether the field has to be given.
    required: bool = False


#: Field -> its limit, or the limits of the fields of the object (or of each object of the list).
Limits = Mapping[str, "Limits | Limit"]

_NOT_NEGATIVE = Limit(minimum=0)
_PROBE: Limits = {
    "initialDelaySeconds": _NOT_NEGATIVE,
    "periodSeconds": _NOT_NEGATIVE,
    "timeoutSeconds": _NOT_NEGATIVE,
    "successThreshold": _NOT_NEGATIVE,
    "failureThreshold": _NOT_NEGATIVE,
    "httpGet": {"scheme": Limit(enum=("HTTP", "HTTPS"))},
}
_CONTAINER: Limits = {
    "imagePullPolicy": Limit(enum=("Always", "IfNotPresent", "Never")),
    "ports": {"containerPort": Limit(1, 65535)},
    "startupProbe": _PROBE,
    "readinessProbe": _PROBE,
}
#: Of Jobs. Kubernetes has "Always" for other pods.
_RESTARTS = ("OnFailure", "Never")
_POD: Limits = {
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
    "restartPolicy": Limit(enum=_RESTARTS),
    "terminationGracePeriodSeconds": Limit(0, MAX_INT32),
    # Muster's: the other types are not folders
    "volumes": {"hostPath": {"type": Limit(enum=("", "Directory", "DirectoryOrCreate"))}},
}
_POD_FAILURE_RULE: Limits = {
    "action": Limit(enum=("FailJob", "FailIndex", "Ignore", "Count")),
    "onExitCodes": {"operator": Limit(enum=("In", "NotIn")), "values": Limit(0, 255)},
}
_JOB: Limits = {
    "parallelism": _NOT_NEGATIVE,
    "completions": _NOT_NEGATIVE,
    "backoffLimit": _NOT_NEGATIVE,
    "backoffLimitPerIndex": _NOT_NEGATIVE,
    "maxFailedIndexes": _NOT_NEGATIVE,
    "successPolicy": {"rules": {"succeededCount": Limit(minimum=1)}},
    "activeDeadlineSeconds": Limit(minimum=1),
    "ttlSecondsAfterFinished": _NOT_NEGATIVE,
    "completionMode": Limit(enum=("Indexed", "NonIndexed")),
    "podReplacementPolicy": Limit(enum=("TerminatingOrFailed", "Failed")),
    "podFailurePolicy": {"rules": _POD_FAILURE_RULE},
    "template": {"spec": _POD},
}
_FAILURE_RULE: Limits = {
    # JobSet's webhook
    "onJobFailureReasons": Limit(
        enum=(
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "FailedIndexes",
            "MaxFailedIndexesExceeded",
            "PodFailurePolicy",
        )
    )
}
#: By field, from a manifest's top.
LIMITS: Limits = {
    "spec": {
        "replicatedJobs": {"template": {"spec": _JOB}},
        "failurePolicy": {"rules": _FAILURE_RULE},
        "coordinator": {"jobIndex": _NOT_NEGATIVE, "podIndex": _NOT_NEGATIVE},
    }
}
#: The same for the manifest of a Job. JobSet has a default where Kubernetes has none.
JOB_LIMITS: Limits = {
    "spec": {
        **_JOB,
        "template": {"spec": {**_POD, "restartPolicy": Limit(enum=_RESTARTS, required=True)}},
    }
}
