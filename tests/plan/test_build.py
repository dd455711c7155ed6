from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from muster.describe.environment import describe_values
from muster.errors import InvalidInput
from muster.plan.build import mount_variable
from muster.plan.environment import node_environment
from muster.plan.model import ArtifactPlan, RunPlan

PlanOf = Callable[..., RunPlan]


@pytest.mark.shows(
    "distributed-jobs/capability-node-groups", "distributed-jobs/groups-configured-independently"
)
def test_ranks_run_over_groups_replicas_and_indices(plan_of: PlanOf) -> None:
    plan = plan_of(
        {
            "command": "x",
            "node_groups": [{"name": "a"}, {"name": "b", "replicas": 2, "nodes": 2}],
        }
    )
    assert [(n.rank, n.group, n.replica, n.index, n.fqdn) for n in plan.nodes] == [
        (0, "a", 0, 0, "node-0"),
        (1, "b", 0, 0, "node-1"),
        (2, "b", 0, 1, "node-2"),
        (3, "b", 1, 0, "node-3"),
        (4, "b", 1, 1, "node-4"),
    ]
    assert [n.node_id for n in plan.nodes] == [f"r1-{i}" for i in range(5)]
    assert [n.address for n in plan.nodes] == [f"shared-{i}" for i in range(5)]
    assert [(g.first_rank, g.size, g.min_success) for g in plan.policy.groups] == [
        (0, 1, 1),
        (1, 4, 2),
    ]


@pytest.mark.shows("jobs/creation-networking")
def test_network_follows_the_framework_unless_the_spec_sets_it(plan_of: PlanOf) -> None:
    assert plan_of({"command": "x"}).network == "shared"
    plan = plan_of({"command": "x", "network": "isolated"})
    assert (plan.network, plan.network_reason) == ("isolated", "set in the spec")


def test_mounts_and_their_variables(plan_of: PlanOf) -> None:
    plan = plan_of(
        {
            "command": "x",
            "mounts": [
                {"source": "/a/my-data"},
                {"source": "s3://b/c", "path": "/in/my_data"},
            ],
        }
    )
    mounts = plan.groups[0].mounts
    assert [(m.kind, m.path, m.variable) for m in mounts] == [
        ("directory", "/mnt/my-data", "MUSTER_MOUNT_MY_DATA"),
        ("url", "/in/my_data", "MUSTER_MOUNT_MY_DATA_2"),
    ]
    assert mount_variable("/mnt/x.y/") == "MUSTER_MOUNT_X_Y"


@pytest.mark.shows(
    "cluster-design/job-ocid",
    "distributed-jobs/full-metadata",
    "distributed-jobs/metadata-example-fqdn",
)
def test_oci_environment_variables(plan_of: PlanOf) -> None:
    code = ArtifactPlan("ab", "code.tar", "archive", 1, "main.py")
    data = {"artifact": "code", "entrypoint": "main.py", "nodes": 2, "mounts": [{"source": "/d"}]}
    plan = plan_of(data, code)
    values = replace(describe_values(plan, plan.groups[0]), cluster_file="/c.json")
    env = node_environment(plan, plan.nodes[1], values)
    assert env["NODE_RANK"] == "1"
    assert env["NODE_GROUP_NAME"] == "workers"
    assert env["INITIAL_CLUSTER_SIZE"] == "2"
    assert env["FQDN"] == "node-1"
    assert env["CLUSTER_NODES_METADATA_FILE"] == "/c.json"
    assert env["JOB_OCID"].startswith("ocid1.datasciencejob.")
    assert env["JOB_OCID"].endswith(".j1")
    assert env["JOB_RUN_OCID"].split(".")[1] == "datasciencejobrun"
    assert (env["JOB_ARTIFACT_FILE_NAME"], env["JOB_RUN_ENTRYPOINT"]) == ("code.tar", "main.py")
    assert env["MUSTER_MOUNT_D"] == "/mnt/d"


def test_an_unknown_framework_is_refused(plan_of: PlanOf) -> None:
    with pytest.raises(
        InvalidInput, match=r"framework: no framework named .pytroch. .did you mean"
    ):
        plan_of({"command": "x", "framework": "pytroch"})
