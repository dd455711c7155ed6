"""What a run may change of its Job: how it runs, and nothing of what it is.

OCI: CreateJobRunDetails may override the job's configuration (environment, arguments, maximum
runtime, startup probe), its container (image, entrypoint, cmd), infrastructure (shape, storage,
subnet), logging, storage mounts and node configuration (startup order, network, maximum runtime,
and the same of each node group, with replicas and minimumSuccessReplicas).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from muster.spec.models import Logging, Mount, Network, Resources, Startup, StartupProbe
from muster.spec.policies import Checkpoint, DependsOn, FailurePolicy, SuccessPolicy
from muster.spec.values import (
    Count,
    DisplayName,
    Duration,
    Env,
    Label,
    Limit,
    Options,
    Processes,
    Runtime,
    Tags,
    Text,
    Words,
)

#: What a Job is: its name and description, its code and what that needs. Another one of these is
#: another Job. So are other groups.
OF_THE_JOB = (
    *("name", "display_name", "description", "annotations"),
    *("artifact", "git", "entrypoint", "notebook", "requirements", "conda", "framework"),
)


class GroupOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of one group; what is left out stays.

    env: Environment variables, merged key by key.
    node_env: The same with a value of their own on each node.
    mounts: Mounts, in place of all the job has for the group.
    """

    nodes: Count | None = None
    replicas: Count | None = None
    max_replicas: Count | None = None
    command: Words | None = None
    args: Words | None = None
    working_dir: Text | None = None
    node_args: Words | None = None
    env: Env = field(default_factory=dict)
    resources: Resources | None = None
    shape: Text | None = None
    image: Text | None = None
    mounts: tuple[Mount, ...] | None = None
    startup_probe: StartupProbe | None = None
    min_success: Annotated[int, Meta(ge=0)] | None = None
    depends_on: tuple[DependsOn, ...] | None = None
    max_restarts: Annotated[int, Meta(ge=0)] | None = None
    retries: Annotated[int, Meta(ge=0)] | None = None
    timeout: Limit | None = None
    max_runtime: Runtime | None = None
    ready_timeout: Limit | None = None
    hang_timeout: Limit | None = None
    hostname: Text | None = None
    node_env: Env = field(default_factory=dict)


class RunOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of its Job. env, tags and framework_options are merged key by
    key; everything else replaces.

    Overrides of the whole run take precedence over the Job, job-wide and for a group; overrides of
    a group take precedence over both.

    nodes: Nodes of the only group.
    command: What to run, instead of the artifact's entry point.
    env: Environment variables, merged key by key.
    framework_options: Framework options, merged key by key.
    mounts: Mounts, in place of all the job has.
    startup_probe: When the nodes of the only group count as up.
    min_success: Replicas of the only group that must succeed.
    max_restarts: In place of failure.max_restarts.
    suspend: Whether the run is accepted suspended.
    run_name: What people call this run: any text of one line, which other runs may have, too.
    tags: Labels of the run, on top of the job's.
    node_groups: What changes for a group, by its name.
    """

    nodes: Count | None = None
    command: Words | None = None
    args: Words | None = None
    env: Env = field(default_factory=dict)
    resources: Resources | None = None
    shape: Text | None = None
    image: Text | None = None
    mounts: tuple[Mount, ...] | None = None
    startup_probe: StartupProbe | None = None
    min_success: Annotated[int, Meta(ge=0)] | None = None
    startup: Startup | None = None
    network: Network | None = None
    max_runtime: Runtime | None = None
    grace_period: Annotated[Duration, Meta(ge=0)] | None = None
    attempt_timeout: Limit | None = None
    ready_timeout: Limit | None = None
    hang_timeout: Limit | None = None
    max_restarts: Annotated[int, Meta(ge=0)] | None = None
    success: SuccessPolicy | None = None
    failure: FailurePolicy | None = None
    checkpoint: Checkpoint | None = None
    suspend: bool | None = None
    processes_per_node: Processes | None = None
    framework_options: Options = field(default_factory=dict)
    logging: Logging | None = None
    keep_attempts: Count | None = None
    ttl_after_finished: Annotated[Duration, Meta(ge=0)] | None = None
    subdomain: Label | None = None
    namespace: Label | None = None
    clean_env: bool | None = None
    run_name: DisplayName | None = None
    tags: Tags = field(default_factory=dict)
    node_groups: dict[str, GroupOverrides] = field(default_factory=dict)
