"""A job with the overrides of a job run. Pure.

Variables of an override are added to the job's; other fields replace the job's, each by itself;
node groups are found by their names (OCI: CreateJobRunDetails).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.spec.formats.oci.model import (
    Configuration,
    DefaultConfiguration,
    JobDetails,
    NodeConfiguration,
    NodeGroupConfiguration,
    OverrideDetails,
)

S = TypeVar("S", bound=Struct)


def with_overrides(job: JobDetails, run: OverrideDetails) -> JobDetails:
    """The job as a run has it. Raises ValueError for a node group that the job does not have."""
    return JobDetails(
        job_configuration_details=_configuration(
            job.job_configuration_details, run.job_configuration_override_details
        ),
        job_infrastructure_configuration_details=(
            run.job_infrastructure_configuration_override_details
            or job.job_infrastructure_configuration_details
        ),
        job_environment_configuration_details=_merged(
            job.job_environment_configuration_details,
            run.job_environment_configuration_override_details,
        ),
        job_log_configuration_details=(
            run.job_log_configuration_override_details or job.job_log_configuration_details
        ),
        job_storage_mount_configuration_details_list=(
            job.job_storage_mount_configuration_details_list
            if run.job_storage_mount_configuration_override_details_list is None
            else run.job_storage_mount_configuration_override_details_list
        ),
        job_node_configuration_details=_nodes(
            job.job_node_configuration_details, run.job_node_configuration_override_details
        ),
    )


def _merged(base: S | None, override: S | None) -> S | None:
    """The base with the fields of an override that are given."""
    if base is None or override is None:
        return base if override is None else override
    given = {name: value for name, value in asdict(override).items() if value is not None}
    return replace(base, **given)


def _configuration(
    base: Configuration | None, override: Configuration | None
) -> Configuration | None:
    if not isinstance(override, DefaultConfiguration):
        return base
    if not isinstance(base, DefaultConfiguration):
        return override
    merged = _merged(base, override)
    assert merged is not None
    variables = {**(base.environment_variables or {}), **(override.environment_variables or {})}
    return replace(merged, environment_variables=variables)


def _nodes(
    base: NodeConfiguration | None, override: NodeConfiguration | None
) -> NodeConfiguration | None:
    if base is None or override is None:
        return base if override is None else override
    groups = _groups(
        base.job_node_group_configuration_details_list or (),
        override.job_node_group_configuration_details_list or (),
    )
    merged = _merged(base, override)
    assert merged is not None
    return replace(merged, job_node_group_configuration_details_list=groups)


def _groups(
    base: Sequence[NodeGroupConfiguration], override: Sequence[NodeGroupConfiguration]
) -> list[NodeGroupConfiguration]:
    changes = {group.name: group for group in override}
    unknown = [name for name in changes if name not in {group.name for group in base}]
    if unknown:
        raise ValueError(
            f"the job has no node group named {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(repr(group.name) for group in base) or 'none'}"
        )
    return [_group(group, changes.get(group.name)) for group in base]


def _group(
    base: NodeGroupConfiguration, override: NodeGroupConfiguration | None
) -> NodeGroupConfiguration:
    if override is None:
        return base
    merged = _merged(base, override)
    assert merged is not None
    return replace(
        merged,
        job_configuration_details=_configuration(
            base.job_configuration_details, override.job_configuration_details
        ),
        job_environment_configuration_details=_merged(
            base.job_environment_configuration_details,
            override.job_environment_configuration_details,
        ),
    )
