"""What a framework is to Muster: data that turns nodes into a training cluster.

A framework does no I/O. It looks at the shape of the cluster and returns what each process needs
in its environment, as templates whose gaps are filled on the node, where addresses and ports are
known:

| placeholder | becomes |
| --- | --- |
| `${node.rank}`, `${node.address}`, `${node.fqdn}` | this node's own |
| `${process.rank}`, `${process.local_rank}` | this process's global and local rank |
| `${roster.0.address}`, `${roster.0.fqdn}` | those of the node with that rank |
| `${run.id}`, `${run.attempt}` | the run's |
| `${port.NAME}` | the port the run was given for NAME on the node of rank 0 |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct, field

Network = Literal["shared", "isolated"]


class Role(Struct, frozen=True):
    """One node group as a framework sees it. env: what its owner set."""

    name: str
    first_rank: int
    size: int
    env: Mapping[str, str]


class Cluster(Struct, frozen=True):
    """The nodes a framework is asked to join into one."""

    roles: tuple[Role, ...]
    processes_per_node: int

    @property
    def size(self) -> int:
        """Number of nodes."""
        return sum(role.size for role in self.roles)

    @property
    def world_size(self) -> int:
        """Number of processes over all nodes."""
        return self.size * self.processes_per_node


class Port(Struct, frozen=True):
    """A port the framework listens on, on the node of rank 0.

    number: the usual one, or the one the owner insists on (`fixed`). Where nodes share a network,
    a free one takes its place unless it is fixed.
    """

    name: str
    number: int
    fixed: bool = False


class Setup(Struct, frozen=True):
    """What a framework asks for.

    env: templates for every process. defaults: the same, but what the owner set goes before.
    network: what it needs when the owner did not say.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    network: Network = "shared"
    network_reason: str = "nothing in this framework needs an interface of its own"


class Framework(Protocol):
    """The whole contract. A class without state; one small file each."""

    name: str
    summary: str

    def setup(self, cluster: Cluster) -> Setup:
        """Say what the cluster's processes need.

        Raises InvalidInput when the owner's settings cannot work.
        """
        ...
