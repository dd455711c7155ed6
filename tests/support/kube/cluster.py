"""The cluster as a whole."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.certificates import write_certificate
from support.faults import until
from support.kube import discovery
from support.kube.access import Rule, User
from support.kube.api_server import ApiServer
from support.kube.garbage import GarbageCollector
from support.kube.job_controller import JobController
from support.kube.jobset_controller import JobSetController
from support.kube.kubelet import Kubelet
from support.kube.kueue import Kueue
from support.kube.manager import Clock, Manager, ManualClock
from support.kube.metrics import RESOURCE, MetricsServer
from support.kube.objects import BY_PLURAL, Obj, set_condition
from support.kube.pod_security import PodSecurity
from support.kube.scheduler import NodeLife, Scheduler
from support.kube.storage import Storage
from support.kube.webhooks import Webhooks

ADMIN = "token-of-admin"
#: What a node has, unless a test says otherwise.
NODE = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "0", "pods": "110"}


class Cluster:
    """Runs in the block of `with`; nothing of it is left then.

    folder: for the files of pods, and the kubeconfig. nodes: how many there are, called node-0 and
    so on, each with `node`. scale: real seconds that a second takes for controllers. processes:
    whether pods are processes. manual: no threads, time passes by `manager.advance`, and the API
    server does not answer. kubernetes, jobset: versions; JobSet and Kueue are installed or not.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 2,
        node: Mapping[str, str] = NODE,
        scale: float = 0.05,
        processes: bool = True,
        manual: bool = False,
        kubernetes: discovery.Version = (1, 36),
        jobset: discovery.Version | None = (0, 12),
        kueue: bool = False,
        restart_job: bool = False,
    ) -> None:
        self.folder, self._manual = folder, manual
        self.storage = Storage()
        clock = ManualClock() if manual else Clock(scale)
        self.manager = Manager(self.storage, clock)
        self.webhooks = Webhooks(self.storage, kueue=kueue)
        self.storage.admissions += [self.webhooks.admit, PodSecurity(self.storage).admit]
        self.jobs = JobController(self.storage, clock)
        self.jobsets = JobSetController(self.storage, clock, restart_job=restart_job)
        self.kueue = Kueue(self.storage, clock)
        self.scheduler = Scheduler(self.storage)
        self.node_life = NodeLife(self.storage, clock)
        self.kubelet = Kubelet(
            self.storage, self.manager, folder / "n", processes=processes and not manual
        )
        self.manager.controllers += [GarbageCollector(self.storage), self.jobs, self.scheduler]
        self.manager.controllers += [self.node_life, self.kubelet]
        self.manager.controllers += [self.jobsets] if jobset is not None else []
        self.manager.controllers += [self.kueue] if kueue else []
        self._files = write_certificate(folder, "cluster.test")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._files.cert, self._files.key)
        resources = discovery.served(jobset=jobset is not None, kueue=kueue)
        self.server = ApiServer(self.storage, resources, tls, kubernetes=kubernetes, jobset=jobset)
        self.server.kubelet = self.kubelet
        self._has_kueue = kueue
        self.faults, self.calls = self.server.faults, self.server.calls
        self.kubeconfig = folder / "kubeconfig"
        self.add_namespace("kube-system")
        self.add_namespace("default")
        for number in range(nodes):
            self.add_node(f"node-{number}", node)

    def __enter__(self) -> Cluster:
        self.grant(ADMIN, "admin")
        if not self._manual:
            self.server.start()
            self.manager.start()
            self.write_kubeconfig()
        return self

    def __exit__(self, *_error: object) -> None:
        self.server.stop()
        self.manager.stop()
        self.kubelet.close()
        assert not self.manager.defects, self.manager.defects[0]

    # --- what is in it

    def install_jobset(self, version: discovery.Version = (0, 12)) -> None:
        """Install JobSet in a cluster that was made without it."""
        self.manager.controllers.append(self.jobsets)
        self.server.jobset = version
        self._serve()

    def install_metrics(self) -> MetricsServer:
        """Install the metrics API, which has measured no pod yet."""
        made = self.server.metrics = MetricsServer(self.storage)
        self._serve()
        return made

    def _serve(self) -> None:
        """Serve the kinds of what is installed."""
        server = self.server
        found = discovery.served(jobset=server.jobset is not None, kueue=self._has_kueue)
        server.resources = found if server.metrics is None else [*found, RESOURCE]

    def add_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        self.storage.create(
            "namespaces", {"metadata": {"name": name, "labels": {**(labels or {})}}}
        )

    def add_node(
        self,
        name: str,
        amounts: Mapping[str, str] = NODE,
        *,
        labels: Mapping[str, str] | None = None,
        taints: list[Obj] | None = None,
    ) -> None:
        found = {**NODE, **amounts}
        obj: Obj = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
            "spec": {"taints": taints or []},
            "status": {"capacity": found, "allocatable": found},
        }
        set_condition(obj, "Ready", True, "KubeletReady", "kubelet is posting ready status")
        self.storage.create("nodes", obj)

    def add_queue(
        self, name: str, quota: Mapping[str, str], *, namespace: str = "default", **spec: Any
    ) -> None:
        """A LocalQueue with a ClusterQueue of the same name. spec: further fields of that."""
        content = {"nominalQuota": dict(quota), **spec}
        self.storage.create("clusterqueues", {"metadata": {"name": name}, "spec": content})
        local = {"name": name, "namespace": namespace}
        self.storage.create("localqueues", {"metadata": local, "spec": {"clusterQueue": name}})

    # --- who uses it

    def grant(
        self,
        token: str,
        user: str,
        rules: tuple[Rule, ...] | None = None,
        seconds: float = float("inf"),
    ) -> None:
        """Accept a token of a user. rules: what it may do; None: anything."""
        self.server.access.grant(token, User(user, rules), seconds)

    def write_kubeconfig(
        self, token: str = ADMIN, namespace: str = "default", path: Path | None = None
    ) -> Path:
        """Write a file as kubectl reads it."""
        place = path or self.kubeconfig
        authority = str(self._files.authority)
        cluster = {"server": self.server.url, "certificate-authority": authority}
        context = {"cluster": "test", "user": "test", "namespace": namespace}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": context}],
        }
        place.write_text(json.dumps(made))
        return place

    # --- what a test sees and does

    def find(self, plural: str, name: str, namespace: str = "default") -> Obj | None:
        return self.storage.find(plural, namespace if BY_PLURAL[plural].namespaced else "", name)

    def get(self, plural: str, name: str, namespace: str = "default") -> Obj:
        found = self.find(plural, name, namespace)
        assert found is not None, f"there is no {name} among the {plural}"
        return found

    def create(self, obj: Obj, namespace: str = "default") -> Obj:
        """Create an object as a user does who may do anything."""
        plural = next(one.plural for one in BY_PLURAL.values() if one.kind == obj["kind"])
        meta = {"namespace": namespace, **obj["metadata"]}
        return self.storage.create(plural, {**obj, "metadata": meta})

    def pods(self, namespace: str = "default", **labels: str) -> list[Obj]:
        return self.storage.listed("pods", namespace, labels)

    def pod(self, prefix: str, namespace: str = "default") -> Obj:
        """The only pod whose name begins so that is not being deleted."""
        (found,) = [
            one
            for one in self.pods(namespace)
            if one["metadata"]["name"].startswith(prefix)
            and "deletionTimestamp" not in one["metadata"]
        ]
        return found

    def until(self, holds: Any, what: str = "the condition", timeout: float = 60.0) -> None:
        until(holds, what, timeout, pause=0.02)

    @contextmanager
    def away(self) -> Any:
        """In the block, the API server does not answer; pods and controllers go on."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()

    def left(self, namespace: str = "default") -> list[str]:
        """What there is in a namespace, as KIND/NAME, without events."""
        return [
            f"{one['kind']}/{one['metadata']['name']}"
            for plural, resource in BY_PLURAL.items()
            if resource.namespaced and plural not in ("events", "localqueues", "resourcequotas")
            for one in self.storage.listed(plural, namespace)
        ]
