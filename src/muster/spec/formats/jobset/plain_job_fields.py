"""The fields of a Job's manifest that Muster knows but does not read: docs/reference/jobset.md."""

from __future__ import annotations

from collections.abc import Mapping

from muster.spec.formats.fields import FieldTables, Model
from muster.spec.formats.jobset import kubernetes as k8s
from muster.spec.formats.jobset import model as js
from muster.spec.formats.jobset import plain_job as plain
from muster.spec.formats.jobset.unread_fields import IGNORED, NOTED, REFUSED

_NAMED = "of a pod is not used: pods are named JOB-INDEX"

_NOTED: Mapping[Model, Mapping[str, str]] = {
    **NOTED,
    plain.PlainJob: dict.fromkeys(
        ("selector", "manualSelector"), "is not used: a run has no pods but its own"
    ),
    plain.PlainPodSpec: {
        **{name: why for name, why in NOTED[k8s.PodSpec].items() if name != "subdomain"},
        **dict.fromkeys(("hostname", "setHostnameAsFQDN"), _NAMED),
    },
}
_REFUSED: Mapping[Model, Mapping[str, tuple[str, str]]] = {
    **REFUSED,
    plain.PlainPodSpec: {
        **REFUSED[k8s.PodSpec],
        "activeDeadlineSeconds": (
            "Muster has no deadline for a single pod",
            "set it for the Job (spec.activeDeadlineSeconds)",
        ),
    },
}
_NEIGHBOURS: Mapping[Model, tuple[Model, ...]] = {
    plain.JobManifest: (plain.PlainJob,),
    plain.PlainJob: (plain.PlainPodSpec,),
    plain.PlainPodTemplate: (plain.PlainPodSpec, plain.PlainJob),
    plain.PlainPodSpec: (k8s.Container, plain.PlainJob),
    k8s.Container: (plain.PlainPodSpec, plain.PlainJob),
}
_LABELS: Mapping[Model, str] = {
    plain.PlainJob: "the Job's spec",
    plain.PlainPodSpec: "the pod's spec (template.spec)",
    k8s.Container: "a container",
}

TABLES = FieldTables(
    {**IGNORED, plain.JobManifest: IGNORED[js.JobSet]}, _NOTED, _REFUSED, _NEIGHBOURS, _LABELS
)
