"""The framework's services and checks on a node, with their placeholders filled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import to_builtins

from muster.frameworks.base import Check, Quiet
from muster.node.launch_message import ServiceLaunch
from muster.plan.model import GroupPlan
from muster.plan.template import Facts


class ServiceOutputs(Protocol):
    """The output files of services."""

    @property
    def processes(self) -> tuple[tuple[str, str], ...]:
        """(stdout, stderr) of each process of the program, by local rank."""
        ...

    def service(self, name: str) -> str:
        """The output file of a service that does not share the program's."""
        ...


def services(
    group: GroupPlan, facts: Facts, outputs: ServiceOutputs, env: Mapping[str, str]
) -> list[ServiceLaunch]:
    """The services of a node, in the order in which they start.

    Services inherit the program's variables. env: variables of all services on top of these; a
    service's own `env` overrides them. A service's `defaults` do not override variables of the job.
    """
    return [
        ServiceLaunch(
            name=service.name,
            argv=[facts.fill(word) for word in service.command],
            env={
                **env,
                **{
                    name: facts.fill(template)
                    for name, template in service.defaults.items()
                    if name not in group.env and name not in group.node_env
                },
                **{name: facts.fill(template) for name, template in service.env.items()},
            },
            stdout=stdout,
            stderr=stderr,
            after=fill_check(service.after, facts),
            ready=fill_check(service.ready, facts),
            grace=service.grace,
        )
        for service in group.role.services
        for stdout, stderr in (_output(service.name, service.output, outputs),)
    ]


def _output(name: str, output: str, outputs: ServiceOutputs) -> tuple[str, str]:
    if output == "node":
        return outputs.processes[0]
    path = outputs.service(name)
    return path, path


def fill_check(check: Check | Quiet | None, facts: Facts) -> dict[str, Any] | None:
    """A check as JSON-ready data for the node (`node.checks`, `node.cluster_lifetime`)."""
    return None if check is None else _fill(to_builtins(check), facts)


def _fill(value: Any, facts: Facts) -> Any:
    if isinstance(value, str):
        return facts.fill(value)
    if isinstance(value, list | tuple):
        return [_fill(item, facts) for item in value]
    if isinstance(value, dict):
        return {key: _fill(item, facts) for key, item in value.items()}
    return value
