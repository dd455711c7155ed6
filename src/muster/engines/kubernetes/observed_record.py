"""The JobSet of a run that is observed: its name, what is created of the user's manifest, and what
a later supervisor has to know of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace as with_fields

from muster.engines.kubernetes.access import namespace_of
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.names import MANAGER, PART_OF, RUN
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import CannotCall
from muster.plan.model import RunPlan, WorkloadPlan
from muster.storage.home import RunDir

#: In the run's folder: the record, and a folder with what is known of the pod of each rank.
RECORD, PODS = "observed.json", "observed"


class ObservedRecord(Struct, frozen=True):
    """The JobSet of a run."""

    name: str
    namespace: str
    #: "": it was not applied, or that is not known.
    uid: str = ""
    #: Whether it is the run's, which deletes it; else it was adopted.
    is_own: bool = True
    #: Whether it stays in the cluster when it has ended, as long as it says itself.
    is_kept: bool = False
    #: Where it is; None: that was not recorded, as by earlier versions of Muster.
    cluster: ClusterRef | None = None


def workload_of(plan: RunPlan) -> WorkloadPlan:
    """What is observed. The plan has one."""
    assert plan.workload is not None
    return plan.workload


def jobset_name(plan: RunPlan) -> str:
    """The name of the JobSet: one that the manifest lets be generated is unique for the run."""
    metadata = workload_of(plan).manifest["metadata"]
    return str(metadata.get("name") or f"{metadata['generateName']}{plan.run_id[-5:]}").lower()


def first_record(plan: RunPlan, namespace: str) -> ObservedRecord:
    """Of a run that has not begun. namespace: that of the engine."""
    workload = workload_of(plan)
    spec, metadata = workload.manifest["spec"], workload.manifest["metadata"]
    return ObservedRecord(
        jobset_name(plan),
        str(metadata.get("namespace") or namespace),
        workload.uid or "",
        is_own=workload.uid is None,
        is_kept=spec.get("ttlSecondsAfterFinished") is not None,
    )


def to_apply(plan: RunPlan, record: ObservedRecord) -> dict[str, Any]:
    """The manifest as it is created: the user's, with labels that say whose the JobSet is. Those of
    the user stay as they are."""
    manifest = workload_of(plan).manifest
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "generateName"}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    return {
        **manifest,
        "metadata": {
            **metadata,
            "name": record.name,
            "namespace": record.namespace,
            "labels": {PART_OF: MANAGER, **labels, RUN: plan.run_id},
        },
    }


def profile_of(profile: KubernetesProfile, record: ObservedRecord) -> KubernetesProfile:
    """The engine's profile, in the namespace of the JobSet."""
    return with_fields(profile, namespace=record.namespace)


def pod_record(folder: RunDir, rank: int) -> Path:
    """The file of the `observed_logs.PodRecord` of a rank."""
    return folder.path / PODS / f"{rank}.json"


def preview(plan: RunPlan, profile: KubernetesProfile) -> dict[str, str]:
    """What is applied, as title -> YAML; of a JobSet that is adopted nothing."""
    from muster.spec.formats.yaml_write import dump

    if workload_of(plan).uid is not None:
        return {}
    try:
        namespace = namespace_of(profile, os.environ)
    except CannotCall:  # there is no configuration from which it could be applied
        namespace = "default"
    record = first_record(plan, namespace)
    applied = to_apply(plan, record)
    return {f"JobSet {record.name}": dump(applied)}
