"""Has a cluster validate what would be applied for a run, for `muster run --dry-run`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muster.engines.findings import Finding
from muster.engines.kubernetes.applied import validated
from muster.engines.kubernetes.cluster import RETRY_BRIEFLY, CannotCall, Cluster
from muster.engines.kubernetes.found_versions import record_versions
from muster.engines.kubernetes.manifest import QUEUE, queue_labels
from muster.engines.kubernetes.observed_record import first_record, profile_of, to_apply
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.queues import why_no_queue
from muster.engines.kubernetes.versions import Versions
from muster.plan.model import RunPlan
from muster.storage.home import Home


def dry_run(plan: RunPlan, profile: KubernetesProfile, home: Home) -> list[Finding]:
    """A finding about each object; one about the cluster if it does not answer. home: where its
    versions are recorded."""
    if plan.workload is not None and plan.workload.uid is not None:
        return []  # nothing is applied for a JobSet that is there
    cluster = Cluster(profile, retry_for=RETRY_BRIEFLY)
    try:
        if plan.workload is not None:
            record = first_record(plan, cluster.connection.namespace)
            cluster = Cluster(profile_of(profile, record), retry_for=RETRY_BRIEFLY)
            applied = to_apply(plan, record)
            queue = (applied["metadata"].get("labels") or {}).get(QUEUE)
            return [_finding(cluster, applied), *_of_queue(cluster, queue)]
        versions = cluster.versions()
        record_versions(home, cluster.connection.server, versions)
        return [*_findings(cluster, plan, profile, versions)]
    except CannotCall as error:
        return [Finding("cluster", False, str(error))]
    finally:
        cluster.close()


def _findings(
    cluster: Cluster, plan: RunPlan, profile: KubernetesProfile, versions: Versions
) -> Iterator[Finding]:
    for one in validated(plan, profile, versions):
        yield _finding(cluster, one)
    yield from _of_queue(cluster, queue_labels(plan, profile).get(QUEUE))


def _of_queue(cluster: Cluster, queue: str | None) -> Iterator[Finding]:
    if queue is not None and cluster.versions().kueue is not None:
        why = why_no_queue(cluster, queue)
        yield Finding(f"queue {queue}", not why, why or "the run would wait here")


def _finding(cluster: Cluster, one: dict[str, Any]) -> Finding:
    title = f"{one['kind']} {one['metadata']['name']}"
    try:
        cluster.apply(one, dry_run=True)
    except CannotCall as error:
        if not error.lasts:
            raise  # of the cluster, not of the object
        return Finding(title, False, f"the cluster refuses it: {error}")
    return Finding(title, True, "the cluster accepts it")
