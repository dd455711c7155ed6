"""The kinds of objects that Muster has to do with, and where the API server has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from msgspec import Struct

from muster.engines.kubernetes.versions import JOBSET_API_GROUP, KUEUE_API_GROUP

#: Of what a metrics server brings.
METRICS_API_GROUP = "metrics.k8s.io"


class Kind(Struct, frozen=True):
    """A kind of objects."""

    name: str
    #: "" for the core group.
    group: str
    version: str
    #: Its name in paths and in Roles.
    resource: str

    def path(self, namespace: str, name: str = "", below: str = "") -> str:
        """Of its objects in a namespace, or of one of them, or what is below that."""
        start = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [start, "namespaces", quote(namespace, safe=""), self.resource]
        parts += [quote(one, safe="") for one in (name, below) if one]
        return "/".join(parts)


_EVERY = (
    Kind("ConfigMap", "", "v1", "configmaps"),
    Kind("Event", "", "v1", "events"),
    Kind("Job", "batch", "v1", "jobs"),
    Kind("JobSet", JOBSET_API_GROUP, "v1alpha2", "jobsets"),
    Kind("LocalQueue", KUEUE_API_GROUP, "v1beta2", "localqueues"),
    Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    Kind("Pod", "", "v1", "pods"),
    Kind("PodMetrics", METRICS_API_GROUP, "v1beta1", "pods"),
    Kind("Secret", "", "v1", "secrets"),
    Kind("Service", "", "v1", "services"),
    Kind("Workload", KUEUE_API_GROUP, "v1beta2", "workloads"),
)
KINDS: Mapping[str, Kind] = {one.name: one for one in _EVERY}
