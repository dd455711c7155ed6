"""Horovod: the setup of its nodes, and, in slow tests, the real Horovod in its own environment.

tests/frameworks/build_horovod.sh creates the environment: PyPI has no wheel of Horovod."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role
from muster.frameworks.horovod import HorovodOptions
from muster.frameworks.registry import get_framework, read_options
from support.faults import until

ROOT = Path(__file__).parent.parent.parent
HOROVOD = Path(os.environ.get("MUSTER_TEST_HOROVOD", ROOT / ".cache" / "horovod")) / "bin"

needs_horovod = pytest.mark.skipif(
    not (HOROVOD / "horovodrun").exists(),
    reason=f"no Horovod in {HOROVOD}: tests/frameworks/build_horovod.sh builds it in minutes",
)


def cluster(nodes: int, processes: int = 1, **options: Any) -> Cluster:
    roles = (Role("main", 0, 1, {}), Role("workers", 1, nodes - 1, {}))
    return Cluster(roles[: 1 if nodes == 1 else 2], processes, HorovodOptions(**options))


def test_variables_of_ranks() -> None:
    setup = get_framework("horovod").setup(cluster(3, 2))
    assert setup.env["HOROVOD_SIZE"] == "6"
    assert setup.env["HOROVOD_LOCAL_SIZE"] == "2"
    assert setup.env["HOROVOD_CROSS_SIZE"] == "3"
    assert setup.env["HOROVOD_RANK"] == "${process.rank}"
    assert setup.env["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "${port.rendezvous}"
    (store,) = setup.roles["main"].services
    assert "node-0:2,node-1:2,node-2:2" in store.command
    assert setup.roles["workers"].program
    assert not setup.roles["workers"].services


def test_elastic_runs_a_driver_on_the_main_node_and_relays_on_workers() -> None:
    setup = get_framework("horovod").setup(cluster(4, 2, elastic=True, min_nodes=2, max_nodes=3))
    words = " ".join(setup.roles["main"].launcher)
    assert "--slots 2 --min 4 --max 6 --start 6" in words
    workers = setup.roles["workers"]
    assert (workers.program, workers.decides, workers.replaceable) == (False, False, True)


def test_min_nodes_may_not_exceed_the_nodes() -> None:
    with pytest.raises(InvalidInput, match="3, but there are 2 nodes"):
        get_framework("horovod").setup(cluster(2, elastic=True, min_nodes=3))


def test_invalid_options_are_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_options(get_framework("horovod"), {"elastic": True, "min_nodes": 0, "max": 3})
    assert "framework_options.min_nodes" in str(refused.value)
    assert "framework_options.max" in str(refused.value)


# --- real training


class Run:
    """`muster run` in the environment that has Horovod."""

    def __init__(self, folder: Path, spec: str, *words: str) -> None:
        self.file = folder / "output"
        with self.file.open("w") as file:
            self.process = subprocess.Popen(
                [HOROVOD / "muster", "run", spec, *words],
                cwd=folder,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self.file.read_text()

    def wait(self) -> int:
        return self.process.wait(300)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "horovod", tmp_path / "horovod")
    return tmp_path / "horovod"


@pytest.fixture
def run(example: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def start(*words: str) -> Run:
        made.append(Run(example, *words))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            muster("runs", "cancel", "last")
            each.process.wait(120)


def muster(*words: str) -> str:
    ended = subprocess.run(
        [HOROVOD / "muster", *words], capture_output=True, text=True, check=False
    )
    return ended.stdout


def losses(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"epoch \d+: loss (\S+)", output)]


@pytest.mark.shows("cluster-design/mounted-file-system")
@pytest.mark.slow
@needs_horovod
def test_the_example_trains_one_model_with_any_number_of_ranks(run: Callable[..., Run]) -> None:
    found = []
    for nodes in (1, 3):
        trained = run("job.yaml", "--nodes", str(nodes))
        assert trained.wait() == 0, trained.output
        for rank in range(nodes):
            assert f"rank {rank} of {nodes} on node-{rank}" in trained.output
        (accuracy,) = re.findall(r"test accuracy: (\S+)", trained.output)
        assert float(accuracy) > 0.9
        found.append(losses(trained.output))
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.slow
@needs_horovod
def test_elastic_training_continues_without_a_killed_rank(
    run: Callable[..., Run], example: Path, alive: Callable[[str], list[str]]
) -> None:
    """The rank is restarted when its node may be used again."""
    spec = example / "elastic.yaml"
    text = spec.read_text().replace('"6"', '"100000"').replace("min_nodes: 1", "cooldown: 1")
    spec.write_text(text + f"env: {{MARK: {example}}}\n")
    training = run("elastic.yaml")
    until(lambda: "with 3 ranks" in training.output)
    assert "muster horovod" not in training.output
    ranks = [int(pid) for pid in alive(f"MARK={example}") if is_rank(int(pid))]
    assert len(ranks) == 3
    os.kill(ranks[-1], signal.SIGKILL)
    until(lambda: "with 2 ranks" in training.output)
    assert "ended with 137" in training.output
    until(lambda: "with 3 ranks" in training.output.rpartition("with 2 ranks")[2])
    (state,) = {entry["state"] for entry in json.loads(muster("runs", "list", "--json"))}
    assert state == "IN_PROGRESS"


@pytest.mark.slow
@needs_horovod
def test_a_killed_static_rank_fails_the_run(
    run: Callable[..., Run], example: Path, alive: Callable[[str], list[str]]
) -> None:
    spec = example / "job.yaml"
    spec.write_text(spec.read_text().replace('"6"', '"100000"') + f"env: {{MARK: {example}}}\n")
    training = run("job.yaml")
    until(lambda: "epoch 1" in training.output)
    ranks = [int(pid) for pid in alive(f"MARK={example}") if is_rank(int(pid))]
    os.kill(ranks[-1], signal.SIGKILL)
    assert training.wait() == 1
    assert alive(f"MARK={example}") == []


def is_rank(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[1:2] == [b"train.py"]
