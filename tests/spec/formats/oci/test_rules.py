"""What a job of OCI may not say."""

from __future__ import annotations

from typing import Any

import pytest

from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.model import JobDetails, Labels
from muster.spec.formats.oci.rules import archive_problems, label_problems, problems

SHAPES = {"VM.Standard2.1", "VM.Standard.E4.Flex"}
INFRASTRUCTURE = {
    "jobInfrastructureType": "ME_STANDALONE",
    "shapeName": "VM.Standard2.1",
    "blockStorageSizeInGBs": 50,
}
NODE = {**INFRASTRUCTURE, "jobInfrastructureType": "MULTI_NODE"}


def found(**job: Any) -> list[str]:
    return list(problems(decode(JobDetails, job), SHAPES))


def configured(**more: Any) -> list[str]:
    return found(jobConfigurationDetails={"jobType": "DEFAULT", **more})


def grouped(*groups: dict[str, Any], **more: Any) -> list[str]:
    nodes = {
        "jobNodeType": "MULTI_NODE",
        "jobNodeGroupConfigurationDetailsList": [*groups],
        **more,
    }
    return found(jobNodeConfigurationDetails=nodes)


def on(**more: Any) -> list[str]:
    return found(jobInfrastructureConfigurationDetails={**INFRASTRUCTURE, **more})


def test_nothing_is_wrong() -> None:
    assert found() == []
    assert on() == []
    assert configured(commandLineArguments="a 'b c'", maximumRuntimeInMinutes=43_200) == []
    group = {"name": "a", "replicas": 2, "minimumSuccessReplicas": 0}
    assert grouped({**group, "jobInfrastructureConfigurationDetails": NODE}) == []


FLEX = {"shapeName": "VM.Standard.E4.Flex", "jobShapeConfigDetails": {"ocpus": 2}}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (on(shapeName="VM.Big"), "there is no shape 'VM.Big'"),
        (on(blockStorageSizeInGBs=49), "blockStorageSizeInGBs has to be 50 to 1024, not 49"),
        (on(blockStorageSizeInGBs="2000"), "not 2000"),
        (on(jobShapeConfigDetails={"ocpus": 1}), "VM.Standard2.1 is not flexible"),
        (on(jobInfrastructureType="MULTI_NODE"), "MULTI_NODE is possible in node groups only"),
        (configured(environmentVariables={"A": "x" * 20_000}), "have 20001 characters"),
        (configured(environmentVariables={"A=B": ""}), "'A=B' is not the name"),
        (configured(commandLineArguments="x" * 4001), "have 4001 characters"),
        (configured(commandLineArguments="a 'b"), "cannot be split into words: No closing"),
        (configured(maximumRuntimeInMinutes=0), "has to be 1 to 43200, not 0"),
        (
            configured(startupProbeDetails={"jobProbeCheckType": "EXEC", "command": []}),
            "startupProbeDetails needs a command",
        ),
        (
            found(jobEnvironmentConfigurationDetails={"jobEnvironmentType": "OCIR_CONTAINER"}),
            "image is required",
        ),
        (grouped(), "needs a group"),
        (grouped({"name": "a"}, {"name": "a"}), "two node groups are named 'a'"),
        (grouped({"name": "a b"}), "node group 'a b': a name has up to 40"),
        (grouped({"name": "a", "replicas": 0}), "replicas has to be 1 or more, not 0"),
        (
            grouped({"name": "a", "replicas": 2, "minimumSuccessReplicas": 3}),
            "minimumSuccessReplicas has to be 0 to 2, not 3",
        ),
        (
            grouped({"name": "a", "jobInfrastructureConfigurationDetails": INFRASTRUCTURE}),
            "has to be MULTI_NODE",
        ),
        (grouped({"name": "a"}, startupOrder="LATER"), "startupOrder has to be one of"),
    ],
)
def test_what_is_wrong(given: list[str], problem: str) -> None:
    assert len(given) == 1
    assert problem in given[0]


def test_a_flexible_shape_has_a_size() -> None:
    assert on(**FLEX) == []


def test_everything_is_told_at_once() -> None:
    infrastructure = {**INFRASTRUCTURE, "shapeName": "x", "blockStorageSizeInGBs": 1}
    configuration = {"jobType": "DEFAULT", "maximumRuntimeInMinutes": -1}
    assert (
        len(
            found(
                jobInfrastructureConfigurationDetails=infrastructure,
                jobConfigurationDetails=configuration,
            )
        )
        == 3
    )


def test_settings_of_a_job_with_groups_are_in_the_groups() -> None:
    given = found(
        jobNodeConfigurationDetails={
            "jobNodeType": "MULTI_NODE",
            "jobNodeGroupConfigurationDetailsList": [{"name": "a"}],
        },
        jobConfigurationDetails={"jobType": "DEFAULT"},
        jobInfrastructureConfigurationDetails=INFRASTRUCTURE,
        jobEnvironmentConfigurationDetails={
            "jobEnvironmentType": "OCIR_CONTAINER",
            "image": "x",
        },
    )
    assert len(given) == 3


def test_a_long_name() -> None:
    assert list(label_problems(Labels(display_name="x" * 255))) == []
    assert len(list(label_problems(Labels(display_name="x" * 256)))) == 1


def test_an_archive_needs_an_entry_point() -> None:
    (found,) = archive_problems(JobDetails())
    assert found == "JOB_RUN_ENTRYPOINT has to name the file in the archive that runs"
