"""Refuse what an engine cannot do: before a run starts, or when it is requested of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from muster.errors import InvalidInput, Problem
from muster.lifecycle.policy import Action

if TYPE_CHECKING:
    from muster.engines.base import Engine
    from muster.plan.model import RunPlan

#: What can be requested of a run, by the names of `Capabilities`.
Request = Literal["exec", "forward", "stacks", "counters", "suspend", "resize"]

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
    "shared_files": "show nodes the files of MUSTER_HOME",
    "detached": "keep nodes running without the process that drives the run",
    "queueing": "let runs wait for resources",
}


def require(engine: Engine, request: Request) -> None:
    """Raise InvalidInput if the engine cannot do what is requested of a run."""
    if not getattr(engine.capabilities, request):
        raise InvalidInput(f"engine {engine.name} cannot {PHRASES[request]}")


def plan_problems(engine: Engine, plan: RunPlan, *, suspend: bool) -> Iterator[Problem]:
    """What a plan asks of its engine that the engine cannot do. suspend: whether the run is to be
    submitted suspended. Restarts in place are checked where the strategy is chosen (`plan.policy`).
    """
    can = engine.capabilities
    if suspend and not can.suspend:
        yield _problem(engine, "suspend", "suspend", "leave it out")
    for group in plan.policy.groups:
        if group.replicas > group.initial and not can.resize:
            path = f"node_groups[{group.name}].max_replicas"
            yield _problem(engine, path, "resize", "leave it out")
        if group.retries and not can.replace_node:
            path = f"node_groups[{group.name}].retries"
            yield _problem(engine, path, "replace_node", "use failure.max_restarts")
    rules = [rule.name for rule in plan.policy.rules if rule.action is Action.RESTART_NODE]
    if plan.policy.action is Action.RESTART_NODE and not can.replace_node:
        yield _problem(engine, "failure.action", "replace_node", "use restart_replica")
    if rules and not can.replace_node:
        path = f"failure.rules[{rules[0]}].action"
        yield _problem(engine, path, "replace_node", "use restart_replica")


def _problem(engine: Engine, path: str, capability: str, hint: str) -> Problem:
    return Problem(path, f"engine {engine.name} cannot {PHRASES[capability]}", hint)
