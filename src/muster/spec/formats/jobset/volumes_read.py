"""Read volumes and volume mounts as mounts.

An emptyDir is a folder of the node, or of the node's incarnation. A claim of the JobSet is a folder
that the run's nodes share. A claim that is retained, or existed before, is a folder of the machine.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from muster.errors import Problem
from muster.spec.formats.jobset.kubernetes import Container, PodSpec, Volume
from muster.spec.formats.jobset.model import JobSet
from muster.spec.formats.notes import Notes
from muster.spec.models import Mount
from muster.spec.wording import short, suggestion

#: Starts of Mount.source: a folder of the node, of its incarnation, of the run, of the machine.
NODE, INCARNATION, RUN, KEPT = "scratch:node/", "scratch:incarnation/", "scratch:run/", "volume:"
#: Kubernetes: a container has its own /tmp, which is empty after a restart.
OWN_TMP = Mount(source=f"{INCARNATION}tmp", path="/tmp")
_SHARED_MEMORY = "/dev/shm"


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
    """The mounts of a container.

    claimed: see `claims`. where: the paths of the pod and of the container. in_place: whether
    restarts keep the pods.
    """
    pod_path, path = where
    # a retry makes a new pod, unless the container restarts in the same one
    empty = NODE if in_place or pod.restart_policy == "OnFailure" else INCARNATION
    sources = dict(claimed)
    for number, volume in enumerate(pod.volumes):
        place = f"{pod_path}.volumes[{number}]"
        sources[volume.name] = _source(volume, place, empty, problems, notes)
    read_only = {volume.name for volume in pod.volumes if _is_read_only(volume)}
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
        elif seen == _SHARED_MEMORY and source.startswith((NODE, INCARNATION)):
            notes.add(mount.name, f"at {seen} is not needed: every node has shared memory")
        else:
            protected = mount.read_only or mount.name in read_only
            made.append(Mount(source=source, path=seen, read_only=protected))
    if OWN_TMP.path not in [mount.path for mount in made]:
        made.append(OWN_TMP)
    return tuple(made)


def _is_read_only(volume: Volume) -> bool:
    kinds = (volume.nfs, volume.persistent_volume_claim)
    return any(kind is not None and kind.read_only for kind in kinds)


def _source(volume: Volume, path: str, empty: str, problems: list[Problem], notes: Notes) -> str:
    kinds = {
        "emptyDir": volume.empty_dir,
        "hostPath": volume.host_path,
        "nfs": volume.nfs,
        "persistentVolumeClaim": volume.persistent_volume_claim,
    }
    given = [name for name, kind in kinds.items() if kind is not None]
    if len(given) > 1:
        problems.append(Problem(path, f"has {' and '.join(given)}", "keep only one of them"))
    if volume.host_path is not None:
        if not volume.host_path.path.startswith("/"):
            text = f"{short(volume.host_path.path)} is not an absolute path"
            problems.append(Problem(f"{path}.hostPath.path", text, "start it with /"))
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
