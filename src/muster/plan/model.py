"""A run, made concrete: which nodes there are and what each does. Pure data, kept with the run.

Loaded by the supervisor from JSON.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert, field, to_builtins

from muster.frameworks.base import Network, Port, Quiet, RoleSetup
from muster.lifecycle.policy import Policy
from muster.spec.placeholders import DEFAULT_HOSTNAME

#: What a cluster has to come together, unless the owner says otherwise (OCI: TIMEOUT).
READY_TIMEOUT = 600.0

MountKind = Literal["directory", "nfs", "url", "scratch", "volume"]


class MountPlan(Struct, frozen=True):
    """A directory nodes see. path: inside the node; variable: the environment variable naming it;
    link: a path from where processes start that leads to it.

    kind: where `source` lies: a directory here, an NFS export, an fsspec URL, or a directory that
    the engine makes, for the run or to stay.
    """

    source: str
    kind: MountKind
    path: str
    variable: str
    read_only: bool = False
    link: str | None = None


class ProbePlan(Struct, frozen=True):
    """When a node counts as ready. Exactly one of command, port, file;
    http: the path to ask for at the port. Times in seconds."""

    period: float
    timeout: float
    threshold: int
    initial_delay: float
    command: tuple[str, ...] | None = None
    port: int | None = None
    http: str | None = None
    file: str | None = None


class ResourcePlan(Struct, frozen=True):
    """What one node may use; None = not limited. memory and disk in bytes.

    A demand must be there; where the machine has less than a shape says, a node has what there is.
    exact: what of these is a demand although there is a shape.
    """

    cpus: float | None = None
    memory: int | None = None
    gpus: int = 0
    shape: str | None = None
    disk: int | None = None
    disk_image: bool = False
    exact: tuple[str, ...] = ()

    def demands(self, name: str) -> bool:
        """Whether one of cpus, memory and gpus, if it is given, must be there."""
        return self.shape is None or name in self.exact


class GitPlan(Struct, frozen=True):
    """Where the code was cloned from. commit: the one it is, in full. token_env: the variable with
    the secret that it took, which is not for the nodes."""

    url: str
    commit: str
    branch: str | None = None
    path: str | None = None
    token_env: str | None = None


class LeftBehind(Struct, frozen=True):
    """What lay beside the code in its folder, and was not sent. script: the file that was; "" = the
    folder was. ignored: those of the names that an ignore file keeps back."""

    folder: str
    script: str
    names: tuple[str, ...]
    ignored: tuple[str, ...] = ()


class ArtifactPlan(Struct, frozen=True):
    """The code, by its content. exclude_tags: cells of a notebook that are not executed."""

    sha256: str
    file_name: str
    kind: str
    size: int
    entrypoint: str | None = None
    exclude_tags: tuple[str, ...] = ()
    git: GitPlan | None = None
    left_behind: LeftBehind | None = None


class EnvironmentPlan(Struct, frozen=True):
    """What the nodes' Python needs installed. requirements: lines of a requirements file; conda:
    what is in a conda environment file. Paths in them are absolute."""

    requirements: tuple[str, ...] = ()
    conda: str | None = None


class GroupPlan(Struct, frozen=True):
    """One node group. replicas: as many as it may ever have. env is literal; framework_env,
    node_env, node_args and hostname hold placeholders (`frameworks.base`, `spec.placeholders`).

    command: None = run the artifact's entry point. entrypoint: the group's own, in place of the
    artifact's. working_dir: from the code's copy on; None =
    there. hang_timeout: seconds without output after
    which a node counts as stuck. What the lifecycle is held to is in `RunPlan.policy`.
    role: what the framework has its nodes run, around the program or in its place. ready_timeout:
    seconds that what the role waits for may take.
    """

    name: str
    first_rank: int
    replicas: int
    nodes: int
    command: tuple[str, ...] | None
    args: tuple[str, ...]
    env: Mapping[str, str]
    framework_env: Mapping[str, str]
    resources: ResourcePlan
    mounts: tuple[MountPlan, ...] = ()
    probe: ProbePlan | None = None
    image: str | None = None
    hang_timeout: float | None = None
    node_env: Mapping[str, str] = field(default_factory=dict)
    node_args: tuple[str, ...] = ()
    working_dir: str | None = None
    hostname: str = DEFAULT_HOSTNAME
    role: RoleSetup = RoleSetup()
    ready_timeout: float = READY_TIMEOUT
    entrypoint: str | None = None

    @property
    def size(self) -> int:
        return self.replicas * self.nodes


class NodePlan(Struct, frozen=True):
    """One node. replica: within the group; index: within the replica.

    hostname: its own name, one label. names: further ones its peers know it by, `fqdn` among
    them where that is not the host name.
    """

    rank: int
    group: str
    replica: int
    index: int
    node_id: str
    fqdn: str
    address: str
    hostname: str
    names: tuple[str, ...] = ()


class RunPlan(Struct, frozen=True):
    """Everything an engine needs to run the run, and nothing it must not know. Times in seconds.

    policy: what the lifecycle is held to; its groups are `groups`, in the same order.
    tls: whether nodes need certificates. endpoints, quiet: see `frameworks.base.Setup`.
    subdomain: below which nodes have names, too. namespace: that their names are in, as Kubernetes
    has it. clean_env: whether nodes are given nothing but what the job says.
    keep_attempts: so many have their output kept; None = all. ttl_after_finished: how long the run
    is kept once it has ended; None = for ever.
    """

    run_id: str
    run_name: str
    job_id: str
    job_name: str
    framework: str
    processes_per_node: int
    network: Network
    network_reason: str
    policy: Policy
    groups: tuple[GroupPlan, ...]
    nodes: tuple[NodePlan, ...]
    ports: tuple[Port, ...] = ()
    tls: bool = False
    endpoints: Mapping[str, str] = field(default_factory=dict)
    quiet: Quiet | None = None
    artifact: ArtifactPlan | None = None
    log_output: bool = True
    log_directory: str | None = None
    notes: tuple[str, ...] = ()
    subdomain: str | None = None
    namespace: str | None = None
    clean_env: bool = False
    keep_attempts: int | None = None
    ttl_after_finished: float | None = None
    environment: EnvironmentPlan | None = None

    @property
    def own_interfaces(self) -> bool:
        """Whether each node has a network interface of its own, which only the run's nodes reach:
        every port is free there."""
        return self.network != "shared"

    @property
    def world_size(self) -> int:
        """Processes over all nodes that are wanted at first."""
        return self.policy.initial_size * self.processes_per_node

    def processes_of(self, rank: int) -> int:
        """How many processes of the program a node runs; one if it only serves."""
        role = self.group_of(rank).role
        if not role.program:
            return 1
        return self.processes_per_node if role.processes is None else role.processes

    def ranks_of(self, rank: int) -> int:
        """How many ranks a node's launcher starts that write to files of their own; 0 where a
        single one shares the launcher's."""
        role = self.group_of(rank).role
        apart = role.program and role.own_outputs and self.processes_per_node > 1
        return self.processes_per_node if apart else 0

    def group(self, name: str) -> GroupPlan:
        return next(group for group in self.groups if group.name == name)

    def replica_number(self, node: NodePlan) -> int:
        """Of the node's replica, among those of all groups."""
        names = [group.name for group in self.groups]
        before = self.groups[: names.index(node.group)]
        return sum(group.replicas for group in before) + node.replica

    def group_of(self, rank: int) -> GroupPlan:
        return self.groups[self.policy.group_index(rank)]

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data; `from_json` is its inverse."""
        data: dict[str, Any] = to_builtins(self)
        return data

    @classmethod
    def warm(cls) -> None:
        """Have the decoder compiled, which the first decoding does."""
        with contextlib.suppress(ValidationError):
            convert({}, cls)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunPlan:
        """A plan as it was stored, by this version or an older one."""
        if "policy" not in data and "groups" in data:
            from muster.plan.upgrade import upgraded

            data = upgraded(data)
        return convert(data, cls)
