"""A node group as a replicated Job."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from muster.spec.formats.agent import NAME as AGENT
from muster.spec.formats.downward import JOBSET
from muster.spec.formats.env_write import escaped, variables
from muster.spec.formats.environment import INDEX
from muster.spec.formats.kubernetes import MAX_INT32
from muster.spec.formats.losses import Loss
from muster.spec.formats.pods import hostname_template
from muster.spec.formats.probes import written
from muster.spec.formats.quantity import format_bytes, format_cpus
from muster.spec.formats.volumes import NODE
from muster.spec.formats.volumes_write import Volumes
from muster.spec.models import JobSpec, Metadata, NodeGroup, Resources

_AGAIN = [
    {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}},
]
_BARRIER = {"path": "/barrier-is-down", "port": 8081}
#: How long a barrier may take, in seconds: as long as JobSet's own timeouts.
_BARRIER_LOOKS = 600
_ACCOUNT = "jobset-in-place-restart"


class Whole(Struct, frozen=True):
    """What a group needs to know of the job. spec: in normal form."""

    spec: JobSpec
    name: str
    volumes: Volumes
    in_place: bool


def replicated_job(
    whole: Whole, group: NodeGroup, path: str, pod_rules: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[Loss]]:
    """The replicated Job, and what it cannot say."""
    losses = list(_unsaid(whole, group, path))
    job: dict[str, Any] = {"parallelism": group.nodes, "completions": group.nodes}
    job["backoffLimit"] = MAX_INT32 if whole.in_place else group.retries
    if whole.in_place:
        job["podReplacementPolicy"] = "Failed"
    if group.timeout is not None:
        job["activeDeadlineSeconds"] = math.ceil(group.timeout)
    if pod_rules:
        job["podFailurePolicy"] = {"rules": pod_rules}
    pod, more = _pod(whole, group, path, pod_rules)
    job["template"] = {**_metadata(group.pod_metadata), "spec": pod}
    made: dict[str, Any] = {"name": group.name, "replicas": group.replicas}
    if group.depends_on:
        status = {"ready": "Ready", "complete": "Complete"}
        made["dependsOn"] = [
            {"name": other.group, "status": status[other.status]} for other in group.depends_on
        ]
    made["template"] = {**_metadata(group.job_metadata), "spec": job}
    return made, losses + more


def _metadata(said: Metadata) -> dict[str, Any]:
    both = {"labels": dict(said.labels), "annotations": dict(said.annotations)}
    kept = {name: entries for name, entries in both.items() if entries}
    return {"metadata": kept} if kept else {}


def _keeps(group: NodeGroup) -> bool:
    """Whether a node has something that it keeps when its program starts again in place."""
    return any(mount.source.startswith(NODE) for mount in group.mounts)


def _pod(
    whole: Whole, group: NodeGroup, path: str, pod_rules: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[Loss]]:
    only_one = len(whole.spec.node_groups) == 1 and group.replicas == 1
    own = variables(group, path, jobset=whole.name, only_one=only_one)
    env, losses = own.env, list(own.losses)
    names = {*group.env, *group.node_env, INDEX}
    container: dict[str, Any] = {"name": group.name}
    if group.image is not None:
        container["image"] = group.image
    else:
        losses.append(Loss(f"{path}.image", "there is none, and Kubernetes runs nothing without"))
    if group.command is not None:
        container["command"] = [escaped(word, names) for word in group.command]
    else:
        why = "there is none: the image has to hold the code, and know what to run"
        losses.append(Loss(f"{path}.command", why))
    args = [*(escaped(word, names) for word in group.args or ()), *own.args]
    if args:
        container["args"] = args
    if _from_root(group.working_dir):
        container["workingDir"] = group.working_dir
    if env:
        container["env"] = env
    limits = _limits(group.resources)
    if limits:
        container["resources"] = {"limits": limits}
    if group.startup_probe is not None:
        kind, probe = written(group.startup_probe)
        container[kind] = probe
    again = "OnFailure" if not whole.in_place and _keeps(group) and not pod_rules else "Never"
    kept = whole.in_place or again == "OnFailure"
    mounts, volumes = whole.volumes.of_group(group, path, kept=kept)
    if mounts:
        container["volumeMounts"] = mounts
    pod: dict[str, Any] = {
        "restartPolicy": again,
        "terminationGracePeriodSeconds": math.ceil(whole.spec.grace_period),
    }
    if whole.in_place:
        container |= {"restartPolicy": "Never", "restartPolicyRules": _AGAIN}
        pod |= {"serviceAccountName": _ACCOUNT, "initContainers": [_agent()]}
    pod["containers"] = [container]
    if volumes:
        pod["volumes"] = volumes
    return pod, losses


def _limits(said: Resources | None) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if said is not None and said.cpus is not None:
        made["cpu"] = format_cpus(said.cpus)
    if said is not None and said.memory is not None:
        made["memory"] = format_bytes(said.memory)
    if said is not None and said.gpus:
        made["nvidia.com/gpu"] = said.gpus
    if said is not None and said.disk is not None:
        made["ephemeral-storage"] = format_bytes(said.disk)
    return made


def _agent() -> dict[str, Any]:
    """JobSet's agent beside the program: its startup probe holds that back until all are there."""
    told = {
        "JOBSET_NAME": f"metadata.annotations['{JOBSET}jobset-name']",
        "POD_NAME": "metadata.name",
    }
    return {
        "name": AGENT,
        "image": f"<image of the {AGENT}>",
        "restartPolicy": "Always",
        "restartPolicyRules": _AGAIN,
        "startupProbe": {
            "httpGet": _BARRIER,
            "periodSeconds": 1,
            "failureThreshold": _BARRIER_LOOKS,
        },
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
            for name, field in told.items()
        ],
    }


def _unsaid(whole: Whole, group: NodeGroup, path: str) -> list[Loss]:
    said = {
        "hostname": (
            group.hostname != hostname_template(whole.name, group.name),
            f"nodes are called {whole.name}-{group.name}-REPLICA-INDEX there",
        ),
        "working_dir": (
            group.working_dir is not None and not _from_root(group.working_dir),
            "is left out: a pod has no copy of the code to start from",
        ),
        "shape": (
            group.shape not in (None, "local"),
            "no object knows shapes; say it with resources",
        ),
        "min_success": (
            group.min_success not in (None, group.replicas),
            "the first Job that fails is a failure of the JobSet there",
        ),
        "max_replicas": (
            group.most_replicas > group.replicas,
            "there are always as many replicas as at first there",
        ),
        "max_restarts": (group.max_restarts is not None, "restarts are counted for all together"),
        "retries": (
            whole.in_place and group.retries > 0,
            "restarts in place are of all nodes there",
        ),
        "ready_timeout": (group.ready_timeout is not None, "nothing limits how long a start takes"),
        "max_runtime": (group.max_runtime is not None, "nothing is canceled there"),
        "hang_timeout": (group.hang_timeout is not None, "nothing watches the output"),
        "timeout": (_fraction(group.timeout), "is rounded up to whole seconds"),
    }
    losses = [Loss(f"{path}.{name}", why) for name, (lost, why) in said.items() if lost]
    probe = group.startup_probe
    if probe is not None:
        for name in ("initial_delay", "period", "timeout"):
            if _fraction(getattr(probe, name)):
                why = "is rounded up to whole seconds"
                losses.append(Loss(f"{path}.startup_probe.{name}", why))
    return losses


def _from_root(path: str | None) -> bool:
    return path is not None and path.startswith("/")


def _fraction(seconds: float | None) -> bool:
    return seconds is not None and seconds != int(seconds)
