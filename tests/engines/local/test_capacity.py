"""Whether a plan fits a machine."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.local.capacity import check_added_gpus, check_fit, shape_notes
from muster.engines.machine import Machine
from muster.errors import Problem
from muster.plan.model import ResourcePlan, RunPlan
from support.sessions import make_plan

GIB = 1 << 30
SMALL = ResourcePlan(cpus=1, memory=GIB, shape="small")
LARGE = ResourcePlan(cpus=128, memory=64 * GIB, gpus=8, shape="BM.GPU4.8")


def plan(resources: ResourcePlan, nodes: int = 1) -> RunPlan:
    return make_plan("x", nodes, resources=resources)


def fit(plan: RunPlan, machine: Machine) -> list[Problem]:
    return check_fit(plan, machine, plan.policy.replicas_at_once)


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (ResourcePlan(cpus=3), "resources.cpus: a node needs 3 CPUs, this machine has 2"),
        (ResourcePlan(memory=9 * GIB), "a node needs 9GiB, this machine has 8GiB"),
        (ResourcePlan(memory=4), "4 bytes are too few for any program (did you mean 4GiB?)"),
        (ResourcePlan(memory=512), "(did you mean 512MiB?)"),
        (ResourcePlan(memory=9), "(at least 16MiB)"),
        (ResourcePlan(gpus=5), "a node needs 5 GPUs, this machine has 4"),
    ],
)
def test_a_node_larger_than_the_machine_is_refused(resources: ResourcePlan, message: str) -> None:
    (problem,) = fit(plan(resources), Machine(2, 8 * GIB, 4))
    assert message in str(problem)


def test_a_machine_without_gpus_is_reported_with_a_hint() -> None:
    (problem,) = fit(plan(ResourcePlan(gpus=1)), Machine(2, 8 * GIB, 0))
    assert problem.path == "node_groups[workers].resources.gpus"
    assert problem.message == "a node needs 1 GPU, this machine has none"
    assert problem.hint.startswith("leave gpus out to run on CPUs")


def test_gpus_add_up_and_cpus_do_not() -> None:
    machine = Machine(2, 8 * GIB, 4)
    assert fit(plan(ResourcePlan(cpus=2, gpus=1), nodes=4), machine) == []
    (problem,) = fit(plan(ResourcePlan(gpus=2), nodes=4), machine)
    assert "all nodes together need 8 GPUs, this machine has 4" in str(problem)


@pytest.mark.parametrize(
    ("resources", "replicas", "needed"),
    [
        (ResourcePlan(gpus=2), 2, None),
        (ResourcePlan(gpus=2), 3, 6),
        (ResourcePlan(), 3, None),
        # the first node has all GPUs of the machine
        (LARGE, 1, None),
        (LARGE, 2, 8),
    ],
)
def test_gpus_of_added_and_of_resumed_nodes_add_up(
    resources: ResourcePlan, replicas: int, needed: int | None
) -> None:
    machine, one, sizes = Machine(256, 512 * GIB, 4), plan(resources), {"workers": replicas}
    texts = [f"all nodes together need {needed} GPUs, this machine has 4"] if needed else []
    assert [problem.message for problem in check_added_gpus(one, sizes, "workers", 4)] == texts
    assert [problem.message for problem in check_fit(one, machine, sizes)] == texts


def test_a_shape_larger_than_the_machine_is_noted() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert fit(plan(LARGE), machine) == []
    (note,) = shape_notes(plan(LARGE), machine)
    assert note == (
        "group workers: shape BM.GPU4.8 is larger than this machine (2 CPUs, 8GiB, 0 GPUs); "
        "its nodes run with what the machine has"
    )
    assert shape_notes(plan(SMALL), machine) == []
    exact = ResourcePlan(cpus=3, memory=64 * GIB, shape="own", exact=("cpus",))
    assert [str(p) for p in fit(plan(exact), machine)] == [
        "node_groups[workers].resources.cpus: a node needs 3 CPUs, this machine has 2 "
        "(ask for at most 2)"
    ]


def test_shapes_larger_than_the_machine_together_are_noted() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert shape_notes(plan(SMALL, 2), machine) == []
    assert shape_notes(plan(SMALL, 10), machine) == [
        "the shapes of 10 nodes add up to 10 CPUs; this machine has 2: they share it",
        "the shapes of 10 nodes add up to 10GiB of memory; this machine has 8GiB: they share it",
    ]


@pytest.mark.parametrize(
    ("group", "allowed", "needed"),
    [
        ({}, 123, 124),
        ({}, 124, None),
        ({"parallelism": 10}, 42, 43),  # each with a port; the others wait
        ({"parallelism": 10}, 43, None),
    ],
)
def test_more_nodes_than_open_files_are_refused(
    group: dict[str, int],
    allowed: int,
    needed: int | None,
    plan_of: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (allowed, allowed))
    run = plan_of(node_groups=[{"name": "w", "replicas": 100, **group}])
    found = fit(run, Machine(2, 8 * GIB, 0))
    text = f"nodes: Too many open files: the run needs {needed}, and this shell allows {allowed} "
    fewer = "replicas at once (--parallelism)" if group else "nodes"
    hint = f"(allow more: `ulimit -n 1024`, or run fewer {fewer})"
    assert [str(problem) for problem in found] == ([] if needed is None else [text + hint])


def test_more_nodes_than_the_memory_holds_are_refused() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert fit(plan(ResourcePlan(), nodes=100), machine) == []
    (problem,) = fit(plan(ResourcePlan(), nodes=4000), machine)
    assert str(problem) == (
        "nodes: 4,000 nodes take at least 11.7GiB of memory, this machine has 8GiB "
        "(ask for fewer than 2,730; `muster simulate` has no limit)"
    )
