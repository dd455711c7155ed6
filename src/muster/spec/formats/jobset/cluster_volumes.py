"""What of a pod's volumes only a cluster has, or a mount of a spec cannot say."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import fields

from muster.spec.formats.jobset.cluster_read import ContainerPatch
from muster.spec.formats.jobset.config_objects import ConfigObjects, Kind
from muster.spec.formats.jobset.downward_api import Pod
from muster.spec.formats.jobset.kubernetes import Container, PodSpec, ProjectedSource, Volume
from muster.spec.formats.quantity import parse_quantity
from muster.spec.models import MountFile
from muster.spec.wording import Refused

SHARED_MEMORY = "/dev/shm"
#: The source of a volume that has no files which are known.
IN_CLUSTER: Mapping[str, MountFile] = {}
#: Fields of `volumeMounts` that mounts of a spec do not have.
_OF_MOUNTS = frozenset(("mountPropagation", "recursiveReadOnly"))
_KINDS = frozenset(info.encode_name for info in fields(Volume))
_OF_PROJECTED = frozenset(info.encode_name for info in fields(ProjectedSource))


def shm_size(shown: Pod, container: Container) -> int | None:
    """The bytes that a volume gives to the program as its shared memory; None if there is no such
    volume, or one without a limit, or one that another container has as well, or whose mount says
    more, such as `readOnly`."""
    pod = shown.rj.template.spec.template.spec
    if container.name != pod.containers[0].name:
        return None
    of_others = {name for _, name in _mounted(pod, besides=container.name)}
    given_mounts = pod.raw["containers"][0].get("volumeMounts") or ()
    names = [
        mount.name
        for mount, raw in zip(container.volume_mounts, given_mounts, strict=False)
        if posixpath.normpath(mount.mount_path) == SHARED_MEMORY
        and mount.name not in of_others
        and raw.keys() <= {"name", "mountPath"}
    ]
    for number, volume in enumerate(pod.volumes):
        given = _raw(pod, number).get("emptyDir")
        if volume.name in names and given is not None and given.get("medium") == "Memory":
            # Kubernetes: without a limit, the memory that the container may use
            limit = given.get("sizeLimit", container.resources.limits.get("memory"))
            return None if limit is None else _bytes(limit)
    return None


def _mounted(pod: PodSpec, besides: str = "") -> Iterator[tuple[Mapping[str, Any], str]]:
    """The mounts of all containers, as they are in the manifest, with the names of their volumes.
    besides: the name of a container without which they are."""
    for kind in ("initContainers", "containers"):
        for one in pod.raw.get(kind) or ():
            if not besides or one.get("name") != besides:
                for mount in one.get("volumeMounts") or ():
                    yield mount, str(mount.get("name"))


def _bytes(amount: object) -> int | None:
    try:
        return int(parse_quantity(amount)) or None
    except Refused:
        return None  # `schema` has reported it, or the API server does


def _raw(pod: PodSpec, number: int) -> Mapping[str, Any]:
    """A volume of a pod as it is in the manifest."""
    given = pod.raw.get("volumes") or []
    return given[number] if number < len(given) else {}


def is_in_cluster(pod: PodSpec, number: int, objects: ConfigObjects) -> bool:
    """Whether only the cluster has what is in a volume. number: among those of the pod."""
    if not objects.in_cluster:
        return False
    raw = _raw(pod, number)
    sources = (raw.get("projected") or {}).get("sources") or ()
    if raw.keys() - _KINDS or any(one.keys() - _OF_PROJECTED for one in sources):
        return True
    named = _objects_of(pod.volumes[number])
    return any(objects.is_in_cluster(kind, name) for kind, name in named)


def _objects_of(volume: Volume) -> Iterator[tuple[Kind, str]]:
    """The ConfigMaps and Secrets of a volume."""
    if volume.config_map is not None:
        yield "ConfigMap", volume.config_map.name
    if volume.secret is not None:
        yield "Secret", volume.secret.secret_name
    for source in volume.projected.sources if volume.projected else ():
        if source.config_map is not None:
            yield "ConfigMap", source.config_map.name
        if source.secret is not None:
            yield "Secret", source.secret.name


def needs_patch(shown: Pod, patch: ContainerPatch, number: int) -> bool:
    """Whether a mount of a spec says less than the manifest: directories of machines, limits of an
    emptyDir, how mounts are shared. number: of the mount in the container."""
    given = patch.raw.get("volumeMounts") or []
    if number >= len(given):
        return False
    pod = shown.rj.template.spec.template.spec
    name = given[number].get("name")
    raw = next((_raw(pod, n) for n, one in enumerate(pod.volumes) if one.name == name), {})
    own = "hostPath" in raw or bool(raw.get("emptyDir"))
    # containers share a volume only if all of them have it by the patch
    own = own or any(_OF_MOUNTS & mount.keys() for mount, its in _mounted(pod) if its == name)
    # a claim that the JobSet makes has no volume in the pod that a patch could have
    return bool(raw) and own


def read_only(shown: Pod) -> set[str]:
    """The volumes that nobody can write."""
    found = set()
    for volume in shown.rj.template.spec.template.spec.volumes:
        kinds = (volume.nfs, volume.persistent_volume_claim)
        if any(kind is not None and kind.read_only for kind in kinds):
            found.add(volume.name)
    return found
