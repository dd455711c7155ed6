"""Filling `${...}` placeholders (`frameworks.base`, `spec.placeholders`) with what is known at
start."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.plan.model import NodePlan, RunPlan
from muster.spec.placeholders import fill


class Facts(Struct, frozen=True):
    """What one process of one node can be told. ports: those given to the run, by name."""

    plan: RunPlan
    node: NodePlan
    local_rank: int
    attempt: int
    ports: Mapping[str, int | str]

    def fill(self, template: str) -> str:
        """`template` with every placeholder replaced. Raises LookupError on an unknown one."""
        return fill(template, self._value)

    def _value(self, name: str) -> str | int:
        match name.split("."):
            case [("rank" | "group" | "replica" | "index" | "address" | "hostname") as fact]:
                return str(getattr(self.node, fact))
            case ["attempt"]:
                return self.attempt
            case ["run", "name"]:
                return self.plan.run_name
            case ["run", "replica"]:
                return self.plan.replica_number(self.node)
            case ["run", "id"]:
                return self.plan.run_id
            case ["run", "attempt"]:
                return self.attempt
            case ["process", "local_rank"]:
                return self.local_rank
            case ["process", "rank"]:
                return self.node.rank * self.plan.processes_per_node + self.local_rank
            case ["port", port]:
                return self.ports[port]
            case ["node", ("rank" | "address" | "fqdn") as fact]:
                return str(getattr(self.node, fact))
            case ["roster", rank, ("address" | "fqdn") as fact]:
                return str(getattr(self.plan.nodes[int(rank)], fact))
            case _:
                raise LookupError(f"no placeholder named ${{{name}}}")
