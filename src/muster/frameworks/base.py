"""What a framework is to Muster: data that turns nodes into a training cluster.

A framework does no I/O. It looks at the shape of the cluster and returns what each node group
runs beside, or around, the owner's program, as templates whose gaps are filled on the node, where
addresses and ports are known:

| placeholder | becomes |
| --- | --- |
| `${node.rank}`, `${node.address}`, `${node.fqdn}` | this node's own |
| `${group}`, `${replica}`, `${index}` | this node's place |
| `${group.rank}` | this node's rank among those of its group |
| `${group.ready_timeout}` | seconds the nodes of its group have to be ready |
| `${process.rank}`, `${process.local_rank}` | this process's global and local rank |
| `${roster.0.address}`, `${roster.0.fqdn}` | those of the node with that rank |
| `${run.id}`, `${run.attempt}` | the run's |
| `${run.token}` | a secret of the run by which its nodes, and its clients, know each other |
| `${run.tls}` | the folder with `ca.pem`, `cert.pem` and `key.pem`, if `Setup.tls` asks for them |
| `${port.NAME}`, `${port.NAME.3}` | the port NAME of this node, of the node with rank 3 |
| `${port.NAME.last}` | of several in a row (`Port.count`), this node's last |
| `${folder}` | a folder of this node's own, with a short path; gone with the node |
| `${tmp}` | a folder of this node's own for what is large and temporary ($TMPDIR) |
| `${python}` | the interpreter that runs the owner's Python programs |
| `${cpus}` | how many CPUs this node had best use; its share where nodes share a machine |
| `${memory}` | how many bytes of memory, by the same rule |
| `${memory.each}`, `${memory.30}` | an equal part of them for each process, 30 percent of them |

Every process also has `MUSTER_TOKEN`, which is `${run.token}`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

Network = Literal["shared", "cluster", "isolated"]


class NoOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A framework without `framework_options`."""


class Role(Struct, frozen=True):
    """One node group as a framework sees it. env: what its owner set; most: nodes, with those that
    may be added while the run goes on; None = no more than there are."""

    name: str
    first_rank: int
    size: int
    env: Mapping[str, str]
    most: int | None = None

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.size)


class Cluster(Struct, frozen=True):
    """The nodes a framework is asked to join into one.

    options: what stands in `framework_options`, as the framework's own `Options`.
    """

    roles: tuple[Role, ...]
    processes_per_node: int
    options: Any = NoOptions()

    @property
    def size(self) -> int:
        """Number of nodes."""
        return sum(role.size for role in self.roles)

    @property
    def most(self) -> int:
        """Number of nodes there may ever be."""
        return sum(role.most or role.size for role in self.roles)

    @property
    def world_size(self) -> int:
        """Number of processes over all nodes."""
        return self.size * self.processes_per_node

    @property
    def main(self) -> Role:
        """The first group. Of a framework with a main node it is that node alone."""
        return self.roles[0]

    def shared_out(self, main: RoleSetup, others: RoleSetup) -> dict[str, RoleSetup]:
        """What each group runs: the first the one, all others the other."""
        return {role.name: others for role in self.roles[1:]} | {self.main.name: main}


class Port(Struct, frozen=True):
    """A port the framework listens on.

    number: the usual one, or the one the owner insists on (`fixed`). Where nodes share a network,
    a free one takes its place unless it is fixed. each: every node listens on one of its own; else
    only the node of rank 0 does. count: so many in a row, from `number` on. held: whether others
    are kept from it until the run ends; not where the framework looks itself whether it is free.
    own: whether it is listened on at the node's own address only, so that other runs can use the
    same number. wildcard: whether it is listened on at every address, so that nodes that share a
    network cannot have the same number. preferred: where nodes share a network, the usual number
    is taken if it is free. variable: where the owner says which, for messages.
    """

    name: str
    number: int
    fixed: bool = False
    each: bool = False
    count: int = 1
    held: bool = True
    own: bool = False
    wildcard: bool = False
    preferred: bool = False
    variable: str = ""

    def can_be_kept(self, *, shared: bool) -> bool:
        """Whether the nodes can listen on `number` and no other. shared: whether they share a
        network, and other programs are on it."""
        return not shared or (self.fixed and not (self.each and self.wildcard))


#: Who is awaited: the rank of a node, and what it, or something on it, is called (a template).
#: Nodes that have been scaled away are not awaited.
Expected = tuple[tuple[int, str], ...]


class Answers(Struct, frozen=True, tag="answers"):
    """Something accepts connections there; with a path, it answers to HTTP GET with 200 to 399."""

    address: str
    port: str
    path: str | None = None


class Joined(Struct, frozen=True, tag="joined"):
    """All who are expected have joined, by what a service tells over HTTP, in JSON.

    members: the way to each member: names of fields, and `*` for each of a list or mapping.
    name: from there to what it is called. where: field path (with dots) -> what must stand there.
    what: for people ("Dask worker"). token: what is shown to be let in (`Authorization: Bearer`).
    """

    address: str
    port: str
    path: str
    members: tuple[str, ...]
    name: tuple[str, ...]
    expected: Expected
    where: Mapping[str, str] = field(default_factory=dict)
    what: str = "member"
    token: str = ""


class Succeeds(Struct, frozen=True, tag="succeeds"):
    """This command exits with 0. What it writes to stdout until then says why not. patience:
    seconds it has each time. what: for people. expected: their names are its last words."""

    command: tuple[str, ...]
    what: str = ""
    patience: float = 10.0
    expected: Expected = ()


Check = Answers | Joined | Succeeds


class Quiet(Struct, frozen=True):
    """Nobody uses the cluster, by what a service tells over HTTP, in JSON: all these fields (paths
    with dots) are 0, empty or absent. own: of a field, so many are the framework's own and do not
    count."""

    address: str
    port: str
    path: str
    zero: tuple[str, ...]
    own: Mapping[str, int] = field(default_factory=dict)


class Service(Struct, frozen=True):
    """A program of the framework's own that runs on a node as long as the node does.

    One that ends by itself fails the node, unless it ends with 0 once all were up: in the
    program's place, the node has left then; beside it, the program goes on.

    env, defaults: as in `Setup`, for this service. after: what must hold before it starts. ready:
    what must hold before what comes after it starts. output: `node`: where the node's program
    writes; `own`: a stream of its own. grace: seconds between SIGTERM and SIGKILL once it is not
    needed any more.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    after: Check | None = None
    ready: Check | None = None
    output: Literal["node", "own"] = "own"
    grace: float = 5.0


class RoleSetup(Struct, frozen=True):
    """What the nodes of one group run.

    services: started in this order; ended in the opposite one, when the program has ended well.
    Where it failed, or the node is told to end, they are killed once it is gone.
    program: whether they run the owner's program; without it they serve the others, until the run
    is over. gather: what must hold before the program starts. launcher: words before the
    program's own. processes: of the program on each node; None = `processes_per_node`. decides:
    whether the run's success is theirs to decide; those who only serve do not. replaceable:
    whether the others live on when one of these nodes is lost and another takes its place.
    fails_for_all: whether the whole has failed when such a node's program exits with an error, so
    that another in its place would find nobody: it is replaced only if it was lost or killed.
    own_outputs: whether the launcher starts `processes_per_node` ranks on the node and has each
    write to files of its own (`node.rank_outputs`).
    env, defaults: as in `Setup`, for this group.
    """

    services: tuple[Service, ...] = ()
    program: bool = True
    gather: Check | None = None
    launcher: tuple[str, ...] = ()
    processes: int | None = None
    decides: bool = True
    replaceable: bool = False
    fails_for_all: bool = False
    own_outputs: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)


class Setup(Struct, frozen=True):
    """What a framework asks for.

    env: templates for every process, services included. defaults: the same, but what the owner set
    goes before. roles: by group name; a group that is not there runs the program and nothing else.
    network: what it needs when the owner did not say. tls: whether nodes need certificates.
    endpoints: where people and clients reach the cluster, as templates by name; `address` is what
    clients connect to, `dashboard` what people look at, `token` the file (`${run.token_file}`)
    with what clients show. quiet: how to tell that nobody does.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    roles: Mapping[str, RoleSetup] = field(default_factory=dict)
    network: Network = "shared"
    network_reason: str = "nothing in this framework needs an interface of its own"
    tls: bool = False
    endpoints: Mapping[str, str] = field(default_factory=dict)
    quiet: Quiet | None = None


class Need(Struct, frozen=True):
    """A port that must be open between nodes, for people (`muster ports`).

    ports: such as "8786" or "8700-8800"; on: which nodes listen; why: what is said there.
    """

    ports: str
    on: str
    why: str


class Framework:
    """The whole contract: a class without state; one small file each.

    name: what is written in a spec. summary: one line for people. Options: what may stand in
    `framework_options`, each field explained in the docstring. staying: what stands there for a
    cluster that stays, unless its owner says otherwise. needs: the ports that must be open where
    nodes are machines of their own, with nothing set.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type[Struct]] = NoOptions
    staying: ClassVar[Mapping[str, Any]] = {}
    needs: ClassVar[tuple[Need, ...]] = ()

    def has_main(self, options: Any) -> bool:
        """Whether the first node is unlike the others. A first group of several nodes is then
        two: `main`, which has rank 0, and the rest under its own name."""
        del options
        return False

    def advice(self, source: str, network: Network, env: Collection[str]) -> tuple[str, ...]:
        """What of a Python program's source will not do what its author means on this cluster, a
        sentence each. network: which the nodes have; env: variables that the owner has set."""
        del source, network, env
        return ()

    def setup(self, cluster: Cluster) -> Setup:
        """Say what the cluster's nodes run, and need.

        Raises InvalidInput when the owner's settings cannot work.
        """
        raise NotImplementedError
