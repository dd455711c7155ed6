"""Write a node group as a replicated Job."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.spec.decode import given_settings
from muster.spec.formats.jobset.cluster_settings import (
    further_limits,
    job_annotations,
    pod_annotations,
    pod_fields,
)
from muster.spec.formats.jobset.cluster_volumes import SHARED_MEMORY
from muster.spec.formats.jobset.downward_api import JOBSET
from muster.spec.formats.jobset.environment_read import INDEX
from muster.spec.formats.jobset.environment_write import escaped, variables
from muster.spec.formats.jobset.group_read import hostname_template
from muster.spec.formats.jobset.job_arrays_write import (
    array_fields,
    has_index_limits,
    is_job,
    is_work_queue,
)
from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32
from muster.spec.formats.jobset.own_parts import NODE as OWN_CONTAINER
from muster.spec.formats.jobset.patches import apply_patch, mounted_paths, volume_names
from muster.spec.formats.jobset.pod_containers import written
from muster.spec.formats.jobset.probes import write_hook, write_probe
from muster.spec.formats.jobset.restart_agent import NAME as AGENT
from muster.spec.formats.jobset.security import pull_policy, write_security
from muster.spec.formats.jobset.volumes_read import NODE
from muster.spec.formats.jobset.volumes_write import Volumes
from muster.spec.formats.notes import Loss
from muster.spec.formats.quantity import format_bytes, format_cpus
from muster.spec.models import ExtraContainer, JobSpec, Metadata, NodeGroup, Probe, Resources

_RESTART_ON_FAILURE = [
    {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}},
]
_BARRIER = {"path": "/barrier-is-down", "port": 8081}
#: Seconds that nodes may wait for each other, as in JobSet's own timeouts; one probe a second.
_BARRIER_PROBES = 600
_ACCOUNT = "jobset-in-place-restart"
#: The name of the volume with shared memory.
_SHM = "shared-memory"
_DEFAULT = NodeGroup(name="")
#: Settings that a replicated Job has, some with limits (see `_losses`). All others are lost if they
#: are not the default.
_WRITTEN = frozenset(
    (
        *("name", "nodes", "replicas", "depends_on", "retries", "timeout"),
        *("command", "args", "node_args", "env", "node_env", "image", "resources", "mounts"),
        *("working_dir", "hostname", "startup_probe", "liveness_probe"),
        *("after_start", "before_stop", "job_metadata", "pod_metadata", "extra_containers"),
        *("container", "kubernetes"),
    )
)
#: Why a setting is lost.
_WHYS = {
    "array": "Kubernetes has no parameters; a program can read its index in the variables of a pod",
    "parallelism": "JobSet starts all Jobs of a replicated Job at once",
    "max_failed": "the first Job that fails counts as a failure of the JobSet",
    "only": "JobSet starts all Jobs",
    "total_retries": "JobSet counts the retries of each Job",
    "early_success": "JobSet has no such policy for a replicated Job",
    "max_replicas": "JobSet does not change the number of replicas",
    "shape": "Kubernetes has no shapes; use resources",
    "slurm": "Kubernetes schedules the pods",
    "min_success": "the first Job that fails counts as a failure of the JobSet",
    "max_restarts": "JobSet counts restarts for all groups together",
    "max_runtime": "JobSet does not cancel",
    "ready_timeout": "JobSet does not limit the time until nodes are ready",
    "hang_timeout": "JobSet does not watch output",
}
#: Settings that a Job has of its pods.
_WRITTEN_OF_JOB = frozenset(("parallelism", "max_failed", "total_retries", "early_success"))
#: Why settings of groups that become one Job are lost.
_WHYS_OF_JOB = {
    "only": "a Job runs all its indexes",
    "min_success": "a Job ends when so many have succeeded, or needs all; see early_success",
    "timeout": "the deadline of a Job is for all its pods together",
}


class JobContext(Struct, frozen=True):
    """What the groups of a job have in common."""

    #: In normal form.
    spec: JobSpec
    #: The JobSet's name.
    name: str
    volumes: Volumes
    #: Whether restarts are in place.
    in_place: bool


def replicated_job(
    context: JobContext, group: NodeGroup, path: str, pod_rules: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[Loss]]:
    """The replicated Job, and what it cannot express. pod_rules: of its podFailurePolicy."""
    losses = list(_losses(context, group, path))
    if is_job(context.spec, group):
        job = array_fields(group)
    else:
        job = {"parallelism": group.nodes, "completions": group.nodes}
        job["backoffLimit"] = MAX_INT32 if context.in_place else group.retries
        if group.timeout is not None:
            job["activeDeadlineSeconds"] = math.ceil(group.timeout)
    if context.in_place:
        job["podReplacementPolicy"] = "Failed"
    if pod_rules:
        job["podFailurePolicy"] = {"rules": pod_rules}
    settings = {} if group.kubernetes is None else given_settings(group.kubernetes)
    pod, more = _pod(context, group, path, pod_rules, settings)
    template = {**_metadata(group.pod_metadata, pod_annotations(settings)), "spec": pod}
    job["template"] = _patched(template, settings.get("pod", {}), group.name)
    jobs = 1 if is_job(context.spec, group) else group.replicas
    made: dict[str, Any] = {"name": group.name, "replicas": jobs}
    if group.depends_on:
        status = {"ready": "Ready", "complete": "Complete"}
        made["dependsOn"] = [
            {"name": other.group, "status": status[other.status]} for other in group.depends_on
        ]
    metadata = _metadata(group.job_metadata, job_annotations(settings))
    made["template"] = {**metadata, "spec": job}
    return made, losses + more


def _patched(template: dict[str, Any], patch: Mapping[str, Any], main: str) -> dict[str, Any]:
    """A pod template with the patch of its group, in which the program's container has a name of
    Muster's. main: its name here."""
    if not patch:
        return template
    spec = template["spec"]
    first, *others = spec["containers"]
    named = {**spec, "containers": [{**first, "name": OWN_CONTAINER}, *others]}
    made = apply_patch({**template, "spec": named}, patch)
    # which container restarts, and how, is what the job says elsewhere
    made["spec"]["restartPolicy"] = spec["restartPolicy"]
    first, *others = made["spec"]["containers"]
    made["spec"]["containers"] = [{**first, "name": main}, *others]
    return made


def _metadata(given: Metadata, more: Mapping[str, str]) -> dict[str, Any]:
    """more: further annotations."""
    both = {"labels": dict(given.labels), "annotations": {**given.annotations, **more}}
    kept = {name: entries for name, entries in both.items() if entries}
    return {"metadata": kept} if kept else {}


def _has_node_folder(group: NodeGroup) -> bool:
    """Whether nodes have a folder that is kept when their program restarts in place."""
    return any((mount.source or "").startswith(NODE) for mount in group.mounts)


def _pod(
    context: JobContext,
    group: NodeGroup,
    path: str,
    pod_rules: list[dict[str, Any]],
    settings: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Loss]]:
    """settings: `kubernetes` of the group."""
    patch = settings.get("pod", {})
    container, losses = _container(context, group, path, further_limits(settings))
    on_failure = not context.in_place and _has_node_folder(group) and not pod_rules
    on_failure = on_failure and not (is_job(context.spec, group) and has_index_limits(group))
    policy = "OnFailure" if on_failure else "Never"
    kept = context.in_place or on_failure
    patched = mounted_paths(patch, OWN_CONTAINER)
    taken = volume_names(patch)
    mounts, volumes = context.volumes.of_group(group, path, kept=kept, patched=patched, taken=taken)
    if shm := _shm(group, patched):
        mounts.append({"name": _SHM, "mountPath": SHARED_MEMORY})
        volumes.append(shm)
    if mounts:
        container["volumeMounts"] = mounts
    pod: dict[str, Any] = {
        "restartPolicy": policy,
        "terminationGracePeriodSeconds": math.ceil(context.spec.grace_period),
        **pod_fields(settings),
    }
    if context.in_place:
        container |= {"restartPolicy": "Never", "restartPolicyRules": _RESTART_ON_FAILURE}
        pod |= {"serviceAccountName": _ACCOUNT, "initContainers": [_agent()]}
    init: list[dict[str, Any]] = []
    others = [container]
    for number, one in enumerate(group.extra_containers):
        where = f"{path}.extra_containers[{number}]"
        extra, more = _extra(context, group, one, where)
        losses += more
        seen, further = context.volumes.of_group(
            *(_as_group(group, one), where),
            kept=kept,
            patched=mounted_paths(patch, one.name),
            taken=taken,
        )
        if seen:
            extra["volumeMounts"] = seen
        volumes += [volume for volume in further if volume not in volumes]
        (others if one.role == "main" else init).append(extra)
    if init:
        pod["initContainers"] = [*pod.get("initContainers", ()), *init]
    pod["containers"] = others
    if of_pod := _pod_security(group, patch):
        pod["securityContext"] = of_pod
    if volumes:
        pod["volumes"] = volumes
    if context.spec.host_aliases:
        pod["hostAliases"] = [
            {"ip": address, "hostnames": list(names)}
            for address, names in context.spec.host_aliases.items()
        ]
    return pod, losses


def _shm(group: NodeGroup, patched: Collection[str]) -> dict[str, Any] | None:
    """The volume that gives a container its shared memory; None if it has another one."""
    size = None if group.container is None else group.container.shm_size
    paths = {*patched, *(mount.destination for mount in group.mounts)}
    if size is None or SHARED_MEMORY in paths:
        return None
    return {"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": format_bytes(size)}}


def _container(
    context: JobContext, group: NodeGroup, path: str, further: Mapping[str, str]
) -> tuple[dict[str, Any], list[Loss]]:
    """The program's container without its mounts, and what it cannot express. further: limits of
    other resources."""
    as_job = is_job(context.spec, group)
    only_one = len(context.spec.node_groups) == 1 and (group.replicas == 1 or as_job)
    own = variables(group, path, jobset=context.name, only_one=only_one, is_job=as_job)
    losses = list(own.losses)
    names = {*group.env, *group.node_env, INDEX}
    container: dict[str, Any] = {"name": group.name}
    if group.image is not None:
        container["image"] = group.image
    else:
        losses.append(Loss(f"{path}.image", "is missing, and Kubernetes requires one", True))
    if group.command is not None:
        container["command"] = [escaped(word, names) for word in group.command]
    elif group.image is None or context.spec.artifact is not None or context.spec.git is not None:
        why = "is missing: the image must have the code and a command"
        losses.append(Loss(f"{path}.command", why, True))
    args = [*(escaped(word, names) for word in group.args or ()), *own.args]
    if args:
        container["args"] = args
    if _is_absolute(group.working_dir):
        container["workingDir"] = group.working_dir
    if own.env:
        container["env"] = own.env
    security, more = write_security(group.container, f"{path}.container")
    losses += more
    if security:
        container["securityContext"] = security
    if policy := pull_policy(group.container):
        container["imagePullPolicy"] = policy
    limits = {**_limits(group.resources), **further}
    if limits:
        container["resources"] = {"limits": limits}
    for probe in filter(None, (group.startup_probe, group.liveness_probe)):
        kind, written = write_probe(probe)
        container[kind] = written
    hooks = {"postStart": group.after_start, "preStop": group.before_stop}
    if given := {name: write_hook(command) for name, command in hooks.items() if command}:
        container["lifecycle"] = given
    return container, losses


def _pod_security(group: NodeGroup, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The security context of a pod: groups, which all containers have. fsGroup is one of them, if
    a patch has it."""
    patched = (patch.get("spec") or {}).get("securityContext") or {}
    numbers = [
        number
        for one in (group.container, *(extra.container for extra in group.extra_containers))
        if one is not None
        for number in one.groups
        if number != patched.get("fsGroup")
    ]
    return {"supplementalGroups": list(dict.fromkeys(numbers))} if numbers else {}


def _as_group(group: NodeGroup, one: ExtraContainer) -> NodeGroup:
    """A group whose program is that of another container."""
    names = (
        "command",
        "args",
        "node_args",
        "env",
        "node_env",
        "working_dir",
        "resources",
        "container",
    )
    own = {name: getattr(one, name) for name in (*names, "image", "mounts", "startup_probe")}
    none = dict.fromkeys(("liveness_probe", "after_start", "before_stop"))
    return replace(group, **own, **none)


def _extra(
    context: JobContext, group: NodeGroup, one: ExtraContainer, path: str
) -> tuple[dict[str, Any], list[Loss]]:
    """Another container without its mounts, and what it cannot express."""
    container, losses = _container(context, _as_group(group, one), path, {})
    kept = [loss for loss in losses if loss.path != f"{path}.command"]  # it is the image's own
    return written(one, container), kept + _probe_losses(one.startup_probe, f"{path}.startup_probe")


def _limits(given: Resources | None) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if given is not None and given.cpus is not None:
        made["cpu"] = format_cpus(given.cpus)
    if given is not None and given.memory is not None:
        made["memory"] = format_bytes(given.memory)
    if given is not None and given.gpus:
        made["nvidia.com/gpu"] = given.gpus
    if given is not None and given.disk is not None:
        made["ephemeral-storage"] = format_bytes(given.disk)
    return made


def _agent() -> dict[str, Any]:
    """JobSet's agent as a sidecar. Its startup probe delays the program until all pods run."""
    fields = {
        "JOBSET_NAME": f"metadata.annotations['{JOBSET}jobset-name']",
        "POD_NAME": "metadata.name",
    }
    return {
        "name": AGENT,
        "image": f"<image of the {AGENT}>",
        "restartPolicy": "Always",
        "restartPolicyRules": _RESTART_ON_FAILURE,
        "startupProbe": {
            "httpGet": _BARRIER,
            "periodSeconds": 1,
            "failureThreshold": _BARRIER_PROBES,
        },
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
            for name, field in fields.items()
        ],
    }


def _losses(context: JobContext, group: NodeGroup, path: str) -> Iterator[Loss]:
    usual = {"shape": "local", "min_success": group.replicas, "max_replicas": group.replicas}
    written, as_job = _WRITTEN, is_job(context.spec, group)
    if as_job:
        written = _WRITTEN - {"timeout"} | _WRITTEN_OF_JOB
        if is_work_queue(group):
            written |= {"min_success"}
    for name in NodeGroup.__struct_fields__:
        default = getattr(_DEFAULT, name)
        if name not in written and getattr(group, name) not in (default, usual.get(name, default)):
            yield Loss(f"{path}.{name}", _why(name, as_job=as_job))
    if group.hostname != hostname_template(context.name, group.name, is_array=as_job):
        numbers = "0-REPLICA" if as_job else "REPLICA-INDEX"
        why = f"nodes are named {context.name}-{group.name}-{numbers} in the JobSet"
        yield Loss(f"{path}.hostname", why)
    if group.working_dir is not None and not _is_absolute(group.working_dir):
        yield Loss(f"{path}.working_dir", "is left out: a pod has no copy of the code")
    if group.kubernetes is not None and group.kubernetes.pod_log is False:
        why = "the log of a pod has the output of its program there"
        yield Loss(f"{path}.kubernetes.pod_log", why)
    if context.in_place and group.kubernetes is not None and group.kubernetes.service_account:
        why = f"is {_ACCOUNT}, that of JobSet's in-place restart agent"
        yield Loss(f"{path}.kubernetes.service_account", why)
    if context.in_place and group.retries > 0:
        why = "JobSet restarts all nodes in place, not single ones"
        yield Loss(f"{path}.retries", why)
    if _is_fractional(group.timeout):
        yield Loss(f"{path}.timeout", "is rounded up to whole seconds")
    yield from _probe_losses(group.startup_probe, f"{path}.startup_probe")
    yield from _probe_losses(group.liveness_probe, f"{path}.liveness_probe")


def _why(name: str, *, as_job: bool) -> str:
    """Why a setting is lost. as_job: whether the group becomes one Job."""
    of_jobs = {**_WHYS, **_WHYS_OF_JOB} if as_job else _WHYS
    return of_jobs.get(name, "a JobSet has no such setting")


def _probe_losses(probe: Probe | None, path: str) -> list[Loss]:
    names = () if probe is None else ("initial_delay", "period", "timeout")
    return [
        Loss(f"{path}.{name}", "is rounded up to whole seconds")
        for name in names
        if _is_fractional(getattr(probe, name))
    ]


def _is_absolute(path: str | None) -> bool:
    return path is not None and path.startswith("/")


def _is_fractional(seconds: float | None) -> bool:
    return seconds is not None and seconds != int(seconds)
