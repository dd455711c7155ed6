"""Read a replicated Job as a node group: its Jobs are the replicas, their pods the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from muster.errors import Problem
from muster.spec.formats.jobset.cluster_read import (
    KUBERNETES_ONLY,
    PodPatch,
    cluster_settings,
    note_limits,
    without_exclusive,
    without_topology,
)
from muster.spec.formats.jobset.cluster_volumes import shm_size
from muster.spec.formats.jobset.config_objects import ConfigObjects
from muster.spec.formats.jobset.downward_api import Pod, pod_of
from muster.spec.formats.jobset.environment_read import Program, environment
from muster.spec.formats.jobset.failures_read import retries
from muster.spec.formats.jobset.job_arrays import GroupJob, array_settings, is_work_queue
from muster.spec.formats.jobset.kubernetes import ResourceRequirements
from muster.spec.formats.jobset.metadata import metadata_of
from muster.spec.formats.jobset.model import DependsOnItem, JobSet
from muster.spec.formats.jobset.pod_containers import PodReader
from muster.spec.formats.jobset.probes import hook_command, liveness_probe, startup_probe
from muster.spec.formats.jobset.restart_agent import Main, main_container
from muster.spec.formats.jobset.security import container_of
from muster.spec.formats.jobset.single_job import SingleJob
from muster.spec.formats.jobset.volumes_read import PodVolumes, mounts
from muster.spec.formats.notes import Notes
from muster.spec.formats.quantity import parse_quantity
from muster.spec.models import Container, Kubernetes, NodeGroup, Resources
from muster.spec.policies import DependsOn
from muster.spec.wording import Refused, short

_GPUS = "nvidia.com/gpu"


def hostname_template(jobset: str, rj: str, *, is_array: bool = False) -> str:
    """JobSet: a pod is named <jobset>-<replicatedjob>-<job>-<index>. is_array: whether the group
    has the pods of one Job, the first, as replicas."""
    job, index = ("0", "${replica}") if is_array else ("${replica}", "${index}")
    return f"{jobset}-{rj}-{job}-{index}"


def node_group(
    jobset: JobSet,
    part: GroupJob,
    path: str,
    claimed: Mapping[str, str],
    objects: ConfigObjects,
    problems: list[Problem],
    notes: Notes,
) -> NodeGroup:
    """The node group of a replicated Job. path: of the replicated Job. claimed: see `claims`."""
    rj, job = part.rj, part.rj.template.spec
    shown = pod_of(jobset, part)
    pod_path = f"{path}.template.spec.template.spec"
    single = isinstance(jobset, SingleJob)
    main = main_container(job.template.spec, pod_path, problems, single=single)
    made = NodeGroup(
        name=rj.name,
        depends_on=_dependencies(jobset, rj.depends_on),
        hostname=shown.hostname,
        job_metadata=metadata_of(rj.template.metadata),
        pod_metadata=metadata_of(job.template.metadata),
        **_size(jobset, part),
    )
    if main is None:
        return made
    if is_work_queue(job):
        why = "is a work queue; here, a pod that fails after the first success is still replaced"
        notes.add("the Job without completions", why, rj.name)
    elif job.completion_mode == "NonIndexed" and not (single and (job.completions or 1) == 1):
        notes.add(
            "completionMode NonIndexed", "is run as Indexed: every node has an index", rj.name
        )
    if main.agent:
        why = "is not run: Muster restarts programs in place itself"
        notes.add("JobSet's in-place restart agent", why, rj.name)
    return _with_program(made, shown, main, (pod_path, claimed), objects, problems, notes)


def _size(jobset: JobSet, part: GroupJob) -> dict[str, Any]:
    """The settings of a group that follow from the numbers of its Job."""
    job = part.rj.template.spec
    if part.job is not None:
        return array_settings(job)
    return {
        "nodes": job.completions or 1,
        "replicas": part.rj.replicas,
        "retries": retries(jobset, job),
        "timeout": _seconds(job.active_deadline_seconds),
    }


def _with_program(
    group: NodeGroup,
    shown: Pod,
    main: Main,
    pod: tuple[str, Mapping[str, str]],
    objects: ConfigObjects,
    problems: list[Problem],
    notes: Notes,
) -> NodeGroup:
    container, path = main.container, main.path
    if not container.command and not container.image:
        text = "is missing, and there is no image with a program of its own"
        problems.append(Problem(f"{path}.command", text, "write the program to run"))
    jobset, rj = shown.jobset, shown.rj
    patch = PodPatch(rj.template.spec.template.spec)
    own = patch.container("containers", 0)
    env = environment(shown, container, path, problems, notes, objects, own)
    program = Program((), (), ())
    try:
        program = env.expand_command(container.command, container.args)
    except Refused as error:
        problems.append(Problem(f"{path}.command[0]", error.message, error.hint))
    claimed = pod[1]
    reader = PodReader(
        shown,
        pod[0],
        claimed,
        objects,
        problems,
        notes,
        patch,
        lambda other, place: _of_other(
            _resources(other.resources, place, rj.name, problems, notes), rj.name, notes
        ),
    )
    found = mounts(
        shown,
        container,
        PodVolumes(claimed, objects, env, own),
        (pod[0], path),
        problems,
        notes,
        in_place=jobset.restarts_in_place,
    )
    extra_containers = reader.read(rj.template.spec)
    exclusive, job_metadata = without_exclusive(group.job_metadata)
    topology, pod_metadata = without_topology(group.pod_metadata)
    settings = cluster_settings(
        rj.template.spec.template.spec, container, patch.made(), agent=main.agent
    )
    settings = replace(settings, exclusive=exclusive, topology=topology)
    note_limits(container, notes, rj.name)
    after, before = f"{path}.lifecycle.postStart", f"{path}.lifecycle.preStop"
    return replace(
        group,
        command=program.command or None,
        args=program.args or None,
        working_dir=_working_dir(container.working_dir, f"{path}.workingDir", problems),
        node_args=program.node_args or None,
        env=env.env,
        node_env=env.node_env,
        image=container.image or None,
        container=_with_shm(
            container_of(rj.template.spec.template.spec.security_context, container),
            shm_size(shown, container),
        ),
        resources=_resources(container.resources, f"{path}.resources", rj.name, problems, notes),
        startup_probe=startup_probe(container, path, problems),
        liveness_probe=liveness_probe(container, path, problems),
        after_start=hook_command(container.lifecycle.post_start, container, after, problems),
        before_stop=hook_command(container.lifecycle.pre_stop, container, before, problems),
        mounts=found,
        extra_containers=extra_containers,
        kubernetes=None if settings == Kubernetes() else settings,
        job_metadata=job_metadata,
        pod_metadata=pod_metadata,
    )


def _with_shm(made: Container | None, size: int | None) -> Container | None:
    return made if size is None else replace(made or Container(), shm_size=size)


def _of_other(given: Resources | None, group: str, notes: Notes) -> Resources | None:
    """The resources of another container than the program's. Those that are left out are in the
    patch."""
    if given is None:
        return None
    for name, value in ((_GPUS, given.gpus), ("ephemeral-storage", given.disk)):
        if value:
            notes.add(f"limits.{name}", KUBERNETES_ONLY, group)
    made = replace(given, gpus=0, disk=None)
    return None if made == Resources() else made


def _working_dir(given: str, path: str, problems: list[Problem]) -> str | None:
    """The working directory. Container runtimes require an absolute path."""
    if given and not given.startswith("/"):
        text = f"{short(given)} is not an absolute path"
        problems.append(Problem(path, text, f"write /{given}"))
    return given or None


def _dependencies(jobset: JobSet, items: Sequence[DependsOnItem]) -> tuple[DependsOn, ...]:
    """The dependencies. JobSet: those on replicated Jobs without replicas are met at once."""
    absent = {rj.name for rj in jobset.spec.replicated_jobs if rj.replicas == 0}
    return tuple(
        DependsOn(group=item.name, status="complete" if item.status == "Complete" else "ready")
        for item in items
        if item.name not in absent
    )


def _seconds(value: int | None) -> float | None:
    return None if value is None else float(value)


def _resources(
    required: ResourceRequirements, path: str, group: str, problems: list[Problem], notes: Notes
) -> Resources | None:
    amounts: dict[str, Decimal] = {}
    for kind, named in (("limits", required.limits), ("requests", required.requests)):
        for name, value in named.items():
            try:
                amount = parse_quantity(value)
            except Refused as error:
                problems.append(Problem(f"{path}.{kind}.{name}", error.message, error.hint))
                continue
            if kind == "limits":
                amounts[name] = amount
            elif name not in required.limits:
                notes.add(f"requests.{name}", KUBERNETES_ONLY, group)
    gpus = amounts.pop(_GPUS, Decimal(0))
    if gpus != gpus.to_integral_value():
        problems.append(
            Problem(f"{path}.limits.{_GPUS}", f"{gpus} is not a whole number", "round it")
        )
    cpus, memory = amounts.pop("cpu", Decimal(0)), amounts.pop("memory", Decimal(0))
    disk = amounts.pop("ephemeral-storage", Decimal(0))
    if not (cpus or memory or gpus or disk):
        return None
    return Resources(
        cpus=float(cpus) if cpus else None,
        memory=int(memory) if memory else None,
        gpus=int(gpus),
        disk=int(disk) or None,
    )
