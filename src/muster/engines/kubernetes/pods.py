"""The pod template of a group: what is compiled of its plan. Pure.

The first process of a pod is the node program, which keeps the pod while it waits for a decision:
programs restart in it. It serves the slot that its group, its Job and its index give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from muster.engines.kubernetes.layout import JobLayout
from muster.engines.kubernetes.names import JOB_INDEX, RESTARTS, key_name, run_labels
from muster.engines.kubernetes.pod_placeholders import PodPlaceholders
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.node_program import FILE_NAME
from muster.node import pod
from muster.plan.model import (
    ContainerPlan,
    ExtraContainerPlan,
    GroupPlan,
    MountPlan,
    ResourcePlan,
    RunPlan,
)
from muster.spec.formats.jobset import own_parts
from muster.spec.formats.jobset.cluster_settings import (
    further_limits,
    merged,
    pod_annotations,
    pod_fields,
)
from muster.spec.formats.jobset.environment_write import escaped
from muster.spec.formats.jobset.patches import apply_patch, mounted_paths
from muster.spec.formats.jobset.security import pull_policy, write_security
from muster.spec.formats.quantity import format_bytes, format_cpus
from muster.spec.models import Container
from muster.spec.placeholders import fill, placeholders
from muster.storage.mount_sources import named_source, nfs_export

#: See `own_parts`.
NODE, PROGRAM, KEY = own_parts.NODE, own_parts.PROGRAM, own_parts.KEY
FOLDER, SHARED = own_parts.FOLDER, own_parts.SHARED
#: The folder of the node server, which makes it: the volume itself belongs to root, whoever the
#: user of the container is.
SERVER = f"{FOLDER}/server"
_SHM_VOLUME = "muster-shm"
#: Kinds of mounts that are volumes of a pod.
_VOLUMES = ("nfs", "volume", "scratch")
#: Kubernetes: each pod has its own, which its containers share.
HOSTS_FILE = "/etc/hosts"
#: Volumes of objects that belong to the JobSet.
OWNED_VOLUMES = frozenset({own_parts.PROGRAM_VOLUME, own_parts.KEY_VOLUME})
#: Of Python: nothing of the environment, no packages, output at once, UTF-8 whatever the locale.
_OPTIONS = ("-I", "-S", "-u", "-X", "utf8")
#: Seconds that a pod takes to end beyond the grace period of programs.
_GRACE_MARGIN = 10.0
_GPUS = "nvidia.com/gpu"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class PodContext(Struct, frozen=True):
    """What the pods of a run have in common."""

    plan: RunPlan
    profile: KubernetesProfile
    #: The name of the JobSet, and of the objects that belong to it.
    name: str
    #: The index of the Job among those of its group; None: JobSet gives it in a label.
    job: int | None = None
    #: Names of machines that get no pod.
    avoid: Sequence[str] = ()


def pod_template(context: PodContext, group: GroupPlan, job: JobLayout) -> dict[str, Any]:
    """The template of the pods of a replicated Job, with what the job and the profile patch in
    it."""
    settings = merged(context.profile.pods, group.kubernetes)
    template = {
        "metadata": _metadata(context, group, settings),
        "spec": _spec(context, group, job, settings),
    }
    made = apply_patch(template, settings.get("pod", {}))
    return _avoiding(made, context.avoid) if context.avoid else made


def _avoiding(template: dict[str, Any], machines: Sequence[str]) -> dict[str, Any]:
    """A pod template whose pods are scheduled to none of these machines, whatever else decides
    where they are. Kubernetes: one of the terms has to match; `matchFields` takes a value each."""
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [one]} for one in machines]
    affinity = dict(template["spec"].get("affinity") or {})
    nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(nodes.get(_REQUIRED) or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *fields]} for term in terms
    ]
    affinity["nodeAffinity"] = {**nodes, _REQUIRED: required}
    return {**template, "spec": {**template["spec"], "affinity": affinity}}


def _metadata(context: PodContext, group: GroupPlan, settings: Mapping[str, Any]) -> dict[str, Any]:
    labels = {**group.pod_metadata.labels, **run_labels(context.plan.run_id)}
    annotations = {**group.pod_metadata.annotations, **pod_annotations(settings)}
    return {"labels": labels, **({"annotations": annotations} if annotations else {})}


def _spec(
    context: PodContext, group: GroupPlan, job: JobLayout, settings: Mapping[str, Any]
) -> dict[str, Any]:
    plan = context.plan
    known = PodPlaceholders(plan, job, context.job)
    volumes = Volumes(context, group, known)
    node = _node_container(context, group, job.name, settings, volumes)
    others = [_extra_container(one, volumes, known) for one in group.extra_containers]
    roles = [one.role for one in group.extra_containers]
    init = [made for made, role in zip(others, roles, strict=True) if role != "main"]
    beside = [made for made, role in zip(others, roles, strict=True) if role == "main"]
    saving = 0.0 if plan.policy.checkpoint is None else plan.policy.checkpoint.grace
    grace = plan.policy.grace_period + saving + _GRACE_MARGIN
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(grace),
        # the variables of services say nothing to jobs, and there may be thousands
        "enableServiceLinks": False,
        "automountServiceAccountToken": "service_account" in settings,
    }
    spec |= pod_fields(settings)
    if security := _pod_security(group):
        spec["securityContext"] = security
    if plan.host_aliases:
        spec["hostAliases"] = [
            {"ip": address, "hostnames": list(names)}
            for address, names in plan.host_aliases.items()
        ]
    if init:
        spec["initContainers"] = init
    return spec | {"containers": [node, *beside], "volumes": volumes.made()}


# --- containers


def _node_container(
    context: PodContext,
    group: GroupPlan,
    replicated_job: str,
    settings: Mapping[str, Any],
    volumes: Volumes,
) -> dict[str, Any]:
    profile = context.profile
    mounts = [
        {"name": own_parts.PROGRAM_VOLUME, "mountPath": PROGRAM, "readOnly": True},
        {"name": NODE, "mountPath": FOLDER},
        {"name": _SHM_VOLUME, "mountPath": "/dev/shm"},
        *volumes.mounts(pod_mounts(group, profile)),
    ]
    command = ["serve-pod", SERVER]
    if HOSTS_FILE not in patched_paths(group, profile, NODE):  # else it may be a machine's
        command.append(f"{pod.HOSTS}{HOSTS_FILE}")
    if profile.contact == "dial":
        # one file of the volume: the pod sees its own key, and none of another pod
        own = key_name(context.plan, group.name, f"$({pod.JOB})", f"$({pod.INDEX})")
        key = {"name": own_parts.KEY_VOLUME, "mountPath": KEY, "subPathExpr": own, "readOnly": True}
        mounts.append(key)
        command.append(f"{pod.KEY}{KEY}")
    if profile.claim is not None:
        mounts.append({"name": own_parts.SHARED_VOLUME, "mountPath": SHARED})
        command.append(f"{pod.SHARED}{SHARED}")
    made: dict[str, Any] = {
        "name": NODE,
        "image": group.image or profile.image,
        "command": _words(group, profile, *command),
        "env": [
            *_place_variables(context, replicated_job),
            *volumes.variables(pod_mounts(group, profile)),
        ],
        "volumeMounts": mounts,
        # what the node program says last is why the pod has ended
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if resources := _resources(group.resources, further_limits(settings)):
        made["resources"] = resources
    return made | _options_of(group.container)


def connect_command(group: GroupPlan, profile: KubernetesProfile) -> list[str]:
    """What connects standard input and output with the node server of a pod."""
    return _words(group, profile, "connect", SERVER)


def _words(group: GroupPlan, profile: KubernetesProfile, *words: str) -> list[str]:
    python = group.container.python or profile.python
    return [python, *_OPTIONS, f"{PROGRAM}/{FILE_NAME}", *words]


def _place_variables(context: PodContext, replicated_job: str) -> list[dict[str, Any]]:
    """By which the node program knows its slot, with the index that the Job controller adds."""
    group = {"name": pod.GROUP, "value": replicated_job}
    if context.job is not None:
        return [group, {"name": pod.JOB, "value": str(context.job)}]
    fields = {pod.JOB: JOB_INDEX, pod.RESTARTS: RESTARTS}
    return [group] + [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
        for name, label in fields.items()
    ]


def _extra_container(
    one: ExtraContainerPlan, volumes: Volumes, known: PodPlaceholders
) -> dict[str, Any]:
    """Another container of the pod. Kubernetes: an init container whose restartPolicy is Always is
    a sidecar; what looks like a reference to a variable, in words and variables, is one."""
    templates = {name: text for name, text in one.node_env.items() if name not in one.env}
    first = known.variables([*templates.values(), *one.node_args])
    first += [v for v in volumes.variables(one.mounts, one.name) if v not in first]
    names = {*one.env, *templates, *(variable["name"] for variable in first)}

    def literal(words: Sequence[str]) -> list[str]:
        return [escaped(word, names) for word in words]

    env = [*first, *({"name": name, "value": escaped(v, names)} for name, v in one.env.items())]
    env += [{"name": n, "value": known.written(v, names)} for n, v in templates.items()]
    made: dict[str, Any] = {
        "name": one.name,
        "image": one.image,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if one.command is not None:
        made["command"] = literal(one.command)
    last = [known.written(word, names) for word in one.node_args]
    if args := [*literal(one.args or ()), *last]:
        made["args"] = args
    if one.working_dir is not None:
        made["workingDir"] = one.working_dir
    if env:
        made["env"] = env
    if mounts := volumes.mounts(one.mounts, one.name):
        made["volumeMounts"] = mounts
    if resources := _resources(one.resources, {}):
        made["resources"] = resources
    if one.probe is not None:
        made["startupProbe"] = _probe(one.probe)
    if one.role == "sidecar":
        made["restartPolicy"] = "Always"
    return made | _options_of(one.container)


def _options_of(container: ContainerPlan) -> dict[str, Any]:
    given = Container(**asdict(container))
    security, _ = write_security(given, "")
    found: dict[str, Any] = {"securityContext": security} if security else {}
    if policy := pull_policy(given):
        found["imagePullPolicy"] = policy
    return found


def _pod_security(group: GroupPlan) -> dict[str, Any]:
    """Groups are those of all containers of a pod."""
    containers = (group.container, *(one.container for one in group.extra_containers))
    numbers = [number for one in containers for number in one.groups]
    return {"supplementalGroups": list(dict.fromkeys(numbers))} if numbers else {}


def _resources(resources: ResourcePlan, more: Mapping[str, Any]) -> dict[str, Any]:
    """Requests equal limits, so that a node has what it was promised (Kubernetes: Guaranteed)."""
    limits: dict[str, Any] = {}
    if resources.cpus is not None:
        limits["cpu"] = format_cpus(resources.cpus)
    if resources.memory is not None:
        limits["memory"] = format_bytes(resources.memory)
    if resources.disk is not None:
        limits["ephemeral-storage"] = format_bytes(resources.disk)
    if resources.gpus:
        limits[_GPUS] = str(resources.gpus)
    limits |= more
    return {"requests": dict(limits), "limits": limits} if limits else {}


def _probe(probe: Mapping[str, Any]) -> dict[str, Any]:
    """A probe of `node.launch_message.Probe`. Kubernetes counts whole seconds."""
    made: dict[str, Any] = {}
    if probe.get("http"):
        made["httpGet"] = {"path": probe["http"], "port": probe["port"]}
    elif probe.get("port"):
        made["tcpSocket"] = {"port": probe["port"]}
    else:
        command = probe["command"] or ["test", "-e", probe["file"]]
        made["exec"] = {"command": list(command)}
    return made | {
        "initialDelaySeconds": math.ceil(probe["initial_delay"]),
        "periodSeconds": max(1, math.ceil(probe["period"])),
        "timeoutSeconds": max(1, math.ceil(probe["timeout"])),
        "failureThreshold": probe["threshold"],
    }


# --- volumes


def pod_mounts(group: GroupPlan, profile: KubernetesProfile) -> list[MountPlan]:
    """The mounts of a node that are volumes of its pod: NFS exports, claims, its own scratch
    directories, and those for which a patch has a volume at their path."""
    shared = shared_sources(group)
    patched = patched_paths(group, profile, NODE)
    return [
        mount
        for mount in group.mounts
        if mount.kind in ("nfs", "volume")
        or mount.source in shared
        or mount.path in patched
        # the node program empties them at restarts: it has to see all of a volume, and to write
        or (is_of_pod(mount) and not (mount.sub_path or mount.read_only) and not is_tmp(mount))
    ]


def is_tmp(mount: MountPlan) -> bool:
    """Whether a mount is the /tmp of a node: its container has one, where the node program and
    others may have files."""
    return mount.kind == "scratch" and mount.path == "/tmp"


def patched_paths(group: GroupPlan, profile: KubernetesProfile, container: str) -> frozenset[str]:
    """Where the patch of a group's pods mounts volumes in a container."""
    return mounted_paths(merged(profile.pods, group.kubernetes).get("pod", {}), container)


def shared_sources(group: GroupPlan) -> frozenset[str]:
    """The scratch directories that other containers of a node have. They are empty in a new pod,
    and stay as they are while there is the pod."""
    mounts = (mount for one in group.extra_containers for mount in one.mounts)
    return frozenset(mount.source for mount in mounts if is_of_pod(mount))


def claim_of(source: str) -> str:
    """The name of the PersistentVolumeClaim that a mount's volume is here."""
    return named_source(source).name


def is_of_pod(mount: MountPlan) -> bool:
    """Whether the containers of a node can share a mount as a directory of their pod."""
    return mount.kind == "scratch" and named_source(mount.source).of in ("node", "incarnation")


class Volumes:
    """The volumes of a group's pods. Mounts of one source are of one volume."""

    def __init__(self, context: PodContext, group: GroupPlan, known: PodPlaceholders) -> None:
        self._context, self._group, self._placeholders = context, group, known
        self._scratch: dict[str, str] = {}  # source -> name of the volume
        shm: dict[str, Any] = {"medium": "Memory"}
        if (size := group.container.shm_size or _half(group.resources.memory)) is not None:
            shm["sizeLimit"] = format_bytes(size)
        self._volumes: dict[str, dict[str, Any]] = {
            own_parts.PROGRAM_VOLUME: {"configMap": {"name": context.name}},
            NODE: {"emptyDir": {}},
            _SHM_VOLUME: {"emptyDir": shm},
        }
        if context.profile.contact == "dial":
            # its files belong to root, and only the image knows who is to read them. All processes
            # of a pod may: they could find the key of their node anyhow
            secret = {"secretName": context.name, "defaultMode": 0o444}
            self._volumes[own_parts.KEY_VOLUME] = {"secret": secret}
        if (claim := context.profile.claim) is not None:
            self._volumes[own_parts.SHARED_VOLUME] = {"persistentVolumeClaim": {"claimName": claim}}

    def mounts(self, mounts: Sequence[MountPlan], container: str = NODE) -> list[dict[str, Any]]:
        """`volumeMounts` for those of a plan's mounts that are volumes, unless the patch mounts
        another one there; the node program brings the others, which other containers cannot have
        (`plan_problems`)."""
        return list(self._mounts(self._unpatched(mounts, container)))

    def variables(self, mounts: Sequence[MountPlan], container: str = NODE) -> list[dict[str, Any]]:
        """The variables to which paths in these refer."""
        paths = (mount.sub_path for mount in self._unpatched(mounts, container))
        return self._placeholders.variables(path for path in paths if path is not None)

    def _unpatched(self, mounts: Sequence[MountPlan], container: str) -> list[MountPlan]:
        patched = patched_paths(self._group, self._context.profile, container)
        return [one for one in mounts if one.kind in _VOLUMES and one.path not in patched]

    def _mounts(self, mounts: Sequence[MountPlan]) -> Iterator[dict[str, Any]]:
        for mount in mounts:
            volume = self._volume(mount.source, mount.kind)
            made: dict[str, Any] = {"name": volume, "mountPath": mount.path}
            if mount.read_only:
                made["readOnly"] = True
            if mount.sub_path is not None and placeholders(mount.sub_path):
                made["subPathExpr"] = self._placeholders.written(mount.sub_path)
            elif mount.sub_path is not None:
                made["subPath"] = fill(mount.sub_path, str)
            yield made

    def _volume(self, source: str, kind: str) -> str:
        """The name of the volume for a source."""
        if kind == "nfs":
            host, _, path = nfs_export(source).partition(":")
            return self._of_volume("nfs", {"nfs": {"server": host, "path": path}})
        if kind == "volume":
            return self._of_volume(
                "claim", {"persistentVolumeClaim": {"claimName": claim_of(source)}}
            )
        name = self._scratch.setdefault(source, f"scratch-{len(self._scratch)}")
        self._volumes[name] = {"emptyDir": {}}
        return name

    def _of_volume(self, start: str, volume: dict[str, Any]) -> str:
        """The name of a volume. start: of its name."""
        known = next((name for name, one in self._volumes.items() if one == volume), None)
        if known is not None:
            return known
        name = f"{start}-{sum(one.startswith(f'{start}-') for one in self._volumes)}"
        self._volumes[name] = volume
        return name

    def made(self) -> list[dict[str, Any]]:
        """`volumes` of the pod."""
        return [{"name": name, **volume} for name, volume in self._volumes.items()]


def _half(size: int | None) -> int | None:
    return None if size is None else size // 2
