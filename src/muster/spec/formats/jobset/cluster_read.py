"""Read what a replicated Job asks of its cluster: as the settings `kubernetes` of its group and,
for all that has no setting there, as a patch of its pods (`patches`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from muster.spec.formats.jobset.cluster_settings import (
    EXCLUSIVE,
    MAX_EXEC_TIME,
    OBJECTS,
    PRIORITY,
    QUEUE,
    TOPOLOGY,
    setting_problems,
)
from muster.spec.formats.jobset.kubernetes import Container, PodSpec
from muster.spec.formats.jobset.own_parts import NODE
from muster.spec.formats.notes import Notes
from muster.spec.models import JobSpec, Kubernetes, Kueue, Metadata, Topology
from muster.spec.values import MAX_RUNTIME

#: Why a setting has no effect on most engines.
KUBERNETES_ONLY = "is used by engine kubernetes only"
#: Fields of pods for which there are settings, and that are not read elsewhere. serviceAccount: an
#: older name of serviceAccountName.
TYPED_OF_PODS = (
    *(field for field in OBJECTS.values() if field != "serviceAccountName"),
    *("serviceAccount", "imagePullSecrets", "nodeSelector", "tolerations", "affinity"),
)
#: Fields of pods that become a patch.
KEPT_OF_PODS = (
    *("nodeName", "topologySpreadConstraints", "schedulingGates", "schedulingGroup", "priority"),
    *("preemptionPolicy", "automountServiceAccountToken", "enableServiceLinks", "overhead", "os"),
    *("hostNetwork", "hostIPC", "hostPID", "hostUsers", "shareProcessNamespace", "dnsPolicy"),
    *("dnsConfig", "setHostnameAsFQDN", "hostnameOverride", "resources"),
)
#: The same of fields that are refused where no cluster runs the job (`unread_fields.in_cluster`).
_OF_CLUSTERS = ("readinessGates", "resourceClaims")
#: The same of the security contexts of pods and of containers.
KEPT_OF_POD_SECURITY = (
    *("seLinuxOptions", "seLinuxChangePolicy", "windowsOptions", "appArmorProfile", "sysctls"),
    *("fsGroup", "fsGroupChangePolicy", "supplementalGroupsPolicy"),
)
KEPT_OF_SECURITY = ("seLinuxOptions", "windowsOptions", "appArmorProfile", "procMount")
#: The same of containers. volumeDevices: with their volumes.
KEPT_OF_CONTAINERS = ("ports", "resizePolicy", "volumeDevices")
#: Kubernetes: what `kubectl get -o yaml` shows of a field that was not given.
_DEFAULTS: Mapping[str, Any] = {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
#: Limits for which there are other settings.
_OF_RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "ephemeral-storage")
#: Names of volumes that the pods of a node have.
_OWN_VOLUMES = re.compile(rf"{NODE}|muster-.*|nfs-\d+|claim-\d+|scratch-\d+")
_LOCAL_PROFILE = "Localhost"


class ContainerPatch:
    """Collects what becomes a patch of one container. raw: the container in the manifest. name: the
    one that it has in the patch. volumes: collects those of the pod that the patch needs."""

    def __init__(self, raw: Mapping[str, Any], name: str, volumes: set[str]) -> None:
        self.raw, self._volumes = raw, volumes
        self._fields: dict[str, Any] = {"name": name}

    def keep(self, field: str, number: int) -> None:
        """An entry of a list."""
        given = self.raw.get(field) or []
        if number < len(given):  # or there is a problem, which was reported
            self._fields.setdefault(field, []).append(given[number])

    def keep_mount(self, number: int) -> None:
        """An entry of `volumeMounts`, with its volume."""
        given = self.raw.get("volumeMounts") or []
        if number < len(given):
            name = str(given[number].get("name"))
            self._volumes.add(name)
            entry = {**given[number], "name": _volume_name(name)}
            self._fields.setdefault("volumeMounts", []).append(entry)

    def made(self, *, is_node: bool, profile: Mapping[str, Any]) -> dict[str, Any]:
        """The patch; {} if there is nothing to patch. is_node: whether it is that of the program.
        profile: the seccompProfile of the pod."""
        made = dict(self._fields)
        for field in KEPT_OF_CONTAINERS:
            if given := self.raw.get(field):
                made[field] = given
        for device in self.raw.get("volumeDevices") or ():
            self._volumes.add(str(device.get("name")))
        if resources := _resources(self.raw.get("resources") or {}, is_node=is_node):
            made["resources"] = resources
        if security := _security(self.raw.get("securityContext") or {}, profile):
            made["securityContext"] = security
        return made if len(made) > 1 else {}


def _volume_name(name: str) -> str:
    """A name that no volume of Muster has."""
    return f"{name}-volume" if _OWN_VOLUMES.fullmatch(name) else name


def _resources(given: Mapping[str, Any], *, is_node: bool) -> dict[str, Any]:
    """Amounts for which there are no settings: requests that differ from their limits, and of other
    containers than the program's all further resources."""
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    known = _OF_RESOURCES if is_node else ("cpu", "memory")
    further = {} if is_node else {n: v for n, v in limits.items() if n not in known}
    lower = {n: v for n, v in requests.items() if str(v) != str(limits.get(n))}
    made = {"limits": further, "requests": lower, "claims": given.get("claims")}
    return {name: value for name, value in made.items() if value}


def _security(given: Mapping[str, Any], of_pod: Mapping[str, Any]) -> dict[str, Any]:
    made = {name: given[name] for name in KEPT_OF_SECURITY if name in given}
    profile = given.get("seccompProfile") or of_pod
    if profile.get("type") == _LOCAL_PROFILE:
        made["seccompProfile"] = dict(profile)
    return made


class PodPatch:
    """Collects what becomes a patch of the pods of a replicated Job."""

    def __init__(self, pod: PodSpec) -> None:
        self._raw = pod.raw
        self._volumes: set[str] = set()
        self._containers: dict[tuple[str, int], ContainerPatch] = {}

    def container(self, kind: str, number: int) -> ContainerPatch:
        """The patch of a container. kind: `containers` or `initContainers`."""
        given = self._raw.get(kind) or []
        raw = given[number] if number < len(given) else {}
        name = NODE if (kind, number) == ("containers", 0) else str(raw.get("name"))
        patch = ContainerPatch(raw, name, self._volumes)
        return self._containers.setdefault((kind, number), patch)

    def made(self) -> dict[str, Any]:
        """The patch of the pod template; {} if there is nothing to patch."""
        spec = {
            name: self._raw[name]
            for name in (*KEPT_OF_PODS, *_OF_CLUSTERS)
            if name in self._raw and self._raw[name] != _DEFAULTS.get(name)
        }
        security = self._raw.get("securityContext") or {}
        if kept := {name: security[name] for name in KEPT_OF_POD_SECURITY if name in security}:
            spec["securityContext"] = kept
        profile = security.get("seccompProfile") or {}
        for kind in ("initContainers", "containers"):
            patches = [
                patch.made(is_node=(kind, number) == ("containers", 0), profile=profile)
                for (its_kind, number), patch in self._containers.items()
                if its_kind == kind
            ]
            if patches := [one for one in patches if one]:
                spec[kind] = patches
        if volumes := [*self._volumes_of_patch()]:
            spec["volumes"] = volumes
        return {"spec": spec} if spec else {}

    def _volumes_of_patch(self) -> Iterable[dict[str, Any]]:
        """Those that the patch mounts, and those that no container mounts."""
        every = [*(self._raw.get("initContainers") or ()), *(self._raw.get("containers") or ())]
        mounted = {
            str(mount.get("name"))
            for one in every
            for field in ("volumeMounts", "volumeDevices")
            for mount in one.get(field) or ()
        }
        for volume in self._raw.get("volumes") or ():
            name = str(volume.get("name"))
            if name in self._volumes or name not in mounted:
                yield {**volume, "name": _volume_name(name)}


def cluster_settings(
    pod: PodSpec, main: Container, patch: Mapping[str, Any], *, agent: bool
) -> Kubernetes:
    """The settings of a pod for which there are fields, and a patch with all others. agent: whether
    its service account is that of JobSet's in-place restart agent."""
    raw = pod.raw
    names = {name: raw[field] for name, field in OBJECTS.items() if raw.get(field)}
    names.setdefault("service_account", raw.get("serviceAccount"))
    if agent:
        del names["service_account"]
    limits = main.resources.limits.items()
    secrets = (one.get("name") for one in raw.get("imagePullSecrets") or ())
    return Kubernetes(
        **{n: value for n, value in names.items() if value not in (None, *_DEFAULTS.values())},
        image_pull_secrets=tuple(str(name) for name in secrets if name),
        node_selector=raw.get("nodeSelector") or {},
        tolerations=tuple(raw.get("tolerations") or ()),
        affinity=raw.get("affinity") or {},
        resources={name: str(value) for name, value in limits if name not in _OF_RESOURCES},
        pod=dict(patch),
    )


def note_limits(main: Container, notes: Notes, group: str) -> None:
    """Note the resources of the program that other engines do not limit."""
    for name in main.resources.limits:
        if name not in _OF_RESOURCES:
            notes.add(f"limits.{name}", KUBERNETES_ONLY, group)


# --- labels and annotations with a meaning


def without_topology(metadata: Metadata) -> tuple[Topology | None, Metadata]:
    """Where Kueue places the pods with this metadata, and the metadata without that. What cannot be
    read stays as it is."""
    found = {
        name: metadata.annotations[key]
        for name, key in TOPOLOGY.items()
        if key in metadata.annotations
    }
    given: dict[str, Any] = dict(found)
    if "unconstrained" in found:
        given["unconstrained"] = {"true": True}.get(found["unconstrained"])
    if "slice_size" in found:
        given["slice_size"] = int(size) if (size := found["slice_size"]).isdecimal() else None
    if not found or [*setting_problems({"topology": given}, "")]:
        return None, metadata
    keys = {TOPOLOGY[name] for name in found}
    rest = {key: text for key, text in metadata.annotations.items() if key not in keys}
    return Topology(**given), replace(metadata, annotations=rest)


def without_exclusive(metadata: Metadata) -> tuple[str | None, Metadata]:
    """The label of `exclusive`, and the metadata of a Job without it."""
    rest = {key: text for key, text in metadata.annotations.items() if key != EXCLUSIVE}
    found = metadata.annotations.get(EXCLUSIVE) or None
    if found is None or [*setting_problems({"exclusive": found}, "")]:
        return None, metadata
    return found, replace(metadata, annotations=rest)


def with_queue(spec: JobSpec) -> JobSpec:
    """A job with the labels of Kueue as settings."""
    tags = dict(spec.tags)
    queue, priority = tags.pop(QUEUE, None) or None, tags.pop(PRIORITY, None) or None
    if queue is None and priority is None:
        return spec
    seconds = tags.get(MAX_EXEC_TIME, "")
    limit = spec.max_runtime
    if queue is not None and seconds.isdecimal() and 0 < int(seconds) < MAX_RUNTIME:
        limit = float(tags.pop(MAX_EXEC_TIME))
    return replace(spec, tags=tags, kueue=Kueue(queue=queue, priority=priority), max_runtime=limit)
