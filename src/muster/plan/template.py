"""Fill `${...}` placeholders (`frameworks.base`, `spec.placeholders`) with values that are known
when a node starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.plan.model import NodePlan, RunPlan
from muster.spec.placeholders import OF_PARAMETER, OF_SECRET, fill

#: Placeholders that are fields of `NodePlan`.
_NODE_FIELDS = ("rank", "group", "replica", "index", "address", "hostname", "fqdn")


class Facts(Struct, frozen=True):
    """The values of placeholders for one process of one node."""

    plan: RunPlan
    node: NodePlan
    local_rank: int
    attempt: int
    #: The run's ports by name, or by `NAME.RANK` if each node has one.
    ports: Mapping[str, int | str]
    #: Values from the engine by placeholder: `folder`, `tmp`, `python`, `cpus`, `memory`,
    #: `run.tls`, `run.token`, `run.restarts`.
    values: Mapping[str, str] = field(default_factory=dict)

    def fill(self, template: str) -> str:
        """`template` with every placeholder replaced. Raises LookupError on an unknown one."""
        return fill(template, self._value)

    def _value(self, name: str) -> str | int:
        match name.split("."):
            case ["attempt"] | ["run", "attempt"]:
                return self.attempt
            case ["run", ("name" | "id") as fact]:
                return str(getattr(self.plan, f"run_{fact}"))
            case ["run", "replica"]:
                return self.plan.replica_number(self.node)
            case [("node" | "group" | "process") as what, "rank"]:
                return self._rank(what)
            case ["group", "ready_timeout"]:
                return f"{self.plan.group(self.node.group).services_timeout:g}"
            case ["process", "local_rank"]:
                return self.local_rank
            case [("port" | "memory") as what, part, *which]:
                return self._memory(part) if what == "memory" else self._port(part, *which)
            case [fact] | ["node", fact] if fact in _NODE_FIELDS:
                return str(getattr(self.node, fact))
            case ["roster", rank, ("address" | "fqdn") as fact]:
                return str(getattr(self.plan.cluster(self.node)[int(rank)], fact))
            case _ if name in self.values:
                return self.values[name]
            case ["secret", *_] if name[len(OF_SECRET) :] in self.plan.secrets:
                return self.plan.secrets[name[len(OF_SECRET) :]]
            case _:
                return self._parameter(name)

    def _rank(self, what: str) -> int:
        """The rank in the node's cluster of the node or the process, or the node's in its group."""
        if what == "group":
            group = self.plan.group(self.node.group)
            first = self.node.replica * group.nodes if group.is_array else 0
            return self.node.rank - group.first_rank - first
        rank = self.plan.rank_in_cluster(self.node)
        return rank if what == "node" else rank * self.plan.processes_per_node + self.local_rank

    def _parameter(self, name: str) -> str:
        """The value of `param.NAME`, a parameter of the node's replica. Raises LookupError."""
        parameters = self.plan.parameters
        if name.startswith(OF_PARAMETER) and parameters is not None:
            found = parameters.values(self.node.replica)
            if parameters.group == self.node.group and name[len(OF_PARAMETER) :] in found:
                return found[name[len(OF_PARAMETER) :]]
        raise LookupError(f"no placeholder named ${{{name}}}")

    def _memory(self, part: str) -> int:
        """Bytes: each process's share of the node's memory, or a percentage. Raises LookupError."""
        whole = int(self.values["memory"])
        if part == "each":
            return whole // self.plan.processes_per_node
        if not part.isdigit():
            raise LookupError(f"no placeholder named ${{memory.{part}}}")
        return whole * int(part) // 100

    def _port(self, name: str, which: str = "") -> str | int:
        """The number of a port: of this node, or of the run if nodes do not each have one; with a
        rank, of that node; with `last`, the last number of a range."""
        if which.isdigit():
            return self.ports[f"{name}.{which}"]
        rank = self.plan.rank_in_cluster(self.node)
        first = self.ports.get(f"{name}.{rank}") or self.ports[name]
        if not which:
            return first
        if which != "last":
            raise LookupError(f"no placeholder named ${{port.{name}.{which}}}")
        count = next(port.count for port in self.plan.ports if port.name == name)
        return first + count - 1 if isinstance(first, int) else f"{first}+{count - 1}"
