"""Job runs of several nodes, by OCI's SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oci as oci_sdk
import pytest

from support.oci_server import OciServer, module_server

models = oci_sdk.data_science.models
ServiceError = oci_sdk.exceptions.ServiceError

#: Waits until the metadata file lists all nodes, and prints what a node knows.
SHOW = """
import json, os, sys, time
path = os.environ["CLUSTER_NODES_METADATA_FILE"]
while True:
    with open(path) as file:
        nodes = json.load(file)
    if len(nodes) == int(os.environ["INITIAL_CLUSTER_SIZE"]):
        break
    time.sleep(0.01)
print(json.dumps({"env": dict(os.environ), "argv": sys.argv[1:], "nodes": nodes}), flush=True)
"""


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    yield from module_server(tmp_path_factory)


def group(name: str, replicas: int | None = None, **given: Any) -> Any:
    """A node group. given: fields of JobNodeGroupConfigurationDetails, and `args`, `env` and
    `probe` of its configuration."""
    configuration = models.DefaultJobConfigurationDetails(
        command_line_arguments=given.pop("args", None),
        environment_variables=given.pop("env", {}),
        startup_probe_details=given.pop("probe", None),
    )
    infrastructure = models.MultiNodeJobInfrastructureConfigurationDetails(
        shape_name="VM.Standard.E4.Flex",
        block_storage_size_in_gbs=50,
        job_shape_config_details=models.JobShapeConfigDetails(ocpus=4, memory_in_gbs=4),
    )
    return models.JobNodeGroupConfigurationDetails(
        name=name,
        replicas=replicas,
        job_configuration_details=configuration,
        job_infrastructure_configuration_details=infrastructure,
        **given,
    )


def of_groups(*groups: Any, **given: Any) -> dict[str, Any]:
    """Fields of CreateJobDetails. given: fields of MultiNodeJobNodeConfigurationDetails."""
    nodes = models.MultiNodeJobNodeConfigurationDetails(
        job_node_group_configuration_details_list=[*groups], **given
    )
    return {
        "job_node_configuration_details": nodes,
        "job_infrastructure_configuration_details": None,
    }


def seen(oci: OciServer, run: Any) -> list[Any]:
    assert run.lifecycle_state == "SUCCEEDED", run.lifecycle_details
    found = [json.loads(line) for line in oci.output(run).splitlines()]
    return sorted(found, key=lambda node: int(node["env"]["NODE_RANK"]))


def test_nodes_of_groups_know_each_other(oci: OciServer) -> None:
    job = oci.create_job(
        SHOW,
        **of_groups(
            group("main", args="--main", env={"A": "main"}),
            group("others", 2, args="--other 'x y'", env={"A": "other"}),
        ),
    )
    run = oci.wait(oci.start(job))
    nodes = seen(oci, run)
    ranks = [
        (one["env"]["NODE_RANK"], one["env"]["NODE_GROUP_NAME"], one["env"]["A"], one["argv"])
        for one in nodes
    ]
    assert ranks == [
        ("0", "main", "main", ["--main"]),
        ("1", "others", "other", ["--other", "x y"]),
        ("2", "others", "other", ["--other", "x y"]),
    ]
    for one in nodes:
        assert one["env"]["JOB_RUN_OCID"] == run.id
        assert one["env"]["INITIAL_CLUSTER_SIZE"] == "3"
        assert one["env"]["FQDN"] == f"node-{one['env']['NODE_RANK']}"
    by_rank = sorted(nodes[0]["nodes"], key=lambda node: node["Rank"])
    assert [(one["Rank"], one["FQDN"], one["NodeGroupName"]) for one in by_rank] == [
        ("0", "node-0", "main"),
        ("1", "node-1", "others"),
        ("2", "node-2", "others"),
    ]
    for one in by_rank:
        assert one["IpAddress"] == one["IPAddress"], "ADS reads the second spelling"
        assert one["NodeId"]


def test_answers_of_a_job_and_its_run(oci: OciServer) -> None:
    job = oci.create_job("print(1)", **of_groups(group("main"), group("others", 2)))
    assert job.job_configuration_details.job_type == "EMPTY"
    assert job.job_infrastructure_configuration_details.job_infrastructure_type == "EMPTY"
    groups = job.job_node_configuration_details.job_node_group_configuration_details_list
    assert [(one.name, one.replicas) for one in groups] == [("main", None), ("others", 2)]
    run = oci.wait(oci.start(job))
    assert [one.name for one in run.node_group_details_list] == ["main", "others"]
    states = {one.lifecycle_state for one in run.node_group_details_list}
    assert states == {"DELETED"}, "the nodes are gone"


def test_overrides_of_groups(oci: OciServer) -> None:
    job = oci.create_job(
        SHOW, **of_groups(group("main", args="a"), group("others", 1, args="b", env={"A": "job"}))
    )
    given = models.MultiNodeJobNodeConfigurationDetails(
        job_node_group_configuration_details_list=[
            models.JobNodeGroupConfigurationDetails(name="main"),  # what ADS sends
            models.JobNodeGroupConfigurationDetails(
                name="others",
                replicas=2,
                job_configuration_details=models.DefaultJobConfigurationDetails(
                    environment_variables={"B": "run"}
                ),
            ),
        ]
    )
    run = oci.wait(oci.start(job, job_node_configuration_override_details=given))
    found = [(one["argv"], one["env"].get("A"), one["env"].get("B")) for one in seen(oci, run)]
    assert found == [(["a"], None, None), (["b"], "job", "run"), (["b"], "job", "run")]


def test_an_override_of_an_unknown_group(oci: OciServer) -> None:
    job = oci.create_job("print(1)", **of_groups(group("main")))
    given = models.MultiNodeJobNodeConfigurationDetails(
        job_node_group_configuration_details_list=[
            models.JobNodeGroupConfigurationDetails(name="gpu")
        ]
    )
    with pytest.raises(ServiceError) as caught:
        oci.start(job, job_node_configuration_override_details=given)
    assert (caught.value.status, caught.value.code) == (400, "InvalidParameter")
    assert caught.value.message == "the job has no node group named 'gpu'; it has 'main'"


#: The node of the first group writes a file when it is up, which the probe looks for, and ends when
#: that of the second has found it, too.
IN_ORDER = """
import os, pathlib, sys, time
up, seen = (pathlib.Path(os.environ["SHARED"], name) for name in ("up", "seen"))
if os.environ["NODE_GROUP_NAME"] == "first":
    up.touch()
    while not seen.exists():
        time.sleep(0.01)
elif up.exists():
    seen.touch()
else:
    sys.exit("the first group is not up")
"""


def test_in_order_the_next_group_starts_when_the_probe_succeeds(
    oci: OciServer, tmp_path: Path
) -> None:
    probe = models.JobExecProbeDetails(
        command=["test", "-e", str(tmp_path / "up")],
        period_in_seconds=1,
        failure_threshold=30,
        initial_delay_in_seconds=0,
    )
    env = {"SHARED": str(tmp_path)}
    job = oci.create_job(
        IN_ORDER,
        **of_groups(
            group("first", env=env, probe=probe), group("second", env=env), startup_order="IN_ORDER"
        ),
    )
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "SUCCEEDED", run.lifecycle_details


def test_a_probe_that_fails_too_often_fails_the_run(oci: OciServer) -> None:
    probe = models.JobExecProbeDetails(
        command=["false"], period_in_seconds=1, failure_threshold=1, initial_delay_in_seconds=0
    )
    job = oci.create_job(
        "import time; time.sleep(60)",
        **of_groups(group("first", probe=probe), group("second"), startup_order="IN_ORDER"),
    )
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "FAILED"
    assert "probe" in run.lifecycle_details


#: The node with rank 1 fails.
ONE_FAILS = "import os, sys; sys.exit(9 if os.environ['NODE_RANK'] == '1' else 0)"


@pytest.mark.parametrize(("least", "state"), [(2, "SUCCEEDED"), (3, "FAILED"), (None, "FAILED")])
def test_replicas_that_have_to_succeed(oci: OciServer, least: int | None, state: str) -> None:
    workers = group("workers", 3, minimum_success_replicas=least)
    run = oci.wait(oci.start(oci.create_job(ONE_FAILS, **of_groups(workers))))
    assert run.lifecycle_state == state, run.lifecycle_details
    if state == "FAILED":
        assert "exit code 9" in run.lifecycle_details
        assert "rank 1" in run.lifecycle_details
        assert "group workers" in run.lifecycle_details
        assert [one.lifecycle_state for one in run.node_group_details_list] == ["FAILED"]


def test_cancel_ends_all_nodes(oci: OciServer) -> None:
    program = "import time\nprint('up', flush=True)\ntime.sleep(600)"
    run = oci.start(oci.create_job(program, **of_groups(group("a"), group("b", 2))))
    oci.wait(run, "IN_PROGRESS")
    oci.science.cancel_job_run(run.id)
    assert oci.wait(run).lifecycle_state == "CANCELED"


def test_everything_that_is_wrong_is_reported_at_once(oci: OciServer) -> None:
    given = of_groups(
        group("a", 0), group("a", minimum_success_replicas=5), startup_order="RANDOM"
    ) | {"job_configuration_details": models.DefaultJobConfigurationDetails()}
    with pytest.raises(ServiceError) as caught:
        oci.create_job(**given)
    assert (caught.value.status, caught.value.code) == (400, "InvalidParameter")
    assert sorted(caught.value.message.split("; ")) == [
        "jobConfigurationDetails has to be EMPTY with jobNodeConfigurationDetails",
        "jobNodeConfigurationDetails.startupOrder has to be one of IN_ORDER, IN_PARALLEL",
        "node group 'a': minimumSuccessReplicas has to be 0 to 1, not 5",
        "node group 'a': replicas has to be 1 or more, not 0",
        "two node groups are named 'a'",
    ]
