"""What a user asks for: the spec, its defaults and the rules each field obeys by itself.

Rules between fields are in `spec.rules`. How input becomes these classes, with every error at
once, is in `spec.decode`; what a field accepts besides its own type is in `spec.values`. What is
said about a run's life is in `spec.policies`. The docstrings' field texts end up in docs/spec.md
and in the JSON Schema.
"""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from muster.spec.policies import (
    Checkpoint,
    DependsOn,
    FailurePolicy,
    SuccessPolicy,
)
from muster.spec.sources import Git, Notebook
from muster.spec.values import (
    MAX_RUNTIME,
    Annotations,
    Count,
    DisplayName,
    Duration,
    Env,
    GroupName,
    JobName,
    Label,
    Labels,
    Limit,
    Options,
    Positive,
    Processes,
    Runtime,
    Size,
    Tags,
    Text,
    Words,
)

#: What the one group of `nodes: N` is called.
DEFAULT_GROUP = "workers"
DEFAULT_FRAMEWORK = "generic"

Startup = Literal["parallel", "in_order"]
Network = Literal["shared", "cluster", "isolated"]


class Resources(Struct, frozen=True, kw_only=True):
    """What one node may use.

    cpus: CPUs, in fractions if you like.
    memory: Memory, such as 4GiB.
    gpus: Whole GPUs.
    disk: Disk for the node's own files (its working directory, TMPDIR and scratch), such as 20GiB.
    disk_image: Enforce that: those files are in a file system of that size, made for the node and
        gone with it. Root only.
    """

    cpus: Positive | None = None
    memory: Size | None = None
    gpus: Annotated[int, Meta(ge=0)] = 0
    disk: Size | None = None
    disk_image: bool = False


class Mount(Struct, frozen=True, kw_only=True):
    """A directory the nodes see.

    source: A directory (relative to the spec's file), an NFS export (nfs://server/path), any
        fsspec URL (s3://bucket/prefix), or a name for a directory that Muster finds a place for:
        scratch:node/NAME (each node's own; gone with the run, kept when it starts again in place),
        scratch:life/NAME (the same, but emptied whenever its programs start again),
        scratch:run/NAME (shared by the run's nodes, gone with it), volume:NAME (kept below
        MUSTER_HOME/volumes, shared by runs).
    path: Where nodes see it; a relative path is below /mnt. Default: the source's last component,
        below /mnt. Always in the environment, as MUSTER_MOUNT_<NAME>.
    link: Where they find it, too: a path from where processes start, made as a link. Of a URL
        that is one file, it is that file.
    read_only: Whether nodes may only read it.
    """

    source: Text
    path: Text | None = None
    link: Text | None = None
    read_only: bool = False

    @property
    def last_component(self) -> str:
        """Of the source's path; what follows it in a URL may be a signature."""
        path = re.split(r"[?#]", self.source)[0] if "://" in self.source else self.source
        return path.removeprefix("volume:").rstrip("/").rsplit("/", 1)[-1]

    @property
    def destination(self) -> str:
        """The absolute path (OCI: destinationPath/destinationDirectoryName, /mnt by default)."""
        path = self.path or self.last_component
        # /mnt stays in front of nothing, and two slashes at the start mean no more than one
        return posixpath.normpath("/" + posixpath.join("/mnt", path).lstrip("/"))


class StartupProbe(Struct, frozen=True, kw_only=True, rename={"exec_": "exec"}):
    """Says when a node is up. Give one of exec, tcp and file.

    exec: Up when this command exits 0.
    tcp: Up when something listens on this port of the node.
    http: With tcp: up when that answers for this path with 200 to 399.
    file: Up when this file exists.
    period: Time between looks.
    timeout: How long one look may take.
    threshold: So many failures, and the node has failed.
    initial_delay: Time before the first look.
    """

    exec_: Words | None = None
    tcp: Annotated[int, Meta(ge=1, le=65535)] | None = None
    http: Text | None = None
    file: Text | None = None
    period: Annotated[Duration, Meta(gt=0)] = 1.0
    timeout: Annotated[Duration, Meta(gt=0)] = 1.0
    threshold: Count = 30
    initial_delay: Annotated[Duration, Meta(ge=0)] = 0.0


class Logging(Struct, frozen=True, kw_only=True):
    """What becomes of the nodes' output.

    enabled: Whether it is kept.
    directory: Keep it here, in a folder named after the run's id, instead of under MUSTER_HOME.
    """

    enabled: bool = True
    directory: Text | None = None


class Metadata(Struct, frozen=True, kw_only=True):
    """What objects on Kubernetes carry for others to read. Kept for `muster convert`; a run on this
    machine does not look at it.

    labels: Short texts by which objects are chosen, such as Kueue's.
    annotations: Anything else, such as the topology that JobSet gives each Job alone.
    """

    labels: Labels = field(default_factory=dict)
    annotations: Annotations = field(default_factory=dict)


class NodeGroup(Struct, frozen=True, kw_only=True):
    """Nodes that share one configuration. What is left out is taken from the job.

    name: Unique within the job, also in lower case with - for _, as host names have it.
    nodes: Nodes in each replica.
    replicas: Units that succeed and fail as one.
    max_replicas: So many at most, with those that `muster runs scale` adds while the run goes on.
        Default: as many as there are at first.
    command: What to run, instead of the artifact.
    args: Arguments of the program.
    working_dir: Where processes start: a path, from the node's copy of the code on. Default:
        that. Made if it is missing there, or in a mount.
    node_args: More of them, with values of their own on each node as in node_env.
    env: Environment variables, on top of the job's.
    resources: What each node may use.
    shape: The name of a shape (`muster shapes`): what each node has, where the machine has as much.
    image: Container image, for engines that use one.
    mounts: Mounts, besides the job's.
    startup_probe: When its nodes count as up. Default: as soon as they run.
    min_success: Replicas that must succeed. Default: all, of as many as there are.
    depends_on: Groups that must be ready, or complete, before this one starts.
    max_restarts: So many restarts for failures in this group, and the run fails. Default: no
        limit but the run's.
    retries: So many failed nodes of a replica are started again alone, before it has failed.
    timeout: A replica that has not ended after so long has failed.
    max_runtime: When the group has run for so long, over all attempts and without the time it was
        suspended, the run is canceled. At most 30d. Default: the run's alone.
    ready_timeout: A replica that is not ready after so long has failed.
    hang_timeout: A node that has written nothing for so long has failed.
    hostname: Name of each node, its own with ${rank}, ${group}, ${replica}, ${index},
        ${run.replica} and ${run.name}. Names are in lower case there, with - for _.
        Default: node-${rank}.
    node_env: Environment variables with a value of their own on each node: ${rank}, ${group},
        ${replica}, ${index}, ${attempt}, ${run.restarts} (the same less the times the run was
        resumed), ${run.replica} (its replica's number over all groups), ${run.name}, ${run.id},
        ${address}, ${hostname}. $${rank} is the text ${rank}.
    job_metadata: For Kubernetes: labels and annotations of the Job that each replica is there.
    pod_metadata: The same of the pod that each node is there.
    """

    name: GroupName
    nodes: Count = 1
    replicas: Count = 1
    max_replicas: Count | None = None
    command: Words | None = None
    args: Words | None = None
    working_dir: Text | None = None
    node_args: Words | None = None
    env: Env = field(default_factory=dict)
    resources: Resources | None = None
    shape: Text | None = None
    image: Text | None = None
    mounts: tuple[Mount, ...] = ()
    startup_probe: StartupProbe | None = None
    min_success: Annotated[int, Meta(ge=0)] | None = None
    depends_on: tuple[DependsOn, ...] = ()
    max_restarts: Annotated[int, Meta(ge=0)] | None = None
    retries: Annotated[int, Meta(ge=0)] = 0
    timeout: Limit | None = None
    max_runtime: Runtime | None = None
    ready_timeout: Limit | None = None
    hang_timeout: Limit | None = None
    hostname: Text | None = None
    node_env: Env = field(default_factory=dict)
    job_metadata: Metadata = Metadata()
    pod_metadata: Metadata = Metadata()

    @property
    def most_replicas(self) -> int:
        """As many as there may ever be: so many have ranks."""
        return self.replicas if self.max_replicas is None else self.max_replicas


class JobSpec(Struct, frozen=True, kw_only=True):
    """A job.

    name: What commands call it; its runs are NAME-1, NAME-2, ... Default: from the file's name.
    display_name: What people call it: any text of one line, which other jobs may have, too.
    description: For people.
    artifact: The code: a Python file, notebook, shell script, folder, zip, tar(.gz/.bz2/.xz), JAR
        or class file.
    git: Or a git repository that holds it.
    entrypoint: The file to run inside a folder, archive or repository; required there.
    notebook: How the artifact or entrypoint is executed, if it ends in .ipynb.
    requirements: What the nodes' Python needs installed: a requirements file (.txt; relative to
        the spec's file, or, with git, to the repository's code), or a list of its lines.
    conda: A conda environment file (.yaml) with what the nodes need, Python included.
    command: What to run instead. Text is split as a shell would split it; no shell runs.
    args: Arguments of the program.
    env: Environment variables.
    framework: generic, pytorch, dask, ray, ... or an installed one.
    framework_options: What the framework can be told; its page says what.
    processes_per_node: Processes on each node.
    nodes: Short for one group of so many nodes.
    node_groups: Groups of nodes, in rank order.
    startup: All groups at once, or each when the one before it is up.
    success: When the run has succeeded.
    failure: What happens when a part of it fails.
    resources: What each node may use.
    shape: The name of a shape (`muster shapes`): what each node has, where the machine has as much.
    image: Container image, for engines that use one.
    mounts: Directories every node sees.
    network: shared: the machine's, each node with an address of its own. cluster: an interface a
        node, which only the run's nodes reach, and outgoing connections through the machine.
        isolated: such an interface, and no way out. Default: what the framework needs.
    max_runtime: After so long the run is canceled. At most 30d.
    grace_period: Time between SIGTERM and SIGKILL when a run is ended.
    attempt_timeout: An attempt that has not ended after so long has failed.
    ready_timeout: A group that is not ready so long after its start has failed.
    hang_timeout: A node that has written nothing for so long has failed.
    checkpoint: How nodes are told to save what they have.
    ttl_after_finished: After so long an ended run is deleted, by the next command.
    keep_attempts: Keep the output of so many attempts. Default: of all.
    suspend: Accept the run suspended; `muster runs resume` starts it.
    subdomain: Nodes are known as HOSTNAME.SUBDOMAIN, too.
    namespace: Names are also those of Kubernetes: HOSTNAME.SUBDOMAIN and SUBDOMAIN, which is all
        nodes, alone or followed by .NAMESPACE, .NAMESPACE.svc or .NAMESPACE.svc.cluster.local.
    clean_env: Programs get the variables that the job gives them, HOSTNAME, MUSTER_* and what the
        machine's programs are found with (PATH, HOME, LANG, ...): none else of whoever submits,
        none of OCI's, no RANK and WORLD_SIZE.
    startup_probe: With `nodes`: when they count as up.
    min_success: With `nodes`: replicas that must succeed.
    logging: What becomes of the nodes' output.
    tags: Labels of your own.
    annotations: For Kubernetes: annotations of the JobSet; its labels are the tags.
    """

    name: JobName | None = None
    display_name: DisplayName | None = None
    description: str = ""
    artifact: Text | None = None
    git: Git | None = None
    entrypoint: Text | None = None
    notebook: Notebook | None = None
    requirements: Words | None = None
    conda: Text | None = None
    command: Words | None = None
    args: Words | None = None
    env: Env = field(default_factory=dict)
    framework: str = DEFAULT_FRAMEWORK
    framework_options: Options = field(default_factory=dict)
    processes_per_node: Processes = 1
    nodes: Count | None = None
    node_groups: tuple[NodeGroup, ...] = ()
    startup: Startup = "parallel"
    success: SuccessPolicy = SuccessPolicy()
    failure: FailurePolicy = FailurePolicy()
    resources: Resources | None = None
    shape: Text | None = None
    image: Text | None = None
    mounts: tuple[Mount, ...] = ()
    network: Network | None = None
    max_runtime: Runtime = MAX_RUNTIME
    grace_period: Annotated[Duration, Meta(ge=0)] = 10.0
    attempt_timeout: Limit | None = None
    ready_timeout: Limit | None = None
    hang_timeout: Limit | None = None
    checkpoint: Checkpoint | None = None
    ttl_after_finished: Annotated[Duration, Meta(ge=0)] | None = None
    keep_attempts: Count | None = None
    suspend: bool = False
    subdomain: Label | None = None
    namespace: Label | None = None
    clean_env: bool = False
    startup_probe: StartupProbe | None = None
    min_success: Annotated[int, Meta(ge=0)] | None = None
    logging: Logging = Logging()
    tags: Tags = field(default_factory=dict)
    annotations: Annotations = field(default_factory=dict)

    @property
    def most_nodes(self) -> int:
        """The most nodes that its groups can have together; 0 without groups."""
        return sum(group.nodes * group.most_replicas for group in self.node_groups)
