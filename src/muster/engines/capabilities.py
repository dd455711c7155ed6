"""Refuse what an engine cannot do: before a run starts, or when it is requested of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.models import Resources

if TYPE_CHECKING:
    from muster.engines.base import Capabilities, Engine
    from muster.plan.model import RunPlan
    from muster.spec.models import JobSpec, NodeGroup

#: The capabilities that can be requested of a run, by their names in `Capabilities`.
Ability = Literal["exec", "forward", "stacks", "counters", "suspend", "resize", "workloads"]

#: Capability -> what an engine with it does, and one without cannot do.
PHRASES = {
    "in_place": "restart programs in place",
    "replace_node": "replace single nodes",
    "exec": "run commands in nodes",
    "forward": "connect to ports of nodes",
    "stacks": "read stacks of Python threads",
    "counters": "measure what nodes use",
    "suspend": "suspend runs",
    "resize": "scale runs in progress",
    "shared_files": "give nodes access to MUSTER_HOME",
    "detached": "keep nodes running when the supervisor ends",
    "native_restarts": "restart runs by itself while they have no supervisor",
    "queueing": "queue runs",
    "mounts": "mount directories in nodes",
    "limits": "limit the resources of nodes",
    "gpus": "give nodes GPUs of their own",
    "arrays": "run the replicas of a group a few at a time",
    "images": "run the programs of images",
    "run_network": "give each run a network of its own by default",
    "extra_containers": "run other containers beside the program of a node",
    "workloads": "run a JobSet as it is",
    "pod_patches": "mount volumes of a patch of pods",
    "principals": "give programs credentials of their run",
    "separates_owners": "keep the runs of different owners apart",
}


def require(engine: Engine, ability: Ability) -> None:
    """Raise InvalidInput if the engine cannot do what is requested of a run."""
    if not getattr(engine.capabilities, ability):
        raise InvalidInput(f"engine {engine.name} cannot {PHRASES[ability]}")


def spec_problems(engine: Engine, spec: JobSpec) -> Iterator[Problem]:
    """What a spec in normal form asks of its engine that the engine cannot do."""
    can, failure = engine.capabilities, spec.failure
    if spec.workload is not None and not can.workloads:
        hint = "run the file of the JobSet: it is read as a job then"
        yield _problem(engine, "engine", "workloads", hint)
    if spec.suspend and not can.suspend:
        yield _problem(engine, "suspend", "suspend", "leave it out")
    if failure.strategy == "in_place" and not can.in_place:
        hint = "use recreate or blocking_recreate"
        yield _problem(engine, "failure.strategy", "in_place", hint)
    for group in spec.node_groups:
        yield from _group_problems(engine, group)
    if not can.replace_node:
        restarting = [
            f"failure.rules[{number}].action"
            for number, rule in enumerate(failure.rules)
            if rule.action == "restart_node"
        ]
        if failure.action == "restart_node":
            restarting.insert(0, "failure.action")
        for path in restarting:
            yield _problem(engine, path, "replace_node", "use restart_replica")


def image_problems(engine: Engine, spec: JobSpec, plan: RunPlan) -> Iterator[Problem]:
    """Programs of images, where the engine runs none. spec: of the plan, whose code may be missing
    for other problems."""
    if engine.capabilities.images or spec.artifact is not None or spec.git is not None:
        return
    if spec.workload is not None:
        return  # the infrastructure starts its containers
    for group in plan.groups:
        if group.role.program and group.command is None and group.image is not None:
            text = (
                f"is missing: only image {group.image} knows what runs, and engine {engine.name} "
                "does not run its ENTRYPOINT"
            )
            hint = "give the command, as from `docker inspect`, or use --engine container"
            yield Problem(f"node_groups[{group.name}].command", text, hint)


def _group_problems(engine: Engine, group: NodeGroup) -> Iterator[Problem]:
    can = engine.capabilities
    if group.most_replicas > group.replicas and not can.resize:
        path = f"node_groups[{group.name}].max_replicas"
        yield _problem(engine, path, "resize", "leave it out")
    if group.is_array and not can.arrays:
        name = "array" if group.array is not None else "parallelism"
        path = f"node_groups[{group.name}].{name}"
        yield _problem(engine, path, "arrays", "leave it out, or use engine local")
    if group.retries and not can.replace_node and not group.is_array:
        path = f"node_groups[{group.name}].retries"
        yield _problem(engine, path, "replace_node", "use failure.max_restarts")
    if group.mounts and not can.mounts:
        yield _problem(engine, f"node_groups[{group.name}].mounts", "mounts", "leave it out")
    if group.extra_containers and not can.extra_containers:
        path = f"node_groups[{group.name}].extra_containers"
        yield _problem(engine, path, "extra_containers", "use engine container")
    if not can.limits:
        resources = _without_gpus(group.resources, can) not in (None, Resources())
        for name, given in (("resources", resources), ("shape", group.shape)):
            if given:
                path = f"node_groups[{group.name}].{name}"
                only_gpus = can.gpus and name == "resources"
                hint = "leave out all but gpus" if only_gpus else "leave it out"
                yield _problem(engine, path, "limits", hint)
    elif group.resources is not None and group.resources.gpus and not can.gpus:
        path = f"node_groups[{group.name}].resources.gpus"
        yield _problem(engine, path, "gpus", "leave it out, or use another engine")


def _without_gpus(resources: Resources | None, can: Capabilities) -> Resources | None:
    """The resources that an engine without limits cannot give."""
    return replace(resources, gpus=0) if resources is not None and can.gpus else resources


def _problem(engine: Engine, path: str, capability: str, hint: str) -> Problem:
    return Problem(path, f"engine {engine.name} cannot {PHRASES[capability]}", hint)
