"""A job of OCI as a spec of Muster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.spec.formats.oci.model import (
    Configuration,
    ContainerEnvironment,
    CustomNetwork,
    DefaultConfiguration,
    ExecProbe,
    FileStorage,
    Infrastructure,
    JobDetails,
    ManagedCluster,
    NodeGroupConfiguration,
    Shaped,
    Standalone,
    StorageMount,
)
from muster.spec.formats.oci.rules import split_arguments


class Surroundings(Struct, frozen=True):
    """What a spec gets from where it runs."""

    #: The name of the job in Muster.
    name: str
    #: The name of the uploaded code; None if there is none.
    artifact: str | None
    #: The engine of nodes, and of those that are containers.
    engine: str
    container_engine: str
    tags: Mapping[str, str] = {}
    display_name: str | None = None
    #: OCID of an export of a file system -> where it is: `nfs://server/path`.
    exports: Mapping[str, str] = {}


def spec_of(job: JobDetails, around: Surroundings) -> dict[str, Any]:
    """The spec of a job with the overrides of a run, as in a file. `rules.problems` has found
    nothing."""
    nodes = job.job_node_configuration_details
    spec: dict[str, Any] = {
        "name": around.name,
        "display_name": around.display_name,
        "artifact": around.artifact,
        "engine": around.container_engine if _has_image(job) else around.engine,
        "tags": dict(around.tags),
        "mounts": [
            _mount(one, around) for one in job.job_storage_mount_configuration_details_list or ()
        ],
    }
    if nodes is None:
        spec |= _program(
            job.job_configuration_details,
            job.job_environment_configuration_details,
            job.job_infrastructure_configuration_details,
        )
        if isinstance(job.job_infrastructure_configuration_details, Standalone):
            # OCI: job runs in a subnet of the user's reach each other
            spec["network"] = "shared"
        return _given(spec | {"nodes": 1})
    groups = nodes.job_node_group_configuration_details_list or []
    spec["node_groups"] = [_group(group) for group in groups]
    spec["startup"] = "in_order" if nodes.startup_order == "IN_ORDER" else "parallel"
    spec["max_runtime"] = _minutes(nodes.maximum_runtime_in_minutes)
    # OCI: the nodes of a run have a network of their own
    spec["network"] = "cluster"
    return _given(spec)


def has_own_subnet(job: JobDetails) -> bool:
    """Whether nodes of a job are in a subnet of the user's."""
    nodes = job.job_node_configuration_details
    network = None if nodes is None else nodes.job_network_configuration
    groups = () if nodes is None else nodes.job_node_group_configuration_details_list or ()
    given = (group.job_infrastructure_configuration_details for group in groups)
    infrastructures = (job.job_infrastructure_configuration_details, *given)
    return isinstance(network, CustomNetwork) or any(
        isinstance(one, Standalone) for one in infrastructures
    )


def _has_image(job: JobDetails) -> bool:
    nodes = job.job_node_configuration_details
    groups = () if nodes is None else nodes.job_node_group_configuration_details_list or ()
    given = (group.job_environment_configuration_details for group in groups)
    return any(one is not None for one in (job.job_environment_configuration_details, *given))


def _group(group: NodeGroupConfiguration) -> dict[str, Any]:
    made = {
        "name": group.name,
        "replicas": 1 if group.replicas is None else group.replicas,
        "min_success": group.minimum_success_replicas,
        **_program(
            group.job_configuration_details,
            group.job_environment_configuration_details,
            group.job_infrastructure_configuration_details,
        ),
    }
    return _given(made)


def _program(
    configuration: Configuration | None,
    container: ContainerEnvironment | None,
    infrastructure: Infrastructure | None,
) -> dict[str, Any]:
    """Settings that a job with one node and a group of nodes share."""
    given = configuration if isinstance(configuration, DefaultConfiguration) else None
    given = given or DefaultConfiguration()
    arguments = split_arguments(given.command_line_arguments or "")
    made: dict[str, Any] = {
        "env": given.environment_variables or {},
        "args": arguments,
        "max_runtime": _minutes(given.maximum_runtime_in_minutes),
        "startup_probe": _probe(given.startup_probe_details),
        **_size(infrastructure),
    }
    if container is not None:
        made |= _container(container, arguments)
    return made


def _container(container: ContainerEnvironment, arguments: list[str]) -> dict[str, Any]:
    image = container.image or ""
    if container.image_digest and "@" not in image:
        image = f"{image}@{container.image_digest}"
    words = [*(container.cmd or ()), *arguments]
    if container.entrypoint:
        # as in Docker: an ENTRYPOINT that is replaced takes the image's CMD with it
        return {"image": image, "command": [*container.entrypoint, *words], "args": []}
    return {"image": image, "args": words}


def _size(infrastructure: Infrastructure | None) -> dict[str, Any]:
    if isinstance(infrastructure, ManagedCluster):
        amounts = infrastructure.resource_configuration.resource_request_configuration
        return {
            "resources": {
                "cpus": amounts.ocpus,
                "memory": f"{amounts.memory_in_gbs:g}GiB",
                "gpus": amounts.gpus or 0,
            }
        }
    if not isinstance(infrastructure, Shaped):
        return {}
    size = infrastructure.job_shape_config_details
    shape = infrastructure.shape_name
    if size is not None and size.ocpus is not None:
        memory = "" if size.memory_in_gbs is None else f":{size.memory_in_gbs:g}GiB"
        shape = f"{shape}:{size.ocpus:g}{memory}"
    return {"shape": shape}


def _probe(probe: ExecProbe | None) -> dict[str, Any] | None:
    if probe is None:
        return None
    return _given(
        {
            "exec": probe.command,
            "period": probe.period_in_seconds,
            "threshold": probe.failure_threshold,
            "initial_delay": probe.initial_delay_in_seconds,
        }
    )


def _mount(mount: StorageMount, around: Surroundings) -> dict[str, Any]:
    """OCI: at destinationPath/destinationDirectoryName, below /mnt if there is no path. An export
    that is not known is the path on a host that the mount target names."""
    path = f"{mount.destination_path or '/mnt'}/{mount.destination_directory_name}"
    if isinstance(mount, FileStorage):
        given = f"nfs://{mount.mount_target_id}/{mount.export_id.lstrip('/')}"
        return {"source": around.exports.get(mount.export_id, given), "path": path}
    prefix = f"/{mount.prefix.strip('/')}" if mount.prefix else ""
    return {"source": f"oci://{mount.bucket}@{mount.namespace}{prefix}", "path": path}


def _minutes(count: int | None) -> str | None:
    return None if count is None else f"{count}m"


def _given(made: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in made.items() if value not in (None, [], {})}
