from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from muster.describe.environment import describe_values
from muster.errors import InvalidInput
from muster.plan.build import mount_variable
from muster.plan.environment import node_environment
from muster.plan.model import ArtifactPlan, RunPlan
from muster.plan.template import Facts

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


def test_the_clusters_of_a_run(plan_of: PlanOf) -> None:
    """Each replica of an array is a cluster; the nodes of the other groups are another one."""
    groups = [
        {"name": "a", "nodes": 2, "array": {"x": "1,2"}},
        {"name": "b"},
        {"name": "c", "replicas": 4, "parallelism": 2},
        {"name": "d", "nodes": 2},
    ]
    plan = plan_of({"name": "demo", "command": ["x"], "node_groups": groups})
    clusters = [[other.rank for other in plan.cluster(node)] for node in plan.nodes]
    others = [4, 9, 10]
    assert clusters == [*([[0, 1]] * 2), others, [5], [6], *([others] * 2)]
    assert [plan.cluster_size(node) for node in plan.nodes] == [2] * 2 + [3] + [1] * 2 + [3] * 2


def test_replicas_of_an_array_take_each_others_slots(plan_of: PlanOf) -> None:
    groups = [{"name": "a"}, {"name": "b", "nodes": 2, "replicas": 5, "parallelism": 2}]
    plan = plan_of({"name": "demo", "command": ["x"], "node_groups": groups})
    assert [node.hostname for node in plan.nodes] == [f"node-{rank}" for rank in range(5)]
    later = plan.node(8, slot=4)
    assert (later.rank, later.replica, later.index, later.slot) == (8, 3, 1, 4)
    assert (later.hostname, later.address) == ("node-8", plan.nodes[4].address)
    assert [(n.rank, n.slot) for n in plan.cluster(later)] == [(7, 3), (8, 4)]
    assert (plan.node(8).fqdn, plan.node(8).address) == ("node-8", "")


def test_the_ranks_in_a_cluster(plan_of: PlanOf) -> None:
    group = {"name": "a", "nodes": 2, "array": {"x": "1,2"}}
    spec = {"name": "demo", "command": ["x"], "processes_per_node": 2, "node_groups": [group]}
    plan = plan_of(spec)
    template = "${node.rank} ${group.rank} ${process.rank} ${roster.0.address} ${rank}"
    nodes = [*plan.nodes, *(plan.node(rank, slot=rank - 2) for rank in (2, 3))]
    assert [Facts(plan, node, 1, 0, {}).fill(template) for node in nodes] == [
        "0 0 1 shared-0 0",
        "1 1 3 shared-0 1",
        "0 0 1 shared-0 2",
        "1 1 3 shared-0 3",
    ]
    for node, rank in zip(nodes, "0101", strict=True):
        env = node_environment(plan, node, describe_values(plan, plan.groups[0]))
        assert (env["NODE_RANK"], env["NODE_COUNT"], env["INITIAL_CLUSTER_SIZE"]) == (
            rank,
            "2",
            "2",
        )
        assert env["MUSTER_PARAM_X"] == str(node.replica + 1)
