"""What a job or a job run may not say. Pure.

OCI: "Creating Jobs", "Job Environment Variables", and the models' own descriptions.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterator, Sequence

from muster.spec.formats.oci.model import (
    Configuration,
    ContainerEnvironment,
    DefaultConfiguration,
    FileStorage,
    Infrastructure,
    JobDetails,
    Labels,
    ManagedCluster,
    ManagedEgress,
    MultiNode,
    NodeConfiguration,
    NodeGroupConfiguration,
    Shaped,
    Standalone,
)
from muster.spec.oci_variables import ENTRYPOINT
from muster.spec.values import is_group_name

#: Limits of OCI.
_MOST_NAME = 255
_MOST_VARIABLES = 20_000
_MOST_ARGUMENTS = 4_000
_MOST_MINUTES = 43_200
_MOST_COMMAND = 2_048
_LEAST_DISK = 50
_MOST_DISK = 1_024
_MOST_MOUNTS = 5
_ORDERS = ("IN_ORDER", "IN_PARALLEL")
_NODES = "jobNodeConfigurationDetails"


def label_problems(given: Labels) -> Iterator[str]:
    """What is wrong with a name."""
    if given.display_name is not None and len(given.display_name) > _MOST_NAME:
        yield f"displayName has {len(given.display_name)} characters; the most are {_MOST_NAME}"


def problems(job: JobDetails, shapes: Container[str]) -> Iterator[str]:
    """What is wrong with a job, with or without the overrides of a run. shapes: names of those that
    there are."""
    nodes = job.job_node_configuration_details
    if nodes is None:
        yield from _single(job, shapes)
    else:
        yield from _multi_node(job, nodes, shapes)
    mounts = job.job_storage_mount_configuration_details_list or ()
    if len(mounts) > _MOST_MOUNTS:
        yield f"{len(mounts)} storage mounts are given; the most are {_MOST_MOUNTS}"
    infrastructure = job.job_infrastructure_configuration_details
    if any(isinstance(mount, FileStorage) for mount in mounts) and isinstance(
        infrastructure, ManagedEgress
    ):
        yield "mounts of FILE_STORAGE need infrastructure STANDALONE, with a subnet"


def archive_problems(job: JobDetails) -> Iterator[str]:
    """What is missing in a job, with the overrides of a run and the variables of the archive, for
    its code to be an archive (OCI: "Job Environment Variables")."""
    nodes = job.job_node_configuration_details
    groups = () if nodes is None else nodes.job_node_group_configuration_details_list or ()
    programs = [(f"node group {one.name!r}: ", *_program(one)) for one in groups]
    for where, configuration, container in programs or [("", *_program(job))]:
        given = configuration if isinstance(configuration, DefaultConfiguration) else None
        variables = (given and given.environment_variables) or {}
        if container is None and not variables.get(ENTRYPOINT):
            yield f"{where}{ENTRYPOINT} has to name the file in the archive that runs"


def _program(
    given: JobDetails | NodeGroupConfiguration,
) -> tuple[Configuration | None, ContainerEnvironment | None]:
    return given.job_configuration_details, given.job_environment_configuration_details


def _single(job: JobDetails, shapes: Container[str]) -> Iterator[str]:
    infrastructure = job.job_infrastructure_configuration_details
    if isinstance(infrastructure, MultiNode):
        yield "jobInfrastructureType MULTI_NODE is possible in node groups only"
    yield from _infrastructure("jobInfrastructureConfigurationDetails", infrastructure, shapes)
    yield from _configuration("jobConfigurationDetails", job.job_configuration_details)
    yield from _environment(
        "jobEnvironmentConfigurationDetails", job.job_environment_configuration_details
    )


def _multi_node(job: JobDetails, nodes: NodeConfiguration, shapes: Container[str]) -> Iterator[str]:
    if isinstance(job.job_configuration_details, DefaultConfiguration):
        yield f"jobConfigurationDetails has to be EMPTY with {_NODES}"
    if isinstance(job.job_infrastructure_configuration_details, (*Shaped, ManagedCluster)):
        yield f"jobInfrastructureConfigurationDetails has to be EMPTY with {_NODES}"
    if job.job_environment_configuration_details is not None:
        yield f"jobEnvironmentConfigurationDetails is possible in node groups only, with {_NODES}"
    if nodes.startup_order not in (None, *_ORDERS):
        yield f"{_NODES}.startupOrder has to be one of {', '.join(_ORDERS)}"
    yield from _minutes(_NODES, nodes.maximum_runtime_in_minutes)
    groups = nodes.job_node_group_configuration_details_list or ()
    if not groups:
        yield f"{_NODES}.jobNodeGroupConfigurationDetailsList needs a group"
    names = [group.name for group in groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two node groups are named {name!r}"
    for group in groups:
        yield from _group(group, shapes)


def _group(group: NodeGroupConfiguration, shapes: Container[str]) -> Iterator[str]:
    where = f"node group {group.name!r}"
    if not is_group_name(group.name):
        yield (
            f"{where}: a name has up to 40 letters, digits, - and _, starts with a letter and ends "
            "with a letter or digit"
        )
    replicas = 1 if group.replicas is None else group.replicas
    if replicas < 1:
        yield f"{where}: replicas has to be 1 or more, not {replicas}"
    least = group.minimum_success_replicas
    if least is not None and not 0 <= least <= replicas:
        yield f"{where}: minimumSuccessReplicas has to be 0 to {replicas}, not {least}"
    infrastructure = group.job_infrastructure_configuration_details
    if isinstance(infrastructure, (Standalone, ManagedEgress)):
        yield f"{where}: jobInfrastructureType has to be MULTI_NODE"
    yield from _infrastructure(where, infrastructure, shapes)
    yield from _configuration(where, group.job_configuration_details)
    yield from _environment(where, group.job_environment_configuration_details)


def _infrastructure(
    where: str, given: Infrastructure | None, shapes: Container[str]
) -> Iterator[str]:
    if not isinstance(given, Shaped):
        return
    size = given.job_shape_config_details
    sized = size is not None and (size.ocpus, size.memory_in_gbs) != (None, None)
    if given.shape_name not in shapes:
        yield (
            f"{where}: there is no shape {given.shape_name!r} (`oci data-science "
            "job-shape list` lists those there are)"
        )
    elif sized and not given.shape_name.endswith("Flex"):
        yield f"{where}: {given.shape_name} is not flexible, and has no jobShapeConfigDetails"
    if not _LEAST_DISK <= given.block_storage_size_in_gbs <= _MOST_DISK:
        yield (
            f"{where}: blockStorageSizeInGBs has to be {_LEAST_DISK} to {_MOST_DISK}, not "
            f"{given.block_storage_size_in_gbs}"
        )


def _configuration(where: str, given: Configuration | None) -> Iterator[str]:
    if not isinstance(given, DefaultConfiguration):
        return
    variables = given.environment_variables or {}
    size = sum(len(name) + len(value) for name, value in variables.items())
    if size > _MOST_VARIABLES:
        yield (
            f"{where}: environmentVariables have {size} characters; the most are {_MOST_VARIABLES}"
        )
    for name in variables:
        if not name or "=" in name or "\0" in name:
            yield f"{where}: {name!r} is not the name of an environment variable"
    arguments = given.command_line_arguments or ""
    if len(arguments) > _MOST_ARGUMENTS:
        yield (
            f"{where}: commandLineArguments have {len(arguments)} characters; the most are "
            f"{_MOST_ARGUMENTS}"
        )
    try:
        split_arguments(arguments)
    except ValueError as error:
        yield f"{where}: commandLineArguments cannot be split into words: {error}"
    yield from _minutes(where, given.maximum_runtime_in_minutes)
    probe = given.startup_probe_details
    if probe is not None and not probe.command:
        yield f"{where}: startupProbeDetails needs a command"


def _minutes(where: str, given: int | None) -> Iterator[str]:
    if given is not None and not 1 <= given <= _MOST_MINUTES:
        yield f"{where}: maximumRuntimeInMinutes has to be 1 to {_MOST_MINUTES}, not {given}"


def _environment(where: str, given: ContainerEnvironment | None) -> Iterator[str]:
    if given is None:
        return
    if not given.image:
        yield f"{where}: image is required"
    words: Sequence[str] = [*(given.entrypoint or ()), *(given.cmd or ())]
    if len(json.dumps(words)) > _MOST_COMMAND:
        yield f"{where}: cmd and entrypoint together may have {_MOST_COMMAND} bytes"


def split_arguments(text: str) -> list[str]:
    """The words of commandLineArguments. Raises ValueError for a quote that is not closed."""
    return shlex.split(text)
