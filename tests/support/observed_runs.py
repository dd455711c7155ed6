"""Runs of JobSets of the user's in the double of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import muster
from muster.client.run import JobRun
from muster.engines.kubernetes.profile import read_settings
from muster.engines.kubernetes.role import needed_rights
from muster.engines.kubernetes.versions import Versions
from support.faults import until
from support.kube import Cluster
from support.kube.access import Rule
from support.kube.objects import Obj

#: Seconds for what takes a moment on a machine that is not busy.
PATIENCE = 60.0
#: A script of a pod that runs until a file is there.
WAIT = "echo up $N; until [ -e {flag} ]; do sleep 0.1; done; echo down $N"


def jobset(script: str, pods: int = 2, name: str = "train", **spec: Any) -> Obj:
    """A JobSet whose pods run a script; `$N` is their index in it."""
    index = {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "env": [{"name": "N", "valueFrom": {"fieldRef": index}}],
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    retries = spec.pop("retries", 0)
    job = {"backoffLimit": retries, "completions": pods, "parallelism": pods}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "replicatedJobs": [
                {
                    "name": "w",
                    "replicas": 1,
                    "template": {"spec": {**job, "template": {"spec": pod}}},
                }
            ],
            **spec,
        },
    }


def write(folder: Path, manifest: Obj) -> Path:
    path = folder / "jobset.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return path


def begin(folder: Path, manifest: Obj) -> JobRun:
    return muster.run(write(folder, manifest), engine="kubernetes")


def states_of(run: JobRun) -> list[str]:
    """The states of a run's nodes; one that is ready runs."""
    return ["RUNNING" if one.state == "READY" else str(one.state) for one in run.nodes]


def until_state(run: JobRun, *states: str) -> None:
    """Wait until the nodes of a run have these states."""
    until(
        lambda: states_of(run) == [*states],
        f"nodes are {states}",
        PATIENCE,
        pause=0.2,
    )


def forbid(cluster: Cluster, verb: str, resource: str) -> None:
    """Take one right from the user of the cluster."""
    rules = [
        Rule((one,), (what,), (group,), "default")
        for one, group, what in needed_rights(read_settings({}), Versions(jobset=(0, 12)))
        if (one, what) != (verb, resource)
    ]
    cluster.grant("token-of-admin", "admin", tuple(rules))
