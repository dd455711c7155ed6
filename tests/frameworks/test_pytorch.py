"""PyTorch, static and elastic: the setup, and real training on nodes of this machine."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role, Setup
from muster.frameworks.pytorch import PyTorchOptions
from muster.frameworks.registry import get_framework, read_options
from support.embedded import embedded
from support.faults import kill, lose_node, processes_of, until
from support.runs import start

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "pytorch-elastic"

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


def setup_of(name: str = "pytorch", processes: int = 1, env: Any = None, **options: Any) -> Setup:
    """The setup of a main node and two workers, to which two more may be added."""
    framework = get_framework(name)
    roles = (Role("main", 0, 1, env or {}), Role("workers", 1, 2, {}, most=4))
    return framework.setup(Cluster(roles, processes, read_options(framework, options)))


# --- static


@pytest.mark.shows("distributed-jobs/framework-pytorch")
def test_processes_have_the_variables_of_torchrun() -> None:
    setup = setup_of(processes=2)
    assert setup.env["WORLD_SIZE"] == "6"
    assert setup.env["MASTER_ADDR"] == "${roster.0.address}"
    assert setup.env["MASTER_PORT"] == "${port.master}"
    assert setup.env["GROUP_WORLD_SIZE"] == "3"
    assert setup.defaults == {"OMP_NUM_THREADS": "1"}
    (port,) = setup.ports
    assert (port.number, port.fixed) == (29400, False)
    assert setup.roles == {}
    assert not get_framework("pytorch").has_main(PyTorchOptions())


@pytest.mark.parametrize("options", [{}, {"elastic": True}])
def test_a_variable_sets_the_port(options: dict[str, Any]) -> None:
    (port,) = setup_of(env={"MASTER_PORT": "1234"}, **options).ports
    assert (port.number, port.fixed) == (1234, True)


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "-1"])
def test_invalid_ports_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"node_groups\[main\].env.MASTER_PORT"):
        setup_of(env={"MASTER_PORT": text})


# --- elastic


def words_after(launcher: tuple[str, ...], word: str) -> str:
    return launcher[launcher.index(word) + 1]


def test_elastic_training_runs_torchrun_on_every_node() -> None:
    options = {"elastic": True, "min_nodes": 2, "max_restarts": 0, "keep_alive_timeout": 30}
    setup = setup_of(processes=2, **options)
    main, workers = setup.roles["main"], setup.roles["workers"]
    for role in (main, workers):
        assert role.processes == 1
        assert role.decides
        assert role.own_outputs
        assert role.launcher[-1] == "--no-python"
        assert words_after(role.launcher, "--nnodes") == "2:5"
        assert words_after(role.launcher, "--nproc-per-node") == "2"
        assert words_after(role.launcher, "--max-restarts") == "0"
        conf = words_after(role.launcher, "--rdzv-conf")
        assert "keep_alive_interval=2,keep_alive_max_attempt=15" in conf
    assert "is_host=true" in words_after(main.launcher, "--rdzv-conf")
    assert "is_host=false" in words_after(workers.launcher, "--rdzv-conf")
    assert (main.replaceable, workers.replaceable) == (False, True)
    assert setup.env == {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    assert [(port.name, port.number) for port in setup.ports] == [("rendezvous", 29400)]


def test_elastic_training_waits_for_all_nodes_by_default() -> None:
    launcher = setup_of(elastic=True).roles["main"].launcher
    assert words_after(launcher, "--nnodes") == "3:5"
    assert words_after(launcher, "--max-restarts") == "3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_nodes": 2}, "framework_options.min_nodes: applies to elastic training only"),
        ({"max_restarts": 0}, "framework_options.max_restarts: applies to elastic"),
        (
            {"elastic": True, "min_nodes": 4},
            "framework_options.min_nodes: min_nodes is 4, but there",
        ),
        ({"elastic": True, "keep_alive_timeout": 1}, "framework_options.keep_alive_timeout"),
        ({"elastc": True}, 'framework_options.elastc: unknown field (did you mean "elastic"?)'),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        setup_of(**options)
    assert message in str(refused.value)


# --- real training


def output(run: JobRun) -> list[str]:
    """Lines of all attempts."""
    return [record.message for record in run.logs(attempt="all", streams=["stdout", "stderr"])]


def losses(run: JobRun) -> dict[int, float]:
    """Epoch -> the last loss that was printed."""
    words = [m.split() for m in output(run) if m.startswith("epoch ")]
    return {int(word[1].rstrip(":")): float(word[-1]) for word in words}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of the example in a single process, without Muster."""
    import os
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("alone")
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
    env = dict(zip(names, ("127.0.0.1", "0", "0", "1", "0"), strict=True))
    env["OMP_NUM_THREADS"] = "1"  # as on a node: threads that wait for each other take longer
    argv = [sys.executable, str(EXAMPLE / "train.py"), "--epochs", "4"]
    out = subprocess.run(
        argv, env={**os.environ, **env}, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    lines = [line.split() for line in out.splitlines() if line.startswith("epoch ")]
    return {int(words[1].rstrip(":")): float(words[-1]) for words in lines}


def start_example(client: Client, folder: Path, more: str = "", elastic: bool = True) -> JobRun:
    """Start the example on two nodes, for four epochs, and wait for its first checkpoint."""
    shutil.copyfile(EXAMPLE / "train.py", folder / "train.py")
    options = "{elastic: true, max_restarts: 2}" if elastic else "{}"
    (folder / "job.yaml").write_text(
        f"artifact: train.py\nframework: pytorch\nframework_options: {options}\nnodes: 2\n"
        "args: [--epochs, 4, --pause, 0.05]\nmounts: [{source: 'scratch:run/checkpoints'}]\n"
        "failure: {max_restarts: 2}\n" + more
    )
    run = start(client, folder / "job.yaml")
    until(lambda: run.refresh().done or losses(run), "the first checkpoint")
    assert not run.done, run.details
    return run


def restarts(client: Client, run: JobRun) -> list[str]:
    return [e.data["what"] for e in embedded(client).events(run.id) if e.kind == "restart"]


def resumed(run: JobRun) -> bool:
    return any(message.startswith("resumes from epoch-") for message in output(run))


def assert_completed(run: JobRun, alone: dict[int, float]) -> None:
    """The run succeeds from a checkpoint, on both nodes and with the same result."""
    assert run.wait(600).state == "SUCCEEDED", run.details
    messages = output(run)
    assert resumed(run)
    sizes = {message.split(" on ")[0] for message in messages if message.startswith("rank ")}
    assert sizes == {"rank 0 of 2", "rank 1 of 2"}
    assert losses(run) == pytest.approx(alone, rel=1e-3)
    assert [m for m in messages if m.startswith("test accuracy 0.9")]


@needs_torch
@pytest.mark.slow
def test_elastic_a_lost_node_is_replaced_and_the_other_continues(
    client: Client, tmp_path: Path, alone: dict[int, float]
) -> None:
    run = start_example(client, tmp_path)
    (survivor,) = torchruns(run, 0)
    lose_node(run.id, 1)
    until(lambda: run.refresh().done or resumed(run), "a resumed training")
    assert torchruns(run, 0) == [survivor]
    assert_completed(run, alone)
    assert restarts(client, run) == ["node-1"]


def torchruns(run: JobRun, rank: int) -> list[int]:
    return [pid for pid, words in processes_of(run.id, rank).items() if "node.torchrun" in words]


@needs_torch
@pytest.mark.slow
def test_elastic_torchrun_restarts_a_killed_rank(
    client: Client, tmp_path: Path, alone: dict[int, float]
) -> None:
    run = start_example(client, tmp_path)
    (agent,) = torchruns(run, 1)
    for pid in processes_of(run.id, 1):
        if pid != agent:
            kill(pid)
    assert_completed(run, alone)
    assert restarts(client, run) == []


@needs_torch
@pytest.mark.slow
def test_elastic_a_lost_main_node_restarts_the_run(
    client: Client, tmp_path: Path, alone: dict[int, float]
) -> None:
    run = start_example(client, tmp_path)
    lose_node(run.id, 0)
    assert_completed(run, alone)
    assert restarts(client, run) == ["the run"]


@needs_torch
def test_static_ranks_restart_in_place_from_a_distributed_checkpoint(
    client: Client, tmp_path: Path, alone: dict[int, float]
) -> None:
    run = start_example(client, tmp_path, elastic=False)
    for pid in processes_of(run.id, 1):
        kill(pid)
    assert_completed(run, alone)
    assert restarts(client, run) == ["the run"]


FAILS = """
import os, sys
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    if os.environ["NODE_RANK"] == "1":
        {how}
    dist.barrier()

main()
os._exit(0)
"""


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "why"),
    [
        ('raise ValueError("bad luck")', 1, "bad luck"),
        ("sys.exit(3)", 3, "rank 1 failed with exit code 3, and no restart is left"),
        ("os.kill(os.getpid(), 9)", 1, "rank 1 failed with SIGKILL, and no restart is left"),
    ],
)
def test_elastic_the_failed_program_is_the_cause(
    client: Client, tmp_path: Path, how: str, code: int, why: str
) -> None:
    (tmp_path / "fails.py").write_text(FAILS.format(how=how))
    (tmp_path / "job.yaml").write_text(
        "artifact: fails.py\nframework: pytorch\nnodes: 2\n"
        "framework_options: {elastic: true, max_restarts: 0}\nfailure: {max_restarts: 1}\n"
    )
    run = start(client, tmp_path / "job.yaml")
    assert run.wait(600).state == "FAILED"
    assert f"(group workers, rank 1) failed with exit code {code}" in run.details
    assert why in run.details
    assert restarts(client, run) == ["the run"]


RANKS = """
import os, sys
import torch.distributed as dist

dist.init_process_group("gloo")
print("rank", dist.get_rank(), flush=True)
print("local", os.environ["LOCAL_RANK"], file=sys.stderr, flush=True)
dist.barrier()
if os.environ["NODE_RANK"] == os.environ["LOCAL_RANK"] == "1":
    raise ValueError("bad luck in restart " + os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.barrier()
"""


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("framework", ["pytorch", "lightning"])
def test_elastic_ranks_of_a_node_are_distinct(
    client: Client, tmp_path: Path, framework: str
) -> None:
    """In the logs, also after a restart, and in the cause of the failure."""
    (tmp_path / "ranks.py").write_text(RANKS)
    (tmp_path / "job.yaml").write_text(
        f"artifact: ranks.py\nframework: {framework}\nnodes: 2\nprocesses_per_node: 2\n"
        "framework_options: {elastic: true, max_restarts: 1}\n"
    )
    run = start(client, tmp_path / "job.yaml")
    assert run.wait(600).state == "FAILED", run.details
    records = list(run.logs(streams=["stdout", "stderr"]))

    def of(node: int, local_rank: int | None, stream: str) -> list[str]:
        own = [r for r in records if (r.rank, r.local_rank, r.stream) == (node, local_rank, stream)]
        return [record.message for record in own]

    for node, local_rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
        # after a restart torchrun may assign other global ranks, but the same local ranks
        ranks = {int(text.removeprefix("rank ")) for text in of(node, local_rank, "stdout")}
        assert ranks <= {local_rank, 2 + local_rank}
        errors = of(node, local_rank, "stderr")
        assert [text for text in errors if text.startswith("local ")] == [f"local {local_rank}"] * 2
    raised = [text for text in of(1, 1, "stderr") if "ValueError: bad luck" in text]
    assert [text[-9:] for text in raised] == ["restart 0", "restart 1"]
    assert any("failed (exitcode: 1) local_rank: 1" in text for text in of(1, None, "stderr"))

    last = of(1, 1, "stdout")[-1]
    head, why, *words = run.details.splitlines()
    # 143 if the other node was reported first, and torchrun was stopped while it ended
    assert head.startswith("node-1 (group workers, rank 1) failed with exit code 1")
    assert why == f"{last} failed with exit code 1, and no restart is left:"
    assert words[0].endswith("Traceback (most recent call last):")
    assert words[-1].endswith("ValueError: bad luck in restart 1")


SAVES = """
import os, signal
import torch.distributed as dist
dist.init_process_group("gloo")
def write(what):  # safe in a signal handler
    os.write(1, f"{what} {dist.get_rank()}\\n".encode())
signal.signal(signal.SIGUSR1, lambda *_: (write("saved"), os._exit(0)))
write("up")
while True:
    signal.pause()
"""


@needs_torch
@pytest.mark.slow
def test_elastic_a_checkpoint_signal_reaches_every_rank(client: Client, tmp_path: Path) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    (tmp_path / "job.yaml").write_text(
        "artifact: saves.py\nframework: pytorch\nframework_options: {elastic: true}\nnodes: 2\n"
        "processes_per_node: 2\ncheckpoint: {signal: SIGUSR1, grace: 60s}\n"
    )
    run = start(client, tmp_path / "job.yaml")
    until(lambda: run.refresh().done or len(started_ranks(run)) == 4, "every rank")
    run.suspend()
    assert run.wait(600).state == "SUSPENDED", run.details
    assert sorted(m for m in output(run) if m.startswith("saved")) == [
        f"saved {r}" for r in range(4)
    ]


def started_ranks(run: JobRun) -> list[str]:
    return [message for message in output(run) if message.startswith("up ")]
