"""Spark: what each node runs, and real clusters on this machine."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.errors import InvalidInput
from muster.frameworks.base import Answers, Cluster, Joined, Port, Role, Setup
from muster.frameworks.registry import get_framework, read_options
from support.faults import lose_node, until
from support.runs import start

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "spark"

needs_spark = pytest.mark.skipif(
    find_spec("pyspark") is None or shutil.which("java") is None or find_spec("sklearn") is None,
    reason="PySpark, Java and scikit-learn are not installed",
)

MAIN = "${roster.0.address}"


def setup(nodes: int = 3, **options: Any) -> Setup:
    roles = (Role("main", 0, 1, {}), Role("workers", 1, nodes - 1, {}))
    framework = get_framework("spark")
    cluster = Cluster(roles[: 1 if nodes == 1 else 2], 1, read_options(framework, options))
    return framework.setup(cluster)


def words(made: Setup, role: str, number: int) -> str:
    return " ".join(made.roles[role].services[number].command)


def test_the_main_node_runs_master_and_worker_and_other_nodes_workers() -> None:
    made = setup()
    main, workers = made.roles["main"], made.roles["workers"]
    assert [service.name for service in main.services] == ["master", "worker"]
    assert [service.name for service in workers.services] == ["worker"]
    assert f"deploy.master.Master --host {MAIN} --port ${{port.master}}" in words(made, "main", 0)
    worker = words(made, "workers", 0)
    assert "deploy.worker.Worker --host ${node.address} --webui-port ${port.worker-ui}" in worker
    assert "--cores ${cpus} --work-dir ${tmp}/spark" in worker
    assert worker.endswith(f" spark://{MAIN}:${{port.master}}")
    assert workers.services[0].after == Answers(MAIN, "${port.master}")
    assert made.env["MASTER"] == f"spark://{MAIN}:${{port.master}}"
    assert made.env["SPARK_LOCAL_IP"] == "${node.address}"
    assert (main.program, workers.program, workers.decides) == (True, False, False)
    assert workers.replaceable
    assert Port("worker-ui", 8081, each=True) in made.ports


@pytest.mark.parametrize(("on_main", "ranks"), [(True, [0, 1, 2]), (False, [1, 2])])
def test_the_program_waits_for_every_worker(on_main: bool, ranks: list[int]) -> None:
    gather = setup(3, worker_on_main=on_main).roles["main"].gather
    assert isinstance(gather, Joined)
    assert gather.expected == tuple((rank, f"${{roster.{rank}.address}}") for rank in ranks)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"executor_memory": "512MiB"}, ["--executor-memory", "512m"]),
        ({"memory": "2GiB"}, ["--executor-memory", "2048m"]),
        ({"driver_memory": "3GiB"}, ["--driver-memory", "3072m"]),
        ({"conf": {"spark.app.note": "two words"}}, ["--conf", "spark.app.note=two words"]),
        (
            {"conf": {"spark.scheduler.minRegisteredResourcesRatio": 0.5}},
            ["--conf", "spark.scheduler.minRegisteredResourcesRatio=0.5"],
        ),
    ],
)
def test_options_of_the_programs_jvm(options: dict[str, Any], expected: list[str]) -> None:
    args = shlex.split(setup(2, **options).defaults["PYSPARK_SUBMIT_ARGS"])
    assert args[-1] == "pyspark-shell"
    assert any(args[at : at + 2] == expected for at in range(len(args)))
    assert args.count("--conf") == len(
        {*options.get("conf", {}), "spark.scheduler.minRegisteredResourcesRatio"}
    )


def test_options_of_master_and_workers() -> None:
    made = setup(2, cores=3, memory="2GiB", worker_args="--properties-file x", port=7000)
    assert "--cores 3 " in words(made, "workers", 0)
    assert "--memory 2048m --properties-file x spark://" in words(made, "workers", 0)
    assert made.ports[0] == Port("master", 7000, fixed=True, variable="framework_options.port")


@pytest.mark.parametrize(
    ("nodes", "options", "path"),
    [
        (2, {"memory": "1GiB", "executor_memory": "2GiB"}, "executor_memory"),
        (1, {"worker_on_main": False}, "worker_on_main"),
        (2, {"cores": 0}, "cores"),
    ],
)
def test_invalid_options_are_refused(nodes: int, options: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput, match=f"framework_options.{path}"):
        setup(nodes, **options)


# --- real clusters


def test_a_missing_java_is_reported(client: Client, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        f"command: 'true'\nframework: spark\nnodes: 2\nenv: {{JAVA_HOME: {tmp_path}}}\n"
    )
    run = start(client, tmp_path / "job.yaml")
    assert run.wait(240).state == "FAILED"
    assert f"no Java in JAVA_HOME, {tmp_path}: install a Java 17 runtime" in run.details


@pytest.mark.slow
@needs_spark
def test_the_example_trains_one_model_with_any_number_of_nodes(client: Client) -> None:
    losses = {}
    for nodes in (1, 2):
        run = start(client, EXAMPLE / "job.yaml", nodes=nodes)
        assert run.wait(600).state == "SUCCEEDED", run.details
        messages = [record.message for record in run.logs(ranks=[0])]
        assert f"12 parts on {nodes} nodes" in messages
        losses[nodes] = [float(t.split()[-1]) for t in messages if re.match(r"step \d+: loss", t)]
        (accuracy,) = (float(t.split()[-1]) for t in messages if t.startswith("test accuracy"))
        assert accuracy > 0.85
    assert len(losses[1]) > 2
    assert losses[1] == pytest.approx(losses[2], abs=1e-5)


PROGRAM = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

def hosts():
    def slow(_):
        time.sleep(0.2)
        return [os.environ["SPARK_LOCAL_IP"]]
    return spark.sparkContext.parallelize(range(8), 8).mapPartitions(slow).distinct().count()

print(f"{hosts()} nodes before")
Path(os.environ["MARK"]).touch()
lost = Path(os.environ["MARK"] + "-lost")
while not lost.exists():
    time.sleep(0.1)
until = time.monotonic() + 300
while (found := hosts()) < 2:
    assert time.monotonic() < until
print(f"{found} nodes after")
"""


@pytest.mark.slow
@needs_spark
@pytest.mark.parametrize(
    ("rank", "restarts", "state"), [(1, 1, "SUCCEEDED"), (1, 0, "FAILED"), (0, 0, "FAILED")]
)
def test_a_lost_node_is_replaced_or_fails_the_run(
    client: Client, tmp_path: Path, rank: int, restarts: int, state: str
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "job.yaml").write_text(
        f"artifact: train.py\nframework: spark\nnodes: 2\nenv: {{MARK: {mark}}}\n"
        "framework_options: {cores: 1, executor_memory: 512MiB}\n"
        f"failure: {{max_restarts: {restarts}}}\n"
    )
    run = start(client, tmp_path / "job.yaml")
    until(lambda: mark.exists() or run.refresh().done, "the program", 600)
    assert not run.done, run.details
    lose_node(run.id, rank)
    (tmp_path / "mark-lost").touch()
    assert run.wait(600).state == state, run.details
    messages = [record.message for record in run.logs(ranks=[0])]
    assert messages.count("2 nodes before") == 1, "the program was not restarted"
    if state == "SUCCEEDED":
        assert "2 nodes after" in messages
    else:
        assert f"node-{rank}" in run.details
