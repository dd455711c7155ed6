"""TensorFlow: TF_CONFIG for clusters of many shapes, and real training on nodes of this machine."""

from __future__ import annotations

import json
import random
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role
from muster.frameworks.registry import get_framework
from muster.plan.arrange import REPLACEABLE, Arranged, arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan
from muster.plan.template import Facts
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from support.faults import lose_node, until
from support.runs import output, start

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None or find_spec("sklearn") is None,
    reason="TensorFlow and scikit-learn are not installed",
)

Shape = dict[str, int]


def cluster(shape: Shape, processes: int = 1, **env: str) -> Cluster:
    roles, rank = [], 0
    for name, size in shape.items():
        roles.append(Role(name, rank, size, env))
        rank += size
    return Cluster(tuple(roles), processes)


def arranged(data: dict[str, Any]) -> Arranged:
    spec = spec_from_mapping({"framework": "tensorflow", **data})
    return arrange(resolve(spec, overrides_from_mapping({})).spec)


def configs(data: dict[str, Any]) -> list[dict[str, Any]]:
    """TF_CONFIG of every node, as the local engine fills it in. Node N is at aN:pN."""
    spec = resolve(
        spec_from_mapping({"framework": "tensorflow", **data}), overrides_from_mapping({})
    )
    plan = build_plan(
        arrange(spec.spec),
        Identity("r1", "demo-1", "j1", "demo"),
        artifact=None,
        addresses=lambda network, nodes: [f"a{i}" for i in range(nodes)],
        source_kind=lambda source: "directory",
        shape_of=lambda name: ResourcePlan(),
    )
    ports = {f"server.{node.rank}": f"p{node.rank}" for node in plan.nodes}
    return [
        json.loads(
            Facts(plan, node, 0, 0, ports).fill(plan.group(node.group).framework_env["TF_CONFIG"])
        )
        for node in plan.nodes
    ]


def groups(shape: Shape) -> dict[str, Any]:
    made = [{"name": name, "nodes": size} for name, size in shape.items()]
    return {"command": ["train"], "node_groups": made}


@pytest.mark.shows("distributed-jobs/framework-tensorflow")
@pytest.mark.parametrize(
    ("data", "members", "tasks"),
    [
        (
            {"command": ["train"], "nodes": 1},
            {"worker": ["a0:p0"]},
            ["worker 0"],
        ),
        (
            {"command": ["train"], "nodes": 3},
            {"worker": ["a0:p0", "a1:p1", "a2:p2"]},
            ["worker 0", "worker 1", "worker 2"],
        ),
        (
            groups({"chief": 1, "worker": 2}),
            {"chief": ["a0:p0"], "worker": ["a1:p1", "a2:p2"]},
            ["chief 0", "worker 0", "worker 1"],
        ),
        (
            groups({"main": 1}),
            {"chief": ["a0:p0"]},
            ["chief 0"],
        ),
        (
            groups({"workers": 1, "evaluator": 1}),
            {"worker": ["a0:p0"]},
            ["worker 0", "evaluator 0"],
        ),
        (
            groups({"chief": 1, "ps": 2, "workers": 2, "evaluator": 1}),
            {"chief": ["a0:p0"], "ps": ["a1:p1", "a2:p2"], "worker": ["a3:p3", "a4:p4"]},
            ["chief 0", "ps 0", "ps 1", "worker 0", "worker 1", "evaluator 0"],
        ),
        (
            groups({"evaluators": 1, "workers": 1, "parameter-servers": 1, "main": 1}),
            {"worker": ["a1:p1"], "ps": ["a2:p2"], "chief": ["a3:p3"]},
            ["evaluator 0", "worker 0", "ps 0", "chief 0"],
        ),
        (
            {
                "command": ["train"],
                "node_groups": [
                    {"name": "chief", "nodes": 1},
                    {"name": "worker", "replicas": 2, "nodes": 2},
                ],
            },
            {"chief": ["a0:p0"], "worker": ["a1:p1", "a2:p2", "a3:p3", "a4:p4"]},
            ["chief 0", "worker 0", "worker 1", "worker 2", "worker 3"],
        ),
    ],
)
def test_every_node_has_the_cluster_and_its_task(
    data: dict[str, Any], members: dict[str, list[str]], tasks: list[str]
) -> None:
    found = configs(data)
    assert all(config["cluster"] == members for config in found)
    assert [f"{c['task']['type']} {c['task']['index']}" for c in found] == tasks


@pytest.mark.parametrize(
    ("shape", "deciding", "replaceable"),
    [
        ({"workers": 3}, {"workers"}, set()),
        ({"chief": 1, "workers": 2}, {"chief", "workers"}, set()),
        ({"workers": 2, "evaluator": 1}, {"workers", "evaluator"}, {"evaluator"}),
        ({"chief": 1, "ps": 1, "workers": 2}, {"chief"}, {"chief", "workers"}),
        (
            {"chief": 1, "ps": 1, "workers": 2, "evaluator": 1},
            {"chief", "evaluator"},
            {"chief", "workers", "evaluator"},
        ),
    ],
)
def test_roles_that_decide_and_that_can_be_replaced(
    shape: Shape, deciding: set[str], replaceable: set[str]
) -> None:
    setup = get_framework("tensorflow").setup(cluster(shape))
    assert {name for name, role in setup.roles.items() if role.decides} == deciding
    assert {name for name, role in setup.roles.items() if role.replaceable} == replaceable
    assert all(role.program for role in setup.roles.values())
    assert ("GRPC_FAIL_FAST" in setup.defaults) == ("ps" in shape)

    spec = arranged({**groups(shape), "failure": {"max_restarts": 2}}).spec
    assert set(spec.success.groups or shape) == deciding
    rules = {rule.name: set(rule.groups) for rule in spec.failure.rules}
    assert rules == ({REPLACEABLE: replaceable} if replaceable else {})


@pytest.mark.parametrize(
    ("shape", "processes", "problems"),
    [
        ({"workers": 2}, 2, {"processes_per_node": "one process on a node, not 2"}),
        (
            {"trainers": 2, "ps": 1},
            1,
            {"node_groups[trainers].name": "'trainers' is not the name of a task"},
        ),
        (
            {"leaders": 1, "helpers": 1},
            1,
            {
                "node_groups[leaders].name": "not the name of a task",
                "node_groups[helpers].name": "not the name of a task",
            },
        ),
        ({"worker": 1, "workers": 1}, 1, {"node_groups[workers].name": "group worker already has"}),
        ({"chief": 2, "workers": 1}, 1, {"node_groups[chief].nodes": "one chief, not 2"}),
        ({"ps": 1, "workers": 1}, 1, {"node_groups": "need a chief"}),
        ({"chief": 1, "ps": 1}, 1, {"node_groups": "need workers"}),
        ({"evaluator": 1}, 1, {"node_groups": "needs workers"}),
    ],
)
def test_invalid_clusters_are_refused(
    shape: Shape, processes: int, problems: dict[str, str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        get_framework("tensorflow").setup(cluster(shape, processes))
    found = {problem.path: problem.message for problem in refused.value.problems}
    assert set(found) == set(problems)
    assert all(text in found[path] for path, text in problems.items())


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="chief or main, worker or workers, ps or parameter-"):
        get_framework("tensorflow").setup(cluster({"trainers": 2}))


def test_each_node_listens_on_one_port() -> None:
    (port,) = get_framework("tensorflow").setup(cluster({"workers": 2})).ports
    assert (port.number, port.each, port.fixed) == (12345, True, False)
    (port,) = get_framework("tensorflow").setup(cluster({"workers": 2}, TF_PORT="2300")).ports
    assert (port.number, port.each, port.fixed) == (2300, True, True)
    assert port.can_be_kept(shared=False)
    assert not port.can_be_kept(shared=True), "its server listens on all addresses"
    (port,) = get_framework("tensorflow").setup(cluster({"workers": 2}, WORKER_PORT="2300")).ports
    assert (port.number, port.fixed, port.variable) == (2300, True, "env.WORKER_PORT")
    with pytest.raises(InvalidInput) as refused:
        get_framework("tensorflow").setup(cluster({"workers": 2, "ps": 1}, TF_PORT="0"))
    paths = [problem.path for problem in refused.value.problems]
    assert paths == ["node_groups", "node_groups[workers].env.TF_PORT"]


# --- real training


def copied(name: str, to: Path) -> Path:
    shutil.copytree(EXAMPLES / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    return to / name


def losses(messages: list[str]) -> list[float]:
    return [float(text.split()[-1]) for text in messages if re.match(r"step \d+: loss", text)]


def accuracy(messages: list[str]) -> float:
    (found,) = (float(text.split()[-1]) for text in messages if text.startswith("test accuracy"))
    return found


#: Trains endlessly in the first incarnation.
ENDLESS = """
import os, sys, train
if os.environ["MUSTER_RESTART"] == "0":
    sys.argv[1:] = ["--steps", "1000000000"]
train.main()
"""


def endless(folder: Path, restarts: int) -> None:
    (folder / "endless.py").write_text(ENDLESS)
    spec = folder / "job.yaml"
    text = spec.read_text().replace("artifact: train.py", "artifact: .\nentrypoint: endless.py")
    spec.write_text(re.sub(r"max_restarts: \d", f"max_restarts: {restarts}", text))


def first_checkpoint(run: JobRun) -> None:
    until(lambda: run.refresh().done or losses(output(run)), "a first checkpoint", 400)
    assert not run.done, run.details


@pytest.mark.shows("distributed-jobs/framework-tensorflow", "jobset/training")
@pytest.mark.slow
@needs_tensorflow
def test_mirrored_workers_train_one_model_with_any_number_of_nodes(
    client: Client, tmp_path: Path
) -> None:
    folder = copied("tensorflow", tmp_path)
    found = {}
    for nodes in (1, 2):
        run = start(client, folder / "job.yaml", nodes=nodes)
        assert run.wait(400).state == "SUCCEEDED", run.details
        messages = output(run)
        assert {text for text in messages if text.startswith("worker ")} == {
            f"worker {rank} of {nodes}" for rank in range(nodes)
        }
        assert accuracy(messages) > 0.88
        found[nodes] = losses(messages)
    assert len(found[1]) == 4
    assert found[1] == pytest.approx(found[2], rel=1e-3)


@needs_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_lost_mirrored_worker_restarts_or_fails_the_run(
    client: Client, tmp_path: Path, restarts: int
) -> None:
    lost = random.randrange(2)
    folder = copied("tensorflow", tmp_path)
    endless(folder, restarts)
    run = start(client, folder / "job.yaml")
    first_checkpoint(run)
    lose_node(run.id, lost)
    run.wait(400)
    if restarts:
        assert run.state == "SUCCEEDED", run.details
        assert [text for text in output(run) if text.startswith("resumes from step ")]
        assert accuracy(output(run)) > 0.88
    else:
        assert run.state == "FAILED"
        assert run.cause is not None
        assert run.cause["rank"] == lost


@needs_tensorflow
@pytest.mark.slow
def test_parameter_servers_serve_until_chief_and_evaluator_are_done(
    client: Client, tmp_path: Path
) -> None:
    run = start(client, copied("tensorflow-ps", tmp_path) / "job.yaml")
    assert run.wait(500).state == "SUCCEEDED", run.details
    messages = output(run)
    assert {text for text in messages if text.endswith(" serves")} == {
        "ps 0 serves",
        "worker 0 serves",
        "worker 1 serves",
    }
    assert accuracy(messages) > 0.88
    evaluated = [text for text in messages if re.match(r"step \d+: test accuracy", text)]
    assert evaluated[-1].startswith("step 400:")
    assert float(evaluated[-1].split()[-1]) == accuracy(messages)
    assert run.refresh().cause is None


@needs_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "restarted"),
    [
        pytest.param((0,), "node-0", id="chief"),
        pytest.param((1,), "the run", id="ps"),
        pytest.param((2, 3), "node-{}", id="worker"),
        pytest.param((4,), "node-4", id="evaluator"),
    ],
)
def test_the_task_of_a_lost_node_decides_what_is_restarted(
    client: Client, tmp_path: Path, ranks: tuple[int, ...], restarted: str
) -> None:
    lost = random.choice(ranks)
    run = start(client, copied("tensorflow-ps", tmp_path) / "job.yaml", args=["--steps", "3000"])
    first_checkpoint(run)
    lose_node(run.id, lost)
    assert run.wait(500).state == "SUCCEEDED", run.details
    assert accuracy(output(run)) > 0.88
    # TensorFlow's own errors on a busy machine (INTERNAL, "invalid UTF-8 data") are restarts, too
    restarts = [entry.data for entry in run.events() if entry.kind == "restart"]
    of_the_loss = [entry["what"] for entry in restarts if " was lost" in entry["why"]]
    assert of_the_loss == [restarted.format(lost)]


@needs_tensorflow
@pytest.mark.slow
def test_without_restarts_a_lost_worker_of_parameter_servers_fails_the_run(
    client: Client, tmp_path: Path
) -> None:
    folder = copied("tensorflow-ps", tmp_path)
    spec = folder / "job.yaml"
    spec.write_text(spec.read_text().replace("max_restarts: 3", "max_restarts: 0"))
    run = start(client, folder / "job.yaml", args=["--steps", "1000000000"])
    first_checkpoint(run)
    lose_node(run.id, 3)
    assert run.wait(500).state == "FAILED"
    assert run.cause is not None
    assert run.cause["rank"] == 3
