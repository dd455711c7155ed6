"""The spec: what a user asks for, its defaults, and the rules that each field obeys by itself.

A string literal under a field is its documentation, in docs/reference/spec.md and the JSON Schema.
The kinds of settings (`RunWide`, `Inherited`, ...) are explained in `spec.setting_kinds`. After a
change of this module, run `make docs`.

Policies for success, failure and checkpoints are in `spec.policies`, the code's sources in
`spec.sources`, field types in `spec.values`, rules between fields in `spec.rules`. `spec.decode`
makes these classes from plain data.
"""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from muster.spec.policies import (
    Checkpoint,
    DependsOn,
    EarlySuccess,
    FailurePolicy,
    SuccessPolicy,
)
from muster.spec.setting_kinds import (
    AlwaysShown,
    Code,
    Flag,
    GroupOnly,
    Inherited,
    Merged,
    OnlyGroup,
    RunWide,
)
from muster.spec.sources import Git, Notebook
from muster.spec.values import (
    MAX_RUNTIME,
    MOUNT_FILE,
    Annotations,
    Command,
    Count,
    DisplayName,
    Duration,
    Env,
    FileMode,
    FilePath,
    Gpus,
    GroupName,
    HostAliases,
    JobName,
    Label,
    LabelKey,
    Labels,
    Limit,
    MountSource,
    Natural,
    Notify,
    Options,
    ParameterGrid,
    ParameterRows,
    Positive,
    Processes,
    ReplicaNumbers,
    Runtime,
    Secrets,
    Size,
    SlurmTime,
    Tags,
    Text,
    Words,
    array_fields,
)

#: Name of the group that `nodes: N` stands for.
DEFAULT_GROUP = "workers"
DEFAULT_FRAMEWORK = "generic"
DEFAULT_ENGINE = "local"

Startup = Literal["parallel", "in_order"]
Network = Literal["shared", "cluster", "isolated"]
Pull = Literal["missing", "always", "never"]
Seccomp = Literal["default", "unconfined"]
#: Without CAP_.
Capability = Annotated[str, Meta(pattern="^[A-Z][A-Z_]*$")]
#: Name -> limit; -1: none.
Ulimits = dict[Annotated[str, Meta(pattern="^[a-z]+$")], Annotated[int, Meta(ge=-1)]]


class Resources(Struct, frozen=True, kw_only=True):
    """Resources of one node."""

    cpus: Positive | None = None
    """CPUs; fractions are allowed."""
    memory: Size | None = None
    """Memory, such as 4GiB."""
    gpus: Gpus = 0
    """Whole GPUs."""
    disk: Size | None = None
    """Disk space for the node's own files (working directory, TMPDIR, scratch), such as 20GiB."""
    disk_image: bool = False
    """Enforce `disk`: put those files in a file system of that size, made for the node and deleted
    with it. Requires root."""


class Container(Struct, frozen=True, kw_only=True):
    """How the container of a node is made, on engines that make them."""

    pull: Pull | None = None
    """When the image is pulled, at the start of a run: missing (if it is not on the machine),
    always or never. Default: the engine's."""
    python: Text | None = None
    """The Python of the image that runs `python` jobs: a path, or a name on PATH. Default: the
    engine's."""
    user: Text | None = None
    """The user of the node's processes: a name in the image or a number, and :GROUP. Default: the
    image's."""
    shm_size: Size | None = None
    """The size of /dev/shm, such as 8GiB. Default: half of the node's memory."""
    ulimits: Ulimits = field(default_factory=dict)
    """Limits of the node's processes by their names, such as {memlock: -1, nofile: 65536}; -1 is
    no limit. Default: the engine's."""
    groups: tuple[Natural, ...] = ()
    """Further groups of the processes, by their numbers."""
    non_root: bool = False
    """Refuse to run as root: the user has to be a number other than 0, here or in the image."""
    cap_add: tuple[Capability, ...] = ()
    """Capabilities that the processes have besides the engine's defaults, such as IPC_LOCK; ALL is
    every one."""
    cap_drop: tuple[Capability, ...] = ()
    """Capabilities that they do not have; ALL is every one."""
    privileged: bool = False
    """Give the container all capabilities and devices of the machine."""
    read_only: bool = False
    """Mount the image's files read-only. Mounts can be written."""
    no_new_privileges: bool = False
    """No process gains privileges, such as by setuid programs."""
    seccomp: Seccomp | None = None
    """The system calls that are allowed: default (the profile of the container runtime) or
    unconfined. Default: the engine's."""


class Slurm(Struct, frozen=True, kw_only=True):
    """What nodes need of Slurm, with the words of sbatch. Only for engine slurm; ignored by others.
    What is left out is that of the engine's profile, or of the cluster."""

    account: Text | None = None
    """The account that is charged."""
    partition: Text | None = None
    """Partitions, separated by commas."""
    qos: Text | None = None
    """Quality of service."""
    constraint: Text | None = None
    """Features of the machines, such as a100."""
    reservation: Text | None = None
    """A reservation."""
    licenses: Text | None = None
    """Licenses, such as matlab:1."""
    switches: Text | None = None
    """The most switches between the machines, and how long to wait for that: 1@01:00:00."""
    gres: Text | None = None
    """Generic resources of each machine, such as gpu:a100:2. Default: gpu, if resources has
    gpus."""
    gpus_per_node: Text | None = None
    """GPUs of each machine, such as a100:2. Default: resources.gpus."""
    tres_per_node: Text | None = None
    """Trackable resources of each machine (Slurm 24.05 or newer)."""
    tres_per_task: Text | None = None
    """Trackable resources of each node's task (Slurm 23.11 or newer)."""
    nodelist: Text | None = None
    """Machines that must be among those of the run."""
    exclude: Text | None = None
    """Machines that must not be used."""
    time: SlurmTime | None = None
    """Time limit, as for sbatch: 90 (minutes), 12:00:00, 2-00:00:00. Default: a little more than
    max_runtime, if that is set, so that the run ends first, and can save a checkpoint; else that
    of the partition."""
    exclusive: bool | None = None
    """Whether the machines run nothing else."""
    spares: Natural | None = None
    """Additional machines in the allocation, which replace those that are lost. Default: 0."""
    extra: tuple[Text, ...] = ()
    """Other flags of sbatch, such as --mail-type=END."""


class Topology(Struct, frozen=True, kw_only=True):
    """Where Kueue places the nodes of a group: all in one part of the data center. A part is named
    by the label that its machines share, such as cloud.provider.com/rack."""

    required: Text | None = None
    """All nodes are in one part, or the run waits."""
    preferred: Text | None = None
    """All nodes are in one part, or in as few as possible."""
    unconstrained: bool = False
    """Nodes are wherever there is space, and the run starts when there is enough for all."""
    slice: Text | None = None
    """Each slice of the group is in one part, which is smaller than the others."""
    slice_size: Count | None = None
    """Nodes of each slice."""
    group: Text | None = None
    """Node groups with the same name here are placed together, such as a launcher and its
    workers."""


class Kueue(Struct, frozen=True, kw_only=True):
    """Where a run waits in a Kubernetes cluster with Kueue. Only for engine kubernetes;
    ignored by others."""

    queue: Text | None = None
    """The LocalQueue in which the run waits. Default: that of the engine's profile."""
    priority: Text | None = None
    """Its WorkloadPriorityClass there. Default: the PriorityClass of its pods counts."""


class Kubernetes(Struct, frozen=True, kw_only=True):
    """What nodes need of a Kubernetes cluster, with the words of Kubernetes. Only for engine
    kubernetes; ignored by others. What is left out is that of the engine's profile."""

    service_account: Text | None = None
    """The service account of the pods, whose token they get. Default: no token."""
    priority_class: Text | None = None
    """The PriorityClass of the pods."""
    runtime_class: Text | None = None
    """The RuntimeClass of the pods."""
    scheduler: Text | None = None
    """The scheduler that places the pods."""
    image_pull_secrets: tuple[Text, ...] = ()
    """Secrets with logins to registries."""
    node_selector: Labels = field(default_factory=dict)
    """Labels that machines must have."""
    tolerations: tuple[dict[str, Any], ...] = ()
    """Taints of machines that are accepted, such as [{key: nvidia.com/gpu, operator: Exists}]."""
    affinity: dict[str, Any] = field(default_factory=dict)
    """Rules about machines and other pods, as in a pod's spec."""
    exclusive: LabelKey | None = None
    """The key of a label of machines: those with the same value run one replica at most, and it is
    in one such part (JobSet: exclusive-topology)."""
    topology: Topology | None = None
    """Where Kueue places the nodes."""
    resources: dict[str, Annotated[str, Meta(extra={"parse": str})]] = field(default_factory=dict)
    """Further resources of each node, such as {rdma/ib: 1}."""
    pod_log: bool | None = None
    """Whether the log of a pod has the output of its programs, too, for `kubectl logs` and what
    collects logs in the cluster. Default: true."""
    pod: dict[str, Any] = field(default_factory=dict)
    """A strategic merge patch of the pod template, for all that has no setting here: {spec:
    {hostNetwork: true}}. The container of the node is named node; its command, and what else makes
    the pod a node of its run, cannot be changed."""


class Workload(Struct, frozen=True, kw_only=True):
    """A JobSet that a Kubernetes cluster runs as it is, while Muster watches it: its groups of
    nodes are its replicated Jobs. `muster run jobset.yaml --engine kubernetes` and `muster adopt`
    write it."""

    manifest: dict[str, Any]
    """The JobSet."""
    uid: Text | None = None
    """Of a JobSet that is in the cluster, and was adopted: it is not changed. Default: the manifest
    is applied."""


class MountFile(Struct, frozen=True, kw_only=True):
    """A file that nodes see. Its text alone is enough: {app.conf: "port = 80"}. Give either text or
    base64."""

    text: str | None = None
    """Content, with placeholders as in node_env, and ${secret.NAME}."""
    base64: str | None = None
    """Content of any bytes, in base64; with placeholders too, which are filled before it is
    decoded."""
    mode: FileMode = "0644"
    """Permissions in octal digits, in quotes: "0400"."""


MountFileField = Annotated[MountFile, MOUNT_FILE]


class Mount(Struct, frozen=True, kw_only=True):
    """A directory that nodes see. Give either source or files."""

    source: MountSource | None = None
    """A directory (relative to the spec's file), an NFS export (nfs://server/path), an fsspec URL
    (s3://bucket/prefix), or a named directory that Muster creates: scratch:node/NAME (one per
    node; survives restarts in place), scratch:incarnation/NAME (one per node; emptied at each
    restart), scratch:run/NAME (shared by the run's nodes), or volume:NAME (kept under
    MUSTER_HOME/volumes and shared by runs). Scratch directories are deleted with the run."""
    files: dict[FilePath, MountFileField] = field(default_factory=dict)
    """Files with given content instead of a source, by their paths below the mount; at most 1 MiB,
    and 2 MiB in all mounts of a node. They are written anew at each start of a program, with the
    values of its node, and are mounted read-only."""
    sub_path: Text | None = None
    """Mount only this file or directory of the source or of the files. Placeholders as in node_env,
    but none that differ between attempts. A directory is created if it is missing."""
    path: Text | None = None
    """Mount point on the nodes; a relative path is below /mnt. Default: the source's last
    component, below /mnt. Nodes also find it in MUSTER_MOUNT_<NAME>."""
    link: Text | None = None
    """Symbolic link to the mount, relative to the directory where processes start. If the source
    is a URL of one file, the link leads to that file."""
    read_only: bool = False
    """Mount read-only."""

    @property
    def last_component(self) -> str:
        """Last component of the source's path, without a URL's query (which may be a signature)."""
        if self.source is None:
            return (self.sub_path or "").rpartition("/")[2]
        path = re.split(r"[?#]", self.source)[0] if "://" in self.source else self.source
        return path.removeprefix("volume:").rstrip("/").rsplit("/", 1)[-1]

    @property
    def destination(self) -> str:
        """The absolute path (OCI: destinationPath/destinationDirectoryName, /mnt by default)."""
        path = self.path or self.last_component
        # normpath keeps two leading slashes
        return posixpath.normpath("/" + posixpath.join("/mnt", path).lstrip("/"))


class Probe(Struct, frozen=True, kw_only=True, rename={"exec_": "exec"}):
    """A check of a node. Give exactly one of exec, tcp and file."""

    exec_: Command | None = None
    """Succeeds when this command exits with 0. Written as `command` is."""
    tcp: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """Succeeds when something listens on this port of the node."""
    http: Text | None = None
    """With tcp: succeeds when a GET of this path is answered with status 200 to 399."""
    file: Text | None = None
    """Succeeds when this file exists."""
    period: Annotated[Duration, Meta(gt=0)] = 1.0
    """Time between checks."""
    timeout: Annotated[Duration, Meta(gt=0)] = 1.0
    """Timeout of one check."""
    threshold: Count = 30
    """Failed checks after which the node has failed."""
    initial_delay: Annotated[Duration, Meta(ge=0)] = 0.0
    """Delay before the first check."""


class StartupProbe(Probe, frozen=True, kw_only=True):
    """Checks whether a node is ready. Give exactly one of exec, tcp and file."""


class LivenessProbe(Probe, frozen=True, kw_only=True):
    """Checks whether a node that is ready still works. Give exactly one of exec, tcp and file."""

    period: Annotated[Duration, Meta(gt=0)] = 10.0
    """Time between checks."""
    threshold: Count = 3
    """Failed checks in a row after which the node has failed (`unhealthy`)."""


class Preflight(Struct, frozen=True, kw_only=True):
    """Checks of a node before its program starts, at each start. A node that does not pass has
    failed (`preflight`); on engine kubernetes, its next start is on another machine."""

    gpus: bool = True
    """The GPUs of resources.gpus must be there and answer."""
    bandwidth: Size | None = None
    """Least bandwidth, in bytes per second, such as 1GiB: one TCP connection to the node after it
    in its group, and one from the node before it. A node has failed if all that could be measured
    are slower."""
    command: Command | None = None
    """Command that must succeed, written as the group's command is. Its last lines say why the node
    has failed."""
    timeout: Annotated[Duration, Meta(gt=0)] = 60.0
    """A node that has not passed after this time has failed."""


ContainerRole = Literal["init", "sidecar", "main"]


class ExtraContainer(Struct, frozen=True, kw_only=True):
    """Another container of each node, as in a pod of Kubernetes. It shares the node's network and
    its IPC namespace, and has files of its own. For engines container and kubernetes."""

    name: Label
    """Unique within the group. In front of its lines in the node's output."""
    role: ContainerRole
    """init: runs before the program, to its end; if it fails, so has the node. sidecar: runs beside
    the program, is started again when it ends, and is ended after the program. main: runs with the
    program; the node succeeds when all have ended with 0, and fails as soon as one has failed.
    Init containers and sidecars start in their order, before the others."""
    image: Text
    """Container image."""
    command: Command | None = None
    """Program, written as the group's command is. Default: the image's own (its ENTRYPOINT)."""
    args: Words | None = None
    """Arguments. Default: the image's own (its CMD), if there is no command."""
    node_args: Words | None = None
    """Additional arguments, with placeholders as in the group's node_env."""
    env: Env = field(default_factory=dict)
    """Environment variables, besides those of the image."""
    node_env: Env = field(default_factory=dict)
    """Environment variables with placeholders, as in the group's node_env."""
    working_dir: Text | None = None
    """Directory in which it starts: an absolute path. Default: the image's."""
    resources: Resources | None = None
    """cpus and memory that it may use, besides those of the node."""
    container: Container | None = None
    """How it is made: pull, user, ulimits and what concerns security."""
    mounts: tuple[Mount, ...] = ()
    """Directories and files that it sees. The job's and the group's are not among them: name the
    same source, such as scratch:node/NAME, to share it with the program."""
    startup_probe: StartupProbe | None = None
    """Of a sidecar: when it has started. What follows it waits for that."""


class Logging(Struct, frozen=True, kw_only=True):
    """The nodes' output."""

    enabled: bool = True
    """Keep the output."""
    directory: Text | None = None
    """Keep it in a subdirectory of this directory, named after the run's id. Default: under
    MUSTER_HOME."""


class Metadata(Struct, frozen=True, kw_only=True):
    """Labels and annotations of Kubernetes objects. Written by `muster convert`; ignored by runs
    on this machine."""

    labels: Labels = field(default_factory=dict)
    """Short texts by which objects are selected, such as Kueue's queue name."""
    annotations: Annotations = field(default_factory=dict)
    """Other metadata, such as JobSet's exclusive topology."""


class Array(Struct, frozen=True, kw_only=True):
    """Parameter sets, one for each replica of a group. Without `file`, `rows` and `sample`, the
    parameters can be given directly: {lr: [0.1, 0.01], seed: 0..99}."""

    parameters: ParameterGrid = field(default_factory=dict)
    """Name -> values: a list, or text: `0.1,0.01`, `0..99` (both included), `0..1..0.25` (with a
    step). Quotes keep a comma: `"a,b"`. Every combination is a set; the last parameter varies
    fastest. With sample, also uniform(0.001,0.1), loguniform(1e-5,1e-1), int(1,10) and
    choice(a,b)."""
    file: Text | None = None
    """A CSV file (or .tsv) with names in its first line, or a file of JSON lines: each further line
    is a set. Relative to the spec's file; - is standard input. With parameters, each set is
    combined with each of theirs."""
    rows: ParameterRows | None = None
    """A list of sets, instead of a file."""
    sample: Count | None = None
    """Number of sets to draw at random, none of them twice. If a parameter has a distribution, such
    as uniform(0,1), each set draws a value of every parameter."""
    sample_seed: Natural = 0
    """Seed of the sample: the same seed draws the same sets."""

    @property
    def size(self) -> int:
        """Number of sets."""
        from muster.spec.arrays import set_count  # most jobs have no array

        return set_count(self)


ArrayField = Annotated[
    Array,
    Meta(
        extra={"parse": array_fields},
        extra_json_schema={"type": ["object", "array", "string"]},
    ),
]


class NodeGroup(Struct, frozen=True, kw_only=True):
    """Nodes with the same configuration. Settings that are left out are inherited from the job."""

    name: GroupName
    """Unique within the job, also as part of a host name (lower case, with - for _)."""
    nodes: AlwaysShown[GroupOnly[Count]] = 1
    """Nodes in each replica."""
    replicas: AlwaysShown[GroupOnly[Count]] = 1
    """Number of replicas. The nodes of a replica succeed and fail together."""
    max_replicas: GroupOnly[Count | None] = None
    """Maximum number of replicas while the run is in progress (`muster runs scale`). Default:
    replicas."""
    array: GroupOnly[ArrayField | None] = None
    """Parameter sets, one for each replica; then `replicas` is their number. Each replica is a
    cluster of its own, and gets its values as arguments (`--lr 0.1`), or where `${param.lr}` is
    written in command, args, node_args or node_env, and in MUSTER_PARAM_LR."""
    parallelism: GroupOnly[Count | None] = None
    """Replicas that run at once, in order; the group is then an array, each replica of which is a
    cluster of its own. Default: as many as the engine can hold with an array, otherwise all."""
    total_retries: GroupOnly[Natural | None] = None
    """Failures allowed in all replicas of an array together: each uses a retry or, if its replica
    has none left, fails the replica; one more fails the group (Kubernetes: backoffLimit). Default:
    only retries and max_failed apply."""
    early_success: GroupOnly[tuple[EarlySuccess, ...]] = ()
    """The array succeeds, and the rest of it is stopped, as soon as one of these is true
    (Kubernetes: successPolicy of a Job). Default: when its replicas have ended."""
    max_failed: GroupOnly[Natural | None] = None
    """Replicas that may fail, after their retries, before the others are stopped; the run succeeds
    only if min_success is reached (Kubernetes: maxFailedIndexes). Default: with an array all, else
    what min_success leaves."""
    only: GroupOnly[ReplicaNumbers | None] = None
    """Run only these replicas of an array, under their own numbers: 3,17,40-42."""
    command: Inherited[Command | None] = None
    """Command to run instead of the artifact."""
    args: Inherited[Words | None] = None
    """Arguments of the program."""
    working_dir: Inherited[Text | None] = None
    """Directory where processes start."""
    node_args: GroupOnly[Words | None] = None
    """Additional arguments, with placeholders as in node_env."""
    env: Merged[Env] = field(default_factory=dict)
    """Environment variables, added to the job's."""
    resources: Inherited[Resources | None] = None
    """Resources of each node."""
    shape: Inherited[Text | None] = None
    """Name of a shape (`muster shapes`): resources of each node, as far as the machine has them."""
    slurm: Inherited[Slurm | None] = None
    """What the nodes need of Slurm. Default: the job's; a group's replaces all of it."""
    kubernetes: Inherited[Kubernetes | None] = None
    """What the nodes need of Kubernetes. Default: the job's; a group's replaces all of it."""
    image: Inherited[Text | None] = None
    """Container image, for engines that use one. Without code and command, its ENTRYPOINT and CMD
    run on engine container, where `args` replace CMD."""
    container: Inherited[Container | None] = None
    """How the container of each node is made, for engines that make them."""
    mounts: Inherited[tuple[Mount, ...]] = ()
    """Mounts, added to the job's."""
    startup_probe: GroupOnly[StartupProbe | None] = None
    """When nodes are ready. Default: as soon as their programs run."""
    liveness_probe: GroupOnly[LivenessProbe | None] = None
    """When nodes have failed though their programs run. Default: hang_timeout only."""
    after_start: GroupOnly[Command | None] = None
    """Command that runs on a node once its program has started. The node is ready when it has
    succeeded; if it fails, so has the node."""
    before_stop: GroupOnly[Command | None] = None
    """Command that runs on a node before its program gets SIGTERM. Its time is part of the
    grace_period."""
    min_success: GroupOnly[Natural | None] = None
    """Replicas that must succeed. Default: all, after scaling too."""
    depends_on: GroupOnly[tuple[DependsOn, ...]] = ()
    """Groups that must be ready or complete before this one starts."""
    max_restarts: GroupOnly[Natural | None] = None
    """Maximum restarts for failures in this group; after them the run fails. Default: only the
    run's max_restarts applies."""
    retries: GroupOnly[Natural] = 0
    """Restarts allowed before the replica fails: of the failed node alone, of an array of the
    replica."""
    timeout: GroupOnly[Limit | None] = None
    """A replica that runs longer has failed."""
    max_runtime: GroupOnly[Runtime | None] = None
    """The run is canceled when the group has run this long, over all attempts, without the time it
    was suspended. At most 30d. Default: only the run's max_runtime applies."""
    preflight: Inherited[Preflight | None] = None
    """Checks of each node before its program starts. Default: the job's; a group's replaces all of
    it."""
    ready_timeout: Inherited[Limit | None] = None
    """A node that is not ready this long after its start has failed."""
    hang_timeout: Inherited[Limit | None] = None
    """A node that writes no output for this time has failed."""
    hostname: GroupOnly[Text | None] = None
    """Template of the nodes' host names, different for each node: ${rank}, ${group}, ${replica},
    ${index}, ${run.replica}, ${run.name}. Names in it become lower case, with - for _. Default:
    node-${rank}."""
    node_env: Merged[Env] = field(default_factory=dict)
    """Environment variables with placeholders: ${rank}, ${group}, ${replica}, ${index},
    ${attempt}, ${run.restarts} (the same without resumptions), ${run.replica}
    (the replica's number over all groups), ${run.name}, ${run.id}, ${address}, ${hostname}, and
    ${secret.NAME} of the job's or the project's secrets.
    $${rank} is the text ${rank}."""
    extra_containers: tuple[ExtraContainer, ...] = ()
    """Other containers of each node: init containers, sidecars and further programs."""
    job_metadata: Metadata = Metadata()
    """For Kubernetes: labels and annotations of the Job of each replica."""
    pod_metadata: Metadata = Metadata()
    """For Kubernetes: labels and annotations of the pod of each node."""

    @property
    def first_replicas(self) -> int:
        """Number of replicas at the start. In normal form, that is `replicas`."""
        return self.replicas if self.array is None else self.array.size

    @property
    def most_replicas(self) -> int:
        """Maximum number of replicas, each of which has ranks from the start."""
        return self.first_replicas if self.max_replicas is None else self.max_replicas

    @property
    def is_array(self) -> bool:
        """Whether each replica is a cluster of its own, and they may run a few at a time."""
        return self.array is not None or self.parallelism is not None


class JobSpec(Struct, frozen=True, kw_only=True):
    """A job."""

    name: JobName | None = None
    """Name of the job in commands. Its runs are NAME-1, NAME-2, ... Default: from the file's
    name."""
    display_name: DisplayName | None = None
    """Display name: one line of any text. Need not be unique."""
    description: str = ""
    """Description: any text."""
    artifact: Code[Text | None] = None
    """The code: a Python file, notebook, shell script, folder, zip, tar(.gz/.bz2/.xz), JAR or
    class file."""
    git: Code[Git | None] = None
    """A git repository with the code, instead of an artifact."""
    entrypoint: Code[Text | None] = None
    """File to run in a folder, archive or repository; required there."""
    notebook: Code[Notebook | None] = None
    """How to execute an artifact or entrypoint that ends in .ipynb."""
    requirements: Code[Words | None] = None
    """Python packages to install on the nodes: a requirements file (.txt; relative to the spec's
    file or, with git, to the repository's code) or a list of its lines."""
    conda: Code[Text | None] = None
    """Conda environment file (.yaml) for the nodes, with Python."""
    command: Inherited[Command | None] = None
    """Command to run instead of the artifact. Text with shell syntax (`$RANK`, `&&`, `|`, `>`,
    `*.csv`, `~/data`, `X=1 program`, several lines, ...) is run by `sh -c`, unless quotes make it
    plain. Other text is split into words and started directly; so is a list, whatever it
    contains."""
    args: Inherited[Words | None] = None
    """Arguments of the program."""
    working_dir: Inherited[Text | None] = None
    """Directory where processes start. A relative path is below the node's copy of the code; an
    absolute one is a directory of the machine, used in place and not copied, or in a mount. Created
    if missing in the copy or a mount. Default: the copy of the code; for `muster run -- COMMAND`,
    the current directory."""
    env: Merged[Env] = field(default_factory=dict)
    """Environment variables."""
    secrets: Secrets = field(default_factory=dict)
    """Values that are never shown, whatever their names, nor in the output of programs: a line of
    4 characters or more is *** there. ${secret.NAME} in node_env, node_args and
    files is replaced by them when a node starts; not in env, command and args. A secret that is not
    here is the project's, which `muster secrets set NAME` stores."""
    framework: AlwaysShown[str] = DEFAULT_FRAMEWORK
    """generic, pytorch, dask, ray, ... or an installed plug-in."""
    framework_options: Merged[Options] = field(default_factory=dict)
    """Options of the framework, documented on its page."""
    engine: AlwaysShown[Flag[RunWide[Text | None]]] = None
    """Where nodes run: local (this machine), container, hosts, slurm, or another one of
    `muster engines list`. Default: the engine that the project's `muster.toml` names, otherwise
    local."""
    processes_per_node: AlwaysShown[Flag[RunWide[Processes]]] = 1
    """Processes on each node."""
    nodes: OnlyGroup[Count | None] = None
    """Number of nodes: shorthand for one group."""
    node_groups: tuple[NodeGroup, ...] = ()
    """Groups of nodes, in the order of their ranks."""
    startup: AlwaysShown[RunWide[Startup]] = "parallel"
    """Start all groups at once, or each when the one before it is ready."""
    success: RunWide[SuccessPolicy] = SuccessPolicy()
    """When the run succeeds."""
    failure: RunWide[FailurePolicy] = FailurePolicy()
    """What to do when a part of the run fails."""
    resources: Inherited[Resources | None] = None
    """Resources of each node."""
    shape: Inherited[Text | None] = None
    """Name of a shape (`muster shapes`): resources of each node, as far as the machine has them."""
    slurm: Inherited[Slurm | None] = None
    """What the nodes of every group need of Slurm."""
    kubernetes: Inherited[Kubernetes | None] = None
    """What the nodes of every group need of Kubernetes."""
    image: Inherited[Text | None] = None
    """Container image, for engines that use one. Without code and command, its ENTRYPOINT and CMD
    run on engine container, where `args` replace CMD."""
    container: Inherited[Container | None] = None
    """How the container of each node is made, for engines that make them."""
    mounts: Inherited[tuple[Mount, ...]] = ()
    """Directories that every node sees."""
    network: AlwaysShown[Flag[RunWide[Network | None]]] = None
    """shared: the machine's network, with an address for each node. cluster: an interface for each
    node that only the run's nodes reach; outgoing connections go through the machine. isolated:
    the same without outgoing connections. Default: what the framework needs,
    and cluster on engine container."""
    max_runtime: AlwaysShown[Flag[RunWide[Runtime]]] = MAX_RUNTIME
    """The run is canceled after this time. At most 30d."""
    grace_period: AlwaysShown[RunWide[Annotated[Duration, Meta(ge=0)]]] = 10.0
    """Time between SIGTERM and SIGKILL whenever nodes are stopped."""
    attempt_timeout: RunWide[Limit | None] = None
    """An attempt that runs longer has failed."""
    preflight: Inherited[Preflight | None] = None
    """Checks of each node before its program starts."""
    ready_timeout: Inherited[Limit | None] = None
    """A node that is not ready this long after its start has failed."""
    hang_timeout: Inherited[Limit | None] = None
    """A node that writes no output for this time has failed."""
    checkpoint: RunWide[Checkpoint | None] = None
    """How to ask nodes for a checkpoint before they are stopped."""
    ttl_after_finished: RunWide[Annotated[Duration, Meta(ge=0)] | None] = None
    """Delete the run this long after its end; the next command does it. Default: keep the run."""
    keep_attempts: RunWide[Count | None] = None
    """Number of attempts whose output is kept. Default: all."""
    suspend: Flag[RunWide[bool]] = False
    """Submit the run suspended; `muster runs resume` starts it."""
    subdomain: RunWide[Label | None] = None
    """Nodes are also known as HOSTNAME.SUBDOMAIN."""
    namespace: RunWide[Label | None] = None
    """Nodes also have Kubernetes names: HOSTNAME.SUBDOMAIN, and SUBDOMAIN for all nodes, each
    alone or followed by .NAMESPACE, .NAMESPACE.svc or .NAMESPACE.svc.cluster.local. It does not say
    in which namespace pods are: that of the engine."""
    kueue: RunWide[Kueue | None] = None
    """The queue of a Kubernetes cluster in which the run waits."""
    workload: Workload | None = None
    """A JobSet of the user's, instead of programs: the cluster runs it as it is. Its groups are
    named in node_groups."""
    host_aliases: HostAliases = field(default_factory=dict)
    """Further host names that nodes know, by their address: {10.1.2.3: [db, db.example.com]}."""
    clean_env: RunWide[bool] = False
    """Programs get only the job's variables, HOSTNAME, MUSTER_* and those that locate the
    machine's programs (PATH, HOME, LANG, ...): no others of the submitting process, no OCI
    variables, no RANK or WORLD_SIZE."""
    startup_probe: OnlyGroup[StartupProbe | None] = None
    """With `nodes`: when nodes are ready."""
    liveness_probe: OnlyGroup[LivenessProbe | None] = None
    """With `nodes`: when nodes have failed though their programs run."""
    after_start: OnlyGroup[Command | None] = None
    """With `nodes`: command that runs on a node once its program has started."""
    before_stop: OnlyGroup[Command | None] = None
    """With `nodes`: command that runs on a node before its program gets SIGTERM."""
    min_success: OnlyGroup[Natural | None] = None
    """With `nodes`: replicas that must succeed."""
    replicas: Flag[OnlyGroup[Count | None]] = None
    """With `nodes`: number of replicas."""
    array: OnlyGroup[ArrayField | None] = None
    """With `nodes`: parameter sets, one for each replica."""
    parallelism: Flag[OnlyGroup[Count | None]] = None
    """With `nodes`: replicas that run at once."""
    max_failed: Flag[OnlyGroup[Natural | None]] = None
    """With `nodes`: replicas that may fail before the others are stopped."""
    only: Flag[OnlyGroup[ReplicaNumbers | None]] = None
    """With `nodes`: run only these replicas of an array."""
    retries: Flag[OnlyGroup[Natural | None]] = None
    """With `nodes`: node restarts allowed before a replica fails."""
    logging: AlwaysShown[RunWide[Logging]] = Logging()
    """The nodes' output."""
    tags: Merged[Tags] = field(default_factory=dict)
    """Labels of the job and its runs."""
    notify: Merged[Notify] = field(default_factory=dict)
    """Who is notified of a run: names of `muster notify list`, each with `failed`, `succeeded`,
    `ended` (however) or `never`: {chat: failed}. A name, or a list of names: notified of every end.
    A run that needs attention counts as failed. A server sends it."""
    annotations: Annotations = field(default_factory=dict)
    """For Kubernetes: annotations of the JobSet. Its labels are the tags."""

    @property
    def engine_name(self) -> str:
        """Where nodes run, if no project says otherwise. In normal form, that is `engine`."""
        return self.engine or DEFAULT_ENGINE

    @property
    def only_group(self) -> NodeGroup:
        """The group that the fields beside `nodes` stand for."""
        return NodeGroup(
            name=DEFAULT_GROUP,
            nodes=self.nodes or 1,
            replicas=self.replicas or 1,
            startup_probe=self.startup_probe,
            liveness_probe=self.liveness_probe,
            after_start=self.after_start,
            before_stop=self.before_stop,
            min_success=self.min_success,
            array=self.array,
            parallelism=self.parallelism,
            max_failed=self.max_failed,
            only=self.only,
            retries=self.retries or 0,
        )

    @property
    def most_nodes(self) -> int:
        """Maximum number of nodes over all groups; 0 without groups."""
        return sum(group.nodes * group.most_replicas for group in self.node_groups)
