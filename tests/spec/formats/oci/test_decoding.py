"""What is wrong with plain data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.server.oci.monitoring import PostMetricData
from muster.spec.formats.oci.decoding import decode, decode_partial
from muster.spec.formats.oci.model import CreateJob, JobDetails

_IDS = {"projectId": "p", "compartmentId": "c"}
_SHAPE = {"jobInfrastructureType": "ME_STANDALONE", "shapeName": "S", "blockStorageSizeInGBs": 50}


def wrong(data: Any, kind: Any = CreateJob) -> list[str]:
    return decode_partial(kind, data)[1]


def test_everything_that_is_wrong_is_told_with_its_place() -> None:
    data = {
        "projectId": "p",
        "displayName": 7,
        "jobConfigurationDetails": {
            "jobType": "DEFAULT",
            "environmentVariables": {"A": "a", "B": 1, "C": []},
            "maximumRuntimeInMinutes": "soon",
        },
        "jobInfrastructureConfigurationDetails": {"jobInfrastructureType": "BIG"},
        "jobStorageMountConfigurationDetailsList": [
            "x",
            {"storageType": "OBJECT_STORAGE", "namespace": "n", "bucket": None},
        ],
        "jobEnvironmentConfigurationDetails": {"jobEnvironmentType": "VM"},
        "jobNodeConfigurationDetails": 5,
    }
    assert wrong(data) == [
        "displayName: must be text, not 7",
        "jobConfigurationDetails.environmentVariables.B: must be text, not 1",
        "jobConfigurationDetails.environmentVariables.C: must be text, not a list",
        "jobConfigurationDetails.maximumRuntimeInMinutes: must be a whole number, not 'soon'",
        "jobInfrastructureConfigurationDetails.jobInfrastructureType: cannot be 'BIG'; possible "
        "are EMPTY, MANAGED_COMPUTE_CLUSTER, ME_STANDALONE, MULTI_NODE, STANDALONE",
        "jobEnvironmentConfigurationDetails.jobEnvironmentType: cannot be 'VM'; possible is "
        "OCIR_CONTAINER",
        "jobStorageMountConfigurationDetailsList[0]: must be a mapping, not 'x'",
        "jobStorageMountConfigurationDetailsList[1].destinationDirectoryName: is missing",
        "jobStorageMountConfigurationDetailsList[1].bucket: must be text, not nothing",
        "jobNodeConfigurationDetails: must be a mapping, not 5",
        "compartmentId: is missing",
    ]


def test_an_object_of_several_kinds_says_which_it_is() -> None:
    (found,) = wrong({**_IDS, "jobInfrastructureConfigurationDetails": {"subnetId": "s"}})
    assert "Details.jobInfrastructureType: is missing; possible are EMPTY," in found


def test_what_is_valid_is_left_to_be_checked_further() -> None:
    data = {
        "displayName": 7,
        "jobInfrastructureConfigurationDetails": {**_SHAPE, "jobShapeConfigDetails": 1},
        "jobConfigurationDetails": {"jobType": "DEFAULT", "commandLineArguments": 5},
        "jobStorageMountConfigurationDetailsList": [],
    }
    left, found = decode_partial(CreateJob, {"projectId": "p", **data})
    assert left == decode(
        CreateJob,
        {
            **{"projectId": "p", "compartmentId": ""},
            "jobInfrastructureConfigurationDetails": _SHAPE,
            "jobStorageMountConfigurationDetailsList": [],
        },
    )
    assert len(found) == 4


def test_an_object_is_not_checked_further_without_a_value_of_its_own() -> None:
    group = {"name": "g", "replicas": "x", "minimumSuccessReplicas": 2}
    other = {"name": "h", "replicas": "3"}
    for groups, left in (([group], None), ([group, other], "h")):
        nodes = {"jobNodeType": "MULTI_NODE", "jobNodeGroupConfigurationDetailsList": groups}
        job, found = decode_partial(JobDetails, {"jobNodeConfigurationDetails": nodes})
        assert job is not None
        kept = job.job_node_configuration_details
        names = kept and [one.name for one in kept.job_node_group_configuration_details_list or ()]
        assert names == (left and [left])
        assert len(found) == 1


def test_the_value_of_a_secret_is_not_repeated() -> None:
    variables = {"jobType": "DEFAULT", "environmentVariables": {"PASSWORD": 31337}}
    (found,) = wrong({**_IDS, "jobConfigurationDetails": variables})
    assert "PASSWORD" in found
    assert "31337" not in found


def test_errors_beyond_a_number_are_not_listed() -> None:
    found = wrong({**_IDS, "jobStorageMountConfigurationDetailsList": [1] * 1_000_000})
    assert len(found) == 21
    assert found[-1] == "there are more errors"


def test_a_long_name_is_cut() -> None:
    variables = {"jobType": "DEFAULT", "environmentVariables": {"A" * 100_000: []}}
    (found,) = wrong({**_IDS, "jobConfigurationDetails": variables})
    assert len(found) < 1100
    assert found.startswith("jobConfigurationDetails.environmentVariables.AAA")


def test_a_time_is_shown_as_it_is_written() -> None:
    data = {"metricData": [{"datapoints": [{"timestamp": "now", "value": "1"}]}]}
    found = wrong(data, PostMetricData)
    text = "metricData[0].datapoints[0].timestamp: must be a time such as 2026-01-05T09:00:00Z, "
    assert f"{text}not 'now'" in found
    assert "metricData[0].namespace: is missing" in found


@pytest.mark.parametrize("data", [None, [], "x", 5])
def test_what_is_no_object_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="must be a mapping"):
        decode(CreateJob, data)


_names = st.sampled_from(
    [
        "jobType",
        "jobInfrastructureType",
        "shapeName",
        "replicas",
        "name",
        *CreateJob.__struct_encode_fields__,
    ]
)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(["DEFAULT", "EMPTY", "MULTI_NODE", "ME_STANDALONE", "5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)


@given(data=st.dictionaries(_names, _values))
def test_data_is_refused_if_msgspec_refuses_it(data: dict[str, Any]) -> None:
    try:
        expected: CreateJob | None = msgspec.convert(data, CreateJob, strict=False)
    except msgspec.ValidationError:
        expected = None
    value, found = decode_partial(CreateJob, data)
    if expected is None:
        assert found
    else:
        assert (value, found) == (expected, [])
