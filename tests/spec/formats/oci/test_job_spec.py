"""A job of OCI as a spec."""

from __future__ import annotations

from typing import Any

import pytest

from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.job_spec import Surroundings, has_own_subnet, spec_of
from muster.spec.formats.oci.model import JobDetails
from muster.spec.reader import parse_received

AROUND = Surroundings("train", "code.zip", "local", "container")
ON = "jobInfrastructureConfigurationDetails"
CONFIGURATION = "jobConfigurationDetails"
CONTAINER = "jobEnvironmentConfigurationDetails"


def spec(**job: Any) -> dict[str, Any]:
    """The spec of a job, which is valid."""
    made = spec_of(decode(JobDetails, job), AROUND)
    parse_received(made).require_valid()
    return {name: value for name, value in made.items() if name not in ("name", "nodes")}


def container(**more: Any) -> dict[str, Any]:
    return {"jobEnvironmentType": "OCIR_CONTAINER", "image": "iad.ocir.io/a/b:1", **more}


def test_a_job_that_says_nothing() -> None:
    assert spec() == {"artifact": "code.zip", "engine": "local"}


def test_a_job_with_one_node() -> None:
    probe = {"jobProbeCheckType": "EXEC", "command": ["true"], "periodInSeconds": 3}
    found = spec(
        **{
            CONFIGURATION: {
                "jobType": "DEFAULT",
                "environmentVariables": {"A": "1"},
                "commandLineArguments": "--name 'a b' $X",
                "maximumRuntimeInMinutes": 90,
                "startupProbeDetails": probe,
            },
            ON: {
                "jobInfrastructureType": "ME_STANDALONE",
                "shapeName": "VM.Standard.E4.Flex",
                "blockStorageSizeInGBs": 100,
                "jobShapeConfigDetails": {"ocpus": 2, "memoryInGBs": 24},
            },
        }
    )
    assert found == {
        "artifact": "code.zip",
        "engine": "local",
        "env": {"A": "1"},
        "args": ["--name", "a b", "$X"],
        "max_runtime": "90m",
        "startup_probe": {"exec": ["true"], "period": 3},
        "shape": "VM.Standard.E4.Flex:2:24GiB",
    }


@pytest.mark.parametrize(
    ("given", "arguments", "expected"),
    [
        ({}, "", {}),
        ({"cmd": ["a", "b"]}, "", {"args": ["a", "b"]}),
        ({"cmd": ["a"]}, "b", {"args": ["a", "b"]}),
        ({"entrypoint": ["sh", "-c"], "cmd": ["x y"]}, "", {"command": ["sh", "-c", "x y"]}),
        ({"entrypoint": ["sh"]}, "", {"command": ["sh"]}),
    ],
)
def test_a_container(given: dict[str, Any], arguments: str, expected: dict[str, Any]) -> None:
    configuration = {"jobType": "DEFAULT", "commandLineArguments": arguments}
    found = spec(**{CONFIGURATION: configuration, CONTAINER: container(**given)})
    assert found == {
        "artifact": "code.zip",
        "engine": "container",
        "image": "iad.ocir.io/a/b:1",
        **expected,
    }


def test_the_digest_of_an_image() -> None:
    found = spec(**{CONTAINER: container(imageDigest="sha256:12")})
    assert found["image"] == "iad.ocir.io/a/b:1@sha256:12"


def test_mounts() -> None:
    found = spec(
        jobStorageMountConfigurationDetailsList=[
            {
                "storageType": "OBJECT_STORAGE",
                "namespace": "ns",
                "bucket": "b",
                "prefix": "/p/",
                "destinationDirectoryName": "data",
            },
            {
                "storageType": "FILE_STORAGE",
                "mountTargetId": "server",
                "exportId": "export",
                "destinationDirectoryName": "fs",
                "destinationPath": "/",
            },
        ]
    )
    assert found["mounts"] == [
        {"source": "oci://b@ns/p", "path": "/mnt/data"},
        {"source": "nfs://server/export", "path": "//fs"},
    ]


def test_node_groups() -> None:
    infrastructure = {
        "jobInfrastructureType": "MULTI_NODE",
        "shapeName": "VM.Standard2.4",
        "blockStorageSizeInGBs": 50,
    }
    group = {
        "name": "workers",
        "replicas": 3,
        "minimumSuccessReplicas": 2,
        ON: infrastructure,
        CONFIGURATION: {"jobType": "DEFAULT", "environmentVariables": {"A": "1"}},
    }
    found = spec(
        jobNodeConfigurationDetails={
            "jobNodeType": "MULTI_NODE",
            "startupOrder": "IN_ORDER",
            "maximumRuntimeInMinutes": 10,
            "jobNodeGroupConfigurationDetailsList": [{"name": "main"}, group],
        }
    )
    assert found == {
        "artifact": "code.zip",
        "engine": "local",
        "node_groups": [
            {"name": "main", "replicas": 1},
            {
                "name": "workers",
                "replicas": 3,
                "min_success": 2,
                "shape": "VM.Standard2.4",
                "env": {"A": "1"},
            },
        ],
        "startup": "in_order",
        "max_runtime": "10m",
        "network": "cluster",
    }


STANDALONE = {
    "jobInfrastructureType": "STANDALONE",
    "shapeName": "VM.Standard2.1",
    "blockStorageSizeInGBs": 50,
    "subnetId": "ocid1.subnet.oc1..a",
}
NODES = "jobNodeConfigurationDetails"


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({}, False),
        ({ON: {**STANDALONE, "jobInfrastructureType": "ME_STANDALONE"}}, False),
        ({ON: STANDALONE}, True),
        ({NODES: {"jobNodeType": "MULTI_NODE"}}, False),
        (
            {
                NODES: {
                    "jobNodeType": "MULTI_NODE",
                    "jobNetworkConfiguration": {
                        "jobNetworkType": "CUSTOM_NETWORK",
                        "subnetId": "ocid1.subnet.oc1..a",
                    },
                }
            },
            True,
        ),
        (
            {
                NODES: {
                    "jobNodeType": "MULTI_NODE",
                    "jobNodeGroupConfigurationDetailsList": [{"name": "a", ON: STANDALONE}],
                }
            },
            True,
        ),
    ],
)
def test_a_subnet_of_the_users(job: dict[str, Any], expected: bool) -> None:
    assert has_own_subnet(decode(JobDetails, job)) is expected
