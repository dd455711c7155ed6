"""The metrics API, as metrics-server answers for it: pods use what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from support.kube.objects import ApiError, Obj, Resource, key_of, labels_of, not_found, timestamp
from support.kube.storage import Storage

GROUP = "metrics.k8s.io"
RESOURCE = Resource(GROUP, "v1beta1", "pods", "PodMetrics", status=False)
#: What it answers: nothing is created.
VERBS = ("get", "list")


class Point(NamedTuple):
    """What was measured of a pod."""

    #: Container -> CPU and memory, as quantities.
    containers: Mapping[str, tuple[str, str]]
    #: Epoch seconds; None: at the time of the request.
    at: float | None


class MetricsServer:
    """Has the values of `measure`. As in a real one, there is nothing of a pod that is gone, has
    not run yet, or of which not all containers were measured."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._points: dict[tuple[str, str], Point] = {}
        #: Whether it answers; else the API server does for it.
        self.is_up = True

    def measure(
        self,
        pod: str,
        containers: Mapping[str, tuple[str, str]],
        *,
        at: float | None = None,
        namespace: str = "default",
    ) -> None:
        """From now on, its containers use this much. at: see `Point`."""
        with self._lock:
            self._points[namespace, pod] = Point(containers, at)

    # --- for the API server

    def listed(self, namespace: str, matches: Callable[[Obj], bool]) -> Obj:
        """The answer to a list. namespace: "" for all. matches: whether a pod is among those that
        the request names. Raises ApiError."""
        self._check()
        pods = [one for one in self._storage.listed("pods", namespace) if matches(one)]
        items = [made for pod in pods if (made := self._of(pod)) is not None]
        return {
            "kind": f"{RESOURCE.kind}List",
            "apiVersion": RESOURCE.api_version,
            "metadata": {},
            "items": sorted(items, key=key_of),
        }

    def get(self, namespace: str, name: str) -> Obj:
        """The answer to a request for one. Raises ApiError."""
        self._check()
        made = self._of(self._storage.get("pods", namespace, name))
        if made is None:
            named = RESOURCE._replace(plural="podmetrics")
            raise not_found(named, f"{namespace}/{name}")
        return {"kind": RESOURCE.kind, "apiVersion": RESOURCE.api_version, **made}

    def _check(self) -> None:
        if not self.is_up:
            text = "the server is currently unable to handle the request"
            raise ApiError(503, "ServiceUnavailable", text)

    def _of(self, pod: Obj) -> Obj | None:
        with self._lock:
            point = self._points.get(key_of(pod))
        names = [one["name"] for one in pod["spec"]["containers"]]
        if point is None or pod["status"].get("phase") != "Running":
            return None
        if not all(name in point.containers for name in names):
            return None
        namespace, name = key_of(pod)
        about = {"name": name, "namespace": namespace, "creationTimestamp": timestamp()}
        usage = {
            one: {"cpu": cpu, "memory": memory} for one, (cpu, memory) in point.containers.items()
        }
        return {
            "metadata": {**about, "labels": dict(labels_of(pod))},
            "timestamp": timestamp(point.at),
            "window": "15.041s",
            "containers": [{"name": one, "usage": used} for one, used in usage.items()],
        }
