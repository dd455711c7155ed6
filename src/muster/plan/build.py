"""Build the plan of a run from a spec: nodes with ranks, names, addresses and processes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.frameworks.base import Network, Port
from muster.plan.arrange import Arranged, first_ranks
from muster.plan.model import (
    PREFLIGHT_PORT,
    SERVICES_TIMEOUT,
    ArtifactPlan,
    ContainerPlan,
    ExtraContainerPlan,
    FilePlan,
    GroupPlan,
    KueuePlan,
    MetadataPlan,
    MountKind,
    MountPlan,
    NodePlan,
    Parameters,
    PreflightPlan,
    ResourcePlan,
    RunPlan,
    WorkloadPlan,
)
from muster.plan.names import with_names
from muster.plan.policy import build_policy, copied_settings
from muster.spec.decode import given_settings
from muster.spec.models import (
    DEFAULT_FRAMEWORK,
    Container,
    JobSpec,
    Metadata,
    Mount,
    MountFile,
    NodeGroup,
    Preflight,
    Probe,
    Workload,
)
from muster.spec.override_models import GROUP_SETTINGS, RUN_WIDE
from muster.spec.values import MAX_RUNTIME

#: Limits of a shape that `resources` can replace.
_LIMITED = ("cpus", "memory", "gpus")
#: Seconds that no run takes: a hundred years.
_NO_LIMIT = 100 * 365 * 86400.0
#: Where nodes listen for the measurement of their bandwidth, unless it is taken.
_USUAL_PREFLIGHT_PORT = 50506


class Identity(Struct, frozen=True):
    """Names and ids of a run, as in the store, the logs and the environment."""

    run_id: str
    run_name: str
    job_id: str
    job_name: str


#: Assigns addresses: from the network and the number of nodes to an address for each rank.
Addressing = Callable[[Network, int], Sequence[str]]
SourceKind = Callable[[str], MountKind]
ShapeOf = Callable[[str], ResourcePlan]
#: How many replicas of an array, whose nodes have these resources, run at once if the job does not
#: say. Called with the number of nodes in each.
AtOnce = Callable[[ResourcePlan, int], int]


def build_plan(
    arranged: Arranged,
    identity: Identity,
    *,
    artifact: ArtifactPlan | None,
    addresses: Addressing,
    source_kind: SourceKind,
    shape_of: ShapeOf,
    at_once: AtOnce = lambda _resources, _nodes: 1,
    in_place: bool = True,
    run_network: str = "",
    notes: Sequence[str] = (),
) -> RunPlan:
    """The plan of a run.

    in_place: whether the engine can restart programs on nodes that stay. run_network: why nodes
    have a network of their run where nothing else is needed; "" if they have not.
    Ranks run 0..N-1 in group order, then replica, then index (OCI: NODE_RANK).
    Raises InvalidInput if the engine refuses the spec.
    """
    spec, setup = arranged.spec, arranged.setup
    network, reason = _network(arranged, run_network=run_network)
    groups = _groups(arranged, source_kind, shape_of, at_once)
    parallelism = {g.name: g.parallelism for g in groups if g.parallelism is not None}
    slots = sum(g.nodes * (g.parallelism or g.replicas) for g in groups)
    plan = RunPlan(
        run_id=identity.run_id,
        run_name=identity.run_name,
        job_id=identity.job_id,
        job_name=identity.job_name,
        framework=spec.framework,
        network_reason=reason,
        policy=build_policy(
            arranged,
            seed=crc32(identity.run_id.encode()),
            in_place=in_place,
            parallelism=parallelism,
        ),
        groups=groups,
        nodes=_nodes(groups, identity.run_id, addresses(network, slots)),
        ports=(*setup.ports, *_preflight_ports(spec)),
        tls=setup.tls,
        # of an array, each replica is a cluster of its own, at ports that nobody knows before
        endpoints={} if all(group.is_array for group in groups) else setup.endpoints,
        quiet=setup.quiet,
        artifact=artifact,
        log_output=spec.logging.enabled,
        log_directory=spec.logging.directory,
        notes=tuple(notes),
        node_outputs=True,
        parameters=_parameters(spec),
        host_aliases=spec.host_aliases,
        secrets=spec.secrets,
        kueue=None if spec.kueue is None else KueuePlan(spec.kueue.queue, spec.kueue.priority),
        tags=spec.tags,
        annotations=spec.annotations,
        **{**copied_settings(spec, RUN_WIDE, RunPlan), "network": network},
    )
    if spec.workload is not None:
        plan = _with_workload(plan, spec.workload, default=spec.max_runtime == MAX_RUNTIME)
    return with_names(plan, identity.run_name)


def _with_workload(plan: RunPlan, workload: Workload, *, default: bool) -> RunPlan:
    """default: whether the job says nothing about `max_runtime`: what was adopted is not ended
    then, however long it has run."""
    policy = plan.policy
    if workload.uid is not None and default:
        policy = replace(policy, max_runtime=_NO_LIMIT)
    return replace(plan, workload=WorkloadPlan(workload.manifest, workload.uid), policy=policy)


def _preflight_ports(spec: JobSpec) -> tuple[Port, ...]:
    """The port of each node at which others measure the bandwidth to it."""
    measured = [group.preflight.bandwidth for group in spec.node_groups if group.preflight]
    return (Port(PREFLIGHT_PORT, _USUAL_PREFLIGHT_PORT, each=True),) if any(measured) else ()


def _network(arranged: Arranged, *, run_network: str) -> tuple[Network, str]:
    """The network of a run, and why it has this one."""
    spec, setup = arranged.spec, arranged.setup
    if spec.network:
        return spec.network, "set in the spec"
    if run_network and setup.network == "shared":
        return "cluster", run_network
    return setup.network, setup.network_reason


def _parameters(spec: JobSpec) -> Parameters | None:
    for group in spec.node_groups:
        if group.array is not None:
            from muster.plan.parameters import parameters_of  # few runs have parameters

            return parameters_of(group.name, group.array)
    return None


def _groups(
    arranged: Arranged, source_kind: SourceKind, shape_of: ShapeOf, at_once: AtOnce
) -> tuple[GroupPlan, ...]:
    setup = arranged.setup
    common = setup.env
    if arranged.spec.clean_env and arranged.spec.framework == DEFAULT_FRAMEWORK:
        common = {name: text for name, text in common.items() if name.startswith("MUSTER_")}
    plans = []
    for group, rank in zip(arranged.spec.node_groups, first_ranks(arranged.spec), strict=True):
        role = arranged.role(group.name)
        resources = _resources(group, shape_of)
        plan = GroupPlan(
            name=group.name,
            first_rank=rank,
            framework_env={**common, **role.env},
            framework_defaults={**setup.defaults, **role.defaults},
            resources=resources,
            mounts=_mounts(group.mounts, source_kind),
            probe=_probe(group.startup_probe),
            liveness=_probe(group.liveness_probe),
            preflight=_preflight(group.preflight),
            container=_container(group.container),
            extra_containers=_extra_containers(group, source_kind),
            role=replace(role, env={}, defaults={}),  # see framework_env and framework_defaults
            services_timeout=group.ready_timeout or SERVICES_TIMEOUT,
            slurm={} if group.slurm is None else given_settings(group.slurm),
            kubernetes={} if group.kubernetes is None else given_settings(group.kubernetes),
            job_metadata=_metadata(group.job_metadata),
            pod_metadata=_metadata(group.pod_metadata),
            **{
                **copied_settings(group, GROUP_SETTINGS, GroupPlan),
                "replicas": group.most_replicas,
                "parallelism": _parallelism(group, resources, at_once),
            },
        )
        plans.append(plan)
    return tuple(plans)


def _parallelism(group: NodeGroup, resources: ResourcePlan, at_once: AtOnce) -> int | None:
    """How many replicas of an array run at once; None if the group is none."""
    if not group.is_array:
        return None
    chosen = group.replicas
    if group.only is not None:
        from muster.spec.replica_numbers import parse_numbers  # few runs name replicas

        chosen = sum(map(len, parse_numbers(group.only)))
    return max(1, min(group.parallelism or at_once(resources, group.nodes), chosen))


def _nodes(
    groups: Sequence[GroupPlan], run_id: str, addresses: Sequence[str]
) -> tuple[NodePlan, ...]:
    nodes: list[NodePlan] = []
    has_arrays = any(group.is_array for group in groups)
    for group in groups:
        for replica in range(group.parallelism or group.replicas):
            for index in range(group.nodes):
                rank = group.first_rank + replica * group.nodes + index
                nodes.append(
                    NodePlan(
                        rank=rank,
                        group=group.name,
                        replica=replica,
                        index=index,
                        node_id=f"{run_id}-{rank}",
                        fqdn="",  # set by `with_names`
                        address=addresses[len(nodes)],
                        hostname="",
                        slot=len(nodes) if has_arrays else None,
                    )
                )
    return tuple(nodes)


def _metadata(given: Metadata) -> MetadataPlan:
    return MetadataPlan(given.labels, given.annotations)


def _resources(group: NodeGroup, shape_of: ShapeOf) -> ResourcePlan:
    shape = ResourcePlan() if group.shape is None else shape_of(group.shape)
    resources = group.resources
    if resources is None:
        return shape
    limits = {name: value for name in _LIMITED if (value := getattr(resources, name))}
    exact = () if shape.shape is None else tuple(limits)
    return replace(
        shape, **limits, exact=exact, disk=resources.disk, disk_image=resources.disk_image
    )


def _container(given: Container | None) -> ContainerPlan:
    return ContainerPlan() if given is None else ContainerPlan(**asdict(given))


def _extra_containers(group: NodeGroup, source_kind: SourceKind) -> tuple[ExtraContainerPlan, ...]:
    return tuple(
        ExtraContainerPlan(
            name=one.name,
            role=one.role,
            image=one.image,
            command=one.command,
            args=one.args,
            node_args=one.node_args or (),
            env=one.env,
            node_env=one.node_env,
            working_dir=one.working_dir,
            resources=ResourcePlan()
            if one.resources is None
            else ResourcePlan(cpus=one.resources.cpus, memory=one.resources.memory),
            container=_container(one.container),
            mounts=tuple(
                # which are in a folder of their own
                replace(mount, variable=f"{one.name}.{mount.variable}")
                for mount in _mounts(one.mounts, source_kind)
            ),
            probe=_probe(one.startup_probe),
        )
        for one in group.extra_containers
    )


def _mounts(mounts: Sequence[Mount], source_kind: SourceKind) -> tuple[MountPlan, ...]:
    plans: list[MountPlan] = []
    taken: dict[str, int] = {}
    for mount in mounts:
        variable = mount_variable(mount.destination)
        count = taken.get(variable, 0)
        taken[variable] = count + 1
        plans.append(
            MountPlan(
                source=mount.source or f"files:{mount.destination}",
                kind="files" if mount.source is None else source_kind(mount.source),
                path=mount.destination,
                variable=f"{variable}_{count + 1}" if count else variable,
                read_only=mount.read_only or mount.source is None,
                link=mount.link,
                files=tuple(_file(path, file) for path, file in mount.files.items()),
                sub_path=mount.sub_path,
            )
        )
    return tuple(plans)


def _file(path: str, file: MountFile) -> FilePlan:
    is_base64 = file.base64 is not None
    content = (file.base64 if is_base64 else file.text) or ""
    return FilePlan(path, content, int(file.mode, 8), is_base64)


def mount_variable(destination: str) -> str:
    """The variable with the path of a mount: /mnt/my-data -> MUSTER_MOUNT_MY_DATA."""
    last = destination.rstrip("/").rsplit("/", 1)[-1]
    return "MUSTER_MOUNT_" + "".join(c if c.isalnum() else "_" for c in last.upper())


def _preflight(given: Preflight | None) -> PreflightPlan | None:
    return None if given is None else PreflightPlan(**asdict(given))


def _probe(given: Probe | None) -> dict[str, Any] | None:
    if given is None:
        return None
    from muster.node import launch_message  # few jobs have one

    return launch_message.Probe(
        period=given.period,
        timeout=given.timeout,
        threshold=given.threshold,
        initial_delay=given.initial_delay,
        command=None if given.exec_ is None else list(given.exec_),
        port=given.tcp,
        http=given.http,
        file=given.file,
    )._asdict()
