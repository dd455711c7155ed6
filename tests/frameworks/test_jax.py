"""JAX: variables of its processes, and real training on nodes of this machine."""

from __future__ import annotations

import random
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role
from muster.frameworks.registry import get_framework
from support.faults import lose_node, until
from support.runs import output, start

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "jax"

needs_jax = pytest.mark.skipif(
    find_spec("jax") is None or find_spec("sklearn") is None,
    reason="JAX and scikit-learn are not installed",
)


def cluster(nodes: int, processes: int = 1, **env: str) -> Cluster:
    return Cluster((Role("workers", 0, nodes, env),), processes)


def test_variables_of_processes_and_of_the_coordinator() -> None:
    setup = get_framework("jax").setup(cluster(3, 2))
    values = {name: value for name, value in setup.env.items() if name.startswith("JAX_")}
    assert values == {
        "JAX_COORDINATOR_ADDRESS": "${roster.0.address}:${port.coordinator}",
        "JAX_COORDINATOR_PORT": "${port.coordinator}",
        "JAX_NUM_PROCESSES": "6",
        "JAX_PROCESS_ID": "${process.rank}",
    }
    assert setup.env["OMPI_COMM_WORLD_SIZE"] == "6"
    assert setup.env["OMPI_COMM_WORLD_LOCAL_SIZE"] == "2"
    assert not {"JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"} & {*setup.env, *setup.defaults}
    (port,) = setup.ports
    assert (port.number, port.fixed, port.each) == (1234, False, False)
    assert not any(role.replaceable for role in setup.roles.values())


def test_a_variable_sets_the_port() -> None:
    (port,) = get_framework("jax").setup(cluster(2, JAX_COORDINATOR_PORT="7000")).ports
    assert (port.number, port.fixed) == (7000, True)
    with pytest.raises(InvalidInput, match=r"node_groups\[workers\].env.JAX_COORDINATOR_PORT"):
        get_framework("jax").setup(cluster(2, JAX_COORDINATOR_PORT="http"))


@pytest.fixture
def example(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "jax", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "jax"


def losses(messages: list[str]) -> list[float]:
    return [float(text.split()[-1]) for text in messages if re.match(r"step \d+: loss", text)]


@pytest.mark.shows("jobset/training")
@needs_jax
@pytest.mark.slow
def test_the_example_trains_one_model_with_any_number_of_processes(
    client: Client, example: Path
) -> None:
    spec = example / "job.yaml"
    found = {}
    for nodes, each in ((1, 1), (2, 2)):
        spec.write_text((EXAMPLE / "job.yaml").read_text() + f"processes_per_node: {each}\n")
        run = start(client, spec, nodes=nodes)
        assert run.wait(240).state == "SUCCEEDED", run.details
        messages = output(run)
        total = nodes * each
        assert {text for text in messages if text.startswith("process ")} == {
            f"process {rank} of {total}, 1 of {total} devices" for rank in range(total)
        }
        (accuracy,) = (float(t.split()[-1]) for t in messages if t.startswith("test accuracy"))
        assert accuracy > 0.88
        found[total] = losses(messages)
    assert len(found[1]) == 4
    assert found[1] == pytest.approx(found[4], rel=1e-4)


#: Trains endlessly in the first attempt.
ENDLESS = """
import os, sys, train
if os.environ["MUSTER_ATTEMPT"] == "0":
    sys.argv[1:] = ["--steps", "1000000000"]
train.main()
"""


def start_endless(client: Client, folder: Path, restarts: int) -> JobRun:
    """Start the example, which trains endlessly, and wait for its first checkpoint."""
    (folder / "endless.py").write_text(ENDLESS)
    spec = folder / "job.yaml"
    text = spec.read_text().replace("artifact: train.py", "artifact: .\nentrypoint: endless.py")
    spec.write_text(text.replace("max_restarts: 1", f"max_restarts: {restarts}"))
    run = start(client, spec)
    until(lambda: run.refresh().done or losses(output(run)), "a first checkpoint")
    return run


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_lost_node_restarts_or_fails_the_run(
    client: Client, example: Path, restarts: int
) -> None:
    lost = random.randrange(2)
    run = start_endless(client, example, restarts)
    lose_node(run.id, lost)
    run.wait(240)
    if restarts:
        assert run.state == "SUCCEEDED", run.details
        messages = output(run)
        assert [text for text in messages if text.startswith("resumes from step ")]
        assert [text for text in messages if text.startswith("test accuracy")]
    else:
        assert run.state == "FAILED"
        assert run.cause is not None
        assert run.cause["rank"] == lost
