"""The fields of ADS's YAML that Muster reads, of ads opctl (`distributed`) and ads.jobs (`job`).

`unread_fields` lists the fields that are known and not read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from muster.spec.values import Count, Positive, Text, Words

#: A value as ADS accepts it. Lists and mappings become JSON.
Scalar = str | int | float | bool | list[Any] | dict[str, Any] | None
Minutes = Annotated[int, Meta(ge=1)]


class EnvVar(Struct, frozen=True, kw_only=True):
    """An environment variable."""

    name: Text
    value: Any = ""


class Config(Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of all nodes, or of those of one role."""

    env: tuple[EnvVar, ...] = ()
    start_options: tuple[Text, ...] = ()


class RoleSpec(Struct, frozen=True, kw_only=True):
    """The nodes of one role."""

    replicas: Annotated[int, Meta(ge=0)] = 1
    image: Text | None = None
    config: Config = Config()


class Certificate(Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests encrypted connections."""


class ClusterSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster."""

    name: Text | None = None
    image: Text | None = None
    work_dir: Text | None = None
    ephemeral: bool = True
    config: Config = Config()
    main: RoleSpec = RoleSpec()
    worker: RoleSpec | None = None
    ps: RoleSpec | None = None
    certificate: Certificate | None = None


class Cluster(Struct, frozen=True, kw_only=True):
    """The cluster and its framework."""

    kind: Text
    spec: ClusterSpec = ClusterSpec()


class StorageMount(Struct, frozen=True, kw_only=True):
    """Storage that is mounted on nodes."""

    src: Text
    dest: Text


class ShapeConfig(Struct, frozen=True, kw_only=True, rename={"memory_in_gbs": "memoryInGBs"}):
    """The size of a flexible shape."""

    ocpus: Positive | None = None
    memory_in_gbs: Positive | None = None


class InfrastructureSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The machines."""

    display_name: Text | None = None
    shape_name: Text | None = None
    shape_config_details: ShapeConfig | None = None
    storage_mount: tuple[StorageMount, ...] = ()


class Infrastructure(Struct, frozen=True, kw_only=True):
    """The machines and their type."""

    type: Literal["dataScienceJob"] = "dataScienceJob"
    spec: InfrastructureSpec = InfrastructureSpec()


class DistributedRuntimeSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The program."""

    entry_point: Text | None = None
    args: Words = ()
    kwargs: Words = ()
    env: tuple[EnvVar, ...] = ()
    uri: Text | None = None
    branch: Text | None = None
    commit: Text | None = None
    code_dir: Text | None = None
    python_path: Words = ()


class DistributedRuntime(Struct, frozen=True, kw_only=True):
    """The program and the source of its code."""

    type: Literal["git", "remote", "python"] | None = None
    spec: DistributedRuntimeSpec = DistributedRuntimeSpec()


class DistributedSpec(Struct, frozen=True, kw_only=True):
    """A distributed training."""

    infrastructure: Infrastructure = Infrastructure()
    cluster: Cluster
    runtime: DistributedRuntime


class Distributed(Struct, frozen=True, kw_only=True):
    """`kind: distributed`."""

    spec: DistributedSpec


class Dependencies(Struct, frozen=True, kw_only=True, rename="camel"):
    """Packages to install."""

    #: A file in the code.
    pip_requirements: Text | None = None
    pip_packages: Text | None = None


class GitSource(Struct, frozen=True, kw_only=True):
    """A repository."""

    url: Text
    branch: Text | None = None
    commit: Text | None = None


class RuntimeSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The program. Which fields apply depends on the type of runtime."""

    args: Words = ()
    env: tuple[EnvVar, ...] = ()
    maximum_runtime_in_minutes: Minutes | None = None
    freeform_tags: dict[str, str] = field(default_factory=dict)
    replicas: Count = 1
    script_path_uri: Text | None = field(default=None, name="scriptPathURI")
    entrypoint: Any = None
    entry_function: Text | None = None
    working_dir: Text | None = None
    python_path: Words = ()
    output_dir: Text | None = None
    output_uri: Text | None = None
    notebook_path_uri: Text | None = field(default=None, name="notebookPathURI")
    exclude_tags: Words = ()
    source: Text | None = None
    url: Text | None = None
    branch: Text | None = None
    commit: Text | None = None
    image: Text | None = None
    cmd: Any = None
    command: Any = None
    inputs: dict[str, str] = field(default_factory=dict)
    git: GitSource | None = None
    dependencies: Dependencies = Dependencies()


class Runtime(Struct, frozen=True, kw_only=True):
    """The program and its type of runtime."""

    type: Literal["script", "python", "notebook", "gitPython", "container", "pyTorchDistributed"]
    spec: RuntimeSpec = RuntimeSpec()


class JobSpec(Struct, frozen=True, kw_only=True):
    """A job."""

    name: Text | None = None
    infrastructure: Infrastructure = Infrastructure()
    runtime: Runtime


class Job(Struct, frozen=True, kw_only=True):
    """`kind: job`."""

    spec: JobSpec
