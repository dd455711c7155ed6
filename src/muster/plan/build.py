"""From what a person asked for to concrete nodes: ranks, names, addresses, processes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from muster.frameworks.base import Network
from muster.plan.arrange import Arranged
from muster.plan.model import (
    READY_TIMEOUT,
    ArtifactPlan,
    GroupPlan,
    MountKind,
    MountPlan,
    NodePlan,
    ProbePlan,
    ResourcePlan,
    RunPlan,
)
from muster.plan.names import named
from muster.plan.policy import build_policy
from muster.spec.models import DEFAULT_FRAMEWORK, Mount, NodeGroup, StartupProbe
from muster.spec.placeholders import DEFAULT_HOSTNAME

#: What a shape says of a node, and resources say more exactly.
_LIMITED = ("cpus", "memory", "gpus")


class Identity(Struct, frozen=True):
    """Who the run is. The same names appear in the store, the logs and the environment."""

    run_id: str
    run_name: str
    job_id: str
    job_name: str


#: How an engine lays out a run: from the network and the number of nodes to an address a rank.
Addressing = Callable[[Network, int], Sequence[str]]
SourceKind = Callable[[str], MountKind]
ShapeOf = Callable[[str], ResourcePlan]


def build_plan(
    arranged: Arranged,
    identity: Identity,
    *,
    artifact: ArtifactPlan | None,
    addresses: Addressing,
    source_kind: SourceKind,
    shape_of: ShapeOf,
    in_place: bool = True,
    notes: Sequence[str] = (),
) -> RunPlan:
    """The plan of a run.

    in_place: whether the engine can start programs again on nodes that stay.
    Ranks run 0..N-1 in group order, then replica, then index (OCI: NODE_RANK).
    Raises InvalidInput if the engine refuses the spec.
    """
    spec, setup = arranged.spec, arranged.setup
    network: Network = spec.network or setup.network
    groups = _groups(arranged, source_kind, shape_of)
    plan = RunPlan(
        run_id=identity.run_id,
        run_name=identity.run_name,
        job_id=identity.job_id,
        job_name=identity.job_name,
        framework=spec.framework,
        processes_per_node=spec.processes_per_node,
        network=network,
        network_reason="the spec says so" if spec.network else setup.network_reason,
        policy=build_policy(arranged, seed=crc32(identity.run_id.encode()), in_place=in_place),
        groups=groups,
        nodes=_nodes(groups, identity.run_id, addresses(network, sum(g.size for g in groups))),
        ports=setup.ports,
        tls=setup.tls,
        endpoints=setup.endpoints,
        quiet=setup.quiet,
        artifact=artifact,
        log_output=spec.logging.enabled,
        log_directory=spec.logging.directory,
        notes=tuple(notes),
        subdomain=spec.subdomain,
        namespace=spec.namespace,
        clean_env=spec.clean_env,
        keep_attempts=spec.keep_attempts,
        ttl_after_finished=spec.ttl_after_finished,
    )
    return named(plan, identity.run_name)


def _groups(
    arranged: Arranged, source_kind: SourceKind, shape_of: ShapeOf
) -> tuple[GroupPlan, ...]:
    setup = arranged.setup
    common = setup.env
    if arranged.spec.clean_env and arranged.spec.framework == DEFAULT_FRAMEWORK:
        common = {name: text for name, text in common.items() if name.startswith("MUSTER_")}
    plans, rank = [], 0
    for group in arranged.spec.node_groups:
        role = arranged.role(group.name)
        defaults = {**setup.defaults, **role.defaults}
        own = {*group.env, *group.node_env}
        framework_env = {k: v for k, v in defaults.items() if k not in own}
        framework_env |= {**common, **role.env}
        plan = GroupPlan(
            name=group.name,
            first_rank=rank,
            replicas=group.most_replicas,
            nodes=group.nodes,
            command=group.command,
            args=group.args or (),
            env=dict(group.env),
            framework_env=framework_env,
            resources=_resources(group, shape_of),
            mounts=_mounts(group.mounts, source_kind),
            probe=_probe(group.startup_probe),
            image=group.image,
            hang_timeout=group.hang_timeout,
            node_env=dict(group.node_env),
            node_args=group.node_args or (),
            working_dir=group.working_dir,
            hostname=group.hostname or DEFAULT_HOSTNAME,
            role=replace(role, env={}, defaults={}),  # they are in framework_env
            ready_timeout=group.ready_timeout or READY_TIMEOUT,
        )
        plans.append(plan)
        rank += plan.size
    return tuple(plans)


def _nodes(
    groups: Sequence[GroupPlan], run_id: str, addresses: Sequence[str]
) -> tuple[NodePlan, ...]:
    nodes: list[NodePlan] = []
    for group in groups:
        for replica in range(group.replicas):
            for index in range(group.nodes):
                rank = len(nodes)
                nodes.append(
                    NodePlan(
                        rank=rank,
                        group=group.name,
                        replica=replica,
                        index=index,
                        node_id=f"{run_id}-{rank}",
                        fqdn="",  # `named` says what they are called
                        address=addresses[rank],
                        hostname="",
                    )
                )
    return tuple(nodes)


def _resources(group: NodeGroup, shape_of: ShapeOf) -> ResourcePlan:
    shape = ResourcePlan() if group.shape is None else shape_of(group.shape)
    asked = group.resources
    if asked is None:
        return shape
    said = {name: value for name in _LIMITED if (value := getattr(asked, name))}
    exact = () if shape.shape is None else tuple(said)
    return replace(shape, **said, exact=exact, disk=asked.disk, disk_image=asked.disk_image)


def _mounts(mounts: Sequence[Mount], source_kind: SourceKind) -> tuple[MountPlan, ...]:
    plans: list[MountPlan] = []
    taken: dict[str, int] = {}
    for mount in mounts:
        variable = mount_variable(mount.destination)
        count = taken.get(variable, 0)
        taken[variable] = count + 1
        plans.append(
            MountPlan(
                source=mount.source,
                kind=source_kind(mount.source),
                path=mount.destination,
                variable=f"{variable}_{count + 1}" if count else variable,
                read_only=mount.read_only,
                link=mount.link,
            )
        )
    return tuple(plans)


def mount_variable(destination: str) -> str:
    """The variable that holds where a mount is: /mnt/my-data -> MUSTER_MOUNT_MY_DATA."""
    last = destination.rstrip("/").rsplit("/", 1)[-1]
    return "MUSTER_MOUNT_" + "".join(c if c.isalnum() else "_" for c in last.upper())


def _probe(probe: StartupProbe | None) -> ProbePlan | None:
    if probe is None:
        return None
    return ProbePlan(
        period=probe.period,
        timeout=probe.timeout,
        threshold=probe.threshold,
        initial_delay=probe.initial_delay,
        command=probe.exec_,
        port=probe.tcp,
        http=probe.http,
        file=probe.file,
    )
