"""Read a replicated Job as a node group: its Jobs are the replicas, their pods the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from muster.errors import Problem
from muster.spec.formats.jobset.downward_api import Pod
from muster.spec.formats.jobset.environment_read import Program, environment
from muster.spec.formats.jobset.failures_read import retries
from muster.spec.formats.jobset.kubernetes import ResourceRequirements
from muster.spec.formats.jobset.metadata import metadata_of
from muster.spec.formats.jobset.model import DependsOnItem, JobSet, ReplicatedJob
from muster.spec.formats.jobset.probes import startup_probe
from muster.spec.formats.jobset.restart_agent import Main, main_container
from muster.spec.formats.jobset.volumes_read import mounts
from muster.spec.formats.notes import Notes
from muster.spec.formats.quantity import parse_quantity
from muster.spec.models import NodeGroup, Resources
from muster.spec.policies import DependsOn
from muster.spec.wording import Refused, short

_GPUS = "nvidia.com/gpu"


def hostname_template(jobset: str, rj: str) -> str:
    """JobSet: a pod is named <jobset>-<replicatedjob>-<job>-<index>."""
    return f"{jobset}-{rj}-${{replica}}-${{index}}"


def node_group(
    jobset: JobSet,
    rj: ReplicatedJob,
    path: str,
    claimed: Mapping[str, str],
    problems: list[Problem],
    notes: Notes,
) -> NodeGroup:
    """The node group of a replicated Job. path: of the replicated Job. claimed: see `claims`."""
    job = rj.template.spec
    pod_path = f"{path}.template.spec.template.spec"
    main = main_container(job.template.spec, pod_path, problems)
    made = NodeGroup(
        name=rj.name,
        nodes=job.completions or 1,
        replicas=rj.replicas,
        depends_on=_dependencies(jobset, rj.depends_on),
        retries=retries(jobset, job),
        timeout=_seconds(job.active_deadline_seconds),
        hostname=hostname_template(jobset.name, rj.name),
        job_metadata=metadata_of(rj.template.metadata),
        pod_metadata=metadata_of(job.template.metadata),
    )
    if main is None:
        return made
    if job.completion_mode == "NonIndexed":
        notes.add(
            "completionMode NonIndexed", "is run as Indexed: every node has an index", rj.name
        )
    if main.agent:
        why = "is not run: Muster restarts programs in place itself"
        notes.add("JobSet's in-place restart agent", why, rj.name)
    return _with_program(made, jobset, rj, main, (pod_path, claimed), problems, notes)


def _with_program(
    group: NodeGroup,
    jobset: JobSet,
    rj: ReplicatedJob,
    main: Main,
    pod: tuple[str, Mapping[str, str]],
    problems: list[Problem],
    notes: Notes,
) -> NodeGroup:
    from msgspec.structs import replace

    container, path = main.container, main.path
    if not container.command:
        text = "is missing: Muster does not know the image's own command"
        problems.append(Problem(f"{path}.command", text, "write the program to run"))
    env = environment(Pod(jobset, rj), container, path, problems, notes)
    program = Program((), (), ())
    try:
        program = env.expand_command(container.command, container.args)
    except Refused as error:
        problems.append(Problem(f"{path}.command[0]", error.message, error.hint))
    claimed = pod[1]
    return replace(
        group,
        command=program.command,
        args=program.args or None,
        working_dir=_working_dir(container.working_dir, f"{path}.workingDir", problems),
        node_args=program.node_args or None,
        env=env.env,
        node_env=env.node_env,
        image=container.image or None,
        resources=_resources(container.resources, f"{path}.resources", rj.name, problems, notes),
        startup_probe=startup_probe(container, path, problems),
        mounts=mounts(
            rj.template.spec.template.spec,
            container,
            claimed,
            (pod[0], path),
            problems,
            notes,
            in_place=jobset.restarts_in_place,
        ),
    )


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
                why = "is not used: Muster reserves nothing, only limits count"
                notes.add(f"requests.{name}", why, group)
    gpus = amounts.pop(_GPUS, Decimal(0))
    if gpus != gpus.to_integral_value():
        problems.append(
            Problem(f"{path}.limits.{_GPUS}", f"{gpus} is not a whole number", "round it")
        )
    cpus, memory = amounts.pop("cpu", Decimal(0)), amounts.pop("memory", Decimal(0))
    for name in amounts:
        notes.add(f"limits.{name}", "is not used: Muster limits cpu, memory and GPUs", group)
    if not (cpus or memory or gpus):
        return None
    return Resources(
        cpus=float(cpus) if cpus else None,
        memory=int(memory) if memory else None,
        gpus=int(gpus),
    )
