"""What a node's agent is told: environment, limits, probe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.engines.base import RunContext
from muster.engines.local.launch import NodePaths, launch_message, prepare_code
from muster.engines.local.outputs import NodeOutputs
from muster.plan.model import RunPlan
from muster.storage.home import Home

PlanOf = Callable[..., RunPlan]


def context(plan: RunPlan) -> RunContext:
    return RunContext(
        plan, Home(Path("/home")), {"PATH": "/usr/bin", "A": "mine"}, "/py/python", started=1000.5
    )


def message(plan: RunPlan, rank: int = 0, **changes: Any) -> dict[str, Any]:
    files = tuple((f"{p}.out", f"{p}.err") for p in range(plan.processes_of(rank)))
    paths = NodePaths(
        folder=Path("/n"),
        cluster_file=Path("/cluster.json"),
        work=Path("/n/work"),
        outputs=NodeOutputs(files, Path("/n"), "g-0"),
        tls=Path("/tls"),
        short=Path("/s"),
    )
    asked: dict[str, Any] = {
        "attempt": 0,
        "restart": 0,
        "ports": {"master": 4711, "main": 4712},
        "token": "secret",
        "gpus": (),
        "interface": None,
        "mounted": {},
        "extra": {},
        "contained": True,
        "cpus": 2,
        "memory": 8 << 30,
        **changes,
    }
    return launch_message(context(plan), plan.nodes[rank], paths, **asked)


def environment(plan: RunPlan, rank: int = 0, **changes: Any) -> dict[str, str]:
    env: dict[str, str] = message(plan, rank, **changes)["processes"][0]["env"]
    return env


def test_attempt_and_restart_are_told_apart(plan_of: PlanOf) -> None:
    env = environment(plan_of(), attempt=2, restart=5)
    assert (env["MUSTER_ATTEMPT"], env["MUSTER_RESTART"]) == ("2", "5")
    assert env["MUSTER_RUN_STARTED"] == "1000.500"


NODE_ENV = {
    "NODE": "${group}/${replica}/${index}=${rank}",
    "RUN": "${run.name} ${run.id} ${attempt}",
    "WHERE": "${hostname} ${address}",
    "SHELL_S": "${HOME} $HOME ${}",
}


def test_node_env(plan_of: PlanOf) -> None:
    groups = [{"name": "a"}, {"name": "b", "replicas": 2, "nodes": 2, "node_env": NODE_ENV}]
    plan = plan_of(node_groups=groups)
    env = environment(plan, 4, attempt=3)
    assert env["NODE"] == "b/1/1=4"
    assert env["RUN"] == "demo-1 r1 3"
    assert env["WHERE"] == "node-4 127.5.0.5"
    assert env["SHELL_S"] == "${HOME} $HOME ${}"
    assert "NODE" not in environment(plan, 0)


def test_what_beats_what(plan_of: PlanOf) -> None:
    """The submitter's, the job's, the node's, Muster's."""
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


def test_commands_are_literal(plan_of: PlanOf) -> None:
    plan = plan_of(command=["echo", "${rank}"], args=["${rank}"])
    assert prepare_code(context(plan), plan.groups[0], Path()) == ["echo", "${rank}", "${rank}"]


def test_node_args(plan_of: PlanOf) -> None:
    own = ["--job=${run.replica}", "--at=${attempt}", "$${rank}"]
    groups = [{"name": "a"}, {"name": "b", "replicas": 2, "node_args": own}]
    plan = plan_of(node_groups=groups)
    assert message(plan, 2, attempt=3)["node_args"] == ["--job=2", "--at=3", "${rank}"]
    assert message(plan, 0)["node_args"] == []


@pytest.mark.parametrize(
    ("said", "cwd"),
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
def test_working_dir(plan_of: PlanOf, said: str | None, cwd: str) -> None:
    """Without namespaces a mount is elsewhere."""
    plan = plan_of(node_groups=[{"name": "g", **({"working_dir": said} if said else {})}])
    mounted = {"/mnt/data": "/n/mnt/data", "/mnt/data/deep": "/n/mnt/deep"}
    assert message(plan, mounted=mounted)["cwd"] == cwd


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/mnt/data", "/n/mnt/data"),
        ("/mnt/data/deep/x", "/n/mnt/deep/x"),
        ("/mnt/database", "/mnt/database"),
        ("mnt/data", "mnt/data"),
        ("", ""),
    ],
)
def test_a_variable_that_says_where_a_mount_is(plan_of: PlanOf, said: str, told: str) -> None:
    plan = plan_of(node_groups=[{"name": "g", "env": {"WHERE": said}}])
    mounted = {"/mnt/data": "/n/mnt/data", "/mnt/data/deep": "/n/mnt/deep"}
    (process,) = message(plan, mounted=mounted)["processes"]
    assert process["env"]["WHERE"] == told
    (process,) = message(plan)["processes"]
    assert process["env"]["WHERE"] == said


def test_each_process_has_its_rank(plan_of: PlanOf) -> None:
    plan = plan_of(nodes=2, processes_per_node=2, framework="pytorch")
    processes = message(plan, 1)["processes"]
    assert [(p["env"]["RANK"], p["env"]["LOCAL_RANK"]) for p in processes] == [
        ("2", "0"),
        ("3", "1"),
    ]
    assert [p["stdout"] for p in processes] == ["0.out", "1.out"]


@pytest.mark.parametrize(("said", "told"), [(None, 570.0), ("60s", 54.0), ("1h", 3570.0)])
def test_nodes_tell_what_did_not_come_before_they_are_given_up(
    plan_of: PlanOf, said: str | None, told: float
) -> None:
    group = {"name": "g", **({"ready_timeout": said} if said else {})}
    assert message(plan_of(node_groups=[group]))["ready_timeout"] == told


@pytest.mark.parametrize(("said", "told"), [(None, None), ("90s", 90.0)])
def test_patience_with_silence(plan_of: PlanOf, said: str | None, told: float | None) -> None:
    group = {"name": "g", **({"hang_timeout": said} if said else {})}
    plan = plan_of(node_groups=[group], grace_period="7s")
    told_all = message(plan)
    assert told_all["hang_timeout"] == told
    assert told_all["grace_period"] == 7.0
    assert told_all["probe"] is None
