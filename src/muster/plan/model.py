"""The plan of a run: its nodes, and what each node runs. Pure data.

Stored with the run as JSON, from which the supervisor loads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, convert, field, to_builtins

from muster.frameworks.base import Network, Port, Quiet, RoleSetup
from muster.lifecycle.policy import Policy
from muster.spec.placeholders import DEFAULT_HOSTNAME
from muster.type_info import compile_type

if TYPE_CHECKING:
    from muster.plan.parameters import ParameterSets

#: Seconds that services have to come up if the job sets no `ready_timeout` (OCI: TIMEOUT).
SERVICES_TIMEOUT = 600.0
#: The name of the port at which the preflight checks of other nodes measure the bandwidth to one.
PREFLIGHT_PORT = "preflight"

MountKind = Literal["directory", "nfs", "url", "scratch", "volume", "files"]


class FilePlan(Struct, frozen=True):
    """A file with given content."""

    #: Below the mount.
    path: str
    #: With placeholders.
    content: str
    mode: int
    #: Whether `content` is in base64.
    is_base64: bool = False


class RunBefore(Struct, frozen=True):
    """A run that has to succeed before another one starts."""

    id: str
    name: str


class MountPlan(Struct, frozen=True):
    """A directory that nodes see."""

    source: str
    #: What `source` is: a directory of this machine, an NFS export, an fsspec URL, or the name of a
    #: directory that the engine creates, for the run (`scratch`) or to be kept (`volume`); or that
    #: its `files` are given, and what they are called.
    kind: MountKind
    #: Absolute path inside the node.
    path: str
    #: The environment variable that contains the path.
    variable: str
    read_only: bool = False
    #: A symbolic link to the directory, relative to where processes start.
    link: str | None = None
    files: tuple[FilePlan, ...] = ()
    #: What is mounted of it, with placeholders; None: all.
    sub_path: str | None = None


class ContainerPlan(Struct, frozen=True):
    """How the container of a node is made: the fields of `spec.models.Container`."""

    pull: str | None = None
    python: str | None = None
    user: str | None = None
    #: Bytes.
    shm_size: int | None = None
    ulimits: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[int, ...] = ()
    non_root: bool = False
    cap_add: tuple[str, ...] = ()
    cap_drop: tuple[str, ...] = ()
    privileged: bool = False
    read_only: bool = False
    no_new_privileges: bool = False
    seccomp: str | None = None


class ResourcePlan(Struct, frozen=True):
    """What one node may use; None: no limit.

    Resources of a shape are reduced to what the machine has; all others are required, as are those
    in `exact`.
    """

    cpus: float | None = None
    #: Bytes.
    memory: int | None = None
    gpus: int = 0
    shape: str | None = None
    #: Bytes.
    disk: int | None = None
    #: Whether the node's folder is on a file system of its own, of size `disk`.
    disk_image: bool = False
    #: Resources that are required although there is a shape.
    exact: tuple[str, ...] = ()

    def demands(self, name: str) -> bool:
        """Whether the machine must have the given amount of `cpus`, `memory` or `gpus`."""
        return self.shape is None or name in self.exact


class MetadataPlan(Struct, frozen=True):
    """Labels and annotations of objects in Kubernetes."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class ExtraContainerPlan(Struct, frozen=True):
    """Another container of each node. See `spec.models.ExtraContainer`."""

    name: str
    #: `init`, `sidecar` or `main`.
    role: str
    image: str
    #: None: the image's own.
    command: tuple[str, ...] | None = None
    #: None: the image's own, unless there is a command.
    args: tuple[str, ...] | None = None
    #: With placeholders.
    node_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: With placeholders.
    node_env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    resources: ResourcePlan = ResourcePlan()
    container: ContainerPlan = ContainerPlan()
    mounts: tuple[MountPlan, ...] = ()
    #: The fields of `node.launch_message.Probe`; None: it has started once it runs.
    probe: Mapping[str, Any] | None = None


class GitPlan(Struct, frozen=True):
    """The repository that the code was cloned from."""

    url: str
    #: The full hash.
    commit: str
    branch: str | None = None
    #: The folder of the repository that is the code; None: all of it.
    path: str | None = None
    #: The variable with the token for cloning; nodes do not get it.
    token_env: str | None = None


class UnsentFiles(Struct, frozen=True):
    """Files in the folder of the code that are not part of the artifact."""

    folder: str
    #: The file that is the artifact; "": the folder is.
    script: str
    #: Names in `folder`.
    names: tuple[str, ...]
    #: Those of the names that are excluded by an ignore file.
    ignored: tuple[str, ...] = ()


class ArtifactPlan(Struct, frozen=True):
    """The code, identified by its content."""

    sha256: str
    file_name: str
    kind: str
    #: Bytes.
    size: int
    #: The file of an archive that is run.
    entrypoint: str | None = None
    #: Cells of a notebook with one of these tags are not executed.
    exclude_tags: tuple[str, ...] = ()
    git: GitPlan | None = None
    unsent_files: UnsentFiles | None = field(default=None, name="left_behind")


class EnvironmentPlan(Struct, frozen=True):
    """Packages that the nodes' Python needs. Paths are absolute."""

    #: Lines of a requirements file.
    requirements: tuple[str, ...] = ()
    #: The content of a conda environment file.
    conda: str | None = None


def directory_in_place(working_dir: str | None, mounts: Iterable[str]) -> str | None:
    """See `GroupPlan.in_place`. mounts: the paths of the group's mounts."""
    if working_dir is None or not working_dir.startswith("/"):
        return None
    inside = any(f"{working_dir}/".startswith(f"{path.rstrip('/')}/") for path in mounts)
    return None if inside else working_dir


class PreflightPlan(Struct, frozen=True):
    """What a node checks before its program starts, see `spec.models.Preflight`."""

    #: Whether it checks its GPUs.
    gpus: bool = True
    #: Bytes per second; None: not measured.
    bandwidth: int | None = None
    command: tuple[str, ...] | None = None
    #: Seconds.
    timeout: float = 60.0


class GroupPlan(Struct, frozen=True):
    """One node group. What the lifecycle needs to know of it is in `RunPlan.policy`.

    A field with the name of a group's setting is copied from it, unless the setting is a record.
    Placeholders: see `frameworks.base` and `spec.placeholders`.
    """

    name: str
    first_rank: int
    #: The maximum number of replicas.
    replicas: int
    #: Nodes of each replica.
    nodes: int
    #: None: run the entry point of the artifact.
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    #: Without placeholders.
    env: Mapping[str, str] = field(default_factory=dict)
    #: With placeholders.
    framework_env: Mapping[str, str] = field(default_factory=dict)
    resources: ResourcePlan = ResourcePlan()
    mounts: tuple[MountPlan, ...] = ()
    #: The fields of `node.launch_message.Probe`; None: the node is ready once its program has
    #: started.
    probe: Mapping[str, Any] | None = None
    #: The same, of the probe that is tried from then on; None: there is none.
    liveness: Mapping[str, Any] | None = None
    #: None: nothing is checked.
    preflight: PreflightPlan | None = None
    image: str | None = None
    container: ContainerPlan = ContainerPlan()
    extra_containers: tuple[ExtraContainerPlan, ...] = ()
    #: Commands that run on a node, see `node.launch_message.LaunchMessage`; None: there is none.
    after_start: tuple[str, ...] | None = None
    before_stop: tuple[str, ...] | None = None
    #: Seconds without output after which a node counts as hung; None: never.
    hang_timeout: float | None = None
    #: With placeholders.
    node_env: Mapping[str, str] = field(default_factory=dict)
    #: With placeholders.
    node_args: tuple[str, ...] = ()
    #: Absolute, or relative to the node's copy of the code; None: the copy itself.
    working_dir: str | None = None
    #: With placeholders.
    hostname: str = DEFAULT_HOSTNAME
    #: What the framework runs on the group's nodes, with the program or in its place.
    role: RoleSetup = RoleSetup()
    #: Seconds until the services of `role` must be up and its checks must hold.
    services_timeout: float = field(default=SERVICES_TIMEOUT, name="ready_timeout")
    #: Run in place of the artifact's entry point.
    entrypoint: str | None = None
    #: Like `framework_env`, but the job's own values win.
    framework_defaults: Mapping[str, str] = field(default_factory=dict)
    #: Replicas that run at once, each of which is a cluster of its own; None: the group is no
    #: array.
    parallelism: int | None = None
    #: What the nodes need of Slurm: the fields of `spec.models.Slurm` that are given.
    slurm: Mapping[str, Any] = field(default_factory=dict)
    #: What the nodes need of Kubernetes: the same, of `spec.models.Kubernetes`.
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    #: Of its Jobs and pods in Kubernetes.
    job_metadata: MetadataPlan = MetadataPlan()
    pod_metadata: MetadataPlan = MetadataPlan()

    @property
    def is_array(self) -> bool:
        """Whether each replica is a cluster of its own."""
        return self.parallelism is not None

    @property
    def size(self) -> int:
        return self.replicas * self.nodes

    @property
    def in_place(self) -> str | None:
        """The directory of the machine where processes start; None if they start in the node's copy
        of the code or in a mount."""
        return directory_in_place(self.working_dir, (mount.path for mount in self.mounts))


class NodePlan(Struct, frozen=True, gc=False):
    """One node."""

    rank: int
    group: str
    #: Within the group.
    replica: int
    #: Within the replica.
    index: int
    node_id: str
    fqdn: str
    #: IP address.
    address: str
    #: One label.
    hostname: str
    #: Further names under which other nodes find it, including `fqdn` unless that is the host name.
    names: tuple[str, ...] = ()
    #: Its position in `RunPlan.nodes`; None: its rank.
    slot: int | None = None


class Parameters(Struct, frozen=True, dict=True):
    """The parameter sets of an array's replicas, not expanded. See `spec.models.Array`."""

    #: Name of the group whose replicas have them.
    group: str
    #: Names of the parameters, in order.
    names: tuple[str, ...]
    #: Name -> values, in the form of `spec.arrays.parse_values`.
    grid: Mapping[str, str] = field(default_factory=dict)
    #: Sets that are combined with those of the grid, in the form of `spec.parameter_rows`.
    rows: str | None = None
    #: Number of sets drawn at random; None: all, in order.
    sample: int | None = None
    seed: int = 0

    def __len__(self) -> int:
        """Number of sets."""
        return len(self._sets)

    def values(self, replica: int) -> Mapping[str, str]:
        """The parameters of a replica. Raises IndexError."""
        return self._sets.values(replica)

    @cached_property
    def _sets(self) -> ParameterSets:
        from muster.plan.parameters import ParameterSets  # few runs have parameters

        return ParameterSets(self)


class KueuePlan(Struct, frozen=True):
    """Where a run waits in a cluster with Kueue: the fields of `spec.models.Kueue`."""

    queue: str | None = None
    priority: str | None = None


class WorkloadPlan(Struct, frozen=True):
    """A JobSet that the cluster runs as it is: the fields of `spec.models.Workload`."""

    manifest: Mapping[str, Any]
    #: None: it is applied by the run.
    uid: str | None = None


class PrincipalPlan(Struct, frozen=True):
    """How programs of a run find the server that has started it, and whom they say they are there:
    the run (OCI: a resource principal)."""

    #: OCIDs.
    tenancy: str
    compartment: str
    #: A domain to clients of OCI: the services of the server are below it.
    region: str
    #: The URL of the server, for clients that are given one; "": the region is enough.
    endpoint: str = ""
    #: Whether the server has a certificate of its own authority.
    own_authority: bool = False


class RunPlan(Struct, frozen=True, dict=True):
    """Everything that an engine needs to know about a run."""

    run_id: str
    run_name: str
    job_id: str
    job_name: str
    framework: str
    processes_per_node: int
    network: Network
    network_reason: str
    #: What the lifecycle applies. Its groups are those of `groups`, in the same order.
    policy: Policy
    groups: tuple[GroupPlan, ...]
    #: The nodes, in the order of their ranks. Of an array only the nodes of as many replicas as run
    #: at once, with the ranks of the first: later replicas take their slots. A slot is a position
    #: in this tuple.
    nodes: tuple[NodePlan, ...]
    ports: tuple[Port, ...] = ()
    #: Whether nodes need certificates.
    tls: bool = False
    #: See `frameworks.base.Setup`.
    endpoints: Mapping[str, str] = field(default_factory=dict)
    #: See `frameworks.base.Setup`.
    quiet: Quiet | None = None
    artifact: ArtifactPlan | None = None
    log_output: bool = True
    log_directory: str | None = None
    notes: tuple[str, ...] = ()
    #: Nodes also have names `HOSTNAME.SUBDOMAIN`, as pods of a headless service in Kubernetes.
    subdomain: str | None = None
    #: The Kubernetes namespace that occurs in the names of nodes.
    namespace: str | None = None
    #: Whether programs get only the job's variables, and not those of the submitting process.
    clean_env: bool = False
    #: Address -> further names of the machine that nodes know.
    host_aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Values of `${secret.NAME}`, which are never shown.
    secrets: Mapping[str, str] = field(default_factory=dict)
    #: Number of attempts whose output is kept; None: all.
    keep_attempts: int | None = None
    #: Seconds after its end when the run is deleted; None: never.
    ttl_after_finished: float | None = None
    environment: EnvironmentPlan | None = None
    #: Whether $MUSTER_OUTPUTS is a directory of each node. In plans of earlier versions, which lack
    #: this field, it is the directory of the run: later attempts find their checkpoints there.
    node_outputs: bool = False
    #: The name of the engine that runs the nodes. Plans of earlier versions, which had only this
    #: one, lack it.
    engine: str = "local"
    #: The parameters of the replicas of an array; None: there is no array, or it has none.
    parameters: Parameters | None = None
    #: Whether URLs of mounts may lead to addresses that are not of the public internet.
    allow_private_addresses: bool = True
    #: See `Submission.oci_names`.
    oci_names: Mapping[str, str] = field(default_factory=dict)
    #: Runs that have to succeed before this one starts.
    after: tuple[RunBefore, ...] = ()
    #: None: programs get no credentials, as no server has started the run, or none serves OCI.
    principal: PrincipalPlan | None = None
    #: Where it waits in a Kubernetes cluster; None: as the engine's profile says.
    kueue: KueuePlan | None = None
    #: None: nodes run the programs of the plan.
    workload: WorkloadPlan | None = None
    #: What further describes it to people and other programs: the job's tags and annotations.
    tags: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def own_interfaces(self) -> bool:
        """Whether each node has its own network interface, on which every port is free."""
        return self.network != "shared"

    def slots(self, group: GroupPlan) -> range:
        """The slots of a group: the positions in `nodes` of its nodes."""
        first = 0
        for other in self.groups:
            at_once = other.replicas if other.parallelism is None else other.parallelism
            if other.name == group.name:
                return range(first, first + at_once * group.nodes)
            first += at_once * other.nodes
        raise LookupError(group.name)

    def first_node(self, group: GroupPlan) -> NodePlan:
        """The first node of a group."""
        return self.nodes[self.slots(group).start]

    def node(self, rank: int, slot: int | None = None) -> NodePlan:
        """The node with a rank. slot: the one that it runs in, if it belongs to an array; None:
        it is not known, so the node has no address."""
        if not self.has_arrays:
            return self.nodes[rank]
        group = self.group_of(rank)
        offset = rank - group.first_rank
        if not group.is_array:
            return self.nodes[self.slots(group).start + offset]
        from muster.plan.names import named  # few runs have arrays

        replica, index = divmod(offset, group.nodes)
        address = "" if slot is None else self.nodes[slot].address
        node_id = f"{self.run_id}-{rank}"
        node = NodePlan(rank, group.name, replica, index, node_id, "", address, "", slot=slot)
        return named(node, self)

    def slot_of(self, node: NodePlan) -> int:
        """The position of a node in `nodes`."""
        return node.rank if node.slot is None else node.slot

    def cluster(self, node: NodePlan) -> Sequence[NodePlan]:
        """The nodes that form a cluster with this one, in the order of their ranks in it: those of
        its replica if its group is an array, else those of all groups that are none."""
        if not self.has_arrays:
            return self.nodes
        group = self.group(node.group)
        if group.is_array:
            rank, slot = node.rank - node.index, self.slot_of(node) - node.index
            return [self.node(rank + index, slot + index) for index in range(group.nodes)]
        others = (other for other in self.groups if not other.is_array)
        return [self.nodes[slot] for other in others for slot in self.slots(other)]

    def rank_in_cluster(self, node: NodePlan) -> int:
        """The rank of a node in its cluster."""
        if not self.has_arrays:
            return node.rank
        if self.group(node.group).is_array:
            return node.index
        return [other.rank for other in self.cluster(node)].index(node.rank)

    def cluster_size(self, node: NodePlan) -> int:
        """The number of nodes that the node's cluster starts with."""
        group = self.group(node.group)
        if group.is_array:
            return group.nodes
        arrays = sum(other.initial * other.nodes for other in self.policy.groups if other.is_array)
        return self.policy.initial_size - arrays

    @cached_property
    def has_arrays(self) -> bool:
        """Whether any group is an array."""
        return any(group.is_array for group in self.groups)

    def processes_of(self, rank: int) -> int:
        """The number of processes of the program on a node; 1 if the node runs only services."""
        role = self.group_of(rank).role
        if not role.program:
            return 1
        return self.processes_per_node if role.processes is None else role.processes

    def ranks_of(self, rank: int) -> int:
        """The number of ranks that a node's launcher starts with separate output files; 0 if ranks
        write to the launcher's output."""
        role = self.group_of(rank).role
        separate = role.program and role.own_outputs and self.processes_per_node > 1
        return self.processes_per_node if separate else 0

    def group(self, name: str) -> GroupPlan:
        return next(group for group in self.groups if group.name == name)

    def entrypoint_of(self, group: GroupPlan) -> str | None:
        """The file of the code that a group runs: the group's (OCI: JOB_RUN_ENTRYPOINT), or the
        job's. None if the code is a single file, or the job has no code."""
        code = self.artifact
        return None if code is None else group.entrypoint or code.entrypoint

    def file_of(self, group: GroupPlan) -> str | None:
        """The name of the file that a group without a command runs."""
        code = self.artifact
        return self.entrypoint_of(group) or (None if code is None else code.file_name)

    def runs_image(self, group: GroupPlan) -> bool:
        """Whether what a group runs begins with its image's ENTRYPOINT. Its arguments replace the
        image's CMD (Docker, Kubernetes); so does CONTAINER_CMD alone (OCI), which is the command
        where there are no images."""
        if not group.role.program or self.artifact is not None:
            return False
        if group.command is None:
            return True
        from muster.spec.oci_variables import only_arguments

        return group.image is not None and only_arguments(group.env, group.command)

    def runs_notebook(self, group: GroupPlan) -> bool:
        """Whether a group executes a notebook."""
        file = self.file_of(group) if group.role.program and group.command is None else None
        return file is not None and file.lower().endswith(".ipynb")

    def replica_number(self, node: NodePlan) -> int:
        """The number of the node's replica, counted over all groups."""
        names = [group.name for group in self.groups]
        before = self.groups[: names.index(node.group)]
        return sum(group.replicas for group in before) + node.replica

    def group_for(self, node: NodePlan) -> GroupPlan:
        """The group of a node as its replica runs it: with the parameters of the replica in its
        words. Their placeholders in `node_args` and `node_env` are left to `Facts`."""
        group = self.group(node.group)
        if self.parameters is None or self.parameters.group != group.name:
            if any("{param." in word for word in (*(group.command or ()), *group.args)):
                from muster.plan.parameters import without_parameters  # only escaped ones

                return without_parameters(group)
            return group
        from muster.plan.parameters import with_parameters  # few runs have parameters

        return with_parameters(group, self.parameters.values(node.replica))

    def group_of(self, rank: int) -> GroupPlan:
        return self.groups[self.policy.group_index(rank)]

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON-ready data. `from_json` is the inverse."""
        data: dict[str, Any] = to_builtins(self)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunPlan:
        """A stored plan, written by this version or an older one."""
        if "policy" not in data and "groups" in data:
            from muster.plan.upgrade import upgrade_plan

            data = upgrade_plan(data)
        compile_type(cls)
        return convert(data, cls)
