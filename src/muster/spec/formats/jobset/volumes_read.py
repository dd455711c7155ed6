"""Read volumes and volume mounts as mounts.

ConfigMaps, Secrets and fields of the pod are files. An emptyDir is a folder of the node, or of the
node's incarnation. A claim of the JobSet is a folder that the run's nodes share. A claim that is
retained, or existed before, is a folder of the machine.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from msgspec import Struct

from muster.errors import Problem
from muster.spec.formats.jobset.cluster_read import KUBERNETES_ONLY, ContainerPatch
from muster.spec.formats.jobset.cluster_volumes import (
    IN_CLUSTER,
    SHARED_MEMORY,
    is_in_cluster,
    needs_patch,
    read_only,
    shm_size,
)
from muster.spec.formats.jobset.config_objects import ConfigObjects
from muster.spec.formats.jobset.config_volumes import Files, volume_files
from muster.spec.formats.jobset.downward_api import Pod
from muster.spec.formats.jobset.environment_read import ContainerEnvironment
from muster.spec.formats.jobset.kubernetes import (
    Container,
    Volume,
    VolumeMount,
)
from muster.spec.formats.jobset.model import JobSet
from muster.spec.formats.jobset.references import Value, expand
from muster.spec.formats.notes import Notes
from muster.spec.models import Mount, MountFile
from muster.spec.placeholders import placeholders
from muster.spec.wording import Refused, short, suggestion

#: Starts of Mount.source: a folder of the node, of its incarnation, of the run, of the machine.
NODE, INCARNATION, RUN, KEPT = "scratch:node/", "scratch:incarnation/", "scratch:run/", "volume:"
#: Kubernetes: a container has its own /tmp, which is empty after a restart.
OWN_TMP = Mount(source=f"{INCARNATION}tmp", path="/tmp")


def claims(jobset: JobSet) -> dict[str, str]:
    """The claims that a JobSet creates: template -> the source of mounts.

    JobSet: a claim is called <template>-<jobset>.
    """
    made = {}
    for policy in jobset.spec.volume_claim_policies:
        kept = policy.retention_policy.when_deleted == "Retain"
        for claim in policy.templates:
            name = claim.metadata.name
            made[name] = f"{KEPT}{name}-{jobset.name}" if kept else f"{RUN}{name}"
    return made


class PodVolumes(Struct, frozen=True):
    """What the volumes of a pod refer to, and what becomes a patch."""

    #: See `claims`.
    claimed: Mapping[str, str]
    objects: ConfigObjects
    #: The container's, for `subPathExpr`.
    environment: ContainerEnvironment
    patch: ContainerPatch


def mounts(
    shown: Pod,
    container: Container,
    around: PodVolumes,
    where: tuple[str, str],
    problems: list[Problem],
    notes: Notes,
    *,
    in_place: bool,
) -> tuple[Mount, ...]:
    """The mounts of a container.

    where: the paths of the pod and of the container. in_place: whether
    restarts keep the pods.
    """
    pod_path, path = where
    sources = _sources(shown, pod_path, around, problems, notes, in_place=in_place)
    made: list[Mount] = []
    for number, mount in enumerate(container.volume_mounts):
        place = f"{path}.volumeMounts[{number}]"
        source = sources.get(mount.name)
        seen = posixpath.normpath(mount.mount_path)
        if source is None:
            text = f"volume {short(mount.name)} not found"
            problems.append(Problem(f"{place}.name", text, suggestion(mount.name, sources)))
        elif not mount.mount_path.startswith("/"):
            text = f"{short(mount.mount_path)} is not an absolute path"
            problems.append(Problem(f"{place}.mountPath", text, f"write /{mount.mount_path}"))
        elif seen == SHARED_MEMORY and _is_empty_dir(source):
            if shm_size(shown, container) is None:
                around.patch.keep_mount(number)
                why = f"at {seen} {KUBERNETES_ONLY}: every node has shared memory"
                notes.add(mount.name, why, shown.rj.name)
        elif source == IN_CLUSTER:
            around.patch.keep_mount(number)
            notes.add(f"volume {mount.name}", KUBERNETES_ONLY, shown.rj.name)
        else:
            if needs_patch(shown, around.patch, number):
                around.patch.keep_mount(number)
            protected = mount.read_only or mount.name in read_only(shown)
            part = _sub_path(mount, place, around.environment, problems)
            if isinstance(source, str):
                made.append(Mount(source=source, path=seen, read_only=protected, sub_path=part))
            else:
                made.append(Mount(files=_needed(source, part), path=seen, sub_path=part))
    if OWN_TMP.path not in [mount.path for mount in made]:
        made.append(OWN_TMP)
    return tuple(made)


def _sources(
    shown: Pod,
    path: str,
    around: PodVolumes,
    problems: list[Problem],
    notes: Notes,
    *,
    in_place: bool,
) -> dict[str, str | Files]:
    """The source of each volume, by name; IN_CLUSTER for one that only the cluster has. path: of
    the pod."""
    pod = shown.rj.template.spec.template.spec
    # a retry makes a new pod, unless the container restarts in the same one
    empty = NODE if in_place or pod.restart_policy == "OnFailure" else INCARNATION
    sources: dict[str, str | Files] = dict(around.claimed)
    for number, volume in enumerate(pod.volumes):
        place = f"{path}.volumes[{number}]"
        _refuse_several_kinds(volume, place, problems)
        if is_in_cluster(pod, number, around.objects):
            sources[volume.name] = IN_CLUSTER
        elif files := volume_files(volume, place, shown, around.objects, problems):
            sources[volume.name] = files
        else:
            sources[volume.name] = _source(volume, place, empty, problems, notes)
    return sources


def _is_empty_dir(source: str | Files) -> bool:
    return isinstance(source, str) and source.startswith((NODE, INCARNATION))


def _needed(files: Files, part: str | None) -> dict[str, MountFile]:
    """The files of which a part is mounted, if it can be told."""
    if part is None or placeholders(part):
        return dict(files)
    named = {name: file for name, file in files.items() if f"{name}/".startswith(f"{part}/")}
    return named or dict(files)


def _sub_path(
    mount: VolumeMount, path: str, env: ContainerEnvironment, problems: list[Problem]
) -> str | None:
    """The part of a volume that is mounted, with placeholders; None: all of it."""
    given = mount.sub_path or mount.sub_path_expr
    if not given:
        return None
    place = f"{path}.{'subPath' if mount.sub_path else 'subPathExpr'}"
    if mount.sub_path and mount.sub_path_expr:
        problems.append(Problem(place, "is given with subPathExpr", "keep only one of them"))
    value = Value(given) if mount.sub_path else _expanded(given, place, env, problems)
    if given.startswith("/") or ".." in given.split("/"):
        text = f"{short(given)} is not a path below the volume"
        problems.append(Problem(place, text, "write it without .. and without / at its start"))
        return None
    # `.` and `a//b` are paths, too
    parts = [part for part in value.template.split("/") if part not in ("", ".")]
    return "/".join(parts) or None


def _expanded(given: str, path: str, env: ContainerEnvironment, problems: list[Problem]) -> Value:
    try:
        return expand(given, env.value)
    except Refused as error:
        problems.append(Problem(path, error.message, error.hint))
        return Value("")


def _refuse_several_kinds(volume: Volume, path: str, problems: list[Problem]) -> None:
    kinds = {
        "emptyDir": volume.empty_dir,
        "hostPath": volume.host_path,
        "nfs": volume.nfs,
        "persistentVolumeClaim": volume.persistent_volume_claim,
        "configMap": volume.config_map,
        "secret": volume.secret,
        "downwardAPI": volume.downward_api,
        "projected": volume.projected,
    }
    given = [name for name, kind in kinds.items() if kind is not None]
    if len(given) > 1:
        problems.append(Problem(path, f"has {' and '.join(given)}", "keep only one of them"))


def _source(volume: Volume, path: str, empty: str, problems: list[Problem], notes: Notes) -> str:
    if volume.host_path is not None:
        if not volume.host_path.path.startswith("/"):
            text = f"{short(volume.host_path.path)} is not an absolute path"
            problems.append(Problem(f"{path}.hostPath.path", text, "start it with /"))
        return volume.host_path.path
    if volume.nfs is not None:
        return f"nfs://{volume.nfs.server}{volume.nfs.path}"
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
        notes.add(
            f"claim {name}",
            f"is used on engine kubernetes; elsewhere, the folder MUSTER_HOME/volumes/{name}",
        )
        return f"{KEPT}{name}"
    # no volume has a dot in its name
    name = f"{volume.name}.volume" if f"{empty}{volume.name}" == OWN_TMP.source else volume.name
    return f"{empty}{name}"
