"""Refuse what an engine cannot do: before a run starts, or when it is requested of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from muster.errors import InvalidInput, Problem
from muster.spec.models import Resources

if TYPE_CHECKING:
    from muster.engines.base import Engine
    from muster.spec.models import JobSpec

#: The capabilities that can be requested of a run, by their names in `Capabilities`.
Ability = Literal["exec", "forward", "stacks", "counters", "suspend", "resize"]

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
    "queueing": "queue runs",
    "mounts": "mount directories in nodes",
    "limits": "limit the resources of nodes",
}


def require(engine: Engine, ability: Ability) -> None:
    """Raise InvalidInput if the engine cannot do what is requested of a run."""
    if not getattr(engine.capabilities, ability):
        raise InvalidInput(f"engine {engine.name} cannot {PHRASES[ability]}")


def spec_problems(engine: Engine, spec: JobSpec) -> Iterator[Problem]:
    """What a spec in normal form asks of its engine that the engine cannot do."""
    can, failure = engine.capabilities, spec.failure
    if spec.suspend and not can.suspend:
        yield _problem(engine, "suspend", "suspend", "leave it out")
    if failure.strategy == "in_place" and not can.in_place:
        hint = "use recreate or blocking_recreate"
        yield _problem(engine, "failure.strategy", "in_place", hint)
    for group in spec.node_groups:
        if group.most_replicas > group.replicas and not can.resize:
            path = f"node_groups[{group.name}].max_replicas"
            yield _problem(engine, path, "resize", "leave it out")
        if group.retries and not can.replace_node:
            path = f"node_groups[{group.name}].retries"
            yield _problem(engine, path, "replace_node", "use failure.max_restarts")
        if group.mounts and not can.mounts:
            yield _problem(engine, f"node_groups[{group.name}].mounts", "mounts", "leave it out")
        if not can.limits:
            resources = group.resources not in (None, Resources())
            for name, asked in (("resources", resources), ("shape", group.shape)):
                if asked:
                    path = f"node_groups[{group.name}].{name}"
                    yield _problem(engine, path, "limits", "leave it out")
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


def _problem(engine: Engine, path: str, capability: str, hint: str) -> Problem:
    return Problem(path, f"engine {engine.name} cannot {PHRASES[capability]}", hint)
