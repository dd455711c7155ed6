"""The launch message of a node, built from the plan and from what the engine knows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.logs import NodeOutputs
from muster.lifecycle.policy import Policy
from muster.node import error_file
from muster.node.launch_message import (
    GivenFile,
    LaunchMessage,
    OutputFiles,
    Preflight,
    Probe,
    ProcessLaunch,
)
from muster.plan.environment import (
    EngineValues,
    NodeValues,
    ProcessValues,
    environments,
    has_code_parent,
    has_tmpdir,
    moved,
)
from muster.plan.model import (
    PREFLIGHT_PORT,
    GroupPlan,
    MountPlan,
    NodePlan,
    PreflightPlan,
    ResourcePlan,
)
from muster.plan.services import fill_check, services
from muster.plan.template import Facts
from muster.spec.quantities import format_size
from muster.storage.home import RunDir
from muster.storage.mount_sources import named_source

#: Variables that would make the Python of an environment look for packages elsewhere.
MISLEADING = ("PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")

#: A node gives up waiting this part of `services_timeout`, and at most this many seconds, before
#: its replica fails for not being ready, so that the node can report what is missing.
_READY_REPORT_PART, _READY_REPORT_MARGIN = 10, 30.0

#: Fields of a group's plan that its launch messages have in another form.
_CONVERTED = frozenset(
    (
        *("env", "hostname", "node_args", "probe", "liveness", "preflight"),
        "services_timeout",
    )
)
#: Settings that a launch message copies from the policy, and from the group's plan.
_OF_POLICY = tuple(set(Policy.__struct_fields__).intersection(LaunchMessage._fields))
_OF_GROUP = tuple(set(GroupPlan.__struct_fields__).intersection(LaunchMessage._fields) - _CONVERTED)

#: Python's multiprocessing, among others, puts sockets into TMPDIR. A socket's path has at most 107
#: bytes, of which it needs these for "/pymp-12345678/listener-12345678".
_MAX_TMPDIR = 107 - 32


class NodePaths(Struct, frozen=True):
    """Where the files of one node are."""

    #: The node's own folder.
    folder: Path
    #: The cluster metadata file, one for all nodes.
    cluster_file: Path
    #: The working directory, with the code.
    work: Path
    #: The output files of processes and services.
    outputs: NodeOutputs
    #: The node's certificates, if it has any.
    tls: Path
    #: A folder with a short path, for sockets.
    short: Path
    #: The run's folder, with the outputs; None: that of this machine.
    run: RunDir | None = None

    @property
    def checkpoint_file(self) -> Path:
        """Where the program tells its last checkpoint."""
        return self.folder / "checkpoint"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files."""
        return self.folder / "tmp"

    @property
    def tmpdir(self) -> Path:
        """The path of `temporary` for programs: a link where its own path is too long."""
        temporary = self.temporary
        return temporary if len(os.fsencode(temporary)) <= _MAX_TMPDIR else self.short / "tmp"

    def error_file(self, local_rank: int) -> str:
        """The path of the file in which a process may record its error."""
        return f"{self.folder}/error-{local_rank}.json"


class NodeStart(Struct, frozen=True):
    """What the engine knows about one start of a node, besides its paths."""

    #: The attempt of the run.
    attempt: int
    #: The node's incarnation.
    incarnation: int
    #: The run's ports, by name, or by `NAME.RANK` where each node has its own.
    ports: Mapping[str, int]
    #: What the engine chose for the node's environment.
    values: EngineValues
    #: CPUs that the node should use.
    cpus: int
    #: Bytes of memory that the node should use.
    memory: int
    #: Whether the node has a PID namespace.
    contained: bool
    #: Ranks that have no node for now, of those that the node's checks wait for.
    absent: Sequence[int] = ()
    #: Folders that are emptied before each start.
    fresh: Sequence[str] = ()
    #: Whether processes are given a file in which to record their errors.
    error_files: bool = True
    #: See `LaunchMessage.reuses_slot`.
    reuses_slot: bool = False
    #: See `LaunchMessage.waits`.
    waits: bool = False
    #: The folder for mounts with given files; None: in the node's own.
    files: str | None = None
    #: The disk of its folder, for people, if that is not this machine's and has no limit.
    disk: str | None = None
    #: An absolute path, where programs start if the job has neither code nor a working directory;
    #: "": in an empty folder.
    cwd: str = ""


def launch_message(
    context: RunContext, node: NodePlan, paths: NodePaths, start: NodeStart
) -> LaunchMessage:
    """The complete message for one incarnation, be it the first or a restart in place."""
    plan, group = context.plan, context.plan.group_for(node)
    facts = _facts(context, node, paths, start)
    values = _node_values(context, paths, start, facts)
    env, processes = _processes(facts, values, paths, error_files=start.error_files)
    elsewhere = start.cwd if plan.artifact is None else ""
    cwd = str(paths.work / moved(group.working_dir or elsewhere, start.values.mounted))
    # a service may run the program's modules, so it searches where the program would
    search_path = {"PYTHONPATH": os.pathsep.join(filter(None, [cwd, env.get("PYTHONPATH")]))}
    margin = min(group.services_timeout / _READY_REPORT_PART, _READY_REPORT_MARGIN)
    return LaunchMessage(
        incarnation=start.incarnation,
        env=env,
        processes=processes,
        ranks=[OutputFiles(stdout, stderr) for stdout, stderr in paths.outputs.ranks],
        node_args=[facts.fill(word) for word in group.node_args],
        launcher=[facts.fill(word) for word in group.role.launcher],
        program=group.role.program,
        services=services(group, facts, paths.outputs, search_path),
        gather=fill_check(group.role.gather, facts),
        absent=list(start.absent),
        services_timeout=group.services_timeout - margin,
        probe=None if group.probe is None else Probe(**group.probe),
        liveness=None if group.liveness is None else Probe(**group.liveness),
        preflight=None if group.preflight is None else _preflight(group, group.preflight, facts),
        cwd=cwd,
        folder=str(paths.folder),
        fresh=list(start.fresh),
        output_folder=values.outputs,
        address=node.address,
        hostname=node.hostname,
        disk=None if group.resources.disk_image else group.resources.disk,
        disk_full=disk_full(group.resources, start.disk),
        contained=start.contained,
        keep=context.keep or group.is_array,
        rank=node.rank,
        of_array=group.is_array,
        reuses_slot=start.reuses_slot,
        waits=start.waits,
        given=_given(paths, start, group.mounts, facts),
        **{name: getattr(plan.policy, name) for name in _OF_POLICY},
        **{name: getattr(group, name) for name in _OF_GROUP},
    )


def _preflight(group: GroupPlan, given: PreflightPlan, facts: Facts) -> Preflight:
    """The checks of a node. With its bandwidth to be measured, it is told how the nodes of its
    group are reached which start with it."""
    checks: dict[str, Any] = {"gpus": group.resources.gpus if given.gpus else 0}
    if given.command is not None:
        checks["command"] = list(given.command)
    if given.bandwidth is not None:
        cluster, rank = facts.plan.cluster(facts.node), int(facts.fill("${node.rank}"))
        index, size = int(facts.fill("${group.rank}")), _size_in_cluster(group)
        before, after = ((index + step) % size - index + rank for step in (-1, 1))
        places = {
            name: [cluster[other].address, facts.ports[f"{PREFLIGHT_PORT}.{other}"]]
            for name, other in (("own", rank), ("next", after))
        }
        checks |= {"bandwidth": given.bandwidth, "alone": size == 1, **places}
        checks["names"] = [f"node-{before}", f"node-{after}"]
    python = facts.fill("${python}")
    return Preflight([python, "-m", "muster.node.host_checks", json.dumps(checks)], given.timeout)


def _size_in_cluster(group: GroupPlan) -> int:
    """How many nodes of a group are in one cluster."""
    return group.nodes if group.is_array else group.size


def with_sub_paths(
    context: RunContext, node: NodePlan, attempt: int, mounts: tuple[MountPlan, ...]
) -> tuple[MountPlan, ...]:
    """The mounts of a node with the placeholders of their sub-paths filled. Raises OSError if
    one leads out of its mount."""
    if all(mount.sub_path is None for mount in mounts):
        return mounts
    values = {"run.restarts": str(attempt - context.resumes)}
    facts = Facts(context.plan, node, 0, attempt, {}, values)
    return tuple(
        mount if mount.sub_path is None else replace(mount, sub_path=_sub_path(mount, facts))
        for mount in mounts
    )


def emptied_mounts(
    mounts: Iterable[MountPlan], owners: Sequence[str] = ("incarnation",)
) -> list[MountPlan]:
    """The mounts that are emptied before each incarnation, or for each of these owners. If folders
    in one are mounted by themselves, these are: they have to stay where they are."""
    found = [
        mount
        for mount in mounts
        if mount.kind == "scratch" and named_source(mount.source).of in owners
    ]
    parts = {mount.source for mount in found if mount.sub_path is not None}
    return [mount for mount in found if mount.sub_path is not None or mount.source not in parts]


def _sub_path(mount: MountPlan, facts: Facts) -> str:
    from muster.spec.values import is_file_path  # few mounts have parts

    filled = facts.fill(mount.sub_path or "")
    if not is_file_path(filled):
        raise OSError(f"{filled!r}, the sub_path of {mount.path}, does not lead into the mount")
    return filled


def _given(
    paths: NodePaths, start: NodeStart, mounts: Sequence[MountPlan], facts: Facts
) -> list[GivenFile]:
    if not any(mount.files for mount in mounts):
        return []
    from muster.node.given_files import FOLDER  # few mounts have any

    return given_files(start.files or str(paths.folder / FOLDER), mounts, facts)


def given_files(folder: str, mounts: Sequence[MountPlan], facts: Facts) -> list[GivenFile]:
    """The files of mounts whose content is given. folder: of those of all mounts."""
    return [
        GivenFile(
            os.path.join(folder, mount.variable, file.path),
            facts.fill(file.content),
            file.mode,
            file.is_base64,
            # with `Host.files`, one that is mounted by itself
            is_mounted=mount.sub_path == file.path,
        )
        for mount in mounts
        for file in mount.files
    ]


def _facts(context: RunContext, node: NodePlan, paths: NodePaths, start: NodeStart) -> Facts:
    """What the placeholders of the first process stand for."""
    values = {
        "folder": str(paths.short),
        "tmp": str(paths.temporary),
        "python": context.python,
        "run.tls": str(paths.tls),
        "run.token": start.values.token,
        "run.restarts": str(start.attempt - context.resumes),
        "cpus": str(start.cpus),
        "memory": str(start.memory),
    }
    return Facts(context.plan, node, 0, start.attempt, start.ports, values)


def _processes(
    facts: Facts, values: NodeValues, paths: NodePaths, *, error_files: bool
) -> tuple[dict[str, str], list[ProcessLaunch]]:
    """The variables that all processes share, and the processes.

    Shared variables are sent once: for many processes the message would not fit into the socket's
    buffer, and the supervisor would have to wait for the agent.
    """
    ranks = range(len(paths.outputs.processes))
    files = [paths.error_file(rank) if error_files else None for rank in ranks]
    each = [ProcessValues(replace(facts, local_rank=rank).fill, files[rank]) for rank in ranks]
    variables = [env.values for env in environments(facts.plan, facts.node, values, each)]
    first, *others = variables
    different = {name for env in others for name, value in env.items() if first[name] != value}
    shared = {name: value for name, value in first.items() if name not in different}
    processes = []
    for env, file, outputs in zip(variables, files, paths.outputs.processes, strict=True):
        # if the job uses the variable for a file of its own, only a launcher whose ranks have
        # their own files uses ours
        is_used = env.get(error_file.VARIABLE) == file or bool(paths.outputs.ranks)
        own = {name: env[name] for name in different}
        processes.append(ProcessLaunch(own, *outputs, error_file=file if is_used else None))
    return shared, processes


def _node_values(
    context: RunContext, paths: NodePaths, start: NodeStart, facts: Facts
) -> NodeValues:
    plan, node = facts.plan, facts.node
    needs_tmpdir = has_tmpdir(plan, plan.group(node.group), start.values.mounted)
    quiet = fill_check(plan.quiet, facts) if node.rank == 0 else None
    run_dir = paths.run or context.home.run_dir(plan.run_id)
    return NodeValues(
        engine=start.values,
        environ=context.environ,
        python_folder=os.path.dirname(context.python),
        cluster_file=str(paths.cluster_file),
        principal=str(run_dir.principal),
        outputs=str(run_dir.output(node.rank, own=plan.node_outputs)),
        run_outputs=str(run_dir.outputs),
        checkpoint=str(paths.checkpoint_file),
        attempt=str(start.attempt),
        incarnation=str(start.incarnation),
        run_restarts=facts.values["run.restarts"],
        run_started=f"{context.started:.3f}",
        tmpdir=str(paths.tmpdir) if needs_tmpdir else None,
        code_parent=str(paths.work.parent) if has_code_parent(plan) else None,
        quiet=None if quiet is None else json.dumps(quiet),
    )


def disk_full(resources: ResourcePlan, disk: str | None) -> str | None:
    """The failure message of a node whose disk is full; None if it has none of its own. disk: see
    `NodeStart`."""
    if resources.disk is not None and resources.disk_image:
        return f"its disk was full (resources.disk: {format_size(resources.disk)})"
    return None if disk is None else f"the disk was full: {disk}"
