"""What each process of a node runs, and in which environment. Pure but for looking up PATH."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.engines.base import RunContext
from muster.engines.local.disk import size_text
from muster.engines.local.outputs import NodeOutputs
from muster.plan.environment import inherited, node_environment
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan
from muster.plan.services import filled, services
from muster.plan.template import Facts
from muster.storage.artifacts import ArtifactRef, entry_command, place_artifact

#: A node gives up waiting a tenth of the time, and so many seconds at most, before its replica has
#: failed for not being ready: the node can say what did not come.
_TELLING = 30.0

#: Python's multiprocessing, as others do, puts sockets into TMPDIR. The path of a socket has at
#: most 107 bytes, of which it takes "/pymp-12345678/listener-12345678".
_LONGEST_TMPDIR = 107 - 32


class NodePaths(Struct, frozen=True):
    """Where one node's things are. outputs: what its processes and services write to;
    cluster_file: who is in the run, one file for all nodes; tls: its certificates, if it has any;
    short: a path of few characters, for what puts sockets there."""

    folder: Path
    cluster_file: Path
    work: Path
    outputs: NodeOutputs
    tls: Path
    short: Path

    @property
    def checkpoint_file(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def tmpdir(self) -> Path:
        """How programs get to the temporary folder: by a link where its path is too long."""
        fits = len(os.fsencode(self.temporary)) <= _LONGEST_TMPDIR
        return self.temporary if fits else self.short / "tmp"


def launch_message(
    context: RunContext,
    node: NodePlan,
    paths: NodePaths,
    *,
    attempt: int,
    restart: int,
    ports: Mapping[str, int],
    token: str,
    gpus: tuple[int, ...] | None,
    interface: str | None,
    mounted: Mapping[str, str],
    extra: Mapping[str, str],
    contained: bool,
    cpus: int,
    memory: int,
    absent: Iterable[int] = (),
) -> dict[str, Any]:
    """What `node.agent` is told, but for `argv`, which `prepare_code` finds out on the node.

    restart: the node's incarnation. token: the run's secret. interface: the node's own network
    interface, None on a shared network. gpus: those it sees, None = all. mounted: mount path ->
    where it really is, if elsewhere.
    extra: the engine's own environment for the node. cpus, memory: that it had best use, the latter
    in bytes. absent: ranks of nodes that there are not to be for now.
    """
    plan, group = context.plan, context.plan.group(node.group)
    places = {
        "folder": str(paths.short),
        "tmp": str(paths.temporary),
        "python": context.python,
        "run.tls": str(paths.tls),
        "run.token": token,
        "cpus": str(cpus),
        "run.restarts": str(attempt - context.resumes),
        "memory": str(memory),
    }
    facts = Facts(plan, node, 0, attempt, ports, places)
    shared: dict[str, str] = {
        **_base_environment(context),
        "HOSTNAME": node.hostname,
        # a variable that says where a mount is says so wherever that is
        **{name: _moved(text, mounted) for name, text in group.env.items()},
        **{name: facts.fill(template) for name, template in group.node_env.items()},
        **node_environment(plan, node, str(paths.cluster_file)),
        **{m.variable: mounted[m.path] for m in group.mounts if m.path in mounted},
        **_interfaces(plan, interface),
        "MUSTER_ATTEMPT": str(attempt),
        "MUSTER_RESTART": str(restart),
        "MUSTER_RUN_RESTARTS": str(attempt - context.resumes),
        "MUSTER_RUN_STARTED": f"{context.started:.3f}",
        "MUSTER_TOKEN": token,
        "MUSTER_OUTPUTS": str(context.home.run_dir(plan.run_id).outputs),
        "MUSTER_CHECKPOINT": str(paths.checkpoint_file),
        **_temporary(plan, group, paths, mounted),
        **extra,
    }
    if plan.artifact is not None and plan.artifact.kind == "archive":
        # the folder with the code may be a package, whose modules name it
        above = [shared.get("PYTHONPATH"), str(paths.work.parent)]
        shared["PYTHONPATH"] = os.pathsep.join(filter(None, above))
    if plan.quiet is not None and node.rank == 0:
        shared["MUSTER_QUIET"] = json.dumps(filled(plan.quiet, facts))
    if gpus is not None:
        shared["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    processes = []
    for local_rank, (stdout, stderr) in enumerate(paths.outputs.processes):
        facts = replace(facts, local_rank=local_rank)
        env = shared | {k: facts.fill(v) for k, v in group.framework_env.items()}
        processes.append({"env": env, "stdout": stdout, "stderr": stderr})
    first = replace(facts, local_rank=0)
    cwd = str(_working_dir(group, paths.work, mounted))
    # a service that stands in for the program finds its modules, as that would
    path = os.pathsep.join(filter(None, [cwd, shared.get("PYTHONPATH")]))
    return {
        "processes": processes,
        "ranks": [{"stdout": out, "stderr": err} for out, err in paths.outputs.ranks],
        "program": group.role.program,
        "launcher": [first.fill(word) for word in group.role.launcher],
        "services": services(group, first, paths.outputs, {"PYTHONPATH": path}),
        "gather": filled(group.role.gather, first),
        "absent": list(absent),
        "ready_timeout": group.ready_timeout - min(group.ready_timeout / 10, _TELLING),
        "cwd": cwd,
        "node_args": [facts.fill(word) for word in group.node_args],
        "address": node.address,
        "grace_period": plan.policy.grace_period,
        "hang_timeout": group.hang_timeout,
        "disk": None if group.resources.disk_image else group.resources.disk,
        "disk_full": disk_full(group.resources),
        "probe": _probe(group),
        "contained": contained,
    }


def disk_full(asked: ResourcePlan) -> str | None:
    """What there is to say of a node that fails with no room left on a disk of its own."""
    if asked.disk is None or not asked.disk_image:
        return None
    return f"its disk was full (resources.disk: {size_text(asked.disk)})"


def _working_dir(group: GroupPlan, work: Path, mounted: Mapping[str, str]) -> Path:
    """Where the processes start: where the mount that it is in really is, if it is in one."""
    return work / _moved(group.working_dir or "", mounted)


def _moved(place: str, mounted: Mapping[str, str]) -> str:
    """Where a path really is, if it is in a mount that is elsewhere; else what was given."""
    for path in sorted(mounted, key=len, reverse=True):
        if Path(place).is_relative_to(path):
            return str(mounted[path] / Path(place).relative_to(path))
    return place


def _base_environment(context: RunContext) -> dict[str, str]:
    """The submitter's, with the interpreter that started Muster first on PATH."""
    env = inherited(context.plan, context.environ)
    bin_directory = str(Path(context.python).parent)
    env["PATH"] = os.pathsep.join([bin_directory, env.get("PATH", os.defpath)])
    # into a file, Python buffers its output by blocks; people watch it line by line
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def prepare_code(context: RunContext, group: GroupPlan, work: Path) -> list[str]:
    """Put the code into the working directory; returns what to run there, nothing if the group
    only serves."""
    artifact = context.plan.artifact
    command = group.command
    if artifact is not None:
        ref = ArtifactRef(artifact.sha256, artifact.file_name, artifact.kind, artifact.size)
        place_artifact(context.home, ref, work)
        command = command or entry_command(
            ref,
            group.entrypoint or artifact.entrypoint,
            context.python,
            work,
            from_elsewhere=group.working_dir is not None,
        )
    if not group.role.program:
        return []
    assert command is not None, "the spec was checked: without an artifact there is a command"
    return [*command, *group.args]


def _temporary(
    plan: RunPlan, group: GroupPlan, paths: NodePaths, mounted: Mapping[str, str]
) -> dict[str, str]:
    """Where temporary files are; nothing where /tmp is the node's own, and nobody is to be told
    more than a container is."""
    own = any(mount.path == "/tmp" for mount in group.mounts) and "/tmp" not in mounted
    return {} if plan.clean_env and own else {"TMPDIR": str(paths.tmpdir)}


def _interfaces(plan: RunPlan, interface: str | None) -> dict[str, str]:
    """OCI: the cluster network's interface. Gloo is left to find its address by the host name
    where nodes share an interface: naming that would bind every node to 127.0.0.1."""
    if interface is None:
        return {} if plan.clean_env else {"JR_SOCKET_IFNAME": "lo"}
    names = ("JR_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return dict.fromkeys(names, interface)


def _probe(group: GroupPlan) -> dict[str, Any] | None:
    return None if group.probe is None else asdict(group.probe)
