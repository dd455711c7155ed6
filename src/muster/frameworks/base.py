"""The contract of frameworks: data that makes a training cluster of nodes.

A framework does no I/O. It gets the cluster's groups and returns what the nodes of each group run
along with the user's program. Text in it is a template; the node replaces these placeholders:

| placeholder | becomes |
| --- | --- |
| `${node.rank}`, `${node.address}`, `${node.fqdn}` | this node's |
| `${group}`, `${replica}`, `${index}` | this node's place |
| `${group.rank}` | this node's rank among those of its group |
| `${group.ready_timeout}` | seconds within which the nodes of its group must be ready |
| `${process.rank}`, `${process.local_rank}` | this process's global and local rank |
| `${roster.0.address}`, `${roster.0.fqdn}` | those of the node with that rank |
| `${run.id}`, `${run.attempt}` | the run's |
| `${run.token}` | a secret that the run's nodes and clients share |
| `${run.tls}` | the folder with `ca.pem`, `cert.pem` and `key.pem`, if `Setup.tls` asks for them |
| `${port.NAME}`, `${port.NAME.3}` | the port NAME of this node, of the node with rank 3 |
| `${port.NAME.last}` | the last of this node's consecutive ports (`Port.count`) |
| `${folder}` | a private folder of this node with a short path; deleted with the node |
| `${tmp}` | a private folder of this node for large temporary files ($TMPDIR) |
| `${python}` | the interpreter that runs the user's Python programs |
| `${cpus}` | number of CPUs to use; a share if nodes share a machine |
| `${memory}` | bytes of memory to use, by the same rule |
| `${memory.each}`, `${memory.30}` | an equal part of it for each process, 30 percent of it |

`${run.token}` is also in the environment of every process, as `MUSTER_TOKEN`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import force_setattr

Network = Literal["shared", "cluster", "isolated"]


class NoOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a framework that has none."""


class Role(Struct, frozen=True):
    """A node group as a framework sees it."""

    name: str
    first_rank: int
    size: int
    """Number of nodes."""
    env: Mapping[str, str]
    """Environment variables set by the user."""
    most: int | None = None
    """Maximum number of nodes after scaling. None: `size`."""

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.size)


class Cluster(Struct, frozen=True):
    """The nodes that a framework makes a cluster of."""

    roles: tuple[Role, ...]
    processes_per_node: int
    options: Any = NoOptions()
    """`framework_options`, as the framework's `Options`."""

    @property
    def size(self) -> int:
        """Number of nodes."""
        return sum(role.size for role in self.roles)

    @property
    def most(self) -> int:
        """Maximum number of nodes after scaling."""
        return sum(role.most or role.size for role in self.roles)

    @property
    def world_size(self) -> int:
        """Number of processes over all nodes."""
        return self.size * self.processes_per_node

    @property
    def main(self) -> Role:
        """The first group. In a framework with a main node, this group is the main node alone."""
        return self.roles[0]

    def shared_out(self, main: RoleSetup, others: RoleSetup) -> dict[str, RoleSetup]:
        """The setup of each group: `main` for the first, `others` for all others."""
        return {role.name: others for role in self.roles[1:]} | {self.main.name: main}


class Port(Struct, frozen=True):
    """A port that the framework listens on."""

    name: str
    number: int
    """The usual port, or the one that the user requires (`fixed`). If nodes share a network, a free
    port replaces it unless it is fixed."""
    fixed: bool = False
    each: bool = False
    """Whether every node has such a port. Otherwise only the node of rank 0 has one."""
    count: int = 1
    """Number of consecutive ports, starting at `number`."""
    held: bool = True
    """Whether Muster reserves the port until the run ends. False if the framework itself looks for
    a free one."""
    own: bool = False
    """Whether the service listens at the node's own address only, so that other runs can use the
    same number."""
    wildcard: bool = False
    """Whether the service listens at every address, so that nodes that share a network need
    different numbers."""
    preferred: bool = False
    """Whether nodes that share a network get the usual number if it is free."""
    variable: str = ""
    """The setting with the user's number, for messages."""

    def can_be_kept(self, *, shared: bool) -> bool:
        """Whether the nodes can listen on exactly `number`. shared: whether they share a network
        with other programs."""
        return not shared or (self.fixed and not (self.each and self.wildcard))


#: Expected members: the rank of a node, and the name (a template) of the node or of a service on
#: it. Nodes that were scaled down are not expected.
Expected = tuple[tuple[int, str], ...]


class Answers(Struct, frozen=True, tag="answers"):
    """A service accepts connections. With a path, it answers HTTP GET with status 200 to 399."""

    address: str
    port: str
    path: str | None = None


class Joined(Struct, frozen=True, tag="joined"):
    """All expected members have joined, according to JSON that a service returns over HTTP."""

    address: str
    port: str
    path: str
    members: tuple[str, ...]
    """Field path to the members; `*` stands for each item of a list or mapping."""
    name: tuple[str, ...]
    """Field path from a member to its name."""
    expected: Expected
    where: Mapping[str, str] = field(default_factory=dict)
    """Field path in a member, with dots -> value that it must have."""
    what: str = "member"
    """What the members are, for people ("Dask worker")."""
    token: str = ""
    """Token for the request (`Authorization: Bearer`)."""


class Succeeds(Struct, frozen=True, tag="succeeds"):
    """A command exits with 0. Until then, its output on stdout explains why it does not."""

    command: tuple[str, ...]
    what: str = ""
    """What is checked, for people."""
    timeout: float = field(default=10.0, name="patience")
    """Timeout of one call in seconds. Stored plans call it `patience`."""
    expected: Expected = ()
    """Their names are appended to the command."""
    patience: float | UnsetType = field(default=UNSET, name="deprecated_patience")
    """Deprecated name of `timeout`; never stored."""

    def __post_init__(self) -> None:
        given = _patience.__get__(self)
        if given is not UNSET:
            warnings.warn(_PATIENCE, DeprecationWarning, stacklevel=2)
            force_setattr(self, "timeout", given)
            _patience.__set__(self, UNSET)


def _read_patience(check: Succeeds) -> float:
    warnings.warn(_PATIENCE, DeprecationWarning, stacklevel=2)
    return check.timeout


_PATIENCE = "Succeeds.patience is deprecated, use Succeeds.timeout"
#: The field; plug-ins that read the attribute call `_read_patience`.
_patience: Any = Succeeds.patience
Succeeds.patience = property(_read_patience)  # type: ignore[assignment]

Check = Answers | Joined | Succeeds


class Quiet(Struct, frozen=True):
    """The cluster is idle: in JSON that a service returns over HTTP, these fields are 0, empty or
    missing."""

    address: str
    port: str
    path: str
    zero: tuple[str, ...]
    """Field paths, with dots."""
    own: Mapping[str, int] = field(default_factory=dict)
    """Field path -> count that the framework itself causes, which is subtracted."""


class Service(Struct, frozen=True):
    """A program of the framework that runs on a node as long as the node does.

    If it ends by itself, the node fails, unless it ends with 0 after all services were ready. In
    that case a node without a program has left, and a node with a program continues.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """As in `Setup`, for this service."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """As in `Setup`, for this service."""
    after: Check | None = None
    """Must hold before the service starts."""
    ready: Check | None = None
    """Must hold before the next service or the program starts."""
    output: Literal["node", "own"] = "own"
    """`node`: its output goes to the node's output. `own`: to its own stream."""
    grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL once the service is not needed any more."""


class RoleSetup(Struct, frozen=True):
    """What the nodes of a group run."""

    services: tuple[Service, ...] = ()
    """Started in this order, and stopped in reverse order after the program has succeeded. If the
    program fails or the node is stopped, they are killed after the program."""
    program: bool = True
    """Whether the nodes run the user's program. Otherwise they serve the others until the run
    ends."""
    gather: Check | None = None
    """Must hold before the program starts."""
    launcher: tuple[str, ...] = ()
    """Words before the program's command."""
    processes: int | None = None
    """Processes of the program on each node. None: `processes_per_node`."""
    decides: bool = True
    """Whether these nodes decide the run's success."""
    replaceable: bool = False
    """Whether the others keep running when a node is lost and replaced."""
    fails_for_all: bool = False
    """Whether an error of a node's program is a failure of the whole, so that a replacement would
    find no others. Such a node is replaced only if it was lost or killed."""
    own_outputs: bool = False
    """Whether the launcher starts `processes_per_node` ranks that write to separate files
    (`node.rank_outputs`)."""
    env: Mapping[str, str] = field(default_factory=dict)
    """As in `Setup`, for this group."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """As in `Setup`, for this group."""


class Setup(Struct, frozen=True):
    """What a framework needs on a cluster."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every process, services included; templates."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The same, but the user's values take precedence."""
    ports: tuple[Port, ...] = ()
    roles: Mapping[str, RoleSetup] = field(default_factory=dict)
    """By group name. Groups that are missing run only the program."""
    network: Network = "shared"
    """Used if the user does not choose one."""
    network_reason: str = "this framework needs no separate interface"
    tls: bool = False
    """Whether nodes need certificates."""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """Where the cluster is reached, as templates: `address` for clients, `dashboard` for people,
    `token`: the file (`${run.token_file}`) with the clients' token."""
    quiet: Quiet | None = None
    """How to find out that the cluster is idle."""


class Need(Struct, frozen=True):
    """A port that must be open between nodes, for people (`muster ports`)."""

    ports: str
    """Such as "8786" or "8700-8800"."""
    on: str
    """The nodes that listen on it."""
    why: str
    """What uses it."""


class Framework:
    """The contract: a stateless class, one file each."""

    name: ClassVar[str]
    """The name in a spec."""
    summary: ClassVar[str]
    """One line for people."""
    Options: ClassVar[type[Struct]] = NoOptions
    """Fields of `framework_options`, each documented at the field."""
    staying: ClassVar[Mapping[str, Any]] = {}
    """Defaults of these options for a persistent cluster."""
    needs: ClassVar[tuple[Need, ...]] = ()
    """Ports that must be open between machines, with default options."""

    def has_main(self, options: Any) -> bool:
        """Whether the first node differs from the others. A first group of several nodes is then
        split: `main` has rank 0, and the other nodes keep the group's name."""
        del options
        return False

    def advice(self, source: str, network: Network, env: Collection[str]) -> tuple[str, ...]:
        """Sentences about code in a Python program that will not work as intended on this cluster.
        network: the nodes' network. env: variables set by the user."""
        del source, network, env
        return ()

    def setup(self, cluster: Cluster) -> Setup:
        """What the nodes run and need. Raises InvalidInput for settings that cannot work."""
        raise NotImplementedError
