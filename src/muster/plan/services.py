"""A framework's services and checks as the node's agent is told of them: every gap filled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import to_builtins

from muster.frameworks.base import Check, Quiet
from muster.plan.model import GroupPlan
from muster.plan.template import Facts


class ServiceOutputs(Protocol):
    """Where services write."""

    @property
    def processes(self) -> tuple[tuple[str, str], ...]:
        """(stdout, stderr) of each process of the program."""
        ...

    def service(self, name: str) -> str:
        """The file of a service whose output is its own."""
        ...


def services(
    group: GroupPlan, facts: Facts, outputs: ServiceOutputs, env: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What `node.services.Services` starts. env: what each has besides, under what it asks for;
    all of it comes on top of the program's environment."""
    made = []
    owners = {*group.env, *group.node_env}
    for service in group.role.services:
        asked = {k: v for k, v in service.defaults.items() if k not in owners} | dict(service.env)
        shared = service.output == "node"
        own = "" if shared else outputs.service(service.name)
        stdout, stderr = outputs.processes[0] if shared else (own, own)
        made.append(
            {
                "name": service.name,
                "argv": [facts.fill(word) for word in service.command],
                "env": {**env, **{k: facts.fill(v) for k, v in asked.items()}},
                "stdout": stdout,
                "stderr": stderr,
                "after": filled(service.after, facts),
                "ready": filled(service.ready, facts),
                "grace": service.grace,
            }
        )
    return made


def filled(asked: Check | Quiet | None, facts: Facts) -> dict[str, Any] | None:
    """What the node looks at (`node.checks`, `node.keeper`)."""
    return None if asked is None else _filled(to_builtins(asked), facts)


def _filled(value: Any, facts: Facts) -> Any:
    if isinstance(value, str):
        return facts.fill(value)
    if isinstance(value, list | tuple):
        return [_filled(item, facts) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, facts) for key, item in value.items()}
    return value
