"""Volumes and where containers see them, as mounts.

An emptyDir is a folder of each node, or of each of its lives, a claim of the JobSet one that its
nodes share; a claim that outlives the JobSet, or was there before it, is a folder that is kept.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from muster.errors import Problem
from muster.spec.formats.jobset_model import JobSet
from muster.spec.formats.kubernetes import Container, PodSpec, Volume
from muster.spec.formats.notes import Notes
from muster.spec.models import Mount
from muster.spec.wording import short, suggestion

#: Mount.source: a folder of the node's, of each of its lives, of the run's, one that Muster keeps.
NODE, LIFE, RUN, KEPT = "scratch:node/", "scratch:life/", "scratch:run/", "volume:"
#: Kubernetes: what a container writes is its own, and gone when it starts again.
OWN_TMP = Mount(source=f"{LIFE}tmp", path="/tmp")
_SHARED_MEMORY = "/dev/shm"


def claims(jobset: JobSet) -> dict[str, str]:
    """The claims a JobSet brings along: template -> where a mount of it is from.

    JobSet: a claim is called <template>-<jobset>.
    """
    made = {}
    for policy in jobset.spec.volume_claim_policies:
        kept = policy.retention_policy.when_deleted == "Retain"
        for claim in policy.templates:
            name = claim.metadata.name
            made[name] = f"{KEPT}{name}-{jobset.name}" if kept else f"{RUN}{name}"
    return made


def mounts(
    pod: PodSpec,
    container: Container,
    claimed: Mapping[str, str],
    where: tuple[str, str],
    problems: list[Problem],
    notes: Notes,
    *,
    in_place: bool,
) -> tuple[Mount, ...]:
    """The mounts of a container. where: the paths of the pod and of the container. in_place:
    whether the JobSet restarts containers, not pods."""
    pod_path, path = where
    # a pod that is retried is a new pod; a container that is restarted is in the old one
    empty = NODE if in_place or pod.restart_policy == "OnFailure" else LIFE
    sources = dict(claimed)
    read_only = set()
    for number, volume in enumerate(pod.volumes):
        place = f"{pod_path}.volumes[{number}]"
        sources[volume.name] = _source(volume, place, empty, problems, notes)
        if any(v is not None and v.read_only for v in (volume.nfs, volume.persistent_volume_claim)):
            read_only.add(volume.name)
    made: list[Mount] = []
    for number, mount in enumerate(container.volume_mounts):
        place = f"{path}.volumeMounts[{number}]"
        source = sources.get(mount.name)
        seen = posixpath.normpath(mount.mount_path)
        if source is None:
            text = f"there is no volume {short(mount.name)}"
            problems.append(Problem(f"{place}.name", text, suggestion(mount.name, sources)))
        elif not mount.mount_path.startswith("/"):
            text = f"{short(mount.mount_path)} is no absolute path"
            problems.append(Problem(f"{place}.mountPath", text, f"write /{mount.mount_path}"))
        elif seen == _SHARED_MEMORY and source.startswith((NODE, LIFE)):
            notes.add(mount.name, f"at {seen} is not needed: every node has shared memory")
        else:
            made.append(
                Mount(
                    source=source, path=seen, read_only=mount.read_only or mount.name in read_only
                )
            )
    if OWN_TMP.path not in [mount.path for mount in made]:
        made.append(OWN_TMP)
    return tuple(made)


def _source(volume: Volume, path: str, empty: str, problems: list[Problem], notes: Notes) -> str:
    kinds = {
        "emptyDir": volume.empty_dir,
        "hostPath": volume.host_path,
        "nfs": volume.nfs,
        "persistentVolumeClaim": volume.persistent_volume_claim,
    }
    given = [name for name, kind in kinds.items() if kind is not None]
    if len(given) > 1:
        problems.append(Problem(path, f"has {' and '.join(given)}", "keep the one you mean"))
    if volume.host_path is not None:
        if not volume.host_path.path.startswith("/"):
            text = f"{short(volume.host_path.path)} is no absolute path"
            problems.append(Problem(f"{path}.hostPath.path", text, "write it from / on"))
        return volume.host_path.path
    if volume.nfs is not None:
        return f"nfs://{volume.nfs.server}{volume.nfs.path}"
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
        notes.add(f"claim {name}", f"is the folder MUSTER_HOME/volumes/{name}")
        return f"{KEPT}{name}"
    # no volume has a dot in its name
    name = f"{volume.name}.volume" if f"{empty}{volume.name}" == OWN_TMP.source else volume.name
    return f"{empty}{name}"
