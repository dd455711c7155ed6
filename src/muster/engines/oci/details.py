"""What is created in the service: a job and its run, as the bodies of requests. Pure: `muster
explain` shows what is sent, from the same code.

An allocation of slots is one job with one run, which is of its own: a job's artifact never changes,
and the nodes of a run are described in it. Several nodes make a multi-node run, in which a node
group of the service stands for each group of the plan that has slots in it.

The lifecycle decides about order, failure and success: all nodes of a job run start in parallel,
and each has succeeded for the service when its server has left. One that the service loses ends the
job run, as all have to succeed there: so it is certain that none is left when they are replaced.
"""

from __future__ import annotations

import contextlib
import math
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from muster.engines.oci.profile import LEAST_DISK, MOST_DISK, OciProfile
from muster.errors import InvalidInput, Problem
from muster.plan.model import GroupPlan, MountPlan, RunPlan
from muster.spec.shapes import MAX_CORES_SINGLE_NODE, check_multinode, find_shape
from muster.spec.values import MAX_RUNTIME

#: Where the service puts the artifact of a job with an image.
_ARTIFACT_FOLDER = "/home/datascience"
#: What runs in an artifact that the service unpacks.
ENTRYPOINT = "__main__.py"
#: The most mounts of a job.
_MOST_MOUNTS = 5
_GB = 1 << 30
#: Memory for each OCPU of a flexible shape that is not in the catalogue, in GB.
_GB_PER_OCPU = 16.0
#: The most minutes that a job run takes.
MOST_MINUTES = 43_200
#: Seconds that a job run may take longer than its run: to start, to copy outputs, and to end.
_MARGIN = 300.0
#: The most characters of a name.
_MOST_NAME = 255


class Size(Struct, frozen=True):
    """The machine of a node."""

    shape: str
    #: Of a flexible shape; None: the shape has a size.
    ocpus: float | None
    memory_gb: float | None
    disk_gb: int


def job_name(run_id: str, number: int) -> str:
    """The name of a job and its run in the service, by which they are found. number: of the
    allocation."""
    return f"muster-{run_id}.{number}"


def artifact_name(run_id: str, number: int) -> str:
    """The name of the job's artifact."""
    return f"muster-{run_id}-{number}.zip"


def parts_of(parts: Iterable[Sequence[int]], profile: OciProfile) -> list[Sequence[int]]:
    """The slots that get a job run each. parts: those that are to run together."""
    if profile.multi_node:
        return [*parts]
    return [[slot] for part in parts for slot in part]


def node_groups(plan: RunPlan, slots: Iterable[int]) -> dict[str, list[int]]:
    """Group -> those of the slots that are its, in the order of the plan."""
    found: dict[str, list[int]] = {}
    for slot in sorted(slots):
        found.setdefault(plan.nodes[slot].group, []).append(slot)
    return found


def job_details(
    plan: RunPlan, slots: Sequence[int], number: int, profile: OciProfile
) -> dict[str, Any]:
    """The body of CreateJob, for nodes in these slots."""
    found: dict[str, Any] = {
        "projectId": profile.project,
        "compartmentId": profile.compartment,
        "displayName": job_name(plan.run_id, number),
        "description": f"Nodes of Muster run {plan.run_name}"[:_MOST_NAME],
        "freeformTags": {"muster-run": plan.run_id},
    }
    if profile.log_group is not None:
        found["jobLogConfigurationDetails"] = _logging(profile.log_group, profile.log)
    if mounts := _mounts(plan, slots, profile):
        found["jobStorageMountConfigurationDetailsList"] = list(mounts.values())
    if len(slots) == 1:
        group = plan.group(plan.nodes[slots[0]].group)
        return found | _single_node(plan, group, number, profile)
    return found | {"jobNodeConfigurationDetails": _multi_node(plan, slots, number, profile)}


def run_details(plan: RunPlan, job: str, number: int, profile: OciProfile) -> dict[str, Any]:
    """The body of CreateJobRun. job: its OCID."""
    return {
        "projectId": profile.project,
        "compartmentId": profile.compartment,
        "jobId": job,
        "displayName": job_name(plan.run_id, number),
        "freeformTags": {"muster-run": plan.run_id},
    }


def _logging(group: str, log: str | None) -> dict[str, Any]:
    where = {"enableAutoLogCreation": True} if log is None else {"logId": log}
    return {"enableLogging": True, "logGroupId": group, **where}


def _single_node(
    plan: RunPlan, group: GroupPlan, number: int, profile: OciProfile
) -> dict[str, Any]:
    if profile.subnet is None:
        infrastructure = {"jobInfrastructureType": "ME_STANDALONE"}
    else:
        infrastructure = {"jobInfrastructureType": "STANDALONE", "subnetId": profile.subnet}
    configuration = _configuration(group, profile)
    if (limit := minutes(plan)) is not None:
        configuration["maximumRuntimeInMinutes"] = limit
    return {
        "jobConfigurationDetails": configuration,
        "jobInfrastructureConfigurationDetails": infrastructure | _machine(group, profile, 1),
        **_environment(plan, group, number, profile),
    }


def _multi_node(
    plan: RunPlan, slots: Sequence[int], number: int, profile: OciProfile
) -> dict[str, Any]:
    network = {"jobNetworkType": "DEFAULT_NETWORK"}
    if profile.subnet is not None:
        network = {"jobNetworkType": "CUSTOM_NETWORK", "subnetId": profile.subnet}
    limit = minutes(plan)
    return {
        "jobNodeType": "MULTI_NODE",
        "startupOrder": "IN_PARALLEL",
        **({} if limit is None else {"maximumRuntimeInMinutes": limit}),
        "jobNetworkConfiguration": network,
        "jobNodeGroupConfigurationDetailsList": [
            {
                "name": group.name,
                "replicas": len(own),
                "jobInfrastructureConfigurationDetails": {
                    "jobInfrastructureType": "MULTI_NODE",
                    **_machine(group, profile, len(slots)),
                },
                "jobConfigurationDetails": _configuration(group, profile),
                **_environment(plan, group, number, profile),
            }
            for group, own in (
                (plan.group(name), own) for name, own in node_groups(plan, slots).items()
            )
        ],
    }


def _configuration(group: GroupPlan, profile: OciProfile) -> dict[str, Any]:
    variables = dict(profile.environment)
    if image_of(group, profile) is None:
        variables["JOB_RUN_ENTRYPOINT"] = ENTRYPOINT
    return {"jobType": "DEFAULT", "environmentVariables": variables}


def _machine(group: GroupPlan, profile: OciProfile, nodes: int) -> dict[str, Any]:
    size = size_of(group, profile, nodes)
    found: dict[str, Any] = {"shapeName": size.shape, "blockStorageSizeInGBs": size.disk_gb}
    if size.ocpus is not None:
        found["jobShapeConfigDetails"] = {"ocpus": size.ocpus, "memoryInGBs": size.memory_gb}
    return found


def _environment(
    plan: RunPlan, group: GroupPlan, number: int, profile: OciProfile
) -> dict[str, Any]:
    """What has the service run the artifact in an image; nothing if there is none."""
    image = image_of(group, profile)
    if image is None:
        return {}
    name, _, digest = image.partition("@")
    python = group.container.python or profile.python
    found: dict[str, Any] = {
        "jobEnvironmentType": "OCIR_CONTAINER",
        "image": name,
        "entrypoint": [python, f"{_ARTIFACT_FOLDER}/{artifact_name(plan.run_id, number)}"],
        "cmd": [],
    }
    if digest:
        found["imageDigest"] = digest
    return {"jobEnvironmentConfigurationDetails": found}


def image_of(group: GroupPlan, profile: OciProfile) -> str | None:
    """The image of a group's nodes; None: they have the service's own environment."""
    return group.image or profile.image


def size_of(group: GroupPlan, profile: OciProfile, nodes: int) -> Size:
    """The machine of a group's nodes. nodes: of the job run, which are larger if there are
    several."""
    resources = group.resources
    name, _, _ = (resources.shape or profile.shape).partition(":")
    disk = profile.disk_gb
    if resources.disk is not None:
        disk = max(LEAST_DISK, -(-resources.disk // _GB))
    if not name.endswith("Flex"):
        return Size(name, None, None, disk)
    ocpus, cpus_per_ocpu, memory = _catalogued(name)
    if resources.cpus is not None:
        ocpus = float(max(1, math.ceil(resources.cpus / cpus_per_ocpu)))
    elif profile.ocpus is not None:
        ocpus = profile.ocpus
    if resources.memory is not None:
        memory = float(max(1, -(-resources.memory // _GB)))
    elif profile.memory_gb is not None:
        memory = profile.memory_gb
    if nodes > 1:
        ocpus = max(ocpus, MAX_CORES_SINGLE_NODE + 1.0)
    return Size(name, ocpus, memory, disk)


def _catalogued(name: str) -> tuple[float, float, float]:
    """OCPUs, CPUs of each, and GB of memory that a flexible shape has by default."""
    try:
        shape = find_shape(name)
    except InvalidInput:
        return 4.0, 2.0, 4 * _GB_PER_OCPU
    return shape.ocpus, shape.cpus / shape.ocpus, shape.memory / _GB


def minutes(plan: RunPlan) -> int | None:
    """How long a job run may take; None: as long as the service allows, as the job does not say."""
    policy = plan.policy
    if policy.max_runtime >= MAX_RUNTIME:
        return None
    saving = 0.0 if policy.checkpoint is None else policy.checkpoint.grace
    seconds = policy.max_runtime + saving + policy.grace_period + _MARGIN
    return min(math.ceil(seconds / 60), MOST_MINUTES)


# --- mounts


def mounted_by_service(group: GroupPlan, profile: OciProfile) -> dict[str, str]:
    """The mounts of a group that the service makes: source -> where its nodes have it. Others are
    found or copied, as on any host."""
    return {
        mount.source: mount.path for mount in group.mounts if _mount_of(mount, profile) is not None
    }


def _mounts(plan: RunPlan, slots: Iterable[int], profile: OciProfile) -> dict[str, dict[str, Any]]:
    """Path -> what the service mounts there, on all nodes in these slots."""
    groups = (plan.group(name) for name in node_groups(plan, slots))
    return {
        mount.path: found
        for group in groups
        for mount in group.mounts
        if (found := _mount_of(mount, profile)) is not None
    }


def _mount_of(mount: MountPlan, profile: OciProfile) -> dict[str, Any] | None:
    """A mount, if the service can make it."""
    folder, name = posixpath.split(mount.path)
    place = {"destinationDirectoryName": name, "destinationPath": folder}
    if mount.kind == "url" and mount.source.startswith("oci://"):
        where, _, prefix = mount.source.removeprefix("oci://").partition("/")
        bucket, _, namespace = where.partition("@")
        if bucket and namespace:
            found = {"storageType": "OBJECT_STORAGE", "namespace": namespace, "bucket": bucket}
            return found | place | ({"prefix": prefix} if prefix else {})
    if mount.kind == "nfs" and mount.source in profile.file_systems:
        target, _, export = profile.file_systems[mount.source].partition(":")
        found = {"storageType": "FILE_STORAGE", "mountTargetId": target, "exportId": export}
        return found | place
    return None


# --- what the service would refuse


def problems(plan: RunPlan, profile: OciProfile) -> Iterator[Problem]:
    """What the service cannot do for a plan."""
    for group in plan.groups:
        yield from _size_problems(group, profile, len(plan.nodes) if profile.multi_node else 1)
    if len(plan.nodes) > 1 and not (profile.multi_node or profile.subnet or profile.is_here):
        text = "nodes in job runs of their own reach each other only in a subnet"
        yield Problem("engine", text, "set `subnet` in the profile, or `multi_node = true`")
    mounts: dict[str, tuple[str, str]] = {}
    for group in plan.groups:
        path = f"node_groups[{group.name}].mounts"
        for mount in group.mounts:
            if _mount_of(mount, profile) is None:
                continue
            other, source = mounts.setdefault(mount.path, (group.name, mount.source))
            if source != mount.source:
                text = f"all nodes of a job run have the same mounts, and {mount.path} is another"
                yield Problem(path, f"{text} in group {other}", "use different paths")
    if len(mounts) > _MOST_MOUNTS:
        text = f"a job has {_MOST_MOUNTS} mounts of the service at most, not {len(mounts)}"
        yield Problem("mounts", text, "mount a common directory above them")
    uses_files = any(m.source in profile.file_systems for g in plan.groups for m in g.mounts)
    if uses_files and profile.subnet is None:
        text = "mounts of file storage need a subnet that reaches their mount target"
        yield Problem("mounts", text, "set `subnet` in the profile")


def _size_problems(group: GroupPlan, profile: OciProfile, nodes: int) -> Iterator[Problem]:
    size, place = size_of(group, profile, nodes), f"node_groups[{group.name}]"
    if size.disk_gb > MOST_DISK:
        text = f"a node has {MOST_DISK} GB of block storage at most, not {size.disk_gb}"
        yield Problem(f"{place}.resources.disk", text, "mount a bucket or file storage")
    if group.resources.gpus and ".GPU" not in size.shape:
        text = f"shape {size.shape} has no GPUs"
        hint = "name one that has, such as shape: VM.GPU.A10.1; `muster shapes` lists them"
        yield Problem(f"{place}.resources.gpus", text, hint)
    if group.resources.shape is None and size.ocpus is None:  # others were checked with the job
        with contextlib.suppress(InvalidInput):  # the service may know it
            found = check_multinode(find_shape(size.shape), nodes)
            yield from (problem._replace(path=f"{place}.shape") for problem in found)
