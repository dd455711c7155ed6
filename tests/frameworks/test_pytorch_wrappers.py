"""Accelerate, Lightning and DeepSpeed: what each adds to PyTorch's environment, and real training
with the result of a single process."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role, Setup
from muster.frameworks.registry import get_framework, read_options
from support.runs import output, start

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NAMES = ["accelerate", "lightning", "deepspeed"]


def setup_of(name: str, processes: int = 1, **options: Any) -> Setup:
    framework = get_framework(name)
    roles = (Role("main", 0, 1, {}), Role("workers", 1, 2, {}))
    return framework.setup(Cluster(roles, processes, read_options(framework, options)))


def rank_env(setup: Setup, **env: str) -> dict[str, str]:
    """Variables of a rank of the first node; the shell of its launcher runs with `env`."""
    launcher = setup.roles["main"].launcher
    words = [*launcher[launcher.index("/bin/sh") :], "env"] if launcher else ["env"]
    out = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


@pytest.mark.parametrize("name", NAMES)
def test_each_extends_the_setup_of_pytorch(name: str) -> None:
    assert setup_of("pytorch").env.items() <= setup_of(name).env.items()
    assert setup_of(name).ports == setup_of("pytorch").ports
    elastic, plain = setup_of(name, elastic=True), setup_of("pytorch", elastic=True)
    for role in ("main", "workers"):
        words = plain.roles[role].launcher
        assert elastic.roles[role].launcher[: len(words)] == words
        assert elastic.roles[role].replaceable == plain.roles[role].replaceable
    with pytest.raises(InvalidInput, match=r"framework_options\.min_nodes: applies"):
        setup_of(name, min_nodes=1)


# --- Accelerate


def test_accelerate_has_the_variables_of_its_launcher() -> None:
    env = setup_of("accelerate", mixed_precision="bf16", gradient_accumulation_steps=4).env
    assert env["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert env["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "4"
    assert not any(name.startswith("ACCELERATE") for name in setup_of("accelerate").env)


@pytest.mark.skipif(
    bool(list(Path("/dev").glob("nvidia[0-9]*"))) or Path("/dev/kfd").exists(),
    reason="this machine has a GPU",
)
def test_accelerate_uses_cpus_without_a_gpu() -> None:
    setup = setup_of("accelerate")
    assert rank_env(setup)["ACCELERATE_USE_CPU"] == "true"
    assert rank_env(setup, ACCELERATE_USE_CPU="false")["ACCELERATE_USE_CPU"] == "false"


@pytest.mark.parametrize(("visible", "cpu"), [("", "true"), ("-1", "true")])
def test_accelerate_uses_cpus_if_no_gpu_is_visible(visible: str, cpu: str) -> None:
    env = rank_env(setup_of("accelerate"), CUDA_VISIBLE_DEVICES=visible)
    assert env["ACCELERATE_USE_CPU"] == cpu


@pytest.mark.parametrize(("cpu", "env"), [(True, "true"), (False, "false")])
def test_an_option_decides_whether_accelerate_uses_cpus(cpu: bool, env: str) -> None:
    setup = setup_of("accelerate", cpu=cpu)
    assert setup.env["ACCELERATE_USE_CPU"] == env
    assert setup.roles == {}


# --- Lightning


def test_lightning_has_the_numbers_of_nodes_and_devices() -> None:
    values = {"GROUP_WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"}
    env = rank_env(setup_of("lightning"), **values)
    assert (env["PL_TRAINER_NUM_NODES"], env["PL_TRAINER_DEVICES"]) == ("3", "2")
    assert (env["LT_NUM_NODES"], env["LT_DEVICES"]) == ("3", "2")
    assert rank_env(setup_of("lightning"), PL_TRAINER_DEVICES="1", **values)["LT_DEVICES"] == "2"


# --- DeepSpeed


def test_deepspeed_has_the_variables_of_its_launcher() -> None:
    values = {"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"}
    env = rank_env(setup_of("deepspeed", processes=2), **values)
    assert (env["CROSS_RANK"], env["CROSS_SIZE"], env["LOCAL_SIZE"]) == ("1", "3", "2")


# --- real training


def output_of(run: JobRun) -> list[str]:
    # DeepSpeed compiles an operator at its first start
    assert run.wait(900).state == "SUCCEEDED", run.details
    return output(run)


def needs(name: str) -> Any:
    why = f"{name} is not installed"
    return pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=why))


@pytest.mark.slow
@pytest.mark.parametrize("name", [needs(name) for name in NAMES])
def test_an_example_has_the_result_of_a_single_process(client: Client, name: str) -> None:
    losses = {}
    for nodes in (1, 2):
        run = start(client, EXAMPLES / name / "job.yaml", nodes=nodes, args=["--epochs", "3"])
        lines = output_of(run)
        for rank in range(nodes):
            assert f"process {rank} of {nodes}" in lines
        losses[nodes] = [float(m.split()[-1]) for m in lines if m.startswith("epoch ")]
        assert [m for m in lines if m.startswith("test accuracy 0.")]
    assert len(losses[1]) == 3
    assert losses[2] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed")
def test_lightning_elastic_has_the_number_of_joined_nodes(client: Client, tmp_path: Path) -> None:
    """Torchrun's variables tell the Trainer of two nodes with two processes each."""
    (tmp_path / "train.py").write_text((EXAMPLES / "lightning" / "train.py").read_text())
    (tmp_path / "job.yaml").write_text(
        "artifact: train.py\nframework: lightning\nframework_options: {elastic: true}\n"
        "nodes: 2\nprocesses_per_node: 2\nargs: [--epochs, 1]\n"
    )
    lines = output_of(start(client, tmp_path / "job.yaml"))
    # lines of two ranks on a node may be joined
    found = re.findall(r"process (\d) of 4", "\n".join(lines))
    assert sorted(found) == ["0", "1", "2", "3"]


DEEPSPEED_LAUNCHER = (
    "deepspeed --hostfile $MUSTER_HOSTFILE --no_ssh --node_rank $NODE_RANK "
    "--master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py --epochs 1"
)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_the_launcher_of_deepspeed_reads_the_host_file(client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text((EXAMPLES / "deepspeed" / "train.py").read_text())
    (tmp_path / "job.yaml").write_text(
        "artifact: train.py\nframework: deepspeed\nnodes: 2\n"
        f"command: [sh, -c, '{DEEPSPEED_LAUNCHER}']\n"
    )
    lines = output_of(start(client, tmp_path / "job.yaml"))
    assert {"process 0 of 2", "process 1 of 2"} <= set(lines)
