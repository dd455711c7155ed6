"""CPUs, memory and GPUs of this machine, and the shares and limits of nodes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local import resources
from muster.engines.local.resources import (
    Demand,
    GpuPool,
    Limits,
    Machine,
    demand_of,
    describe_limits,
    limits_of,
    may_reserve,
    memory_limit,
    share_of_cpus,
    share_of_gpus,
    share_of_memory,
    uses_gpus,
)
from muster.errors import EngineError
from muster.plan.model import ResourcePlan, RunPlan
from support.sessions import make_plan

PlanOf = Callable[..., RunPlan]

GIB = 1 << 30
SMALL = ResourcePlan(cpus=1, memory=GIB, shape="small")
LARGE = ResourcePlan(cpus=128, memory=64 * GIB, gpus=8, shape="BM.GPU4.8")


# --- the machine


def tree(root: Path, own: str, *folders: str) -> tuple[Path, Path]:
    for folder in folders:
        (root / folder).mkdir(parents=True)
    (root / "own").write_text(own)
    return root, root / "own"


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "memory_limit", lambda: 12 << 20)


def test_the_limit_of_a_control_group_is_the_machine_s_memory() -> None:
    assert resources.count_memory() == 12 << 20
    assert resources.this_machine().memory == 12 << 20


def test_a_limit_above_the_machine_s_memory_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "memory_limit", lambda: 1 << 62)
    assert resources.count_memory() < 1 << 60


def test_gpus_are_found_by_their_device_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert resources.gpu_numbers(tmp_path) == [0, 1, 10]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,10")
    assert resources.gpu_numbers(tmp_path) == [1, 10]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert resources.gpu_numbers(tmp_path) == []


@pytest.mark.parametrize(
    ("own", "limits", "found"),
    [
        ("0::/a/b\n", {"a/memory.max": "4096\n", "a/b/memory.max": "max\n"}, 4096),
        ("0::/a/b\n", {"a/memory.max": "4096", "a/b/memory.max": "1024"}, 1024),
        ("0::/\n", {"memory.max": "2048"}, 2048),
        ("0::/\n", {}, None),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "512"}, 512),
        ("4:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "512"}, None),
    ],
)
def test_the_lowest_limit_of_the_control_groups_counts(
    tmp_path: Path, own: str, limits: dict[str, str], found: int | None
) -> None:
    root, place = tree(tmp_path, own)
    for file, text in limits.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    assert memory_limit(root, place) == found


def test_no_limit_without_control_groups(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path / "nothing") is None


# --- demands, shares and limits of nodes


def plan(resources: ResourcePlan, nodes: int = 1) -> RunPlan:
    return make_plan("x", nodes, resources=resources)


@pytest.mark.parametrize(
    ("resources", "demand", "reserves", "gpus"),
    [
        (ResourcePlan(), Demand(None, None, 0), False, False),
        (ResourcePlan(cpus=2), Demand(2, None, 0), True, False),
        (ResourcePlan(memory=GIB, gpus=1), Demand(None, GIB, 1), True, True),
        (SMALL, Demand(None, None, 0), False, False),
        (LARGE, Demand(None, None, 0), True, True),
        (
            ResourcePlan(cpus=2, memory=GIB, shape="own", exact=("cpus",)),
            Demand(2, None, 0),
            True,
            False,
        ),
    ],
)
def test_what_a_shape_has_is_not_demanded_and_its_gpus_are_reserved(
    resources: ResourcePlan, demand: Demand, reserves: bool, gpus: bool
) -> None:
    assert demand_of(resources) == demand
    assert may_reserve(plan(resources)) is reserves
    assert uses_gpus(plan(resources)) is gpus


@pytest.mark.parametrize(
    ("resources", "cpus", "memory"),
    [
        (ResourcePlan(), None, None),
        (SMALL, 1, GIB),
        (LARGE, None, None),
        (ResourcePlan(cpus=8, memory=GIB, shape="mixed"), None, GIB),
        (ResourcePlan(cpus=2, memory=8 * GIB, shape="alike"), None, None),
        (ResourcePlan(cpus=2, memory=8 * GIB), 2, 8 * GIB),
        (ResourcePlan(cpus=2, memory=64 * GIB, shape="own", exact=("cpus",)), 2, None),
    ],
)
@pytest.mark.shows("jobs/job-shape")
def test_explicit_resources_and_smaller_shapes_limit_nodes(
    resources: ResourcePlan, cpus: int | None, memory: int | None
) -> None:
    """Explicit resources are limits; those of a shape only if the machine has more."""
    machine = Machine(2, 8 * GIB, 0)
    assert limits_of(resources, machine) == Limits(cpus, memory)
    one = plan(resources, 4)
    assert share_of_cpus(one, one.groups[0], machine) == (1 if cpus is None else cpus)
    assert share_of_memory(one, one.groups[0], machine) == (memory or 2 * GIB)


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (ResourcePlan(), ""),
        (ResourcePlan(shape="local"), "shape local: each node has what this machine has"),
        (SMALL, "shape small: each node has 1 CPU, 1GiB of memory"),
        (LARGE, "shape BM.GPU4.8: each node has 4 GPUs at most"),
        (ResourcePlan(cpus=0.5, gpus=1), "each node has 0.5 CPUs, 1 GPU"),
    ],
)
def test_limits_are_described_in_words(resources: ResourcePlan, text: str) -> None:
    assert describe_limits(resources, Machine(2, 8 * GIB, 4)) == text


@pytest.mark.parametrize(
    ("resources", "share"), [(None, 4 << 20), ({"memory": "7MiB"}, 7 << 20), ({"cpus": 1}, 4 << 20)]
)
def test_nodes_share_memory_equally_unless_the_job_sets_it(
    plan_of: PlanOf, resources: dict[str, object] | None, share: int
) -> None:
    plan = plan_of(nodes=3, **({"resources": resources} if resources else {}))
    assert share_of_memory(plan, plan.groups[0], Machine(2, 12 << 20, 0)) == share


# --- GPUs


@pytest.mark.parametrize(
    ("available", "nodes", "shares"),
    [(8, 1, [8]), (16, 2, [8, 8]), (3, 2, [2, 1]), (1, 2, [1, 0]), (0, 2, [0, 0]), (9, 1, [8])],
)
def test_gpus_of_shapes_are_divided(available: int, nodes: int, shares: list[int]) -> None:
    one = make_plan("x", nodes, resources=ResourcePlan(gpus=8, shape="BM.GPU4.8"))
    assert [share_of_gpus(one, rank, available) for rank in range(nodes)] == shares
    exact = make_plan("x", nodes, resources=ResourcePlan(gpus=2))
    assert [share_of_gpus(exact, rank, available) for rank in range(nodes)] == [2] * nodes


@pytest.mark.shows("distributed-jobs/gpu-nodes")
def test_gpus_are_never_shared(tmp_path: Path) -> None:
    numbers = [0, 1, 2]
    pool = GpuPool(tmp_path, lambda: numbers)
    assert pool.acquire(2) == (0, 1)
    assert pool.acquire(1) == (2,)
    with pytest.raises(EngineError) as refused:
        pool.acquire(1)
    text = "needs 1 GPU, but only 0 of the run's 3 are free; its other nodes hold 3"
    assert str(refused.value) == text
    assert pool.locked([0, 1, 2, 3]) == (0, 1, 2)
    pool.release([1])
    assert pool.locked([0, 1, 2, 3]) == (0, 2)
    assert pool.acquire(1) == (1,)
    numbers.append(3)
    assert pool.acquire(1) == (3,), "the run was given one more"
    pool.release([0, 1, 2, 3])


def test_a_refusal_holds_no_gpu(tmp_path: Path) -> None:
    pool = GpuPool(tmp_path, lambda: [0, 1])
    with pytest.raises(EngineError) as refused:
        pool.acquire(3)
    assert str(refused.value) == "needs 3 GPUs, but only 2 of the run's 2 are free"
    assert pool.locked([0, 1]) == ()


def test_only_gpus_that_others_hold_are_blamed_on_earlier_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_flock", try_lock)
    other, pool = (GpuPool(tmp_path, lambda: [0, 1, 2]) for _ in range(2))
    assert other.acquire(1) == (0,)
    assert pool.acquire(1) == (1,)
    with pytest.raises(EngineError) as refused:
        pool.acquire(2)
    assert str(refused.value) == (
        "needs 2 GPUs, but only 1 of the run's 3 are free; its other nodes hold 1; runs of an "
        "earlier version of Muster hold 1 (`muster ps --state in_progress`)"
    )
    other.release([0])
    pool.release([1])


def try_lock(descriptor: int, _path: Path) -> bool:
    """Without a thread that waits for the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_gpus_of_a_killed_run_are_waited_for(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from muster.engines.local.resources import GpuPool\n"
        "p = GpuPool(Path(sys.argv[1]), lambda: [0]); p.acquire(1)\n"
        "print('held', flush=True); time.sleep(99)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        pool = GpuPool(tmp_path, lambda: [0])
        assert pool.locked([0]) == (0,)
        threading.Timer(0.1, holder.kill).start()
        assert pool.acquire(1) == (0,)
    pool.release([0])
