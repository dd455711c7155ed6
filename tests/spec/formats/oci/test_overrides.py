"""A job with the overrides of a job run."""

from __future__ import annotations

from typing import Any

import pytest

from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.model import JobDetails, OverrideDetails, plain
from muster.spec.formats.oci.overrides import with_overrides


def merged(job: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """What is set of the job with the overrides."""
    made = plain(with_overrides(decode(JobDetails, job), decode(OverrideDetails, run)))
    found = _set(made)
    assert isinstance(found, dict)
    return found


def _set(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _set(one) for key, one in value.items() if one is not None}
    return [_set(one) for one in value] if isinstance(value, list) else value


CONFIGURATION = "jobConfigurationDetails"
OVERRIDE = "jobConfigurationOverrideDetails"


@pytest.mark.parametrize(
    ("job", "run", "expected"),
    [
        ({"environmentVariables": {"A": "1"}}, {}, {"environmentVariables": {"A": "1"}}),
        (
            {"environmentVariables": {"A": "1", "B": "2"}},
            {"environmentVariables": {"B": "3", "C": ""}},
            {"environmentVariables": {"A": "1", "B": "3", "C": ""}},
        ),
        (
            {"commandLineArguments": "a b", "maximumRuntimeInMinutes": 5},
            {"commandLineArguments": "c"},
            {
                "commandLineArguments": "c",
                "maximumRuntimeInMinutes": 5,
                "environmentVariables": {},
            },
        ),
        (
            {"commandLineArguments": "a"},
            {"commandLineArguments": ""},
            {"commandLineArguments": "", "environmentVariables": {}},
        ),
    ],
)
def test_the_configuration(
    job: dict[str, Any], run: dict[str, Any], expected: dict[str, Any]
) -> None:
    given = {CONFIGURATION: {"jobType": "DEFAULT", **job}}
    override = {OVERRIDE: {"jobType": "DEFAULT", **run}} if run else {}
    assert merged(given, override) == {CONFIGURATION: {"jobType": "DEFAULT", **expected}}


def test_a_job_without_configuration_gets_that_of_the_run() -> None:
    run = {"jobType": "DEFAULT", "commandLineArguments": "x"}
    for job in ({}, {CONFIGURATION: {"jobType": "EMPTY"}}):
        assert merged(job, {OVERRIDE: run}) == {CONFIGURATION: run}


def test_an_empty_override_changes_nothing() -> None:
    job = {CONFIGURATION: {"jobType": "DEFAULT", "commandLineArguments": "x"}}
    assert merged(job, {OVERRIDE: {"jobType": "EMPTY"}}) == job


def test_parts_of_the_container_are_replaced() -> None:
    container = {"jobEnvironmentType": "OCIR_CONTAINER", "image": "a:1", "cmd": ["x"]}
    override = {"jobEnvironmentType": "OCIR_CONTAINER", "cmd": ["y"], "entrypoint": ["z"]}
    assert merged(
        {"jobEnvironmentConfigurationDetails": container},
        {"jobEnvironmentConfigurationOverrideDetails": override},
    ) == {"jobEnvironmentConfigurationDetails": container | override}


MOUNT = {
    "storageType": "OBJECT_STORAGE",
    "destinationDirectoryName": "d",
    "namespace": "n",
    "bucket": "b",
}


@pytest.mark.parametrize(("given", "expected"), [(None, [MOUNT]), ([], [])])
def test_mounts_are_replaced(given: Any, expected: Any) -> None:
    name = "jobStorageMountConfigurationDetailsList"
    found = merged({name: [MOUNT]}, {"jobStorageMountConfigurationOverrideDetailsList": given})
    assert found == {name: expected}


def nodes(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "jobNodeType": "MULTI_NODE",
        **more,
        "jobNodeGroupConfigurationDetailsList": [*groups],
    }


NODES, NODES_OVERRIDE = "jobNodeConfigurationDetails", "jobNodeConfigurationOverrideDetails"
GROUP = {
    "name": "workers",
    "replicas": 2,
    "jobConfigurationDetails": {"jobType": "DEFAULT", "environmentVariables": {"A": "1"}},
}


def test_groups_are_found_by_their_names() -> None:
    run = {
        "name": "workers",
        "replicas": 5,
        "jobConfigurationDetails": {"jobType": "DEFAULT", "environmentVariables": {"B": "2"}},
    }
    found = merged(
        {NODES: nodes(GROUP, {"name": "main"}, startupOrder="IN_ORDER")},
        {NODES_OVERRIDE: nodes(run, maximumRuntimeInMinutes=7)},
    )
    expected = {
        "name": "workers",
        "replicas": 5,
        "jobConfigurationDetails": {
            "jobType": "DEFAULT",
            "environmentVariables": {"A": "1", "B": "2"},
        },
    }
    more = {"startupOrder": "IN_ORDER", "maximumRuntimeInMinutes": 7}
    assert found == {NODES: nodes(expected, {"name": "main"}, **more)}


def test_a_group_with_only_a_name_stays_as_it_is() -> None:
    job = {NODES: nodes(GROUP)}
    assert merged(job, {NODES_OVERRIDE: nodes({"name": "workers"})}) == job


def test_a_group_that_the_job_does_not_have() -> None:
    with pytest.raises(ValueError, match="no node group named 'x'; it has 'workers'"):
        merged({NODES: nodes(GROUP)}, {NODES_OVERRIDE: nodes({"name": "x"})})
