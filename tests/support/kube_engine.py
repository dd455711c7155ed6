"""The engine `kubernetes` with the double of a cluster (`support.kube`)."""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from muster.engines.kubernetes.access import why_not_installed
from muster.engines.kubernetes.layout import layout
from muster.engines.kubernetes.names import (
    JOB_INDEX,
    JOBSET_GROUP,
    JOBSET_NAME,
    POD_INDEX,
    RUN,
    jobset_name,
)
from muster.engines.kubernetes.pods import NODE, SERVER
from muster.engines.kubernetes.record import RECORD, Record
from muster.engines.profiles import file_of, profile_text, write_profile
from muster.engines.remote.record import read_record
from muster.plan.model import RunPlan
from muster.storage.home import Home
from support.kube import Cluster
from support.kube.objects import Obj


def require_client() -> None:
    """Skip the test where the extra is not installed."""
    if why := why_not_installed():
        pytest.skip(why)


@cache
def shared_cluster() -> Cluster:
    """One for all tests of this process, which ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="kube-"))
    cluster = Cluster(folder, nodes=4)

    def end() -> None:
        cluster.__exit__()
        shutil.rmtree(folder, ignore_errors=True)

    cluster.__enter__()
    atexit.register(end)
    return cluster


def add_engine(home: Path, cluster: Cluster, name: str = "kubernetes", **settings: Any) -> None:
    """Write the profile of an engine."""
    values = {"kubeconfig": str(cluster.kubeconfig), "python": sys.executable, **settings}
    write_profile(file_of(Home(home), name), profile_text(name, "kubernetes", values))


def write_contexts(path: Path, current: str, **clusters: Cluster) -> Path:
    """Write a file as kubectl reads it, with a context for each cluster."""
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": current}
    made |= {"clusters": [], "users": [], "contexts": []}
    for name, cluster in clusters.items():
        one = json.loads(cluster.kubeconfig.read_text())
        context = {"cluster": name, "user": name, "namespace": "default"}
        made["clusters"].append({**one["clusters"][0], "name": name})
        made["users"].append({**one["users"][0], "name": name})
        made["contexts"].append({"name": name, "context": context})
    path.write_text(json.dumps(made))
    return path


def pod_of_slot(cluster: Cluster, home: Home, plan: RunPlan, slot: int) -> Obj | None:
    """The newest pod that serves a slot of a run; None if there is none."""
    record = read_record(home.run_dir(plan.run_id).path / RECORD, Record) or Record()
    found = []
    for pod in cluster.pods(**{RUN: plan.run_id}):
        labels = pod["metadata"]["labels"]
        for one in record.allocations:
            if jobset_name(plan, one.number) == labels[JOBSET_NAME]:
                jobs = {job.name: job for job in layout(plan, one.made_for)}
                job = jobs[labels[JOBSET_GROUP]]
                if job.slot(int(labels[JOB_INDEX]), int(labels[POD_INDEX])) == slot:
                    found.append(pod)
    return max(found, key=_newness, default=None)


def _newness(pod: Obj) -> tuple[bool, str]:
    """Those that have not ended come last: two may be of the same second."""
    alive = pod["status"].get("phase") not in ("Succeeded", "Failed")
    return alive and "deletionTimestamp" not in pod["metadata"], pod["metadata"][
        "creationTimestamp"
    ]


def node_folder(cluster: Cluster, home: Home, plan: RunPlan, slot: int) -> Path:
    """The folder of the node server of a slot; one that does not exist if it has no pod."""
    pod = pod_of_slot(cluster, home, plan, slot)
    here = None if pod is None else cluster.kubelet.pods.get(pod["metadata"]["uid"])
    paths = None if here is None else here.paths.get(NODE)
    return Path("/nonexistent") if paths is None else Path(paths.translate(SERVER))
