"""What a run may change of its job, and the names of settings by kind.

Generated from `spec.models` by `python -m muster.spec.generate` (`make docs`); do not edit.

OCI: CreateJobRunDetails may override the job's configuration (environment, arguments, maximum
runtime, startup probe), its container (image, entrypoint, cmd), infrastructure (shape, storage,
subnet), logging, storage mounts and node configuration (startup order, network, maximum runtime,
and the same of each node group, with replicas and minimumSuccessReplicas).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from muster.spec.models import (
    ArrayField,
    Container,
    Kubernetes,
    Kueue,
    LivenessProbe,
    Logging,
    Mount,
    Network,
    Preflight,
    Resources,
    Slurm,
    Startup,
    StartupProbe,
)
from muster.spec.policies import (
    Checkpoint,
    DependsOn,
    EarlySuccess,
    FailurePolicy,
    SuccessPolicy,
)
from muster.spec.values import (
    Command,
    Count,
    DisplayName,
    Duration,
    Env,
    Label,
    Limit,
    Natural,
    Notify,
    Options,
    Processes,
    ReplicaNumbers,
    Runtime,
    Tags,
    Text,
    Words,
)

#: One value for the whole run.
RUN_WIDE = (
    "engine",
    "processes_per_node",
    "startup",
    "success",
    "failure",
    "network",
    "max_runtime",
    "grace_period",
    "attempt_timeout",
    "checkpoint",
    "ttl_after_finished",
    "keep_attempts",
    "suspend",
    "subdomain",
    "namespace",
    "kueue",
    "clean_env",
    "logging",
)
#: The fields that are records.
RUN_WIDE_RECORDS = (
    "success",
    "failure",
    "checkpoint",
    "kueue",
    "logging",
)
#: Set for the job or a group; groups inherit them.
INHERITED = (
    "command",
    "args",
    "working_dir",
    "resources",
    "shape",
    "slurm",
    "kubernetes",
    "image",
    "container",
    "mounts",
    "preflight",
    "ready_timeout",
    "hang_timeout",
)
#: Set for one group.
GROUP_ONLY = (
    "max_replicas",
    "array",
    "parallelism",
    "total_retries",
    "early_success",
    "max_failed",
    "only",
    "node_args",
    "startup_probe",
    "liveness_probe",
    "after_start",
    "before_stop",
    "min_success",
    "depends_on",
    "max_restarts",
    "retries",
    "timeout",
    "max_runtime",
    "hostname",
)
#: All settings of a group except records.
GROUP_SETTINGS = (
    "nodes",
    "replicas",
    "max_replicas",
    "parallelism",
    "total_retries",
    "max_failed",
    "only",
    "command",
    "args",
    "working_dir",
    "node_args",
    "env",
    "shape",
    "image",
    "after_start",
    "before_stop",
    "min_success",
    "max_restarts",
    "retries",
    "timeout",
    "max_runtime",
    "ready_timeout",
    "hang_timeout",
    "hostname",
    "node_env",
)
#: Set without naming the group, if there is only one.
ONLY_GROUP = (
    "nodes",
    "startup_probe",
    "liveness_probe",
    "after_start",
    "before_stop",
    "min_success",
    "replicas",
    "array",
    "parallelism",
    "max_failed",
    "only",
    "retries",
)
#: Where the code is and what it needs.
CODE = (
    "artifact",
    "git",
    "entrypoint",
    "notebook",
    "requirements",
    "conda",
)
#: Explained even if they are not set.
ALWAYS_SHOWN = (
    "framework",
    "engine",
    "processes_per_node",
    "startup",
    "network",
    "max_runtime",
    "grace_period",
    "logging",
)
#: What the job is: a run cannot change it.
OF_THE_JOB = (
    "name",
    "display_name",
    "description",
    "artifact",
    "git",
    "entrypoint",
    "notebook",
    "requirements",
    "conda",
    "secrets",
    "framework",
    "workload",
    "host_aliases",
    "annotations",
)
#: Options of `muster run` with the same names.
FLAGS = (
    "engine",
    "processes_per_node",
    "network",
    "max_runtime",
    "suspend",
    "replicas",
    "parallelism",
    "max_failed",
    "only",
    "retries",
    "max_restarts",
    "run_name",
)
#: Durations in seconds.
DURATIONS = (
    "max_runtime",
    "grace_period",
    "attempt_timeout",
    "ready_timeout",
    "hang_timeout",
    "ttl_after_finished",
    "timeout",
    "period",
    "initial_delay",
    "initial",
    "max",
    "reset_after",
    "grace",
)


class GroupOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of a group. Fields that are left out keep the group's values; env and
    node_env are merged key by key; mounts replace all mounts that the job has for the group."""

    nodes: Count | None = None
    replicas: Count | None = None
    max_replicas: Count | None = None
    array: ArrayField | None = None
    parallelism: Count | None = None
    total_retries: Natural | None = None
    early_success: tuple[EarlySuccess, ...] | None = None
    max_failed: Natural | None = None
    only: ReplicaNumbers | None = None
    command: Command | None = None
    args: Words | None = None
    working_dir: Text | None = None
    node_args: Words | None = None
    env: Env = field(default_factory=dict)
    resources: Resources | None = None
    shape: Text | None = None
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None
    image: Text | None = None
    container: Container | None = None
    mounts: tuple[Mount, ...] | None = None
    startup_probe: StartupProbe | None = None
    liveness_probe: LivenessProbe | None = None
    after_start: Command | None = None
    before_stop: Command | None = None
    min_success: Natural | None = None
    depends_on: tuple[DependsOn, ...] | None = None
    max_restarts: Natural | None = None
    retries: Natural | None = None
    timeout: Limit | None = None
    max_runtime: Runtime | None = None
    preflight: Preflight | None = None
    ready_timeout: Limit | None = None
    hang_timeout: Limit | None = None
    hostname: Text | None = None
    node_env: Env = field(default_factory=dict)


class RunOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of its job: how the job runs, but not its program. env, tags and
    framework_options are merged key by key; every other field replaces the job's value.

    Run-level overrides take precedence over the job and its groups; overrides of a group take
    precedence over both.
    """

    command: Command | None = None
    args: Words | None = None
    working_dir: Text | None = None
    env: Env = field(default_factory=dict)
    framework_options: Options = field(default_factory=dict)
    engine: Text | None = None
    processes_per_node: Processes | None = None
    nodes: Count | None = None
    startup: Startup | None = None
    success: SuccessPolicy | None = None
    failure: FailurePolicy | None = None
    resources: Resources | None = None
    shape: Text | None = None
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None
    image: Text | None = None
    container: Container | None = None
    mounts: tuple[Mount, ...] | None = None
    network: Network | None = None
    max_runtime: Runtime | None = None
    grace_period: Annotated[Duration, Meta(ge=0)] | None = None
    attempt_timeout: Limit | None = None
    preflight: Preflight | None = None
    ready_timeout: Limit | None = None
    hang_timeout: Limit | None = None
    checkpoint: Checkpoint | None = None
    ttl_after_finished: Annotated[Duration, Meta(ge=0)] | None = None
    keep_attempts: Count | None = None
    suspend: bool | None = None
    subdomain: Label | None = None
    namespace: Label | None = None
    kueue: Kueue | None = None
    clean_env: bool | None = None
    startup_probe: StartupProbe | None = None
    liveness_probe: LivenessProbe | None = None
    after_start: Command | None = None
    before_stop: Command | None = None
    min_success: Natural | None = None
    replicas: Count | None = None
    array: ArrayField | None = None
    parallelism: Count | None = None
    max_failed: Natural | None = None
    only: ReplicaNumbers | None = None
    retries: Natural | None = None
    logging: Logging | None = None
    tags: Tags = field(default_factory=dict)
    notify: Notify = field(default_factory=dict)
    max_restarts: Natural | None = None
    """Replaces failure.max_restarts."""
    run_name: DisplayName | None = None
    """Display name of the run: one line of any text. Need not be unique."""
    after: Words | None = None
    """Runs that have to succeed before it starts, by name or id. Nodes find the outputs of a single
    one in MUSTER_AFTER_OUTPUTS. If one of them cannot succeed any more, the run is canceled."""
    node_groups: dict[str, GroupOverrides] = field(default_factory=dict)
    """Overrides of single groups, by name."""
