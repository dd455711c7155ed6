"""What is created in the service, as its own models have it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from engines.conftest import PlanOf
from muster.engines.oci import details
from muster.engines.oci.profile import OciProfile
from muster.plan.model import ResourcePlan
from muster.spec.shapes import find_shape
from support.oci_service import needs_sdk

PROFILE = OciProfile(compartment="ocid1.compartment.oc1..c", project="ocid1.project.oc1..p")


def profile(**settings: Any) -> OciProfile:
    return OciProfile(PROFILE.compartment, PROFILE.project, **settings)


def job_of(plan: Any, used: OciProfile = PROFILE) -> dict[str, Any]:
    return details.job_details(plan, range(len(plan.nodes)), 0, used)


def group_of(plan: Any, used: OciProfile = PROFILE) -> dict[str, Any]:
    groups = job_of(plan, used)["jobNodeConfigurationDetails"]
    first: dict[str, Any] = groups["jobNodeGroupConfigurationDetailsList"][0]
    return first


def as_models(body: dict[str, Any], model: str) -> Any:
    """A body, read and written by the models of the SDK, which drop what they do not know."""
    from oci.base_client import BaseClient
    from oci.data_science.models import data_science_type_mapping

    client = BaseClient.__new__(BaseClient)
    client.complex_type_mappings = data_science_type_mapping
    client.type_mappings = {**BaseClient.primitive_type_map, **data_science_type_mapping}
    made = client._BaseClient__deserialize(json.loads(json.dumps(body)), model)
    return client.sanitize_for_serialization(made)


SPECS: list[dict[str, Any]] = [
    {},
    {"nodes": 3},
    {"shape": "VM.GPU.A10.1", "nodes": 2, "max_runtime": "1h"},
    {"image": "iad.ocir.io/ns/train:1@sha256:" + "0" * 64},
    {"mounts": [{"source": "oci://data@ns/train"}], "resources": {"disk": "100GiB"}},
    {
        "command": None,
        "node_groups": [
            {"name": "main", "command": ["a"], "image": "iad.ocir.io/ns/train:1"},
            {"name": "workers", "replicas": 2, "nodes": 2, "command": ["b"]},
        ],
    },
]


@needs_sdk
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "used",
    [
        PROFILE,
        profile(subnet="ocid1.subnet.oc1..s", log_group="ocid1.loggroup.oc1..g"),
        profile(log_group="ocid1.loggroup.oc1..g", log="ocid1.log.oc1..l", image="x.io/y:1"),
    ],
)
def test_the_models_of_the_sdk_know_all_of_it(
    plan_of: PlanOf, spec: dict[str, Any], used: OciProfile
) -> None:
    body = job_of(plan_of(**spec), used)
    assert as_models(body, "CreateJobDetails") == body
    run = details.run_details(plan_of(**spec), "ocid1.datasciencejob.oc1..j", 0, used)
    assert as_models(run, "CreateJobRunDetails") == run


def test_one_node_is_a_job_of_one_node(plan_of: PlanOf) -> None:
    body = job_of(plan_of())
    assert body["displayName"] == "muster-r1.0"
    assert body["jobInfrastructureConfigurationDetails"]["jobInfrastructureType"] == "ME_STANDALONE"
    assert "jobNodeConfigurationDetails" not in body
    variables = body["jobConfigurationDetails"]["environmentVariables"]
    assert variables == {"JOB_RUN_ENTRYPOINT": "__main__.py"}


def test_a_subnet_is_the_network_of_all_nodes(plan_of: PlanOf) -> None:
    used = profile(subnet="ocid1.subnet.oc1..s")
    one = job_of(plan_of(), used)["jobInfrastructureConfigurationDetails"]
    assert (one["jobInfrastructureType"], one["subnetId"]) == ("STANDALONE", used.subnet)
    several = job_of(plan_of(nodes=2), used)["jobNodeConfigurationDetails"]
    network = {"jobNetworkType": "CUSTOM_NETWORK", "subnetId": used.subnet}
    assert several["jobNetworkConfiguration"] == network


def test_groups_are_node_groups(plan_of: PlanOf) -> None:
    body = job_of(plan_of(**SPECS[-1]))["jobNodeConfigurationDetails"]
    groups = body["jobNodeGroupConfigurationDetailsList"]
    assert [(one["name"], one["replicas"]) for one in groups] == [("main", 1), ("workers", 4)]
    assert body["startupOrder"] == "IN_PARALLEL", "the lifecycle decides about the order"
    assert "jobEnvironmentConfigurationDetails" not in groups[1]


def test_slots_that_are_left_make_smaller_groups(plan_of: PlanOf) -> None:
    body = details.job_details(plan_of(**SPECS[-1]), [2, 3], 1, PROFILE)
    (group,) = body["jobNodeConfigurationDetails"]["jobNodeGroupConfigurationDetailsList"]
    assert (group["name"], group["replicas"], body["displayName"]) == ("workers", 2, "muster-r1.1")


def test_an_image_runs_the_artifact(plan_of: PlanOf) -> None:
    digest = "sha256:" + "0" * 64
    plan = plan_of(image=f"iad.ocir.io/ns/train:1@{digest}", container={"python": "/py/bin/python"})
    body = job_of(plan)
    assert body["jobEnvironmentConfigurationDetails"] == {
        "jobEnvironmentType": "OCIR_CONTAINER",
        "image": "iad.ocir.io/ns/train:1",
        "imageDigest": digest,
        "entrypoint": ["/py/bin/python", "/home/datascience/muster-r1-0.zip"],
        "cmd": [],
    }
    assert body["jobConfigurationDetails"]["environmentVariables"] == {}


@pytest.mark.parametrize(
    ("spec", "used", "size"),
    [
        ({}, PROFILE, ("VM.Standard.E4.Flex", 4.0, 64.0, 50)),
        ({"resources": {"cpus": 3, "memory": "10GiB"}}, PROFILE, ("", 2.0, 10.0, 50)),
        ({"resources": {"cpus": 0.5}}, PROFILE, ("", 1.0, 64.0, 50)),
        ({}, profile(ocpus=2.5, memory_gb=20), ("", 2.5, 20, 50)),
        ({"shape": "VM.Standard.A1.Flex:3:18GiB"}, PROFILE, ("VM.Standard.A1.Flex", 3, 18, 50)),
        ({"nodes": 2, "resources": {"cpus": 2}}, PROFILE, ("", 3.0, 64.0, 50)),
        ({"shape": "VM.GPU.A10.1"}, PROFILE, ("VM.GPU.A10.1", None, None, 50)),
        ({"resources": {"disk": "200GiB"}}, PROFILE, ("", 4.0, 64.0, 200)),
        ({}, profile(shape="VM.Standard.E9.Flex"), ("VM.Standard.E9.Flex", 4.0, 64.0, 50)),
    ],
)
def test_what_a_job_asks_for_chooses_its_machines(
    plan_of: PlanOf, spec: dict[str, Any], used: OciProfile, size: tuple[Any, ...]
) -> None:
    plan = plan_of(**spec)
    group = plan.groups[0]
    if group.resources.shape is not None:  # as planning reads shapes
        found = find_shape(group.resources.shape)
        read = ResourcePlan(cpus=found.cpus, memory=found.memory, gpus=found.gpus, shape=found.name)
        group = replace(group, resources=read)
    made = details.size_of(group, used, len(plan.nodes))
    shape, *amounts = size
    assert made.shape == (shape or PROFILE.shape)
    assert [made.ocpus, made.memory_gb, made.disk_gb] == amounts


@pytest.mark.parametrize(
    ("limit", "minutes"), [(None, None), ("10m", 16), ("29d", 41766), ("30d", None)]
)
def test_the_service_gives_up_after_the_run_would(
    plan_of: PlanOf, limit: str | None, minutes: int | None
) -> None:
    given = {} if limit is None else {"max_runtime": limit}
    assert details.minutes(plan_of(**given)) == minutes


def test_the_service_mounts_buckets_and_file_systems(plan_of: PlanOf) -> None:
    used = profile(file_systems={"10.0.0.5:/data": "mt:ex"}, subnet="s")
    plan = plan_of(
        mounts=[
            {"source": "oci://bucket@ns/a/b", "path": "/mnt/train"},
            {"source": "10.0.0.5:/data", "path": "/mnt/data"},
            {"source": "s3://other/x", "path": "/mnt/other"},
        ]
    )
    assert job_of(plan, used)["jobStorageMountConfigurationDetailsList"] == [
        {
            "storageType": "OBJECT_STORAGE",
            "namespace": "ns",
            "bucket": "bucket",
            "destinationDirectoryName": "train",
            "destinationPath": "/mnt",
            "prefix": "a/b",
        },
        {
            "storageType": "FILE_STORAGE",
            "mountTargetId": "mt",
            "exportId": "ex",
            "destinationDirectoryName": "data",
            "destinationPath": "/mnt",
        },
    ]
    mounted = details.mounted_by_service(plan.groups[0], used)
    assert mounted == {"oci://bucket@ns/a/b": "/mnt/train", "10.0.0.5:/data": "/mnt/data"}


@pytest.mark.parametrize(
    ("spec", "used", "path", "text"),
    [
        (
            {"resources": {"gpus": 1}},
            PROFILE,
            "node_groups[workers].resources.gpus",
            "shape VM.Standard.E4.Flex has no GPUs",
        ),
        (
            {"resources": {"disk": "2TiB"}},
            PROFILE,
            "node_groups[workers].resources.disk",
            "a node has 1024 GB of block storage at most, not 2048",
        ),
        (
            {"nodes": 2},
            profile(shape="VM.Standard2.2"),
            "node_groups[workers].shape",
            "VM.Standard2.2 has 2 cores; a run of several nodes needs more than 2",
        ),
        (
            {"mounts": [{"source": "h:/data"}]},
            profile(file_systems={"h:/data": "mt:ex"}),
            "mounts",
            "mounts of file storage need a subnet",
        ),
        (
            {"mounts": [{"source": f"oci://b@n/{i}", "path": f"/mnt/{i}"} for i in range(6)]},
            PROFILE,
            "mounts",
            "a job has 5 mounts of the service at most, not 6",
        ),
    ],
)
def test_what_the_service_would_refuse_is_refused_before(
    plan_of: PlanOf, spec: dict[str, Any], used: OciProfile, path: str, text: str
) -> None:
    [problem] = details.problems(plan_of(**spec), used)
    assert problem.path == path and text in problem.message and problem.hint


def test_all_nodes_have_the_same_mounts(plan_of: PlanOf) -> None:
    mount = [{"source": f"oci://b@n/{i}", "path": "/mnt/data"} for i in range(2)]
    groups = [{"name": f"g{i}", "command": ["a"], "mounts": [mount[i]]} for i in range(2)]
    [problem] = details.problems(plan_of(command=None, node_groups=groups), PROFILE)
    assert "have the same mounts, and /mnt/data is another in group g0" in problem.message
