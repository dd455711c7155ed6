"""The models of OCI Data Science jobs, as they are on the wire (OCI: Data Science API 20190101).

Clients may send numbers as texts and fields that are not known here; null is as good as absent.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

Tags = dict[str, str]
DefinedTags = dict[str, dict[str, Any]]


def wire_name(name: str) -> str:
    """The name of a field on the wire: block_storage_size_in_gbs -> blockStorageSizeInGBs."""
    first, *others = name.split("_")
    return first + "".join("GBs" if word == "gbs" else word.capitalize() for word in others)


class Wire(Struct, frozen=True, kw_only=True, rename=wire_name):
    """What all models share."""


class ExecProbe(Wire, frozen=True, kw_only=True, tag_field="jobProbeCheckType", tag="EXEC"):
    """A check that a node has started: it has when the command exits with 0."""

    command: list[str]
    period_in_seconds: int | None = None
    failure_threshold: int | None = None
    initial_delay_in_seconds: int | None = None


class DefaultConfiguration(Wire, frozen=True, kw_only=True, tag_field="jobType", tag="DEFAULT"):
    """How a program runs."""

    environment_variables: dict[str, str] | None = None
    command_line_arguments: str | None = None
    """One text, with the quotes of a shell."""
    maximum_runtime_in_minutes: int | None = None
    startup_probe_details: ExecProbe | None = None


class EmptyConfiguration(Wire, frozen=True, kw_only=True, tag_field="jobType", tag="EMPTY"):
    """Of a job whose node groups have their own."""


Configuration = DefaultConfiguration | EmptyConfiguration


class ShapeConfig(Wire, frozen=True, kw_only=True):
    """The size of a flexible shape."""

    ocpus: float | None = None
    memory_in_gbs: float | None = None
    cpu_baseline: str | None = None


class Standalone(
    Wire, frozen=True, kw_only=True, tag_field="jobInfrastructureType", tag="STANDALONE"
):
    """One node in a subnet of the user's."""

    shape_name: str
    subnet_id: str
    block_storage_size_in_gbs: int
    capacity_reservation_id: str | None = None
    job_shape_config_details: ShapeConfig | None = None


class ManagedEgress(
    Wire, frozen=True, kw_only=True, tag_field="jobInfrastructureType", tag="ME_STANDALONE"
):
    """One node in the service's own network."""

    shape_name: str
    block_storage_size_in_gbs: int
    capacity_reservation_id: str | None = None
    job_shape_config_details: ShapeConfig | None = None


class MultiNode(
    Wire, frozen=True, kw_only=True, tag_field="jobInfrastructureType", tag="MULTI_NODE"
):
    """Each node of a group."""

    shape_name: str
    block_storage_size_in_gbs: int
    capacity_reservation_ids: list[str] | None = None
    job_shape_config_details: ShapeConfig | None = None


class EmptyInfrastructure(
    Wire, frozen=True, kw_only=True, tag_field="jobInfrastructureType", tag="EMPTY"
):
    """Of a job whose node groups have their own."""


class ResourceAmounts(Wire, frozen=True, kw_only=True):
    """What a node of a cluster gets."""

    ocpus: float
    memory_in_gbs: float
    gpus: int | None = None


class ResourceConfiguration(Wire, frozen=True, kw_only=True):
    """What a node of a cluster gets, and its limits."""

    resource_request_configuration: ResourceAmounts
    resource_limit_configuration: ResourceAmounts | None = None


class ManagedCluster(
    Wire,
    frozen=True,
    kw_only=True,
    tag_field="jobInfrastructureType",
    tag="MANAGED_COMPUTE_CLUSTER",
):
    """A node of a compute cluster."""

    compute_target_id: str
    resource_configuration: ResourceConfiguration


Infrastructure = Standalone | ManagedEgress | MultiNode | EmptyInfrastructure | ManagedCluster
#: Infrastructure that is of a shape.
Shaped = (Standalone, ManagedEgress, MultiNode)


class ContainerEnvironment(
    Wire, frozen=True, kw_only=True, tag_field="jobEnvironmentType", tag="OCIR_CONTAINER"
):
    """The container that a node is."""

    image: str | None = None
    """Required in a job; an override may leave it out."""
    cmd: list[str] | None = None
    entrypoint: list[str] | None = None
    image_digest: str | None = None
    image_signature_id: str | None = None


class LogConfiguration(Wire, frozen=True, kw_only=True):
    """Where the output goes."""

    enable_logging: bool | None = None
    enable_auto_log_creation: bool | None = None
    log_group_id: str | None = None
    log_id: str | None = None


class FileStorage(Wire, frozen=True, kw_only=True, tag_field="storageType", tag="FILE_STORAGE"):
    """An export of a file system."""

    destination_directory_name: str
    mount_target_id: str
    export_id: str
    destination_path: str | None = None


class ObjectStorage(Wire, frozen=True, kw_only=True, tag_field="storageType", tag="OBJECT_STORAGE"):
    """A bucket, or a part of it."""

    destination_directory_name: str
    namespace: str
    bucket: str
    prefix: str | None = None
    destination_path: str | None = None


StorageMount = FileStorage | ObjectStorage


class DefaultNetwork(
    Wire, frozen=True, kw_only=True, tag_field="jobNetworkType", tag="DEFAULT_NETWORK"
):
    """The service's own network."""


class CustomNetwork(
    Wire, frozen=True, kw_only=True, tag_field="jobNetworkType", tag="CUSTOM_NETWORK"
):
    """A subnet of the user's."""

    subnet_id: str


class NodeGroupConfiguration(Wire, frozen=True, kw_only=True):
    """A group of nodes; in an override, what is not given stays as it is."""

    name: str
    replicas: int | None = None
    minimum_success_replicas: int | None = None
    """None: all have to succeed."""
    job_infrastructure_configuration_details: Infrastructure | None = None
    job_configuration_details: Configuration | None = None
    job_environment_configuration_details: ContainerEnvironment | None = None


class NodeConfiguration(Wire, frozen=True, kw_only=True, tag_field="jobNodeType", tag="MULTI_NODE"):
    """The nodes of a multi-node job."""

    startup_order: str | None = None
    """IN_PARALLEL or IN_ORDER."""
    maximum_runtime_in_minutes: int | None = None
    job_network_configuration: DefaultNetwork | CustomNetwork | None = None
    job_node_group_configuration_details_list: list[NodeGroupConfiguration] | None = None


class Labels(Wire, frozen=True, kw_only=True):
    """What people call a resource."""

    display_name: str | None = None
    freeform_tags: Tags | None = None
    defined_tags: DefinedTags | None = None


class JobDetails(Labels, frozen=True, kw_only=True):
    """The configuration of a job (OCI: the members of CreateJobDetails of that name)."""

    job_configuration_details: Configuration | None = None
    job_infrastructure_configuration_details: Infrastructure | None = None
    job_environment_configuration_details: ContainerEnvironment | None = None
    job_log_configuration_details: LogConfiguration | None = None
    job_storage_mount_configuration_details_list: list[StorageMount] | None = None
    job_node_configuration_details: NodeConfiguration | None = None


class OverrideDetails(Labels, frozen=True, kw_only=True):
    """What a job run changes of its job (OCI: the members of CreateJobRunDetails of that name)."""

    job_configuration_override_details: Configuration | None = None
    job_infrastructure_configuration_override_details: Infrastructure | None = None
    job_environment_configuration_override_details: ContainerEnvironment | None = None
    job_log_configuration_override_details: LogConfiguration | None = None
    job_storage_mount_configuration_override_details_list: list[StorageMount] | None = None
    job_node_configuration_override_details: NodeConfiguration | None = None


class CreateJob(JobDetails, frozen=True, kw_only=True):
    """OCI: CreateJobDetails."""

    project_id: str
    compartment_id: str
    description: str | None = None


class UpdateJob(Labels, frozen=True, kw_only=True):
    """OCI: UpdateJobDetails. Nothing else of a job can be changed."""

    description: str | None = None
    job_infrastructure_configuration_details: Infrastructure | None = None
    job_storage_mount_configuration_details_list: list[StorageMount] | None = None


class CreateJobRun(OverrideDetails, frozen=True, kw_only=True):
    """OCI: CreateJobRunDetails."""

    project_id: str
    compartment_id: str
    job_id: str


class UpdateJobRun(Labels, frozen=True, kw_only=True):
    """OCI: UpdateJobRunDetails."""


class CreateProject(Labels, frozen=True, kw_only=True):
    """OCI: CreateProjectDetails."""

    compartment_id: str
    description: str | None = None


class UpdateProject(Labels, frozen=True, kw_only=True):
    """OCI: UpdateProjectDetails."""

    description: str | None = None


class ChangeCompartment(Wire, frozen=True, kw_only=True):
    """OCI: Change...CompartmentDetails."""

    compartment_id: str


def plain(model: Any) -> Any:
    """A model as plain data, with the names of the wire."""
    return msgspec.to_builtins(model)
