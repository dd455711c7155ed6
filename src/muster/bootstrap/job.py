"""The job that a node's parameters describe, and its plan. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.bootstrap.parameters import Mode, Parameters
from muster.bootstrap.roster import Roster
from muster.errors import InvalidInput, Problem
from muster.frameworks.registry import get_framework
from muster.plan.arrange import Arranged, arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.decode import names
from muster.spec.formats.ads.start_options import has_option
from muster.spec.formats.ads.variables import cluster_variables, role_variables
from muster.spec.models import JobSpec
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve

#: The node group of each mode.
GROUPS: dict[Mode, str] = {"MAIN": "main", "WORKER": "workers", "PS": "ps"}
#: The main program of a persistent cluster: it waits to be stopped.
_IDLE = (sys.executable, "-c", "import signal; signal.pause()")
_CODE = "/code"
#: The framework options that START_ARGS sets, by mode; the first that the framework has.
_START_ARGS = {
    "MAIN": ("scheduler_args", "head_args", "master_args"),
    "WORKER": ("worker_args",),
    "PS": (),
}


def arranged_job(parameters: Parameters, environ: Mapping[str, str]) -> Arranged:
    """The job of the whole cluster, arranged for its framework. Raises InvalidInput."""
    counts = {"MAIN": 1, "WORKER": parameters.worker_count, "PS": parameters.ps_count}
    groups = [
        {"name": GROUPS[mode], "nodes": counts[mode], "env": role_variables(GROUPS[mode])}
        for mode in GROUPS
        if counts[mode]
    ]
    variables = cluster_variables(
        framework=parameters.framework,
        workers=parameters.worker_count,
        servers=parameters.ps_count,
        ephemeral=parameters.ephemeral,
        entry=parameters.entry_point,
        args=parameters.args,
        kwargs=parameters.kwargs,
        start_args=parameters.start_args,
        work_dir=parameters.work_dir,
    )
    spec: JobSpec = spec_from_mapping(
        {
            "name": "cluster",
            "command": list(_command(parameters)),
            "framework": parameters.framework,
            "framework_options": _options(parameters),
            "processes_per_node": parameters.processes,
            "node_groups": groups,
            "ready_timeout": parameters.timeout,
            # frameworks read their ports from variables
            "env": variables
            | {name: text for name, text in environ.items() if name.endswith("_PORT")},
        }
    )
    return arrange(resolve(spec, overrides_from_mapping({})).spec)


def _command(parameters: Parameters) -> Sequence[str]:
    if not parameters.ephemeral:
        return _IDLE
    entry = str(code_dir(parameters) / (parameters.entry_point or ""))
    runner = ["bash"] if entry.endswith(".sh") else [sys.executable]
    return [*parameters.profiler, *runner, entry, *parameters.args, *parameters.kwargs]


def check_program(parameters: Parameters, arranged: Arranged) -> None:
    """Raises InvalidInput if this node is to run a program that does not exist."""
    if not parameters.ephemeral or not arranged.role(GROUPS[parameters.mode]).program:
        return
    folder = code_dir(parameters)
    program = folder / (parameters.entry_point or "")
    if not program.is_file():
        hint = f"CODE_DIR is {folder}; the path is relative to it"
        raise InvalidInput(Problem("ENTRY_POINT", f"{program} not found", hint))


def code_dir(parameters: Parameters) -> Path:
    """The folder that contains the program, and in which the program starts."""
    return Path(parameters.code_dir or (_CODE if Path(_CODE).is_dir() else ".")).absolute()


def _options(parameters: Parameters) -> dict[str, Any]:
    """The framework's options. Raises InvalidInput for START_ARGS that it does not take."""
    known = names(get_framework(parameters.framework).Options)
    options: dict[str, Any] = {}
    words = list(parameters.start_args)
    if parameters.death_timeout is not None and parameters.framework == "dask":
        options["worker_args"] = ["--death-timeout", f"{parameters.death_timeout:g}"]
    if parameters.framework == "dask":
        options |= _dask_ranges(words)
    if words:
        name = next((name for name in _START_ARGS[parameters.mode] if name in known), None)
        if name is None:
            text = f"{parameters.framework} takes no arguments on a {parameters.mode} node"
            raise InvalidInput(Problem("START_ARGS", text, "leave it out"))
        options[name] = [*options.get(name, ()), *words]
    if parameters.threads is not None and "threads" in known:
        options["threads"] = parameters.threads
    if parameters.worker_count and "worker_on_main" in known:
        options["worker_on_main"] = False  # the main node is only the scheduler
    return options


#: OCI: the ports that a security list opens for workers and nannies. By default they use any port.
_DASK_RANGES = {
    "worker_ports": ("--worker-port", "8700-8800"),
    "nanny_ports": ("--nanny-port", "3000-3100"),
}


def _dask_ranges(words: Sequence[str]) -> dict[str, str]:
    """The port ranges that START_ARGS does not set."""
    return {
        option: ports
        for option, (name, ports) in _DASK_RANGES.items()
        if not has_option(words, name)
    }


def plan_of(arranged: Arranged, roster: Roster, job: str) -> RunPlan:
    """The plan of a complete cluster."""
    return build_plan(
        arranged,
        Identity(roster.cluster, roster.cluster, job, "cluster"),
        artifact=None,
        addresses=lambda _network, _nodes: [member.address for member in roster.members],
        source_kind=lambda _source: "directory",
        shape_of=lambda name: ResourcePlan(shape=name),
        in_place=False,
    )


def ports_of(arranged: Arranged, roster: Roster) -> dict[str, int]:
    """Every port that the members have reserved, by the names that placeholders use."""
    numbers: dict[str, int] = {}
    for port in arranged.setup.ports:
        if port.each:
            for rank, member in enumerate(roster.members):
                numbers[f"{port.name}.{rank}"] = member.ports[port.name]
        else:
            numbers[port.name] = roster.members[0].ports[port.name]
    return numbers
