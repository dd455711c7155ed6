"""The launch message of a node: environment, limits, probe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.engines.base import RunContext
from muster.engines.launch import NodePaths, NodeStart, launch_message
from muster.engines.logs import NodeOutputs
from muster.node.launch_message import LaunchMessage
from muster.plan.environment import EngineValues
from muster.plan.model import RunPlan
from muster.storage.home import Home

PlanOf = Callable[..., RunPlan]


def context(plan: RunPlan) -> RunContext:
    return RunContext(
        plan, Home(Path("/home")), {"PATH": "/usr/bin", "A": "mine"}, "/py/python", started=1000.5
    )


def message(plan: RunPlan, rank: int = 0, **changes: Any) -> LaunchMessage:
    files = tuple((f"{p}.out", f"{p}.err") for p in range(plan.processes_of(rank)))
    paths = NodePaths(
        folder=Path("/n"),
        cluster_file=Path("/cluster.json"),
        work=Path("/n/work"),
        outputs=NodeOutputs(files, Path("/n"), "g-0"),
        tls=Path("/tls"),
        short=Path("/s"),
    )
    chosen = {n: changes.pop(n) for n in EngineValues.__struct_fields__ if n in changes}
    start = NodeStart(
        **{
            "attempt": 0,
            "incarnation": 0,
            "ports": {"master": 4711, "main": 4712},
            "values": EngineValues(**{"token": "secret", "gpus": "", **chosen}),
            "cpus": 2,
            "memory": 8 << 30,
            "contained": True,
            **changes,
        }
    )
    return launch_message(context(plan), plan.nodes[rank], paths, start)


def environment(plan: RunPlan, rank: int = 0, **changes: Any) -> dict[str, str]:
    return message(plan, rank, **changes).environment_of(0)


def test_attempt_and_restart_are_separate_variables(plan_of: PlanOf) -> None:
    env = environment(plan_of(), attempt=2, incarnation=5)
    assert (env["MUSTER_ATTEMPT"], env["MUSTER_RESTART"]) == ("2", "5")
    assert env["MUSTER_RUN_STARTED"] == "1000.500"


NODE_ENV = {
    "NODE": "${group}/${replica}/${index}=${rank}",
    "RUN": "${run.name} ${run.id} ${attempt}",
    "WHERE": "${hostname} ${address}",
    "SHELL_S": "${HOME} $HOME ${}",
}


def test_references_in_node_env_are_replaced_for_each_node(plan_of: PlanOf) -> None:
    groups = [{"name": "a"}, {"name": "b", "replicas": 2, "nodes": 2, "node_env": NODE_ENV}]
    plan = plan_of(node_groups=groups)
    env = environment(plan, 4, attempt=3)
    assert env["NODE"] == "b/1/1=4"
    assert env["RUN"] == "demo-1 r1 3"
    assert env["WHERE"] == "node-4 127.5.0.5"
    assert env["SHELL_S"] == "${HOME} $HOME ${}"
    assert "NODE" not in environment(plan, 0)


def test_each_layer_of_environment_variables_overrides_the_former(plan_of: PlanOf) -> None:
    """Later ones win: the submitter's, the job's `env`, its `node_env`, Muster's."""
    node_env = {"B": "node's ${rank}", "NODE_RANK": "mine", "MUSTER_ATTEMPT": "mine", "RANK": "0"}
    groups = [{"name": "g", "env": {"A": "job's ${rank}"}, "node_env": node_env}]
    plan = plan_of(node_groups=groups, framework="pytorch")
    env = environment(plan, attempt=1, extra={"LD_PRELOAD": "x"})
    assert env["A"] == "job's ${rank}", "env is literal"
    assert env["B"] == "node's 0"
    assert env["NODE_RANK"] == "0"
    assert env["MUSTER_ATTEMPT"] == "1"
    assert env["MASTER_PORT"] == "4711"
    assert env["LD_PRELOAD"] == "x"


def test_references_in_node_args_are_replaced(plan_of: PlanOf) -> None:
    own = ["--job=${run.replica}", "--at=${attempt}", "$${rank}"]
    groups = [{"name": "a"}, {"name": "b", "replicas": 2, "node_args": own}]
    plan = plan_of(node_groups=groups)
    assert message(plan, 2, attempt=3).node_args == ["--job=2", "--at=3", "${rank}"]
    assert message(plan, 0).node_args == []


@pytest.mark.parametrize(
    ("working_dir", "cwd"),
    [
        (None, "/n/work"),
        (".", "/n/work"),
        ("a/b", "/n/work/a/b"),
        ("/opt/x", "/opt/x"),
        ("/mnt/data", "/n/mnt/data"),
        ("/mnt/data/x", "/n/mnt/data/x"),
        ("/mnt/data/deep/x", "/n/mnt/deep/x"),
        ("/mnt/database", "/mnt/database"),
    ],
)
def test_relative_and_mounted_working_dirs_are_resolved(
    plan_of: PlanOf, working_dir: str | None, cwd: str
) -> None:
    """Without namespaces, folders of mounts are translated."""
    plan = plan_of(
        node_groups=[{"name": "g", **({"working_dir": working_dir} if working_dir else {})}]
    )
    mounted = {"/mnt/data": "/n/mnt/data", "/mnt/data/deep": "/n/mnt/deep"}
    assert message(plan, mounted=mounted).cwd == cwd


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/mnt/data", "/n/mnt/data"),
        ("/mnt/data/deep/x", "/n/mnt/deep/x"),
        ("/mnt/database", "/mnt/database"),
        ("mnt/data", "mnt/data"),
        ("", ""),
    ],
)
def test_variables_with_a_path_in_a_mount_are_translated(
    plan_of: PlanOf, value: str, expected: str
) -> None:
    plan = plan_of(node_groups=[{"name": "g", "env": {"WHERE": value}}])
    mounted = {"/mnt/data": "/n/mnt/data", "/mnt/data/deep": "/n/mnt/deep"}
    assert environment(plan, mounted=mounted)["WHERE"] == expected
    assert environment(plan)["WHERE"] == value


def test_each_process_has_its_own_rank_and_output_file(plan_of: PlanOf) -> None:
    plan = plan_of(nodes=2, processes_per_node=2, framework="pytorch")
    launch = message(plan, 1)
    environments = [launch.environment_of(local_rank) for local_rank in (0, 1)]
    assert [(env["RANK"], env["LOCAL_RANK"]) for env in environments] == [("2", "0"), ("3", "1")]
    assert [process.stdout for process in launch.processes] == ["0.out", "1.out"]


@pytest.mark.parametrize(
    ("ready_timeout", "expected"), [(None, 570.0), ("60s", 54.0), ("1h", 3570.0)]
)
def test_services_time_out_before_the_ready_timeout_of_the_node(
    plan_of: PlanOf, ready_timeout: str | None, expected: float
) -> None:
    group = {"name": "g", **({"ready_timeout": ready_timeout} if ready_timeout else {})}
    assert message(plan_of(node_groups=[group])).services_timeout == expected


@pytest.mark.parametrize(("hang_timeout", "expected"), [(None, None), ("90s", 90.0)])
def test_the_launch_message_has_the_hang_timeout_and_the_grace_period(
    plan_of: PlanOf, hang_timeout: str | None, expected: float | None
) -> None:
    group = {"name": "g", **({"hang_timeout": hang_timeout} if hang_timeout else {})}
    plan = plan_of(node_groups=[group], grace_period="7s")
    launch = message(plan)
    assert launch.hang_timeout == expected
    assert launch.grace_period == 7.0
    assert launch.probe is None
