"""What the pods of an observed JobSet use. No node program measures it there: the cluster does, if
it has the metrics API."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from muster.engines.kubernetes.cluster import RETRY_BRIEFLY, CannotCall, Cluster
from muster.engines.kubernetes.names import JOBSET_NAME
from muster.engines.kubernetes.observed_nodes import pods_of, why_unentered
from muster.engines.kubernetes.observed_pods import NodePod
from muster.engines.kubernetes.observed_record import ObservedRecord, profile_of
from muster.engines.kubernetes.pod_facts import seconds
from muster.engines.kubernetes.pod_usage import PodUsage, pod_usage
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.errors import EngineError
from muster.node.counters import Counters
from muster.storage.home import RunDir

#: Of a node that was not measured.
_UNKNOWN = Counters(None, None, None, None, None, None, None)
#: The clusters that were called, the last one last: `muster top` calls one every few seconds, and
#: each time there would be another connection, and another token of a credential plug-in.
_clusters: dict[Hashable, Cluster] = {}
_lock = threading.Lock()
#: How many are kept: a server runs for long, and others are created and deleted meanwhile.
_MOST_CLUSTERS = 32


def read_counters(
    folder: RunDir, found: ObservedRecord, profile: KubernetesProfile
) -> dict[int, Counters]:
    """See `Engine.counters`. A node whose pod was not measured yet has no values: that takes a
    minute or so. Raises EngineError if the cluster shows none."""
    pods, measured = pods_of(folder, found), _measured(found, profile)
    return {rank: _counters(pod, measured.get(pod.name)) for rank, pod in pods.items()}


def _counters(pod: NodePod, usage: PodUsage | None) -> Counters:
    if usage is None:
        return _UNKNOWN
    began = seconds(pod.accepted_at)
    if usage.at is not None and began is not None and usage.at < began:
        return _UNKNOWN  # of a pod before it that had the same name
    return _UNKNOWN._replace(cpus=usage.cpus, memory=usage.memory)


def _measured(found: ObservedRecord, profile: KubernetesProfile) -> dict[str, PodUsage]:
    """By the names of pods. Raises EngineError."""
    made = Cluster(profile_of(profile, found), ref=found.cluster, retry_for=RETRY_BRIEFLY)
    selector = f"{JOBSET_NAME}={found.name}"
    try:
        items = _kept(made).list("PodMetrics", selector).items
    except CannotCall as error:
        kubectl = f"`kubectl top pods -n {found.namespace} -l {selector}`"
        raise EngineError(
            f"what the nodes of JobSet {found.name} use cannot be read: {why_unentered(found)}, "
            f"and {_why(error, kubectl)}"
        ) from None
    return {one.pod: one for one in map(pod_usage, items) if one is not None}


def _kept(made: Cluster) -> Cluster:
    """The one that was called before, if there is one."""
    key = made.connection.key
    with _lock:
        found = _clusters[key] = _clusters.pop(key, made)
        oldest = next(iter(_clusters)) if len(_clusters) > _MOST_CLUSTERS else None
        old = None if oldest is None else _clusters.pop(oldest)
    if old is not None:
        old.close()
    return found


def _why(error: CannotCall, kubectl: str) -> str:
    """Why the metrics API shows nothing, and what to do. kubectl: the command that reads it."""
    if error.is_unknown:
        return (
            "the cluster has no metrics API (metrics.k8s.io/v1beta1): install metrics-server; "
            f"then this command works, as does {kubectl}"
        )
    if error.status == 403:
        return f"you may not read its metrics API: {error}; who may can run {kubectl}"
    return f"its metrics API shows nothing: {error}; {kubectl} makes the same request"
