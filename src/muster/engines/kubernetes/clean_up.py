"""Deletes what a run that nobody drives any more has in the cluster."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.jobsets import delete_owner, owner_kind
from muster.engines.kubernetes.names import JOBSET_NAME, RUN
from muster.engines.kubernetes.observed_record import RECORD as OBSERVED
from muster.engines.kubernetes.observed_record import ObservedRecord, profile_of
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.record import RECORD, Record
from muster.engines.remote.record import read_record, write_record
from muster.errors import EngineError
from muster.storage.home import RunDir


def delete_all(folder: RunDir, run_id: str, profile: KubernetesProfile) -> None:
    """Delete all that has the labels of a run, and return when its pods are gone. Raises
    EngineError if that cannot be confirmed."""
    try:
        record = read_record(folder.path / RECORD, Record)
    except OSError as error:
        raise EngineError(f"the JobSets of its nodes are not known: {error}") from None
    if record is None or not record.allocations:
        return
    cluster = Cluster(profile, ref=record.cluster)
    try:
        kinds = {one.owner or owner_kind(cluster) for one in record.allocations}
        for kind in sorted(kinds):
            for one in cluster.list(kind, f"{RUN}={run_id}").items:
                delete_owner(cluster, one["metadata"]["name"], kind)
        cluster.wait_until_gone("Pod", f"{RUN}={run_id}")
    except CannotCall as error:
        raise EngineError(f"its JobSets could not be deleted: {error}") from None
    write_record(folder.path / RECORD, replace(record, allocations=()))


def delete_observed(folder: RunDir, run_id: str, profile: KubernetesProfile) -> None:
    """Delete the JobSet that a run has applied as it is, as `delete_all` does; one that was adopted
    stays."""
    try:
        record = read_record(folder.path / OBSERVED, ObservedRecord)
    except OSError as error:
        raise EngineError(f"its JobSet is not known: {error}") from None
    if record is None or not record.is_own:
        return
    cluster = Cluster(profile_of(profile, record), ref=record.cluster)
    try:
        for one in cluster.list("JobSet", f"{RUN}={run_id}").items:
            cluster.delete("JobSet", one["metadata"]["name"], one["metadata"]["uid"])
            cluster.wait_until_gone("Pod", f"{JOBSET_NAME}={one['metadata']['name']}")
    except CannotCall as error:
        raise EngineError(f"its JobSet could not be deleted: {error}") from None
    write_record(folder.path / OBSERVED, replace(record, is_own=False))


def has_jobsets(folder: RunDir) -> bool:
    """Whether JobSets of a run may be left in the cluster."""
    try:
        observed = read_record(folder.path / OBSERVED, ObservedRecord)
        if observed is not None and observed.is_own:
            return True
        record = read_record(folder.path / RECORD, Record)
    except OSError:
        return True  # nobody knows
    return record is not None and bool(record.allocations)
